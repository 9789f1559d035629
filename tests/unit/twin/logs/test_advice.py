"""Advice of the checks, followed: the recording is right then, or still refused."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.support.bags import EPOCH_NS, bag, by_time, numbers, states

from physai.sdk.contract.robot import JointSpec, RobotSpec, SensorField
from physai.sim.robots import load_robot
from physai.twin.logs import LogError, read_log
from physai.twin.logs.quality import check_raw
from physai.twin.logs.reader import read_raw

Array = NDArray[np.float64]
Motion = dict[str, Array]
CsvWriter = Callable[..., Path]
DEGREES = 180.0 / np.pi
HEAD = "time: t\ncommand_kind: joint_pos\njoints:\n"


def defects(path: Path, robot: RobotSpec) -> list[str]:
    return [f"{f.message}; {f.advice}" for f in check_raw(read_raw(path, robot)).findings if f.severity == "defect"]


@pytest.fixture
def servos(motion: Motion) -> Motion:
    """Targets of position servos, which follow 20 ms later."""
    for number in "12":
        motion[f"u{number}"] = np.concatenate([motion[f"q{number}"][10:], np.full(10, motion[f"q{number}"][-1])])
    return motion


def columns(shoulder: str = "q1", command: str = "u1", speed: str = "joint_vel: v1, ") -> str:
    return (
        f"{HEAD}  shoulder: {{joint_pos: {shoulder}, {speed}command: {command}}}\n"
        f"  elbow: {{joint_pos: q2, {speed.replace('1', '2')}command: u2}}\n"
    )


class TestPositionsOfServos:
    """`unit: deg` for joint_pos alone left the commands in degrees, and the recording usable."""

    def test_degrees(self, write: CsvWriter, servos: Motion, arm: RobotSpec) -> None:
        true = servos["q1"].copy()
        servos["q1"], servos["u1"] = DEGREES * true, DEGREES * servos["u1"]
        path = write(servos, column_map=columns(speed=""))
        with pytest.raises(LogError, match="set `unit: deg` for joint_pos and command in the column map"):
            read_log(path, arm)
        deg = ("{column: q1, unit: deg}", "{column: u1, unit: deg}")
        write(servos, column_map=columns(deg[0], speed=""))
        (found,) = defects(path, arm)
        assert "joint_pos of shoulder changes by 0.0175 times its command: commands are in degrees" in found
        assert "give the command of shoulder the unit, scale and offset of joint_pos in the column map" in found
        write(servos, column_map=columns(*deg, speed=""))
        assert defects(path, arm) == []
        assert read_log(path, arm).joint_pos[:, 0] == pytest.approx(true)

    def test_commands_alone_in_degrees(self, write: CsvWriter, servos: Motion, arm: RobotSpec) -> None:
        servos["u1"] = DEGREES * servos["u1"]
        path = write(servos, column_map=columns())
        assert "set `unit: deg` for the command of shoulder" in defects(path, arm)[0]
        write(servos, column_map=columns(command="{column: u1, unit: deg}"))
        assert defects(path, arm) == []

    def test_a_sign_for_one_of_two(self, write: CsvWriter, servos: Motion, arm: RobotSpec) -> None:
        servos["v1"] = -servos["v1"]
        path = write(servos, column_map=columns())
        assert "set `sign: -1` for one of the two" in defects(path, arm)[0]
        # Of the two the wrong one: the positions now move against their commands.
        write(servos, column_map=columns("{column: q1, sign: -1}"))
        assert "joint_pos of shoulder moves against its command, by -1 times" in defects(path, arm)[0]

    def test_an_offset_for_one_of_two(self, write: CsvWriter, servos: Motion, arm: RobotSpec) -> None:
        servos["q1"], servos["u1"] = servos["q1"] + np.pi, servos["u1"] + np.pi
        path = write(servos, column_map=columns())
        with pytest.raises(LogError, match="give joint_pos and command the same `offset` or `sign` in the column map"):
            read_log(path, arm)
        offset = ("{column: q1, offset: -3.14159265}", "{column: u1, offset: -3.14159265}")
        write(servos, column_map=columns(offset[0]))
        assert "shoulder follows its command and never comes nearer than" in defects(path, arm)[0]
        write(servos, column_map=columns(*offset))
        assert defects(path, arm) == []

    def test_a_weak_servo_under_load_is_no_wrong_unit(self, write: CsvWriter, servos: Motion, arm: RobotSpec) -> None:
        servos["q1"] = 0.4 * servos["q1"] - 0.3
        servos["v1"] = 0.4 * servos["v1"]
        assert defects(write(servos, column_map=columns()), arm) == []


def test_millimetres_per_second_of_a_slide_are_no_milliseconds(write: CsvWriter, motion: Motion) -> None:
    slide = JointSpec(name="slide", kind="prismatic", velocity_limit=100.0, effort_limit=50.0)
    cart = RobotSpec(
        name="cart", base="fixed", joints=(slide,), sensors=(SensorField(name="joint_pos", size=1, unit="m"),)
    )
    text = "time: t\ncommand_kind: joint_effort\njoints: {slide: {joint_pos: q1, joint_vel: VEL, command: u1}}\n"
    motion["v1"] = 1e3 * motion["v1"]
    path = write(motion, column_map=text.replace("VEL", "v1"))
    assert "set `unit: mm/s` for joint_vel of slide" in defects(path, cart)[0]
    write(motion, column_map=text.replace("VEL", "{column: v1, unit: mm/s}"))
    assert defects(path, cart) == []


class TestLeRobot:
    """An SO-101 recorded with LeRobot's defaults: -100 to 100 of each joint's range, the gripper 0 to 100."""

    ROBOT = load_robot("so101").spec

    @pytest.fixture
    def truth(self) -> Array:
        """Positions [rad], shape (300, 6): sines over 80 % of each joint's range."""
        time = np.arange(300.0) / 30.0
        low, high = self.limits()
        phase = np.arange(6.0)
        return 0.5 * (low + high) + 0.4 * (high - low) * np.sin(2.0 * time[:, None] + phase)

    def limits(self) -> tuple[Array, Array]:
        low, high = np.array([(joint.position_lower, joint.position_upper) for joint in self.ROBOT.joints], float).T
        return low, high

    def shares(self, truth: Array) -> Array:
        low, high = self.limits()
        values = 200.0 * (truth - low) / (high - low) - 100.0
        values[:, 5] = 0.5 * (values[:, 5] + 100.0)
        return values

    def write(self, folder: Path, state: Array, action: Array) -> Path:
        names = [f"{joint.name}.pos" for joint in self.ROBOT.joints]
        table = {"timestamp": np.arange(len(state)) / 30.0}
        for column, values in (("observation.state", state), ("action", action)):
            table |= {f"{column}.{name}": values[:, j] for j, name in enumerate(names)}
        pq.write_table(pa.table(table), folder / "file.parquet")
        return folder / "file.parquet"

    def follow(self, path: Path, advice: dict[str, str], *, command: bool = True) -> None:
        lines = ["time: timestamp", "command_kind: joint_pos", "joints:"]
        for joint, entry in advice.items():
            of_command = entry.replace("observation.state", "action") if command else f"action.{joint}.pos"
            lines.append(f"  {joint}: {{joint_pos: {entry}, command: {of_command}}}")
        (path.parent / "columns.yaml").write_text("\n".join(lines))

    def entries(self, path: Path) -> dict[str, str]:
        report = check_raw(read_raw(path, self.ROBOT))
        assert not report.usable
        units = [finding for finding in report.findings if finding.check == "units"]
        found = {f.joint: re.search(r"set `joint_pos: (\{.*?\})`", f.advice) for f in units}
        assert set(found) == {joint.name for joint in self.ROBOT.joints}
        assert [f.joint for f in units if "unit: deg" not in f.advice] == ["gripper"]
        return {joint: match[1] for joint, match in found.items() if match}

    def test_normalised_units_followed_are_right(self, truth: Array, tmp_path: Path) -> None:
        path = self.write(tmp_path, self.shares(truth), self.shares(np.roll(truth, -1, axis=0)))
        entries = self.entries(path)
        self.follow(path, entries)
        assert defects(path, self.ROBOT) == []
        assert read_log(path, self.ROBOT).joint_pos == pytest.approx(truth, abs=1e-3)

    def test_followed_for_the_positions_alone_they_are_refused(self, truth: Array, tmp_path: Path) -> None:
        path = self.write(tmp_path, self.shares(truth), self.shares(np.roll(truth, -1, axis=0)))
        self.follow(path, self.entries(path), command=False)
        assert len(defects(path, self.ROBOT)) == 6

    def test_degrees_are_followed_for_all_but_the_gripper(self, truth: Array, tmp_path: Path) -> None:
        state = DEGREES * truth
        state[:, 5] = self.shares(truth)[:, 5]
        path = self.write(tmp_path, state, np.roll(state, -1, axis=0))
        findings = check_raw(read_raw(path, self.ROBOT)).findings
        gripper = next(f for f in findings if f.check == "units" and f.joint == "gripper")
        entry = re.search(r"set `joint_pos: (\{.*?\})`", gripper.advice)
        assert entry is not None
        assert "deg" not in gripper.advice
        degrees = {j.name: f"{{column: observation.state.{j.name}.pos, unit: deg}}" for j in self.ROBOT.joints}
        self.follow(path, {**degrees, "gripper": entry[1]})
        assert defects(path, self.ROBOT) == []
        assert read_log(path, self.ROBOT).joint_pos == pytest.approx(truth, abs=1e-3)
        # Whoever takes the gripper for degrees all the same is warned.
        self.follow(path, degrees)
        warned = [f for f in check_raw(read_raw(path, self.ROBOT)).findings if f.check == "units"]
        assert [(f.joint, f.severity) for f in warned] == [("gripper", "warning")]
        assert "the map takes observation.state.gripper.pos, 10" in warned[0].message


