"""Replay a few held-out windows again, from the twin file alone.

A verdict does not take the errors in a twin file on trust: a change of the twin's parameters, of its robot or of the
engine after the calibration gives other errors than the file states.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from mujoco.batch import Batch

from physai.sim.engines.mujoco import quiet_model, roll_out
from physai.sim.robots import Robot
from physai.sim.robots.spec import has_floating_base, joint_actuator, joint_ids
from physai.twin.logs.signals.rotation import relative
from physai.twin.model.credibility import SLIDE_FLOOR_MAX, bounds
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import MAX_NUMBERS, ReplaySample, Residuals
from physai.twin.parameters.models import calibration_model

Array = npt.NDArray[np.float64]

TOLERANCE = 0.05
"""Relative difference of an error that other versions of the engine may cause."""
TOLERANCE_FLOOR = 1e-4
"""Difference of an error that is always accepted [rad or m]."""
ROUNDING = 1e-6
"""Share of a window by which rounding may put its last sample after its end."""
EXCESS = 2.0
"""Maximum error of the sample as a multiple of the bound: a few windows may be among the worse ones."""
WINDOWS = 8
"""Number of windows in a twin file."""
MOTION_SHARE = 0.1
"""Minimum motion of each joint in the sample as a share of its motion in all held-out windows."""
MOTION_MIN = 2e-3
"""Minimum root mean square motion in windows of the joint that moves most [rad or m]; a fit needs as much."""


def sample_size(model: Any, window_s: float) -> int:
    """Return the number of windows of a sample; fewer than `WINDOWS` if their controls would be too many numbers."""
    steps = max(1, round(window_s / float(model.opt.timestep)))
    return min(WINDOWS, MAX_NUMBERS // max(1, steps * max(1, int(model.nu))))


def sample_motion(sample: ReplaySample, *, floating: bool) -> Array:
    """Return the root mean square displacement from the windows' starts, one per error of `sample_error`."""
    return np.sqrt(squared_motion(sample, floating=floating).mean(axis=0))


def squared_motion(sample: ReplaySample, *, floating: bool) -> Array:
    """Return the mean square displacement from each window's start, shape (W, S) as of `sample_squares`."""
    count = len(sample.target[0]) // len(sample.sample_s[0])
    target = np.array(sample.target).reshape(len(sample.target), -1, count)
    start = np.broadcast_to(np.array(sample.start)[:, None, :count], target.shape)
    moved = _pose_errors(start, target) if floating else target - start
    return (moved**2).mean(axis=1)


def _still(sample: ReplaySample, residuals: Residuals, *, floating: bool) -> str:
    """Return which joint does not move in a sample, or "": any twin replays a robot that does not move."""
    moved = sample_motion(sample, floating=floating)
    for name, here, everywhere in zip(residuals.joint_names, moved.tolist(), residuals.motion, strict=True):
        if not here >= MOTION_SHARE * everywhere:
            return (
                f"{name}: {len(sample.start)} of its held-out windows move by {here:.2g} (root mean square), all of "
                f"them by {everywhere:.2g}: any twin replays a joint that does not move; calibrate again"
            )
    if not float(moved.max()) >= MOTION_MIN:
        return (
            f"its held-out windows to replay move by {moved.max():.2g} at most (root mean square), at least "
            f"{MOTION_MIN:g} rad or m are needed: any twin replays a robot that does not move; calibrate again"
        )
    return ""


def sample_error(sample: ReplaySample, model: Any) -> Array:
    """Return the root mean square position error of the windows of a sample [rad or m], see `sample_squares`."""
    return np.sqrt(sample_squares(sample, model).mean(axis=0))


def sample_squares(sample: ReplaySample, model: Any) -> Array:
    """Replay the windows of a sample.

    Args:
        sample: the windows.
        model: compiled model of the twin.

    Returns:
        Mean square position error of each of the W windows [rad² or m²], shape (W, S), in the order of
        `Residuals.joint_names`: of a floating base distance and angle, then the joints. Infinite if the model diverges,
        or does not have the sample's joints and actuators.
    """
    joints, floating = joint_ids(model), has_floating_base(model)
    qpos = [*range(7 if floating else 0), *(int(model.jnt_qposadr[j]) for j in joints)]
    dofs = [*range(6 if floating else 0), *(int(model.jnt_dofadr[j]) for j in joints)]
    count, unknown = len(qpos), np.full((len(sample.start), len(joints) + 2 * floating), np.inf)
    start, sample_s = np.array(sample.start), np.array(sample.sample_s)
    controls, target = np.array(sample.controls), np.array(sample.target)
    if (
        start.shape[1] != count + len(dofs)
        or controls.shape[1] % max(1, model.nu)
        or target.shape[1] != sample_s.shape[1] * count
    ):
        return unknown
    batch = Batch(model, len(start), 1)
    _scale_servo_gains(batch, model, np.array(sample.servo_gain))
    batch.reset(stage=0)
    states = batch.bind("qpos"), batch.bind("qvel")
    states[0][:, qpos], states[1][:, dofs] = start[:, :count], start[:, count:]
    record = roll_out(model, batch, controls.reshape(len(start), -1, max(1, model.nu))[:, :, : model.nu])
    if bool(np.asarray(batch.warning[:, :, 1]).any()):
        return unknown
    path = np.concatenate([start[:, None, :count], record[:, :, qpos]], axis=1)
    times: Array = float(model.opt.timestep) * np.arange(path.shape[1], dtype=np.float64)
    replayed: list[list[Array]] = [
        [np.interp(at, times, column) for column in world.T] for at, world in zip(sample_s, path, strict=True)
    ]
    path, target = np.moveaxis(np.array(replayed, dtype=np.float64), 1, 2), target.reshape(len(start), -1, count)
    errors = _pose_errors(path, target) if floating else path - target
    return (errors**2).mean(axis=1)


