"""Logs of policies that follow a motion: their place in it is found, and wrong conventions of its terms are named."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from tests.integration.foreign.test_audit import sensors
from tests.integration.foreign.test_import import JOINTS
from tests.integration.foreign.test_tracking import DESCRIPTION, FRAMES, about_z, matrix, tables, write

from physai.foreign import ForeignPolicyError, audit, import_policy
from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.sim import load_robot

pytestmark = pytest.mark.slow

Arrays = dict[str, Any]
ROWS, LAG, BODY = 60, 1, "FL_thigh"
DEFAULT = np.array(DESCRIPTION["default_pos"])
PARTS = {"last_action": 12, "ang_vel": 3, "joint_pos": 12, "joint_vel": 12, "motion": 24, "motion_orientation": 6}
ENDS = np.cumsum(list(PARTS.values()))
WHERE = {name: slice(end - size, end) for (name, size), end in zip(PARTS.items(), ENDS, strict=True)}


def heading(rotation: Any) -> float:
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))


class Program:
    """What a program feeds to its network; attributes and methods are replaced to make a wrong one."""

    lag = LAG
    rate = 1.0

    def __init__(self, robot: list[str], log: Arrays) -> None:
        self.robot, self.log = robot, log
        self.motion = tables()
        self.model: Any = load_robot("go2").model
        self.bodies = {
            name: [self.rotation(row, name) for row in range(len(log["imu_quat"]))] for name in (BODY, "base")
        }

    def quat(self, row: int) -> Any:
        return self.log["imu_quat"][row]

    def rotation(self, row: int, body: str) -> Any:
        data = mujoco.MjData(self.model)
        data.qpos[3:7] = self.quat(row)
        for index, name in enumerate(self.robot):
            data.qpos[self.model.joint(name).qposadr[0]] = self.log["joint_pos"][row, index]
        mujoco.mj_kinematics(self.model, data)
        return data.body(body).xmat.reshape(3, 3).copy()

    def frame(self, row: int) -> int:
        return int(min(max(int(self.rate * row) - self.lag, 0), FRAMES - 1))

    def wanted(self, frame: int) -> Any:
        return matrix(np.roll(self.motion["turned"][frame], 1))

    def body(self, row: int) -> Any:
        return self.bodies[BODY][row]

    def headings(self, row: int) -> tuple[float, float]:
        """Headings of the robot and of the motion that are taken off."""
        return heading(self.body(0)), heading(self.wanted(0))

    def error(self, row: int) -> Any:
        robot, motion = self.headings(row)
        return (about_z(-robot) @ self.body(row)).T @ about_z(-motion) @ self.wanted(self.frame(row))

    def six(self, row: int) -> Any:
        return self.error(row)[:, :2].ravel()

    def joints(self, row: int) -> Any:
        return np.concatenate([self.motion[name][self.frame(row)] for name in ("joint_pos", "joint_vel")])

    def seen(self, row: int) -> Any:
        columns = [self.robot.index(name) for name in JOINTS]
        last = np.zeros(12) if row == 0 else self.log["action"][row - 1]
        parts = [
            last,
            0.25 * self.log["imu_ang_vel_b"][row],
            self.log["joint_pos"][row, columns] - DEFAULT,
            0.05 * self.log["joint_vel"][row, columns],
            self.joints(row),
            0.5 * self.six(row),
        ]
        return np.concatenate(parts)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], Arrays]:
    """An imported policy, its robot's joints, and a log without an observation."""
    folder = tmp_path_factory.mktemp("audit")
    run = import_policy(write(folder / "policy"), model="go2", out=folder / "run").folder
    robot = list(load_contract(run / "task" / "contract.json").robot.joint_names)
    random = np.random.default_rng(5)
    log = {name: value[:ROWS] for name, value in sensors(robot, random).items() if name != "velocity_command"}
    return run, robot, {**log, "action": random.standard_normal((ROWS, 12)), "time": 0.02 * np.arange(ROWS)}


def audited(
    right: tuple[Path, list[str], Arrays],
    tmp_path: Path,
    program: type[Program] = Program,
    *,
    first: int = 0,
    **more: Any,
) -> dict[str, tuple[str, str]]:
    run, robot, log = right
    made = program(robot, log)
    whole: Arrays = {**log, "observation": np.array([made.seen(row) for row in range(ROWS)]), **more}
    np.savez(tmp_path / "log.npz", **{name: value[first:] for name, value in whole.items()})
    return {finding.part: (finding.outcome, finding.text) for finding in audit(tmp_path / "log.npz", run).findings}


ABSENT = {"target", "gains"}


