"""Recordings to read: a small arm's, written by each test, and real ones, where they are at hand."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField

Array = NDArray[np.float64]
Columns = Mapping[str, Sequence[float] | Array]
CsvWriter = Callable[..., Path]

MAP = """\
time: t
command_kind: joint_effort
joints:
  shoulder: {joint_pos: q1, joint_vel: v1, joint_effort: e1, command: u1}
  elbow: {joint_pos: q2, joint_vel: v2, joint_effort: e2, command: u2}
"""


def joint(name: str, **changes: float) -> JointSpec:
    limits = {"position_lower": -2.0, "position_upper": 2.5, "velocity_limit": 10.0, "effort_limit": 5.0}
    return JointSpec(name=name, kind="revolute", **{**limits, **changes})


def robot(*joints: JointSpec) -> RobotSpec:
    units = {"joint_pos": "rad", "joint_vel": "rad/s", "joint_effort": "N*m"}
    sensors = tuple(SensorField(name=name, size=len(joints), unit=unit) for name, unit in units.items())
    return RobotSpec(name="arm", base="fixed", joints=joints, sensors=sensors)


@pytest.fixture(scope="session")
def arm() -> RobotSpec:
    """Two joints, each from -2 to 2.5 rad, at most 10 rad/s and 5 N·m."""
    return robot(joint("shoulder"), joint("elbow"))


@pytest.fixture(scope="session")
def hinge() -> RobotSpec:
    """One joint without position limits."""
    return robot(JointSpec(name="hinge", kind="continuous", velocity_limit=20.0, effort_limit=12.0))


def swinging(count: int = 1000, period_s: float = 0.002) -> dict[str, Array]:
    """A motion of both joints; speeds are the derivatives of positions, and efforts 0.98 times the commands."""
    t = np.linspace(0.0, (count - 1) * period_s, count)
    columns: dict[str, Array] = {"t": t}
    for number, (size, pulse) in enumerate(((1.0, 5.0), (0.6, 7.0)), start=1):
        columns[f"q{number}"] = size * np.sin(pulse * t)
        columns[f"v{number}"] = size * pulse * np.cos(pulse * t)
        columns[f"u{number}"] = 2.0 * np.sin(3.0 * pulse * t + 0.3)
        columns[f"e{number}"] = 0.98 * columns[f"u{number}"]
    return columns


@pytest.fixture
def motion() -> dict[str, Array]:
    """1000 samples of both joints swinging, 2 ms apart."""
    return swinging()


@pytest.fixture
def write(tmp_path: Path) -> CsvWriter:
    """Writes columns to a CSV file in a folder of its own, with a column map beside it."""

    def writer(columns: Columns, *, column_map: str | None = MAP, name: str = "log.csv") -> Path:
        path = tmp_path / name
        rows = zip(*columns.values(), strict=True)
        text = "\n".join([",".join(columns), *(",".join(repr(float(x)) for x in row) for row in rows)])
        path.write_text(text + "\n")
        if column_map is not None:
            (tmp_path / "columns.yaml").write_text(column_map)
        return path

    return writer


def _recordings() -> Path | None:
    named = os.environ.get("PHYSAI_DATA")
    folder = Path(named) if named else Path(__file__).parents[4] / ".." / "shared" / "data"
    return folder.resolve() if (folder / "dfki_double_pendulum").is_dir() else None


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of the real recordings."""
    folder = _recordings()
    if folder is None:
        pytest.skip("no real recordings: neither in ../shared/data nor where PHYSAI_DATA points")
    return folder
