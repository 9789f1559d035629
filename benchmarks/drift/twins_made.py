"""Twins of the benchmark's robots, with the uncertainty that a calibration leaves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from benchmarks.drift.robots import RealRobot, real_robot, record
from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.calibrate import fit_twin, residuals
from physai.twin.calibration.replay.replay import replay
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import FittedParameter, SensorNoise
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import DELAY, OFFSET_STD, catalogue, model_fields

Array = npt.NDArray[np.float64]

ZERO_STEP = 1e-4
DEVIATION = 0.7
"""Standard deviation of the calibrated robot's parameters from the nominal ones, in those of the priors."""
DELAY_S = 0.006
RECORDINGS, SECONDS = 5, 10.0
LEG = {"friction": (0.5, 0.05), "damping": (0.1, 0.02), "kp": (None, 0.02), "kd": (None, 0.03)}
"""Values, or None for the nominal one, and standard deviations of a leg's joints, of gains relative."""
BASE_MASS_STD = 0.15


def made_twin(name: str, *, budget_steps: int) -> Twin:
    """Return the twin of a robot: calibrated on recordings of another simulated one, or declared for one with legs."""
    robot = load_robot(name)
    if robot.spec.base == "floating":
        return _declared(robot)
    rng = np.random.default_rng(11)
    drive = "command"
    parameters = [p for p in catalogue(robot, drive) if p.name != DELAY]
    values = [np.clip(p.prior + DEVIATION * p.prior_std * rng.standard_normal(), p.lower, p.upper) for p in parameters]
    model = calibration_model(robot)
    for field, rows in model_fields(model, [p.name for p in parameters], np.array([values])).items():
        getattr(model, field)[...] = rows[0]
    mujoco.mj_setConst(model, mujoco.MjData(model))
    real = real_robot(robot, model, DELAY_S)
    logs = [record(real, SECONDS, 900 + number) for number in range(RECORDINGS)]
    return fit_twin(robot, logs[:3], logs[3:], budget_steps=budget_steps, friction="coulomb", folder=Path.cwd()).twin


def _declared(robot: Robot) -> Twin:
    """Return a twin as a calibration of a robot with legs would state it; calibrating one takes minutes."""
    wanted: list[FittedParameter] = []
    for one in catalogue(robot, "command"):
        owner, what = one.name.rsplit(".", 1)
        if what in LEG and owner in robot.spec.joint_names:
            value, std = LEG[what]
            value, std = (one.prior, std * one.prior) if value is None else (value, std)
        elif one.name == "base.mass":
            value, std = one.prior, BASE_MASS_STD
        elif one.name == DELAY:
            value, std = DELAY_S, 0.0005
        else:
            continue
        wanted.append(
            FittedParameter(
                name=one.name,
                unit=one.unit,
                prior=one.prior,
                prior_std=one.prior_std,
                lower=one.lower,
                upper=one.upper,
                value=value,
                std=std,
                identified=True,
            )
        )
    twin = nominal_twin(robot)
    twin = replace(
        twin,
        parameters=tuple(wanted),
        covariance=np.diag([p.std**2 for p in wanted]),
        noise=SensorNoise(joint_pos_std=(1e-4,) * len(robot.spec.joints)),
    )
    logs = [record(drawn_robot(twin, robot, 800 + number), SECONDS, 900 + number) for number in range(2)]
    score, plain = replay(twin, robot, logs), replay(calibration_model(robot), robot, logs)
    return replace(twin, residuals=residuals(score, plain))


def drawn_robot(twin: Twin, robot: Robot, seed: int) -> RealRobot:
    """Return a robot that the twin's posterior allows, with the encoder zeros that suit it.

    A calibration fits the zeros of its recordings together with the parameters: what a centre of mass that is off to a
    side pulls, a zero may pull as well. A robot drawn from the posterior has the zeros with which it moves most like
    the twin.
    """
    values = twin.draw(1, seed)[0]
    model = calibration_model(robot)
    twin.apply(model, values)
    delay = [value for p, value in zip(twin.parameters, values.tolist(), strict=True) if p.name == DELAY]
    if delay:
        delay_s = delay[0]
    else:
        delay_s = float(np.mean([one.dead_time_s for one in twin.actuators])) if twin.actuators else DELAY_S
    real = real_robot(robot, model, delay_s)
    if twin.actuators:
        real = replace(real, driver=np.array([one.gain for one in twin.actuators]))
    logs = [log for log in twin.logs.held_out if log.joint_pos_offset]
    if not logs:
        return real
    known = np.mean([log.joint_pos_offset for log in logs], axis=0)
    if np.asarray(model.body_gravcomp).any():
        return replace(real, zero=known)  # weights that are carried pull nothing that a zero could make up for
    return replace(real, zero=known + _suiting_zeros(real, twin.model()))


def _suiting_zeros(real: RealRobot, twin: Any) -> Array:
    """Return the shift of the zeros, against those of the twin, that makes up most for the robot's difference [rad]."""
    log = record(real, SECONDS, 700)
    position, speed = log.joint_pos[5::25], np.gradient(log.joint_pos, log.time, axis=0)[5::25]
    push = np.gradient(np.gradient(log.joint_pos, log.time, axis=0), log.time, axis=0)[5::25]
    base = _efforts(real.model, position, speed, push)
    apart = base - _efforts(twin, position, speed, push)
    scale = 0.05 * np.sqrt((base**2).mean(axis=0)) + 1e-6
    columns: list[Array] = []
    for joint in range(position.shape[1]):
        moved = position.copy()
        moved[:, joint] -= ZERO_STEP
        columns.append(((_efforts(real.model, moved, speed, push) - base) / ZERO_STEP / scale).ravel())
    slopes = np.stack(columns, axis=1)
    precision = slopes.T @ slopes + np.eye(len(columns)) / OFFSET_STD**2
    return np.asarray(np.linalg.solve(precision, -slopes.T @ (apart / scale).ravel()), np.float64)


def _efforts(model: Any, position: Array, speed: Array, push: Array) -> Array:
    data: Any = mujoco.MjData(model)
    efforts = np.zeros_like(position)
    for row, q, v, a in zip(efforts, position, speed, push, strict=True):
        data.qpos[:], data.qvel[:], data.qacc[:] = q, v, a
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_comVel(model, data)
        mujoco.mj_rne(model, data, 1, row)
        mujoco.mj_passive(model, data)
        row -= data.qfrc_gravcomp
    return efforts