def test_a_right_log_raises_no_alarm(right: tuple[Path, list[str], Arrays], tmp_path: Path) -> None:
    found = audited(right, tmp_path)
    assert {part: outcome for part, (outcome, _) in found.items() if part not in ABSENT} == dict.fromkeys(
        (*PARTS, "motion_start", "period"), "agrees"
    )


@pytest.mark.parametrize("first", [1, 7, 30])
def test_a_log_may_begin_in_the_motion_and_says_what_it_leaves_open(
    first: int, right: tuple[Path, list[str], Arrays], tmp_path: Path
) -> None:
    found = audited(right, tmp_path, first=first)
    assert found["motion_start"] == (
        "undetermined",
        f"the log begins in frame {first - LAG}; the lag and the headings at the start are not tested: log from the "
        "policy's first period on",
    )
    assert {outcome for part, (outcome, _) in found.items() if part not in {*ABSENT, "motion_start"}} == {"agrees"}


def test_an_index_in_the_log_tells_the_lag_in_the_middle_too(
    right: tuple[Path, list[str], Arrays], tmp_path: Path
) -> None:
    index = np.arange(ROWS, dtype=float)
    found = audited(right, tmp_path, first=9, index=index)
    assert found["motion_start"][0] == "undetermined"
    assert "headings at the start are not tested" in found["motion_start"][1]

    class Late(Program):
        lag = 3

    assert audited(right, tmp_path, Late, first=9, index=index)["motion_start"] == (
        "differs",
        "2 periods late: lags by 3, the contract says 1",
    )
    assert audited(right, tmp_path, first=9, index=2 * index)["motion_start"] == (
        "differs",
        "the index does not grow by 1 a period",
    )


def test_a_robot_at_heading_0_tells_nothing_of_headings(right: tuple[Path, list[str], Arrays], tmp_path: Path) -> None:
    run, robot, log = right
    quat = log["imu_quat"].copy()
    turned = about_z(-heading(Program(robot, log).body(0)))
    for row in range(ROWS):
        mujoco.mju_mat2Quat(quat[row], (turned @ matrix(quat[row])).ravel())
    found = audited((run, robot, {**log, "imu_quat": quat}), tmp_path)
    assert found["motion_start"] == (
        "undetermined",
        "the headings at the start are not tested: log from the policy's first period on, with the robot turned",
    )


def test_a_program_that_waits_in_the_first_frame_is_no_alarm(
    right: tuple[Path, list[str], Arrays], tmp_path: Path
) -> None:
    class Waits(Program):
        lag = 20

    found = audited(right, tmp_path, Waits)
    assert found["motion_start"][0] == "undetermined"
    assert "the program waits in the first frame" in found["motion_start"][1]
    assert not [part for part, (outcome, _) in found.items() if outcome == "differs"]


class _Early(Program):
    lag = 0


class _Late(Program):
    lag = 2


class _Twice(Program):
    rate = 2.0


class _Half(Program):
    rate = 0.5


class _Order(Program):
    def joints(self, row: int) -> Any:
        return super().joints(row)[[*range(11, -1, -1), *range(12, 24)]]


class _SpeedsFirst(Program):
    def joints(self, row: int) -> Any:
        return np.roll(super().joints(row), 12)


class _Degrees(Program):
    def joints(self, row: int) -> Any:
        return np.degrees(super().joints(row))


class _Relative(Program):
    def joints(self, row: int) -> Any:
        return super().joints(row) - np.concatenate([DEFAULT, np.zeros(12)])


class _Sign(Program):
    def joints(self, row: int) -> Any:
        return super().joints(row) * np.array([-1.0, *[1.0] * 23])


class _Other(Program):
    def joints(self, row: int) -> Any:
        return np.sin(np.arange(24) * (1.0 + 0.3 * row))


class _Scale(Program):
    def six(self, row: int) -> Any:
        return 2.0 * super().six(row)


class _Columns(Program):
    def six(self, row: int) -> Any:
        return self.error(row)[:, :2].T.ravel()


class _Rows(Program):
    def six(self, row: int) -> Any:
        return self.error(row)[:2].ravel()


class _Inverse(Program):
    def six(self, row: int) -> Any:
        return self.error(row).T[:, :2].ravel()


class _Quaternion(Program):
    def wanted(self, frame: int) -> Any:
        return matrix(self.motion["turned"][frame])


class _RobotQuaternion(Program):
    def quat(self, row: int) -> Any:
        return np.roll(self.log["imu_quat"][row], 1)


class _Base(Program):
    def body(self, row: int) -> Any:
        return self.bodies["base"][row]


class _World(Program):
    def headings(self, row: int) -> tuple[float, float]:
        return 0.0, 0.0


class _RobotHeading(Program):
    def headings(self, row: int) -> tuple[float, float]:
        return 0.0, super().headings(row)[1]


