"""Statements of a twin file that contradict each other, whatever the recordings were."""

import math
from collections.abc import Iterator

import numpy as np

from physai.twin.model.credibility import FLOOR_STDS
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import BASE_ERRORS, Residuals, Timing

ROUNDING = 1e-6
"""Relative difference of equal values."""
FLOOR_EXCESS, FLOOR_MIN = 3.0, 1e-4
"""Factor by which the held-out recordings, whose noise is the floor, may show more noise than all; a floor that needs
no noise [rad or m]."""
MOTION_EXCESS = 1.5
"""Factor by which the share of a recording's windows may exceed its share of the time."""
LAG_FACTOR = 2.0
"""Factor by which the weighed mean of all lags may be outside the motors' medians, besides a sampling period."""


def inconsistency(twin: Twin) -> str:
    """Return what a twin file states that it contradicts itself, or ""."""
    found = (*_parameters(twin), *_times(twin.timing), *_motors(twin), *_replays(twin))
    return found[0] if found else ""


def _parameters(twin: Twin) -> Iterator[str]:
    spread = np.sqrt(np.diag(twin.covariance))
    for parameter, std in zip(twin.parameters, spread.tolist(), strict=True):
        if not math.isclose(parameter.std, std, rel_tol=ROUNDING):
            yield (
                f"{parameter.name} has a standard deviation of {parameter.std:.4g}, and one of {std:.4g} in the "
                "covariance"
            )
        kept = (parameter.prior, parameter.prior_std)
        if not parameter.identified and (parameter.value, parameter.std) != kept:
            near = math.isclose(parameter.std, kept[1], rel_tol=ROUNDING)
            if not (near and math.isclose(parameter.value, kept[0], rel_tol=ROUNDING, abs_tol=ROUNDING * kept[1])):
                yield (
                    f"{parameter.name} is not constrained and yet {parameter.value:.4g} ± {parameter.std:.4g}, the "
                    f"prior is {kept[0]:.4g} ± {kept[1]:.4g}"
                )


def _times(timing: Timing) -> Iterator[str]:
    if (timing.command_lag_mean_s is None) != (timing.command_lag_p99_s is None):
        yield "it states either the mean or the 99th percentile of its command lag, and not the other"
    if (timing.command_lag_period_s is None) != (timing.command_lag_periods is None):
        yield "it states either the period at which its command lag was measured or how the lag depends on it"
    periods = [s for s in (timing.period_median_s, timing.period_p99_s, timing.period_max_s) if s is not None]
    if periods != sorted(periods):
        yield f"its loop's median, 99th percentile and maximum period do not ascend: {periods} s"


def _motors(twin: Twin) -> Iterator[str]:
    if twin.command_residuals is not None and not twin.actuators:
        yield "it states a replay from commands and no response of a motor to them"
    if not twin.actuators:
        return
    lag_s = twin.timing.command_lag_mean_s
    if lag_s is None:
        yield "it states how motors follow commands and no lag"
        return
    period_s = twin.timing.command_lag_period_s
    if period_s is not None and any(response.period_s != period_s for response in twin.actuators):
        yield f"its command lag was measured at a period of {period_s:g} s, the response of its motors at another"
    each = [response.dead_time_s + response.time_constant_s for response in twin.actuators]
    sampled_s = max(response.period_s for response in twin.actuators)
    if not min(each) / LAG_FACTOR - sampled_s <= lag_s <= LAG_FACTOR * max(each) + sampled_s:
        yield (
            f"its command lag is {1e3 * lag_s:.1f} ms, and that of its motors {1e3 * min(each):.1f} to "
            f"{1e3 * max(each):.1f} ms"
        )


def _replays(twin: Twin) -> Iterator[str]:
    for residuals in (twin.residuals, twin.command_residuals):
        if residuals is not None:
            yield from _floors(twin, residuals)
    if twin.residuals is None or twin.command_residuals is None:
        return
    if twin.residuals.window_s != twin.command_residuals.window_s:
        yield (
            f"its windows are {twin.residuals.window_s:g} s long, those of its replay from commands "
            f"{twin.command_residuals.window_s:g} s"
        )
    # Recordings without commands are replayed from efforts only: one of n has at most √n times the motion of all.
    most = math.sqrt(max(1, len(twin.logs.held_out)))
    longest = max((log.duration_s or 0.0 for log in twin.logs.held_out), default=0.0)
    shortest = min((log.duration_s or 0.0 for log in twin.logs.held_out), default=0.0)
    most *= math.sqrt(longest / shortest) if shortest > 0.0 else math.inf
    pairs = zip(twin.residuals.motion, twin.command_residuals.motion, strict=True)
    for name, (all_of_them, sent) in zip(twin.residuals.joint_names, pairs, strict=True):
        if not sent <= most * all_of_them * MOTION_EXCESS:
            yield (
                f"{name}: it moves by {sent:.2g} in the replay from commands, by {all_of_them:.2g} in all held-out "
                "recordings"
            )


def _floors(twin: Twin, residuals: Residuals) -> Iterator[str]:
    """Yield what is called noise or steps of a sensor, and is not."""
    joints = len(twin.joint_names)
    noise = twin.noise.joint_pos_std or (0.0,) * joints
    steps = [joint.joint_pos_resolution for joint in twin.sensors] or [0.0] * joints
    stds = {
        name: max(std, step / math.sqrt(12.0)) for name, std, step in zip(twin.joint_names, noise, steps, strict=True)
    }
    for name, floor in zip(residuals.joint_names, residuals.floor, strict=False):
        # Noise of a base's pose is not in the file.
        if name not in BASE_ERRORS and not floor <= max(FLOOR_EXCESS * FLOOR_STDS * stds[name], FLOOR_MIN):
            yield (
                f"{name}: it states that its position sensor explains an error of {floor:.2g}, and that it is off by "
                f"{stds[name]:.2g} (standard deviation)"
            )
