"""Identify how a motor's effort follows its command: lag, gain and saturation."""

from dataclasses import dataclass

import numpy as np

from physai.sim.logs.robot_log import Array, RobotLog
from physai.sim.logs.signals.lag import command_lag
from physai.sim.logs.signals.lag_fit import LagEstimate

FINE_STEP_S = 0.00025
"""Time step at which a response is computed [s]."""
BLOCK_S = 0.5
"""Length of the resampled blocks, over which errors of the gain may be correlated [s]."""
RESAMPLES = 200

SATURATED_MIN = 20
"""Minimum number of samples at the limit that show a saturation."""
BEYOND = 1.05
"""A response without saturation exceeds the limit by at least this factor there."""
FLAT = 0.05
"""Maximum relative spread of the measured effort at the limit."""


@dataclass(frozen=True)
class EffortResponse:
    """Measured effort of one joint as a response to its command u: τ·y' = g·u(t - d) - y, and |y| at most a limit."""

    lag: LagEstimate
    """Dead time d and time constant τ."""
    gain: float
    """g: measured effort per commanded effort, over all frequencies of the recording."""
    gain_std: float
    effort_max: float | None
    """Effort at which the motor saturates [N·m or N]; None if the recording does not show one."""
    period_s: float
    """Median sampling period of the recording [s]."""


def effort_response(log: RobotLog) -> tuple[EffortResponse | None, ...]:
    """Identify the response of every joint; None where the recording does not identify its lag."""
    return tuple(
        None if lag is None or not lag.identified or log.joint_effort is None else _identify(log, joint, lag)
        for joint, lag in enumerate(command_lag(log))
    )


def _identify(log: RobotLog, joint: int, lag: LagEstimate) -> EffortResponse:
    assert log.joint_effort is not None
    measured = log.joint_effort[:, joint]
    followed = responding(log.time, log.command[:, joint], lag.dead_time_s, lag.time_constant_s).sampled(log.time)
    gain, std = _slope(log.time, followed, measured)
    limit = _saturation(gain * followed, measured)
    if limit is not None:
        # What is cut off says nothing about the gain.
        below = np.abs(gain * followed) < limit
        gain, std = _slope(log.time[below], followed[below], measured[below])
    period_s = float(np.median(np.diff(log.time)))
    return EffortResponse(lag=lag, gain=gain, gain_std=std, effort_max=limit, period_s=period_s)


def _slope(time: Array, command: Array, measured: Array) -> tuple[float, float]:
    """Return slope and its standard deviation, from a bootstrap over blocks; an offset is fitted, too."""
    block = (time / BLOCK_S).astype(np.int64)
    block = np.unique(block, return_inverse=True)[1]
    columns = (np.ones_like(command), command, measured, command * command, command * measured)
    sums = np.stack([np.bincount(block, column) for column in columns])
    count = sums.shape[1]
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), RESAMPLES).T
    slopes = _slopes(sums @ drawn.astype(np.float64))
    return float(_slopes(sums.sum(axis=1))), float(slopes.std())


def _slopes(sums: Array) -> Array:
    number, x, y, xx, xy = sums
    return (number * xy - x * y) / np.maximum(number * xx - x * x, 1e-300)


def _saturation(response: Array, measured: Array) -> float | None:
    """Return the effort that measurements do not exceed where the response without saturation does."""
    level = float(np.quantile(np.abs(measured), 0.999))
    there = np.abs(response) > BEYOND * level
    if int(there.sum()) < SATURATED_MIN:
        return None
    at = np.abs(measured[there])
    return (
        float(np.median(at)) if float(at.std()) <= FLAT * level and float(at.mean()) >= (1.0 - FLAT) * level else None
    )


@dataclass(frozen=True)
class FineSignal:
    """A signal sampled every `FINE_STEP_S`."""

    time: Array
    values: Array

    def sampled(self, time: Array) -> Array:
        """Interpolate at other times [s]."""
        return np.interp(time, self.time, self.values)


def responding(time: Array, command: Array, dead_time_s: float, time_constant_s: float) -> FineSignal:
    """Return the first-order response with dead time to a command that is held between samples, with gain 1.

    Args:
        time: when each command was sent [s], shape (n,), ascending from 0.
        command: shape (n,).
        dead_time_s: time until the first effect [s].
        time_constant_s: time from then until 63 % of the response [s]; 0 for an instant response.
    """
    times = np.arange(0.0, float(time[-1]) + FINE_STEP_S, FINE_STEP_S)
    # 1e-9 s: rounding must not delay a command by a step.
    sent = np.maximum(np.searchsorted(time, times - dead_time_s + 1e-9, side="right") - 1, 0)
    held = command[sent]
    if time_constant_s > 0.0:
        # Imported here because it is slow to import and rarely needed.
        from scipy.signal import lfilter

        # Exact discretisation for a held input; starting at held[0] avoids an initial transient.
        keep = float(np.exp(-FINE_STEP_S / time_constant_s))
        held = lfilter([0.0, 1.0 - keep], [1.0, -keep], held - held[0]) + held[0]
    return FineSignal(times, held)
