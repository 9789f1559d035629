"""Runs the simulation trial of the RealAIGym double-pendulum leaderboards (v2) with an exported policy.

Design C.1, model 1.0 without friction, damping and rotor inertia, Runge-Kutta 4 at 2 ms with the torque held, 10 s
from hanging at rest, torque limit 6 N·m (github.com/dfki-ric-underactuated-lab/double_pendulum,
leaderboard/*/simulation_v2).
"""

import copy
from typing import Any

import mujoco
import numpy as np

from physai.sdk import PolicyContract
from physai.sim import Policy, load_task
from realaigym.boards import Score, score
from realaigym.errors import DesignError

PRESET = "realaigym-v2"
"""Preset of the tasks `pendubot-swingup` and `acrobot-swingup` with the leaderboards' model."""
STEP_S = 0.002
EPISODE_S = 10.0
TORQUE_LIMIT = 6.0
LINK_LENGTHS = (0.2, 0.3)

PUBLISHED: dict[str, dict[str, float]] = {
    "pendubot": {
        "HistorySAC": 0.682,
        "AR-EAPO": 0.659,
        "EvolSAC": 0.596,
        "iLQR+Riccati": 0.536,
        "TVLQR": 0.526,
        "MC-PILCO": 0.480,
    },
    "acrobot": {"HistorySAC": 0.655, "AR-EAPO": 0.633, "EvolSAC": 0.524, "TVLQR": 0.504},
}
"""Published scores of the leaderboard's entries."""


def board_name(contract: PolicyContract) -> str:
    """`pendubot` or `acrobot`, by the joint that the policy drives.

    Raises:
        DesignError: the contract is not for a double pendulum with one driven joint.
    """
    driven = [joint for term in contract.action.terms for joint in term.joints]
    names = {"joint1": "pendubot", "joint2": "acrobot"}
    name = names.get(" ".join(driven))
    if contract.robot.name != "double_pendulum" or name is None:
        raise DesignError(
            f"preset {PRESET} is for the double pendulum with one motor, got {contract.robot.name} driving {driven}"
        )
    return name


def board_model() -> Any:
    """The leaderboards' compiled MjModel: that of the tasks with the leaderboards' integrator."""
    model = copy.copy(load_task("pendubot-swingup", preset=PRESET).model)
    model.opt.timestep = STEP_S
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    return model


def play_trial(policy: Policy, contract: PolicyContract) -> Score:
    """Runs one trial; calls the policy once per control period and holds its torque in between.

    Args:
        policy: policy to score, called with exact joint positions and velocities.
        contract: the policy's contract.

    Raises:
        DesignError: the contract does not fit the leaderboard, or its control period is not a multiple of 2 ms.
    """
    board_name(contract)
    policy.reset(1)
    # The tolerance covers the rounding of a control period such as 0.006 / 0.002.
    periods = contract.timing.control_dt / STEP_S
    if not abs(periods - round(periods)) <= 1e-9:
        raise DesignError(f"control_dt {contract.timing.control_dt} s is not a multiple of the board's step {STEP_S} s")
    model = board_model()
    data = mujoco.MjData(model)
    driven = contract.robot.joint_index(contract.action.terms[0].joints)[0]
    sensed = {sensor.name for sensor in contract.robot.sensors}
    steps = round(EPISODE_S / STEP_S)
    rows = np.zeros((steps, 7))
    torque = np.zeros(2)
    for step in range(steps):
        if step % round(periods) == 0:
            truth = {"joint_pos": data.qpos, "joint_vel": data.qvel, "joint_effort": torque}
            sensors = {name: values[None].astype(np.float32) for name, values in truth.items() if name in sensed}
            command = float(policy(sensors, {})["joint_effort_target"][0, 0])
            torque = np.zeros(2)
            torque[driven] = min(max(command, -TORQUE_LIMIT), TORQUE_LIMIT)
        # A row holds the state before the step and the torque during it, as the score expects.
        rows[step] = data.time, *data.qpos, *data.qvel, *torque
        data.ctrl[:] = torque
        mujoco.mj_step(model, data)
    return score(rows[:, 0], rows[:, 1:3], rows[:, 3:5], rows[:, 5:7], link_lengths=LINK_LENGTHS)
