"""Fit a dead time and a time constant to a command and its measured response."""

from dataclasses import dataclass

import numpy as np

from physai.twin.logs.robot_log import Array
from physai.twin.logs.signals.timing import GAP_FACTOR

MAX_LAG_S = 0.12
"""Maximum lag of the search [s]; four periods for recordings with longer periods."""

EXPLAINED = 0.7
"""Minimum share of the measured variance that the command must explain for a lag to be identified."""

# Friction, cogging and back-EMF follow the motion, and would look like a phase shift of the command.
_WINDOW_S = 0.1
"""Window of the moving average that is subtracted from both series [s]."""

_SUBSTEPS = 8
"""Points per median period at which the response to a held command is computed."""

_TAU_PERIODS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Time constants of the coarse grid, in periods."""

_MAX_SHIFTS = 2000
"""Maximum number of shifts to try."""

_RESAMPLES = 200
"""Bootstrap resamples of the recording's windows."""


@dataclass(frozen=True)
class LagEstimate:
    """Lag of a measured series behind a command that is held between samples.

    The model is a dead time followed by a first-order response: τ·y' = g·u(t - d) - y. Its mean delay is d + τ.
    """

    lag_s: float
    """Mean delay d + τ [s]."""
    lower_s: float
    """Lower end of its 95 % interval, from resampled windows of the recording [s]."""
    upper_s: float
    """Upper end of its 95 % interval [s]."""
    dead_time_s: float
    """d: time until the first effect [s]."""
    time_constant_s: float
    """τ: time from the first effect until 63 % of the response [s]."""
    # The shift exceeds the dead time of an instant response by half a period, because interpolation leads a held
    # command by that much. It is below `lag_s` for a slow response, whose early part dominates the correlation.
    shift_s: float
    """Shift with the best cross-correlation of the linearly interpolated series [s]."""
    gain: float
    """g: measured effort per commanded effort."""
    explained: float
    """Share of the variance of the fast changes that the model explains, at most 1."""

    @property
    def identified(self) -> bool:
        """Whether the command changes fast enough to separate its lag from effects of the motion."""
        return self.explained >= EXPLAINED


def _around(value: float, grid: Array) -> Array:
    """Return nine points between the grid's neighbours of one of its values."""
    at = int(np.searchsorted(grid, value))
    return np.linspace(float(grid[max(at - 1, 0)]), float(grid[min(at + 1, len(grid) - 1)]), 9)


