"""Held-out windows for twins that no calibration made: what their own model does from its home pose."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np

from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.twin.claims.changes import delay_changes, model_changes, plausible_amounts, response_changes
from physai.twin.claims.spot_check import WINDOWS, sample_error
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Alternative, Interval, ReplaySample, Residuals
from physai.twin.parameters.servo import is_servo

WINDOW_S, ERROR = 0.25, 0.002
"""Length of the window of a twin without residuals [s], and how far its recording is from the model [rad or m]."""


def with_sample(twin: Twin, *, angle: float = 0.0, windows: int = WINDOWS) -> Twin:
    """The twin with windows in which it errs by `ERROR`; joints start `angle` from their home pose [rad or m].

    It errs in the first window only, so that the windows say next to nothing about the errors of others.
    Without an angle they start at home, with the constant speed v that gives the motion of the twin's residuals: its
    root mean square over a window T is v·T/√3. Servos are given a target ahead of them, or they would brake at once.
    """
    model: Any = twin.model()
    data: Any = mujoco.MjData(model)
    joints = joint_ids(model)
    qpos = [int(model.jnt_qposadr[joint]) for joint in joints]
    data.qpos[qpos] += angle
    window_s = WINDOW_S if twin.residuals is None else twin.residuals.window_s
    dofs = [int(model.jnt_dofadr[joint]) for joint in joints]
    if twin.residuals is not None and not angle:
        data.qvel[dofs] = math.sqrt(3.0) / window_s * np.array(twin.residuals.motion)
    speed = np.array(data.qvel[dofs])
    control = np.zeros(model.nu)
    for joint, at, moving in zip(joints, data.qpos[qpos].tolist(), speed.tolist(), strict=True):
        actuator = joint_actuator(model, joint)
        if actuator is not None and is_servo(model, actuator):
            control[actuator] = at + window_s * moving
    data.ctrl[:] = control
    steps = round(window_s / float(model.opt.timestep))
    start, path = np.concatenate([data.qpos[qpos], speed]), np.zeros((steps, len(joints)))
    for step in range(steps):
        mujoco.mj_step(model, data)
        path[step] = data.qpos[qpos]
    times = float(model.opt.timestep) * np.arange(1, steps + 1)
    wrong = (path + math.sqrt(windows) * ERROR).ravel().tolist(), *[path.ravel().tolist()] * (windows - 1)
    sample = ReplaySample(
        start=(tuple(start.tolist()),) * windows,
        controls=(tuple(np.tile(control, steps).tolist()) if model.nu else (0.0,) * steps,) * windows,
        sample_s=(tuple(times.tolist()),) * windows,
        target=tuple(map(tuple, wrong)),
        servo_gain=(1.0,) * windows,
        rmse=(0.0,) * len(joints),
    )
    twin = with_comparisons(twin)
    return replace(twin, sample=sample.model_copy(update={"rmse": tuple(sample_error(sample, model).tolist())}))


def with_comparisons(twin: Twin) -> Twin:
    """The twin, which states that each changed one that its own model gives replays worse by half."""
    worse, model = Interval(value=1.5, lo=1.4, hi=1.6), twin.model()
    changed = [name for name, _ in model_changes(model, plausible_amounts(twin.nominal()))]
    changed += [name for name, _ in delay_changes(twin, model)]
    commanded = [name for name, _ in response_changes()]

    def stated(residuals: Residuals | None, names: Sequence[str]) -> Residuals | None:
        if residuals is None or residuals.alternatives:
            return residuals
        return residuals.model_copy(update={"alternatives": tuple(Alternative(name=n, ratio=worse) for n in names)})

    return replace(
        twin,
        residuals=stated(twin.residuals, changed),
        command_residuals=stated(twin.command_residuals, commanded),
    )
