"""Recordings and twins of a pendulum for the drift monitor."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from physai.sim.robots import load_robot
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, nominal_twin

WriteLog = Callable[..., Path]


@pytest.fixture
def pendulum_twin() -> Twin:
    return nominal_twin(load_robot("double_pendulum"))


@pytest.fixture
def write_log(tmp_path: Path) -> WriteLog:
    """Writes a recording of a double pendulum as CSV, with its column map."""

    def write(
        name: str, *, seed: int = 0, start: float = 0.0, count: int = 200, mark: str = "", hole: int | None = None
    ) -> Path:
        rng = np.random.default_rng(seed)
        kinds = ("command", "joint_pos", "joint_vel", "joint_effort")
        time = start + 0.002 * np.arange(count)
        values = np.hstack([time[:, None], rng.standard_normal((count, 8)).cumsum(axis=0) * 0.01])
        rows = [[f"{x:.9f}" for x in row] for row in values]
        if hole is not None:
            rows[hole][3] = "nan"
        header = ["time", *(f"{joint}.{kind}" for kind in kinds for joint in ("joint1", "joint2")), "physai_origin"]
        lines = [",".join(header), *(",".join([*row, mark]) for row in rows)]
        columns = "robot: double_pendulum\ntime: time\ncommand_kind: joint_effort\njoints:\n"
        for joint in ("joint1", "joint2"):
            columns += f"  {joint}: {{{', '.join(f'{kind}: {joint}.{kind}' for kind in kinds)}}}\n"
        (tmp_path / "columns.yaml").write_text(columns, encoding="utf-8")
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def still_log() -> RobotLog:
    """A pendulum that hangs, without a command, for ten seconds."""
    time = 0.002 * np.arange(5001, dtype=np.float64)
    zero = np.zeros((5001, 2))
    return RobotLog(
        name="still",
        joint_names=("joint1", "joint2"),
        time=time,
        joint_pos=zero + 1e-5 * np.random.default_rng(0).standard_normal(zero.shape),
        joint_vel=zero,
        joint_effort=zero,
        command=zero,
        command_kind="joint_effort",
        source="still",
        sha256="0" * 64,
    )