def _pose_errors(path: Array, target: Array) -> Array:
    """Return distance and angle of a floating base, then the joints' errors, (W, M, 7 + J) to (W, M, 2 + J)."""
    quat = path[..., 3:7] / np.linalg.norm(path[..., 3:7], axis=-1, keepdims=True)
    apart = (path[..., :3] - target[..., :3], relative(target[..., 3:7], quat))
    base = [np.linalg.norm(part, axis=-1, keepdims=True) for part in apart]
    return np.concatenate([*base, path[..., 7:] - target[..., 7:]], axis=-1)


def _scale_servo_gains(batch: Batch, model: Any, factors: Array) -> None:
    """Scale the gain kp of all servos by one factor per world."""
    if bool((factors == 1.0).all()):
        return
    for actuator in (joint_actuator(model, joint) for joint in joint_ids(model)):
        if actuator is not None:
            # A servo's effort is kp·ctrl - kp·pos - kd·vel.
            batch.expand("actuator_gainprm")[:, actuator, 0] *= factors
            batch.expand("actuator_biasprm")[:, actuator, 1] *= factors
    batch.set_const()


def _as_long(sample: ReplaySample, window_s: float, model: Any) -> bool:
    """Whether windows have the length of those of the errors, and are compared beyond their middle and not after it.

    Open-loop errors grow with time, so shorter windows would say little.
    """
    steps = max(1, round(window_s / float(model.opt.timestep)))
    last = np.array(sample.sample_s).max(axis=1)
    whole = len(sample.controls[0]) == steps * max(1, int(model.nu))
    # A window may end in a gap of its recording; most do not.
    return whole and bool(0.5 * window_s <= np.median(last)) and bool(last.max() <= window_s * (1.0 + ROUNDING))


def spot_check(twin: Twin, robot: Robot) -> str:
    """Replay the sample of held-out windows in a twin of a robot; return what differs from the errors it states, or "".

    Raises:
        TwinError: the twin is of another robot.
    """
    sample = twin.sample
    if sample is None or twin.residuals is None:
        return "it holds no windows of its held-out recordings to replay; calibrate again"
    twin.require_robot(robot)
    model = quiet_model(calibration_model(robot))
    twin.apply(model, twin.values)
    slides = {joint.name: SLIDE_FLOOR_MAX for joint in robot.spec.joints if joint.kind == "prismatic"}
    found, limits, names = sample_error(sample, model), bounds(twin.residuals, slides), twin.residuals.joint_names
    if not len(found) == len(sample.rmse) == len(names):
        return (
            f"it states errors of {len(names)} quantities and a sample with {len(sample.rmse)}, its robot has "
            f"{len(found)}; calibrate again"
        )
    if not _as_long(sample, twin.residuals.window_s, model):
        return (
            f"its held-out windows to replay are not of the {twin.residuals.window_s:g} s of the errors that it "
            "states; calibrate again"
        )
    for name, error, stated in zip(names, found.tolist(), sample.rmse, strict=True):
        # Not above, so that NaN differs, too.
        if not abs(error - stated) <= max(TOLERANCE * stated, TOLERANCE_FLOOR):
            return (
                f"{name}: {len(sample.start)} of its held-out windows replay with an error of {error:.4f}, the twin "
                f"file states {stated:.4f}: it was changed after the calibration, or the engine computes otherwise; "
                "calibrate again"
            )
        if not error <= EXCESS * limits[name]:
            return (
                f"{name}: {len(sample.start)} of its held-out windows replay with an error of {error:.4f}, more than "
                f"{EXCESS:g} times the bound {limits[name]:.4f}; calibrate again"
            )
    return _still(sample, twin.residuals, floating=has_floating_base(model))