class LagFit:
    """Compares fast changes of measured and modelled response over a grid of dead times and time constants."""

    def __init__(self, time: Array, command: Array, measured: Array) -> None:
        periods = np.diff(time)
        self._period = float(np.median(periods))
        # Commands in a gap are unknown; shortening it limits the number of substeps.
        self._time = np.concatenate([[0.0], np.cumsum(np.minimum(periods, GAP_FACTOR * self._period))])
        self._command = command
        # At least 15 samples, so that the average is not the signal itself; odd, so that it has a centre.
        self._width = max(min(round(_WINDOW_S / self._period), len(time) // 4), 15) | 1
        self._target = self._quick(measured)
        # Bootstrap windows: short enough to be many, long enough to be nearly independent.
        length = max(self._width // 2, len(self._target) // 400)
        self._window_starts = np.arange(0, len(self._target), length)
        self._target_power = self._per_window(self._target * self._target)

    @property
    def has_quick_changes(self) -> bool:
        """Whether the measured series has any fast changes."""
        return float(self._target_power.sum()) > 0.0

    def estimate(self, seed: int) -> LagEstimate:
        """Search a coarse grid around the best shift, then a finer one around its best point."""
        shift = self._best_shift()
        # A slow response has its dead time before the best shift, by at most its time constant.
        dead_times = np.linspace(max(0.0, shift - _TAU_PERIODS[-1] * self._period), shift + 1.5 * self._period, 20)
        time_constants = np.array(_TAU_PERIODS) * self._period
        coarse = self._grid(dead_times, time_constants)
        dead, tau = coarse.best()[:2]
        fine = self._grid(_around(dead, dead_times), _around(tau, time_constants))
        grid = coarse.joined(fine)
        dead, tau, gain, explained = grid.best()
        lower, upper = grid.interval(seed)
        return LagEstimate(
            lag_s=dead + tau,
            lower_s=lower,
            upper_s=upper,
            dead_time_s=dead,
            time_constant_s=tau,
            shift_s=shift,
            gain=gain,
            explained=explained,
        )

    def _best_shift(self) -> float:
        """Return the shift with the best correlation of the interpolated series [s], refined by a parabola."""
        longest = max(MAX_LAG_S, 4.0 * self._period)
        step = max(self._period / 4.0, longest / _MAX_SHIFTS)
        shifts = np.arange(0.0, longest + step, step)
        scores = np.zeros(len(shifts))
        for i, shift in enumerate(shifts):
            series = self._quick(np.interp(self._time - shift, self._time, self._command))
            power = float(series @ series)
            scores[i] = float(series @ self._target) ** 2 / power if power > 0.0 else 0.0
        best = int(scores.argmax())
        # A parabola needs a neighbour on both sides.
        if not 0 < best < len(shifts) - 1:
            return float(shifts[best])
        before, at, after = scores[best - 1 : best + 2]
        bend = before - 2.0 * at + after
        return float(shifts[best] + (0.5 * (before - after) / bend * step if bend < 0.0 else 0.0))

    def _grid(self, dead_times: Array, time_constants: Array) -> "_Grid":
        """Evaluate every pair of dead time and time constant, window by window."""
        pairs = np.array([(d, t) for d in dead_times for t in time_constants])
        cross, power = (np.zeros((len(pairs), len(self._window_starts))) for _ in range(2))
        for dead in np.unique(dead_times):
            held, times = self._held(dead)
            for i in np.flatnonzero(pairs[:, 0] == dead):
                series = self._quick(self._response(held, times, pairs[i, 1]))
                cross[i] = self._per_window(series * self._target)
                power[i] = self._per_window(series * series)
        return _Grid(pairs, cross, power, self._target_power)

    def _held(self, dead_time: float) -> tuple[Array, Array]:
        """Return the held command delayed by the dead time, and its times [s]."""
        times = np.arange(0.0, self._time[-1] + self._period, self._period / _SUBSTEPS)
        sent = np.searchsorted(self._time, times - dead_time, side="right") - 1
        return self._command[np.maximum(sent, 0)], times

    def _response(self, held: Array, times: Array, time_constant: float) -> Array:
        """Return the first-order response to a held command at the samples' times."""
        if time_constant > 0.0:
            from scipy.signal import lfilter

            # Exact discretisation for a held input; starting at held[0] avoids an initial transient.
            keep = np.exp(-self._period / _SUBSTEPS / time_constant)
            held = lfilter([0.0, 1.0 - keep], [1.0, -keep], held - held[0]) + held[0]
        return np.interp(self._time, times, held)

    def _quick(self, series: Array) -> Array:
        """Subtract the moving average; the ends without a full window are dropped."""
        # Differences of cumulative sums give every window's average in O(n).
        sums = np.cumsum(np.concatenate([[0.0], series]))
        half = self._width // 2
        return series[half : len(series) - half] - (sums[self._width :] - sums[: -self._width]) / self._width

    def _per_window(self, values: Array) -> Array:
        return np.add.reduceat(values, self._window_starts)


@dataclass(frozen=True)
class _Grid:
    """Fit of each pair of dead time and time constant to the measured series, window by window."""

    pairs: Array
    """Dead time and time constant [s], shape (p, 2)."""
    cross: Array
    """Sum of modelled times measured in each window, shape (p, w)."""
    power: Array
    """Sum of squared modelled values in each window, shape (p, w)."""
    target_power: Array
    """Sum of squared measured values in each window, shape (w,)."""

    def joined(self, other: "_Grid") -> "_Grid":
        """Combine with another grid over the same windows."""
        return _Grid(
            np.concatenate([self.pairs, other.pairs]),
            np.concatenate([self.cross, other.cross]),
            np.concatenate([self.power, other.power]),
            self.target_power,
        )

    def best(self) -> tuple[float, float, float, float]:
        """Return dead time [s], time constant [s], gain and explained share of the best pair."""
        errors = self._errors(np.ones((1, len(self.target_power))))[0]
        i = int(errors.argmin())
        gain = self.cross[i].sum() / self.power[i].sum()
        return float(self.pairs[i, 0]), float(self.pairs[i, 1]), float(gain), float(1.0 - errors[i])

    def interval(self, seed: int) -> tuple[float, float]:
        """Return the 95 % interval of the mean delay [s], from a bootstrap over windows."""
        count = len(self.target_power)
        counts = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), _RESAMPLES)
        lags = self.pairs.sum(axis=1)
        drawn = lags[self._errors(counts.astype(np.float64)).argmin(axis=1)]
        errors = self._errors(np.ones((1, count)))[0]
        # Widen the interval to all pairs that fit about equally well, within 1 % of the residual plus 0.1 % of the
        # variance: a command that changes once per sample determines the dead time only to within a period.
        alike = lags[errors <= 1.01 * errors.min() + 1e-3]
        lower, upper = np.quantile(drawn, [0.025, 0.975])
        return float(min(lower, alike.min())), float(max(upper, alike.max()))

    def _errors(self, weights: Array) -> Array:
        """Return the unexplained share of the variance, shape (r, p), for weights of the windows, shape (r, w)."""
        # With the best gain, cross / power, a pair explains cross² / power of the target's power.
        cross, power, target = weights @ self.cross.T, weights @ self.power.T, weights @ self.target_power
        gained = np.where(power > 0.0, cross * cross / np.maximum(power, 1e-300), 0.0)
        return 1.0 - gained / np.maximum(target, 1e-300)[:, None]
