"""A legged robot with recorded base poses is replayed with its joints, and shows a wrong friction of its feet."""

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from tests.support.fixtures_calibration import changed_model

from physai.sim.calibration.replay.replay import replay
from physai.sim.logs import BasePose, RobotLog
from physai.sim.logs.signals.rotation import from_vector, multiply
from physai.sim.robots import Robot, home_qpos, load_robot
from physai.sim.robots.spec import home_controls
from physai.sim.twin.models import calibration_model

FEET = ("FL", "FR", "RL", "RR")
SLIPPERY = {f"{foot}_foot.sliding_friction": 0.2 for foot in FEET}


def dropped(robot: Robot, truth: Mapping[str, float]) -> RobotLog:
    """The robot, dropped from 5 cm while it drifts sideways, with its servos swinging a little; 250 samples."""
    model: Any = changed_model(robot, truth)
    random = np.random.default_rng(5)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    data: Any = mujoco.MjData(model)
    data.qpos[:] = home_qpos(model)
    data.qpos[2] += 0.05
    data.qvel[:2], data.qvel[5] = [0.9, 0.6], 1.0
    count = 250
    time: NDArray[np.float64] = np.arange(count, dtype=np.float64) * float(model.opt.timestep)
    swing = np.sin(2.0 * np.pi * time[:, None] + np.arange(int(model.nu), dtype=np.float64))
    command = home_controls(model) + 0.1 * swing
    path, speed = np.zeros((count, model.nq)), np.zeros((count, model.nv))
    for sample in range(count):
        path[sample], speed[sample] = data.qpos, data.qvel
        data.ctrl[:] = command[sample]
        mujoco.mj_step(model, data)
    turn = 1e-3 * random.standard_normal((count, 3))
    return RobotLog(
        name="drop",
        joint_names=robot.spec.joint_names,
        time=time,
        joint_pos=path[:, 7:] + 2e-4 * random.standard_normal((count, model.nu)),
        joint_vel=speed[:, 6:] + 0.02 * random.standard_normal((count, model.nu)),
        joint_effort=None,
        command=command,
        command_kind="joint_pos",
        source="drop.csv",
        sha256="0" * 64,
        base=BasePose(
            path[:, :3] + 3e-4 * random.standard_normal((count, 3)), multiply(path[:, 3:7], from_vector(turn))
        ),
    )


def test_the_truth_replays_a_legged_robot_better_than_the_nominal_one() -> None:
    go2 = load_robot("go2")
    log = dropped(go2, SLIPPERY)
    truth = replay(changed_model(go2, SLIPPERY), go2, [log])
    nominal = replay(calibration_model(go2), go2, [log])
    assert truth.joint_names == ("base.position", "base.rotation", *go2.spec.joint_names)
    right, wrong = (np.array([error.value for error in score.rmse]) for score in (truth, nominal))
    # 5 mm and 20 mrad are several times what the noise of the start makes of 0.25 s.
    assert (right[:2] < [0.005, 0.02]).all()
    assert (right[:2] < 0.5 * wrong[:2]).all()
    assert (right[2:] < 0.01).all()