class TestCommandsOfControllers:
    @pytest.mark.parametrize(
        ("topic", "kind"),
        [
            ("/forward_position_controller/commands", "joint_pos"),
            ("/forward_velocity_controller/commands", "joint_vel"),
            ("/joint_group_effort_controller/commands", "joint_effort"),
        ],
    )
    def test_the_hint_is_of_the_controllers_kind(self, topic: str, kind: str, tmp_path: Path, arm: RobotSpec) -> None:
        sent = [(topic, EPOCH_NS + i * 10**7, numbers([0.1 * i, -0.1 * i])) for i in range(60)]
        path = bag(tmp_path / "run", by_time(states(["shoulder", "elbow"]), sent))
        with pytest.raises(LogError, match=f"\n  command_kind: {kind}\n") as error:
            read_log(path, arm)
        hint = str(error.value).split("given:\n")[1].replace("first, second", "shoulder, elbow")
        (tmp_path / "columns.yaml").write_text("\n".join(line[2:] for line in hint.splitlines()))
        log = read_log(path, arm)
        assert log.command_kind == kind
        assert log.command[10] == pytest.approx([1.0, -1.0])
        other = hint.replace(
            f"command_kind: {kind}", "command_kind: " + ("joint_vel", "joint_pos")[kind == "joint_vel"]
        )
        (tmp_path / "columns.yaml").write_text("\n".join(line[2:] for line in other.splitlines()))
        said = [f.message for f in check_raw(read_raw(path, arm)).findings if f.check == "command"]
        assert any(f"its name says {kind}" in message for message in said)

    def test_a_name_that_says_nothing_is_not_guessed(self, tmp_path: Path, arm: RobotSpec) -> None:
        sent = [("/commands", EPOCH_NS + i * 10**7, numbers([0.1 * i, -0.1 * i])) for i in range(60)]
        path = bag(tmp_path / "run", by_time(states(["shoulder", "elbow"]), sent))
        with pytest.raises(LogError, match="command_kind: joint_pos, joint_vel or joint_effort\n") as error:
            read_log(path, arm)
        hint = str(error.value).split("given:\n")[1].replace("first, second", "shoulder, elbow")
        (tmp_path / "columns.yaml").write_text("\n".join(line[2:] for line in hint.splitlines()))
        with pytest.raises(LogError, match="command_kind: Input should be 'joint_pos'"):
            read_log(path, arm)