class _MotionHeading(Program):
    def headings(self, row: int) -> tuple[float, float]:
        return super().headings(row)[0], 0.0


class _Current(Program):
    def headings(self, row: int) -> tuple[float, float]:
        return heading(self.body(row)), super().headings(row)[1]


class _Turned(Program):
    def headings(self, row: int) -> tuple[float, float]:
        robot, motion = super().headings(row)
        return robot + np.pi / 2, motion


class _Apart(Program):
    def error(self, row: int) -> Any:
        robot, motion = self.headings(row)
        return (about_z(-robot) @ self.body(row)).T @ about_z(-motion) @ self.wanted(self.frame(row + 1))


DEFECTS: dict[str, tuple[type[Program], str, str]] = {
    "a period early": (_Early, "motion_start", "1 period early: lags by 0, the contract says 1"),
    "a period late": (_Late, "motion_start", "1 period late: lags by 2, the contract says 1"),
    "twice as fast": (_Twice, "motion", "runs at 2 frames a period"),
    "half as fast": (_Half, "motion", "runs at a frame in 2 periods"),
    "order of its joints": (_Order, "motion", "in another order: FL_calf_joint, FL_thigh_joint"),
    "speeds before positions": (_SpeedsFirst, "motion", "in another order: RR_hip_joint speed"),
    "in degrees": (_Degrees, "motion", "in degrees"),
    "relative to the pose": (_Relative, "motion", "relative to the default pose"),
    "a sign": (_Sign, "motion", "the sign of RR_hip_joint is opposite"),
    "another motion": (_Other, "motion", "holds no part of the motion"),
    "scale of the orientation": (_Scale, "motion_orientation", "scaled by 2"),
    "by columns": (_Columns, "motion_orientation", "by columns and not by rows"),
    "two rows": (_Rows, "motion_orientation", "the first two rows and not the first two columns"),
    "inverse": (_Inverse, "motion_orientation", "which is the inverse"),
    "quaternion of the motion": (_Quaternion, "motion_orientation", "motion's quaternion in the other order"),
    "quaternion of the robot": (_RobotQuaternion, "motion_orientation", "robot's quaternion xyzw that is read as wxyz"),
    "of the base": (_Base, "motion_orientation", "of the base and not of FL_thigh"),
    "in the world": (_World, "motion_orientation", "with the headings at the start"),
    "the robot's heading": (_RobotHeading, "motion_orientation", "with the robot's heading at the start"),
    "the motion's heading": (_MotionHeading, "motion_orientation", "with the motion's heading at the start"),
    "current heading": (_Current, "motion_orientation", "relative to the current heading"),
    "a mounted IMU": (_Turned, "motion_orientation", "turned by 90° about the vertical"),
    "another frame": (_Apart, "motion_orientation", "of the frame 1 period after that of the joints"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_wrong_convention_is_named(name: str, right: tuple[Path, list[str], Arrays], tmp_path: Path) -> None:
    program, where, phrase = DEFECTS[name]
    found = audited(right, tmp_path, program)
    assert found[where][0] == "differs"
    assert phrase in found[where][1]
    also = {"twice as fast": {"motion_orientation"}, "half as fast": {"motion_orientation"}}.get(name, set[str]())
    assert {part for part, (outcome, _) in found.items() if outcome == "differs"} <= {where} | also


@pytest.mark.parametrize(
    "name", ["in degrees", "a sign", "order of its joints", "by columns", "inverse", "of the base"]
)
def test_a_wrong_convention_is_named_in_the_middle_too(
    name: str, right: tuple[Path, list[str], Arrays], tmp_path: Path
) -> None:
    program, where, phrase = DEFECTS[name]
    found = audited(right, tmp_path, program, first=9)
    assert phrase in found[where][1]
    assert {part for part, (outcome, _) in found.items() if outcome == "differs"} == {where}


def test_a_policy_outside_its_run_folder_is_refused(right: tuple[Path, list[str], Arrays], tmp_path: Path) -> None:
    run, _, log = right
    copy = tmp_path / "policy.onnx"
    copy.write_bytes((run / "export" / "policy.onnx").read_bytes())
    np.savez(tmp_path / "log.npz", **log)
    for path in (copy, run / "task" / "contract.json"):
        with pytest.raises(ForeignPolicyError, match="name the run folder that `physai import` wrote"):
            audit(tmp_path / "log.npz", path)


def test_the_verb_prints_the_parts_of_a_motion(
    right: tuple[Path, list[str], Arrays], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audited(right, tmp_path, _Columns)
    assert main(["policy", "audit", str(tmp_path / "log.npz"), str(right[0])]) == 1
    shown = capsys.readouterr().out
    assert "DIFFERS" in shown
    assert "motion_start" in shown
