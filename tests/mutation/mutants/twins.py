"""Twins for the mutation suite: one that is credible for any robot, and recordings that a robot would have made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from tests.support.replay_samples import with_sample

from physai.sdk.evidence.origin import Origin
from physai.sim.robots import Robot
from physai.twin.calibration.alternatives import model_alternatives
from physai.twin.calibration.calibrate import residuals
from physai.twin.calibration.replay.replay import replay
from physai.twin.claims.changes import response_changes
from physai.twin.logs import RobotLog
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import (
    ActuatorResponse,
    Alternative,
    FittedParameter,
    Interval,
    LogRecord,
    Logs,
    Residuals,
    SensorNoise,
    Timing,
)
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import DELAY, catalogue

Array = npt.NDArray[np.float64]


def credible_twin(
    robot: Robot,
    spread: Mapping[str, float],
    *,
    values: Mapping[str, float] | None = None,
    noise: SensorNoise | None = None,
    timing: Timing | None = None,
) -> Twin:
    """A twin whose held-out errors are small.

    Args:
        robot: of any kind.
        spread: standard deviation of each fitted parameter, relative to its nominal value.
        values: fitted values; the nominal ones of parameters not named.
        noise: measured noise.
        timing: measured delay and period.
    """
    known = {parameter.name: parameter for parameter in catalogue(robot, "command")}
    given = values or {}
    fitted = tuple(
        FittedParameter(
            name=name,
            unit=known[name].unit,
            prior=known[name].prior,
            prior_std=known[name].prior_std,
            lower=known[name].lower,
            upper=known[name].upper,
            value=given.get(name, known[name].prior),
            std=share * abs(known[name].prior),
            identified=True,
        )
        for name, share in spread.items()
    )
    joints, of = robot.spec.joint_names, Origin(kind="robot", robot=robot.name)
    small, large = (tuple(Interval(value=v, lo=0.9 * v, hi=1.1 * v) for _ in joints) for v in (0.002, 0.02))
    return with_sample(
        replace(
            nominal_twin(robot),
            parameters=fitted,
            covariance=np.diag([p.std**2 for p in fitted]),
            noise=noise or SensorNoise(),
            timing=timing or Timing(),
            residuals=Residuals(
                window_s=0.25,
                joint_names=joints,
                twin=small,
                nominal=large,
                gain=tuple(Interval(value=0.018, lo=0.016, hi=0.02) for _ in joints),
                at_zero=(0.002,) * len(joints),
                gain_at_zero=tuple(Interval(value=0.018, lo=0.016, hi=0.02) for _ in joints),
                motion=(0.2,) * len(joints),
            ),
            logs=Logs(
                train=(LogRecord(name="train", sha256="a" * 64, origin=of),),
                held_out=tuple(LogRecord(name=n, sha256=n * 64, origin=of, duration_s=10.0) for n in ("b", "c")),
            ),
        )
    )


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """How recordings are made."""

    length_s: float = 4.0
    period_s: float = 0.002
    amplitude: float = 0.5
    """Of each of the sines that the motors are driven with [N·m]."""
    position_noise: float = 2e-4
    speed_noise: float = 0.05
    measured_effort: bool = True
    """Whether the effort is recorded; else the command alone, which the motors follow late."""


def recordings(truth: Twin, *, count: int, seed: int = 0, recorder: Recorder | None = None) -> tuple[RobotLog, ...]:
    """What a robot with exactly the twin's parameters records while a few sines shake its motors."""
    random = np.random.default_rng(seed)
    robot, model = truth.nominal(), truth.model()
    delay = {p.name: p.value for p in truth.parameters}.get(DELAY, 0.0)
    return tuple(_record(model, robot, random, f"log{n}", delay, recorder or Recorder()) for n in range(count))


def _record(
    model: Any, robot: Robot, random: np.random.Generator, name: str, delay: float, recorder: Recorder
) -> RobotLog:
    samples, joints = round(recorder.length_s / recorder.period_s), len(robot.spec.joint_names)
    inner = round(recorder.period_s / model.opt.timestep)
    time: Array = np.arange(samples, dtype=np.float64) * recorder.period_s
    waves = random.uniform([0.6, 0.4, 0.0], [1.0, 2.5, 6.3], (joints, 4, 3))

    def wanted(at: float) -> Array:
        scale, frequency, phase = waves[..., 0], waves[..., 1], waves[..., 2]
        sines: Array = scale * np.sin(2.0 * np.pi * frequency * at + phase)
        return recorder.amplitude * sines.sum(axis=1)

    data: Any = mujoco.MjData(model)
    command, effort, position, velocity = (np.zeros((samples, joints)) for _ in range(4))
    held = [wanted(float(t)) for t in time]
    for sample in range(samples):
        position[sample], velocity[sample] = data.qpos, data.qvel
        command[sample], effort[sample] = held[sample], wanted(float(time[sample]))
        for step in range(inner):
            at = float(time[sample]) + (step + 0.5) * float(model.opt.timestep)
            # A motor whose effort is measured follows smoothly; a command holds until the next and acts late.
            late = held[max(0, int((at - delay) / recorder.period_s))]
            data.ctrl[:] = wanted(at) if recorder.measured_effort else late
            mujoco.mj_step(model, data)
    return RobotLog(
        name=name,
        joint_names=robot.spec.joint_names,
        time=time,
        joint_pos=position + recorder.position_noise * random.normal(size=position.shape),
        joint_vel=velocity + recorder.speed_noise * random.normal(size=velocity.shape),
        joint_effort=effort if recorder.measured_effort else None,
        command=command,
        command_kind="joint_effort",
        source=f"{name}.csv",
        sha256=f"{random.integers(2**63):064x}",
        origin=Origin(kind="robot", robot=robot.name),
    )


def rescored(twin: Twin, held_out: Sequence[RobotLog]) -> Twin:
    """The twin with the held-out errors that it and changed ones really have."""
    robot = twin.nominal()
    score = replay(twin, robot, held_out, num_threads=1)
    nominal = replay(calibration_model(robot), robot, held_out, num_threads=1)
    records = tuple(
        LogRecord(name=log.name, sha256=log.sha256, origin=log.origin, duration_s=log.duration_s) for log in held_out
    )
    changed = model_alternatives(robot, twin, twin.model(), score, num_threads=1)
    judged = residuals(score, nominal).model_copy(update={"alternatives": changed})
    return replace(twin, residuals=judged, logs=twin.logs.model_copy(update={"held_out": records}))


def with_tested_lag(twin: Twin, robot: Robot) -> Twin:
    """The twin of a robot with motors whose held-out recordings, replayed from commands, exclude other lags."""
    assert twin.residuals is not None
    lag_s = twin.timing.command_lag_mean_s or 0.0
    worse = Interval(value=1.2, lo=1.1, hi=1.3)
    compared = tuple(Alternative(name=name, ratio=worse) for name, _ in response_changes())
    return replace(
        twin,
        actuators=tuple(
            ActuatorResponse(
                joint=joint.name, gain=1.0, gain_std=0.0, dead_time_s=lag_s, time_constant_s=0.0, period_s=0.004
            )
            for joint in robot.spec.joints
            if joint.effort_limit > 0.0
        ),
        command_residuals=twin.residuals.model_copy(update={"alternatives": compared}),
    )
