"""Recordings with the pose of a floating base: columns, units, checks, and logs without joints and commands."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.tossed_cube import CUBE, cube

from physai.sdk.cli.main import main
from physai.sim.robots import Robot, load_robot
from physai.twin.logs import BasePose, LogError, read_log, read_logs
from physai.twin.logs.quality import QualityReport, check_raw
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.reader import read_raw
from physai.twin.logs.signals.rotation import from_vector, multiply, rotate

Array = NDArray[np.float64]

MAP = "time: t\nbase:\n  position: [x, y, z]\n  quat: [qw, qx, qy, qz]\n"
VELOCITIES = "  lin_vel: [vx, vy, vz]\n  ang_vel: [wx, wy, wz]\n"
NAMES = ["t", "x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz"]
SPIN = np.array([1.0, -2.0, 3.0])


def flight(count: int = 150, period_s: float = 0.004) -> Array:
    """A throw with constant spin about axes of the body, one column per name."""
    time: Array = np.arange(count, dtype=np.float64) * period_s
    start = np.array([0.5, 0.5, 0.5, 0.5])
    quat = multiply(np.broadcast_to(start, (count, 4)), from_vector(time[:, None] * SPIN))
    velocity = np.stack([np.full(count, 0.8), np.full(count, -0.3), 2.0 - 9.81 * time], axis=1)
    position = np.stack([0.8 * time, -0.3 * time, 1.0 + 2.0 * time - 4.905 * time**2], axis=1)
    return np.hstack([time[:, None], position, quat, velocity, np.tile(SPIN, (count, 1))])


def written(folder: Path, columns: Array, text: str = MAP + VELOCITIES, name: str = "throw.csv") -> Path:
    (folder / "columns.yaml").write_text(text)
    path = folder / name
    np.savetxt(path, columns, delimiter=",", header=",".join(NAMES), comments="", fmt="%.17g")
    return path


@pytest.fixture
def body(tmp_path: Path) -> Robot:
    return cube(tmp_path)


def test_a_free_body_is_a_robot_without_joints(body: Robot) -> None:
    assert body.spec.base == "floating"
    assert body.spec.joints == ()
    assert [(s.name, s.size, s.unit, s.frame) for s in body.spec.sensors] == [
        ("base_pos", 3, "m", "w"),
        ("base_quat", 4, "", "w"),
    ]


def test_poses_are_read_without_joints_and_commands(body: Robot, tmp_path: Path) -> None:
    columns = flight()
    log = read_log(written(tmp_path, columns), body.spec)
    assert log.base is not None
    assert log.joint_names == ()
    assert log.joint_pos.shape == log.command.shape == (150, 0)
    np.testing.assert_allclose(log.base.position, columns[:, 1:4])
    np.testing.assert_allclose(log.base.quat, columns[:, 4:8])
    assert log.base.lin_vel is not None
    np.testing.assert_allclose(log.base.lin_vel, columns[:, 8:11])
    assert log.positions.shape == (150, 7)


def test_json_and_parquet_give_the_same_poses(body: Robot, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = flight()
    expected = read_log(written(tmp_path, columns), body.spec).base
    records = [dict(zip(NAMES, row, strict=True)) for row in columns.tolist()]
    (tmp_path / "throw.json").write_text(json.dumps(records))
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "throw.parquet")
    for name in ("throw.json", "throw.parquet"):
        found = read_log(tmp_path / name, body.spec).base
        assert expected is not None
        assert found is not None
        np.testing.assert_array_equal(found.position, expected.position)
        np.testing.assert_array_equal(found.quat, expected.quat)


def test_units_signs_and_offsets_apply_to_poses(body: Robot, tmp_path: Path) -> None:
    columns = flight()
    columns[:, 1] *= 1000.0
    text = MAP.replace("[x, y,", "[{column: x, unit: mm, offset: 0.5}, {column: y, sign: -1},")
    log = read_log(written(tmp_path, columns, text), body.spec)
    assert log.base is not None
    np.testing.assert_allclose(log.base.position[:, 0], 0.001 * columns[:, 1] + 0.5)
    np.testing.assert_allclose(log.base.position[:, 1], -columns[:, 2])
    with pytest.raises(LogError, match="deg measures angle, expected length"):
        read_log(written(tmp_path, columns, MAP.replace("[x,", "[{column: x, unit: deg},")), body.spec)


def test_what_does_not_fit_the_robot_is_refused(body: Robot, tmp_path: Path) -> None:
    path = written(tmp_path, flight())
    joint = 'command_kind: joint_pos\njoints:\n  "*": {joint_pos: x, command: y}\n'
    servo = load_robot("xl330_pendulum").spec
    with pytest.raises(LogError, match="the base of robot xl330_pendulum is fixed"):
        read_log(path, servo, column_map=_map(tmp_path, MAP + joint))
    with pytest.raises(LogError, match="for a robot with one joint, this one has 0"):
        read_log(path, body.spec, column_map=_map(tmp_path, MAP + joint))
    with pytest.raises(LogError, match="no column 'height'"):
        read_log(path, body.spec, column_map=_map(tmp_path, MAP.replace("z]", "height]")))


def test_a_dataset_without_poses_is_refused_for_a_free_body(body: Robot, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [{"timestamp": 0.01 * i, "observation.state.arm.pos": 0.1, "action.arm.pos": 0.1} for i in range(60)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "episode.parquet")
    with pytest.raises(LogError, match="the column map has no base, and the robot is a free body"):
        read_log(tmp_path / "episode.parquet", body.spec)


def _map(folder: Path, text: str) -> Path:
    path = folder / "given.yaml"
    path.write_text(text)
    return path


def checked(folder: Path, change: Callable[[Array], None], text: str = MAP + VELOCITIES) -> QualityReport:
    columns = flight()
    change(columns)
    return check_raw(read_raw(written(folder, columns, text), None))


def found(report: QualityReport, check: str) -> list[str]:
    return [finding.message for finding in report.findings if finding.check == check]


def test_a_sound_throw_has_no_findings(tmp_path: Path) -> None:
    assert checked(tmp_path, lambda columns: None).findings == ()


def test_sign_flips_of_the_quaternion_are_undone(tmp_path: Path) -> None:
    def flip(columns: Array) -> None:
        columns[40:90, 4:8] *= -1.0

    report = checked(tmp_path, flip)
    assert found(report, "quat") == [
        "the quaternion changes its sign 2 times, first in sample 40: q and -q are the same orientation, so this is "
        "undone"
    ]
    assert report.usable
    log = read_log(tmp_path / "throw.csv", cube(tmp_path).spec)
    assert log.base is not None
    np.testing.assert_allclose(log.base.quat, flight()[:, 4:8])


def test_quaternions_of_another_length_are_a_defect(tmp_path: Path) -> None:
    def scale(columns: Array) -> None:
        columns[30, 4:8] *= 0.9

    report = checked(tmp_path, scale)
    assert not report.usable
    assert "1 of 150 quaternions do not have the length 1, first in sample 30 with 0.9" in found(report, "quat")
    with pytest.raises(LogError, match="do not have the length 1"):
        read_log(tmp_path / "throw.csv", cube(tmp_path).spec)


def test_rounded_quaternions_are_normalised_and_reported(tmp_path: Path) -> None:
    def shrink(columns: Array) -> None:
        columns[:, 4:8] *= 0.99

    report = checked(tmp_path, shrink)
    assert report.usable
    assert "differs from 1 by up to 0.01; they are normalised" in found(report, "quat")[0]


def test_a_missing_pose_is_a_defect(tmp_path: Path) -> None:
    def lose(columns: Array) -> None:
        columns[12, 3] = np.nan

    report = checked(tmp_path, lose)
    assert "base_pos is missing, not finite or beyond ±1e+06 in 1 of 150 samples, first in sample 12" in found(
        report, "finite"
    )


def test_a_jump_of_the_pose_is_found(tmp_path: Path) -> None:
    def jump(columns: Array) -> None:
        columns[70, 4:8] = multiply(columns[70, 4:8], from_vector(np.array([0.0, 1.5, 0.0])))

    report = checked(tmp_path, jump, MAP)
    assert found(report, "jump") == ["the pose jumps in 2 samples, first at 0.280 s"]


def test_a_body_at_rest_cannot_be_calibrated(tmp_path: Path) -> None:
    def rest(columns: Array) -> None:
        columns[:, 1:] = columns[0, 1:]

    report = checked(tmp_path, rest, MAP)
    assert not report.usable
    assert "the base moves by 0 m and turns by 0 rad" in found(report, "motion")[0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("world spin", "it is in the world's frame"),
        ("body velocity", "it is in the base's frame"),
        ("xyzw", "the quaternion is xyzw"),
        ("degrees", "the orientation changes by 0.0175 times the integral of base_ang_vel"),
    ],
)
def test_velocities_that_contradict_the_poses_are_found(tmp_path: Path, change: str, expected: str) -> None:
    def alter(columns: Array) -> None:
        quat = columns[:, 4:8].copy()
        if change == "world spin":
            columns[:, 11:14] = rotate(quat, columns[:, 11:14])
        elif change == "body velocity":
            columns[:, 8:11] = rotate(quat * [1.0, -1.0, -1.0, -1.0], columns[:, 8:11])
        elif change == "xyzw":
            columns[:, 4:8] = np.roll(quat, -1, axis=1)
        else:
            columns[:, 11:14] *= 180.0 / np.pi

    messages = found(checked(tmp_path, alter), "units")
    assert len(messages) == 1
    assert expected in messages[0]


def test_slow_and_short_recordings_are_reported(tmp_path: Path) -> None:
    columns = flight(count=45, period_s=0.02)
    report = check_raw(read_raw(written(tmp_path, columns), None))
    assert "logged at 50 Hz: the base moves up to" in found(report, "rate")[0]
    report = check_raw(read_raw(written(tmp_path, columns[:30]), None))
    assert found(report, "length") == ["30 samples in 0.58 s, at least 40 are needed"]


def test_a_copy_of_a_throw_is_found(body: Robot, tmp_path: Path) -> None:
    columns = flight(count=400)
    noisy = columns + 1e-3 * np.random.default_rng(0).standard_normal(columns.shape) * (np.arange(14) > 0)
    one = written(tmp_path, noisy, MAP)
    noisy[:, 0] += 100.0
    other = written(tmp_path, noisy, MAP, "copy.csv")
    with pytest.raises(LogError, match="of its samples are those of"):
        read_logs([one, other], body.spec)


def test_a_log_checks_the_shapes_and_lengths_of_poses(body: Robot, tmp_path: Path) -> None:
    log = read_log(written(tmp_path, flight()), body.spec)
    assert log.base is not None
    with pytest.raises(LogError, match=r"base_quat has shape \(149, 4\), expected \(150, 4\)"):
        replace(log, base=replace(log.base, quat=log.base.quat[1:]))
    with pytest.raises(LogError, match=r"a quaternion's length differs from 1 by 1"):
        replace(log, base=replace(log.base, quat=2.0 * log.base.quat))
    with pytest.raises(LogError, match="base_pos has values that are not finite"):
        replace(log, base=BasePose(np.full((150, 3), np.nan), log.base.quat))


def test_rows_without_a_pose_leave_the_checks_of_the_rest(tmp_path: Path) -> None:
    columns = flight()
    columns[5, 2] = np.inf
    raw: RawLog = read_raw(written(tmp_path, columns), None)
    report = check_raw(raw)
    assert report.periods is not None
    assert raw.base is not None
    assert len(raw.base.position) == 150


def test_the_verb_summarises_the_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, flight())
    (tmp_path / "cube.xml").write_text(CUBE)
    words = ["logs", "check", str(path), "--model", str(tmp_path / "cube.xml")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "250 Hz" in text
    assert "no commands" in text
    assert "base: x 0 … 0.477, y -0.179 … 0, z" in text
    assert main([*words, "--json", "--picture", str(tmp_path / "throw.png")]) == 0
    base = json.loads(capsys.readouterr().out)["logs"][0]["base"]
    assert base["position_highest_m"][0] == pytest.approx(0.8 * 149 * 0.004)
    assert "NaN" not in json.dumps(base)
    # |spin| = √14 rad/s for 0.596 s.
    assert base["turn_rad"] == pytest.approx(14.0**0.5 * 0.596)
    assert (tmp_path / "throw.png").is_file()
    columns = flight()
    columns[5, 2] = np.nan
    written(tmp_path, columns)
    assert main([*words, "--json"]) == 1
    assert "NaN" not in capsys.readouterr().out
