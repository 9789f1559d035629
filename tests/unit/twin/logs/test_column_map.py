"""Column maps, and what they make of a table."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.twin.logs import LogError, read_log
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.readers.assemble import assemble
from physai.twin.logs.readers.column_map import ColumnMap, load_column_map
from physai.twin.logs.readers.table import ColumnStream, Table

Motion = dict[str, NDArray[np.float64]]
CsvWriter = Callable[..., Path]

HINGE = "time: t\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: %s, command: u1}}\n"


def raw(columns: dict[str, Any], position: dict[str, Any], robot: RobotSpec, **more: Any) -> RawLog:
    """A one-joint recording with its position column read so."""
    arrays = {name: np.array(values, np.float64) for name, values in columns.items()}
    zero = np.zeros(len(next(iter(arrays.values()))))
    stream = ColumnStream("log", {"t": np.linspace(0.0, 0.01 * len(zero), len(zero)), "u": zero, **arrays})
    table = Table("log", (), "", (stream,))
    joints = {robot.joint_names[0]: {"joint_pos": position, "command": "u"}}
    document = {"time": "t", "command_kind": "joint_effort", "joints": joints, **more}
    return assemble(table, ColumnMap.model_validate(document), robot, name="log", detected=False)


def test_unit_sign_scale_and_offset(hinge: RobotSpec) -> None:
    log = raw({"q": [90, 180]}, {"column": "q", "unit": "deg", "sign": -1, "scale": 2.0, "offset": 0.5}, hinge)
    # 0.5 - 2·π/2 and 0.5 - 2·π
    assert log.joint_pos[:, 0] == pytest.approx([0.5 - math.pi, 0.5 - 2 * math.pi])


@pytest.mark.parametrize(
    ("unit", "value", "radians"), [("rev", 0.5, math.pi), ("mrad", 1500, 1.5), ("rad", 2, 2), ("°", 180, math.pi)]
)
def test_units_of_angle(hinge: RobotSpec, unit: str, value: float, radians: float) -> None:
    assert raw({"q": [value, 0]}, {"column": "q", "unit": unit}, hinge).joint_pos[0, 0] == pytest.approx(radians)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**15), 2**15 - 1), min_size=2, max_size=30))
def test_wrapped_integers_come_back(hinge: RobotSpec, values: list[int]) -> None:
    stored = [value % 65536 for value in values]
    assert raw({"q": stored}, {"column": "q", "wrap": 65536}, hinge).joint_pos[:, 0].tolist() == values


@settings(deadline=None)
@given(st.lists(st.floats(-170, 170), min_size=1, max_size=30), st.floats(0, 359))
def test_turns_are_counted(hinge: RobotSpec, steps: list[float], start: float) -> None:
    angle = start + np.concatenate([[0.0], np.cumsum(steps)])
    log = raw({"q": angle % 360.0}, {"column": "q", "unit": "deg", "period": 360.0}, hinge)
    assert np.diff(log.joint_pos[:, 0]) == pytest.approx(np.radians(np.diff(angle)), abs=1e-9)


def test_a_slide_joint_has_units_of_length() -> None:
    joint = JointSpec(name="rail", kind="prismatic", effort_limit=5.0)
    fields = tuple(SensorField(name=f"joint_{what}", size=1, unit="") for what in ("pos", "vel", "effort"))
    robot = RobotSpec(name="cart", base="fixed", joints=(joint,), sensors=fields)
    assert raw({"q": [250, 0]}, {"column": "q", "unit": "mm"}, robot).joint_pos[0, 0] == 0.25
    with pytest.raises(LogError, match=r"column q: rad measures angle, expected length .m, cm, mm."):
        raw({"q": [250, 0]}, {"column": "q", "unit": "rad"}, robot)


def test_joints_without_a_command_are_sent_zero(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    text = (
        "time: t\ncommand_kind: joint_effort\njoints:\n"
        "  shoulder: {joint_pos: q1, joint_vel: v1, joint_effort: e1, command: u1}\n"
        "  elbow: {joint_pos: q2, joint_vel: v2}\n"
    )
    log = read_log(write(motion, column_map=text), arm)
    assert (log.command[:, 1] == 0.0).all()
    assert log.joint_effort is not None
    assert (log.joint_effort[:, 1] == 0.0).all()


def test_only_the_enabled_stretch_is_kept(write: CsvWriter, motion: Motion, hinge: RobotSpec) -> None:
    motion["on"] = np.ones(1000)
    motion["on"][[100, 700]] = 0.0
    log = read_log(write(motion, column_map=HINGE % "q1" + "enabled: on\n"), hinge)
    assert (log.joint_pos[:, 0] == motion["q1"][101:700]).all()
    assert (log.time == motion["t"][101:700] - motion["t"][101]).all()


def test_a_second_file_is_joined_by_rows(write: CsvWriter, motion: Motion, hinge: RobotSpec) -> None:
    log = write(
        motion,
        column_map=HINGE.replace("command: u1", "command: sent.u") % "q1" + "joins: [{file: b.csv, "
        "prefix: sent., by: row}]\n",
    )
    other = log.with_name("b.csv")
    other.write_text("u\n" + "\n".join(str(i) for i in range(1000)))
    assert (read_log(log, hinge).command[:, 0] == np.arange(1000.0)).all()
    other.write_text("u\n" + "\n".join(str(i) for i in range(999)))
    with pytest.raises(LogError, match=r"log.csv has 1000 rows and b.csv 999.*use `by: hold`"):
        read_log(log, hinge)


def test_a_second_file_is_held_between_its_rows(write: CsvWriter, hinge: RobotSpec) -> None:
    columns = {"t": np.arange(10.0), "q1": np.arange(10.0) * 0.1}
    text = HINGE.replace("command: u1", "command: sent.u") % "q1" + "joins: [{file: b.csv, prefix: sent., by: hold}]\n"
    log = write(columns, column_map=text)
    log.with_name("b.csv").write_text("t,u\n2.5,10\n4,20\n6.9,30\n")
    read = read_log(log, hinge)
    # Samples at 0, 1 and 2 s came before the first command at 2.5 s.
    assert read.time.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert read.command[:, 0].tolist() == [10, 20, 20, 20, 30, 30, 30]
    assert read.joint_pos[0, 0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("q1", "q9"), "no column 'q9'; its columns: t, q1, v1"),
        (("time: t", "time: clock"), "no column 'clock'"),
        (("time: t\n", ""), "does not define the time column; add `time: <column>`"),
        (("command_kind: joint_effort\n", ""), "add `command_kind: joint_pos`"),
        (("shoulder:", "sholder:"), "no joint named 'sholder'; did you mean shoulder"),
        (
            ("  elbow: {joint_pos: q2, joint_vel: v2, joint_effort: e2, command: u2}\n", ""),
            "no columns for the robot's joint elbow",
        ),
        (("joint_vel: v1, ", ""), "no joint_vel for shoulder; map it for every joint or for none"),
        (("joint_effort: e1, ", ""), "no joint_effort for shoulder"),
        (("q1", "{column: q1, unit: degree}"), "no unit named 'degree'; did you mean deg"),
        (("q1", "{column: q1, unit: N*m}"), r"N\*m measures torque, expected angle"),
        (("time: t", "time: {column: t, unit: rad}"), "rad measures angle, expected time"),
        (("u1", "mode"), "column 'mode' contains values that are not numbers"),
    ],
)
def test_what_does_not_fit_is_an_error(
    write: CsvWriter, motion: Motion, arm: RobotSpec, change: tuple[str, str], message: str
) -> None:
    path = write(motion)
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0] + ",mode", *(row + ",auto" for row in rows[1:])]))
    column_map = path.with_name("columns.yaml")
    assert change[0] in column_map.read_text()
    column_map.write_text(column_map.read_text().replace(*change))
    with pytest.raises(LogError, match=message):
        read_log(path, arm)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("joints: [", "not YAML, as a column map is"),
        ("- a\n- b\n", "valid dictionary|an object|instance of ColumnMap"),
        ("a: &x [1]\nb: *x\n", "aliases are not allowed"),
        ("time: a\ntime: b\n", "'time' occurs twice"),
        ("tiem: t\n", "tiem: unknown entry"),
        ("joints: {a: {command: u1}}\n", "joints.a.joint_pos: Field required"),
        ("joints: {a: {joint_pos: {column: q, sign: 2}}}\n", "sign"),
        ("joints: {a: {joint_pos: {column: q, scale: 0}}}\n", "scale must not be 0"),
        ("joints: {a: {joint_pos: {column: q, scale: .nan}}}\n", "scale|NaN"),
        ("joints: {a: {joint_pos: {column: q, wrap: 256, period: 1}}}\n", "not both"),
        ("joins: [{file: ../b.csv, prefix: b.}]\n", "file"),
        ("format: 2\n", "format"),
    ],
)
def test_malformed_maps_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "columns.yaml"
    path.write_text(text)
    with pytest.raises(LogError, match=message):
        load_column_map(path)


def test_an_oversized_or_missing_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be read: no such file"):
        load_column_map(tmp_path / "none.yaml")
    (tmp_path / "columns.yaml").write_text("#" * (2**18 + 1))
    with pytest.raises(LogError, match="more than 262144 bytes"):
        load_column_map(tmp_path / "columns.yaml")
