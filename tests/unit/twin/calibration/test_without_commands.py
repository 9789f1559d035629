"""Recordings without commands: of a robot that nothing drives, and of one whose efforts are measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from tests.support.fixtures_calibration import PENDULUM

from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.calibrate import fit_twin
from physai.twin.calibration.replay.drive import choose_drive
from physai.twin.logs import LogError, RobotLog, read_log
from physai.twin.logs.quality import check_log

Recorder = Callable[..., RobotLog]
MAP = "time: t\njoints:\n  hinge: {joint_pos: q, joint_vel: dq}\n"


def passive(folder: Path) -> Robot:
    """The pendulum without its motor."""
    start, rest = PENDULUM.split("<actuator>")
    path = folder / "passive.xml"
    path.write_text(start + rest.split("</actuator>")[1])
    return load_robot(path)


def swing(robot: Robot, friction: float, start: float, path: Path) -> RobotLog:
    """A recording of the pendulum that is let go, with this Coulomb friction [N·m]."""
    model: Any = robot.model
    model.dof_frictionloss[0] = friction
    data: Any = mujoco.MjData(model)
    data.qpos[0] = start
    rows: list[list[float]] = []
    for number in range(1500):
        if number % 2 == 0:
            rows.append([data.time, data.qpos[0], data.qvel[0]])
        mujoco.mj_step(model, data)
    model.dof_frictionloss[0] = 0.2
    columns = np.array(rows) + [0.0, 3e-4, 0.05] * np.random.default_rng(1).standard_normal((750, 3))
    np.savetxt(path, columns, delimiter=",", header="t,q,dq", comments="")
    path.with_suffix(".columns.yaml").write_text(MAP)
    return read_log(path, robot.spec)


def test_a_pendulum_without_a_motor_is_calibrated_as_it_swings(tmp_path: Path) -> None:
    robot = passive(tmp_path)
    assert robot.model.nu == 0
    logs = [swing(robot, 0.5, start, tmp_path / f"{number}.csv") for number, start in enumerate((2.5, -1.5))]
    assert not any(finding.severity == "defect" for finding in check_log(logs[0], robot.spec).findings)
    assert not [finding for finding in check_log(logs[0], robot.spec).findings if finding.check == "command"]
    twin = fit_twin(robot, logs, only=("hinge.friction",), num_threads=1).twin
    assert twin.values[0] == pytest.approx(0.5, abs=0.03)
    assert twin.timing.command_lag_mean_s is None


def test_measured_efforts_replace_commands(pendulum: Robot, record: Recorder, tmp_path: Path) -> None:
    made = record(pendulum, {"hinge.friction": 0.4}, seed=3, seconds=4.0)
    assert made.joint_effort is not None
    path = tmp_path / "log.csv"
    columns = np.hstack([made.time[:, None], made.joint_pos, made.joint_effort])
    np.savetxt(path, columns, delimiter=",", header="t,q,tau", comments="")
    (tmp_path / "columns.yaml").write_text("time: t\njoints:\n  hinge: {joint_pos: q, joint_effort: tau}\n")
    log = read_log(path, pendulum.spec)
    assert log.driven == (False,)
    assert choose_drive(pendulum, [log]) == "effort"
    (tmp_path / "columns.yaml").write_text("time: t\njoints:\n  hinge: {joint_pos: q}\n")
    with pytest.raises(LogError, match="efforts of all driven joints, and hinge has none"):
        read_log(path, pendulum.spec)
