"""Identify how a motor's effort follows its command: lag, gain and saturation."""

from dataclasses import dataclass

import numpy as np

from physai.twin.logs.robot_log import Array, RobotLog
from physai.twin.logs.signals.lag import command_lag
from physai.twin.logs.signals.lag_fit import LagEstimate

FINE_STEP_S = 0.00025
"""Time step at which a response is computed [s]."""
BLOCK_S = 0.5
"""Length of the resampled blocks, over which errors of the gain may be correlated [s]."""
RESAMPLES = 200

ACCELERATION_S, ACCELERATION_SAMPLES = 0.03, 7
"""Width of the parabolas that give the acceleration [s], and their minimum number of samples."""
SIGNIFICANT = 3.0
"""Standard deviations that the missing effort per acceleration must be above 0."""
SATURATED_MIN = 20
"""Minimum number of samples at the limit that show a saturation."""
BEYOND = 1.05
"""A response without saturation exceeds the limit by at least this factor there."""
FLAT = 0.05
"""Maximum relative spread of the measured effort at the limit."""


@dataclass(frozen=True)
class EffortResponse:
    """Measured effort of one joint as a response to its command u and its acceleration a.

    y = z - m·a, with τ·z' = g·u(t - d) - z, and |y| at most a limit.
    """

    lag: LagEstimate
    """Dead time d and time constant τ."""
    gain: float
    """g: measured effort per commanded effort, over all frequencies of the recording."""
    gain_std: float
    inertia: float
    """m: effort that is missing per acceleration [kg·m² or kg]; 0 if the recording shows none. The controller of the
    motor's current lags behind the voltage that a changing speed induces: the motor acts like one with more inertia."""
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
    columns = [np.ones_like(followed), followed]
    if (faster := _acceleration(log.time, log.joint_pos[:, joint])) is not None:
        columns.append(-faster)
    found, std = _regression(log.time, columns, measured)
    if len(columns) == 3 and not found[2] > SIGNIFICANT * std[2]:
        columns.pop()
        found, std = _regression(log.time, columns, measured)
    limit = _saturation(found[1] * followed, measured)
    if limit is not None:
        # What is cut off says nothing about the gain.
        below = np.abs(found[1] * followed) < limit
        found, std = _regression(log.time[below], [column[below] for column in columns], measured[below])
    return EffortResponse(
        lag=lag,
        gain=float(found[1]),
        gain_std=float(std[1]),
        inertia=max(0.0, float(found[2])) if len(columns) == 3 else 0.0,
        effort_max=limit,
        period_s=float(np.median(np.diff(log.time))),
    )


def _acceleration(time: Array, position: Array) -> Array | None:
    """Return the acceleration, from parabolas fitted to the positions around each sample; None for slow recordings."""
    period_s = float(np.median(np.diff(time)))
    width = int(ACCELERATION_S / period_s) | 1
    if width < ACCELERATION_SAMPLES or width > len(time):
        return None
    # Imported here because it is slow to import and rarely needed.
    from scipy.signal import savgol_filter

    even = np.arange(0.0, float(time[-1]), period_s)
    smooth: Array = savgol_filter(np.interp(even, time, position), width, 2, deriv=2, delta=period_s)
    return np.interp(time, even, smooth)


def _regression(time: Array, columns: list[Array], measured: Array) -> tuple[Array, Array]:
    """Return the coefficients of a linear regression and their standard deviations, from a bootstrap over blocks."""
    block = np.unique((time / BLOCK_S).astype(np.int64), return_inverse=True)[1]
    table = np.stack(columns, axis=1)
    count, width = int(block.max()) + 1, len(columns)
    squares, products = np.zeros((count, width, width)), np.zeros((count, width))
    np.add.at(squares, block, table[:, :, None] * table[:, None])
    np.add.at(products, block, table * measured[:, None])
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), RESAMPLES).astype(np.float64)
    # A little of the identity, as a draw of a few blocks may not excite every column.
    ridge = 1e-9 * np.trace(squares.sum(axis=0)) * np.eye(width)
    systems: Array = np.tensordot(drawn, squares, axes=1) + ridge
    sides: Array = drawn @ products
    draws = np.asarray(np.linalg.solve(systems, sides[..., None]), np.float64)[..., 0]
    found = np.asarray(np.linalg.solve(squares.sum(axis=0) + ridge, products.sum(axis=0)), np.float64)
    return found, np.asarray(np.std(draws, axis=0), np.float64)


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
