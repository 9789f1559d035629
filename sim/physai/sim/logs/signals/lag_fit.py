"""Fits a dead time and a time constant to a command and what followed it."""

from dataclasses import dataclass

import numpy as np

from physai.sim.logs.robot_log import Array
from physai.sim.logs.signals.timing import GAP_FACTOR

MAX_LAG_S = 0.12
"""Longest lag that is searched for, where the recording's period is shorter than a quarter of it."""

EXPLAINED = 0.7
"""Least part of the measured variance that the command must explain before a lag is believed."""

_WINDOW_S = 0.1
"""Slower changes than this are taken out of both series before they are compared: friction, cogging and back-EMF
follow the motion and would pass for a phase of the command."""

_SUBSTEPS = 8
"""Points per median period at which the response to a held command is computed."""

_TAU_PERIODS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Time constants that are tried first, in periods."""

_MAX_SHIFTS = 2000
"""Most shifts that are tried."""

_RESAMPLES = 200
"""Bootstrap resamples of the recording's windows."""


@dataclass(frozen=True)
class LagEstimate:
    """How late a measured series follows a command that is held from one sample to the next.

    The model is a dead time, then a first-order response: τ·y' = g·u(t - d) - y. Its mean delay is d + τ.
    """

    lag_s: float
    """Mean delay d + τ [s]."""
    lower_s: float
    """Lower end of its 95 % interval, from resampled windows of the recording [s]."""
    upper_s: float
    """Upper end of its 95 % interval [s]."""
    dead_time_s: float
    """d: until the first effect [s]."""
    time_constant_s: float
    """τ: from then until 63 % of it [s]."""
    shift_s: float
    """Shift at which the two logged series, joined by straight lines, agree best [s]: what a cross-correlation tells.
    Half a period more than the dead time of an instant response, as straight lines lead a held command by that much;
    less than `lag_s` for a slow one, as the first part of the response counts most."""
    gain: float
    """g: measured effort per commanded effort."""
    explained: float
    """Part of the variance of the quick changes that the model explains, at most 1."""

    @property
    def identified(self) -> bool:
        """Whether the command moved quickly enough to tell its lag from what follows the motion."""
        return self.explained >= EXPLAINED


def _around(value: float, grid: Array) -> Array:
    """Nine points from the grid's neighbour below one of its values to the one above."""
    at = int(np.searchsorted(grid, value))
    return np.linspace(float(grid[max(at - 1, 0)]), float(grid[min(at + 1, len(grid) - 1)]), 9)


class LagFit:
    """Compares quick changes of measured and computed response over a grid of dead times and time constants."""

    def __init__(self, time: Array, command: Array, measured: Array) -> None:
        periods = np.diff(time)
        self._period = float(np.median(periods))
        # Nothing is known of what was sent in a gap, and a long one would only make the substeps many.
        self._time = np.concatenate([[0.0], np.cumsum(np.minimum(periods, GAP_FACTOR * self._period))])
        self._command = command
        self._width = max(min(round(_WINDOW_S / self._period), len(time) // 4), 15) | 1
        self._target = self._quick(measured)
        # Windows short enough to be many, long enough to be nearly independent.
        length = max(self._width // 2, len(self._target) // 400)
        self._window_starts = np.arange(0, len(self._target), length)
        self._target_power = self._per_window(self._target * self._target)

    @property
    def has_quick_changes(self) -> bool:
        """Whether anything is left of the measured series without its slow changes."""
        return float(self._target_power.sum()) > 0.0

    def estimate(self, seed: int) -> LagEstimate:
        """Coarse shift, then the grid around it, then a finer one around its best point; seed of the bootstrap."""
        shift = self._best_shift()
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
        """Shift at which the series, joined by straight lines, correlate best [s], refined by a parabola."""
        longest = max(MAX_LAG_S, 4.0 * self._period)
        step = max(self._period / 4.0, longest / _MAX_SHIFTS)
        shifts = np.arange(0.0, longest + step, step)
        scores = np.zeros(len(shifts))
        for i, shift in enumerate(shifts):
            series = self._quick(np.interp(self._time - shift, self._time, self._command))
            power = float(series @ series)
            scores[i] = float(series @ self._target) ** 2 / power if power > 0.0 else 0.0
        best = int(scores.argmax())
        if not 0 < best < len(shifts) - 1:
            return float(shifts[best])
        before, at, after = scores[best - 1 : best + 2]
        bend = before - 2.0 * at + after
        return float(shifts[best] + (0.5 * (before - after) / bend * step if bend < 0.0 else 0.0))

    def _grid(self, dead_times: Array, time_constants: Array) -> "_Grid":
        """Sums over windows for every pair of dead time and time constant."""
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
        """The held command, that much later, and its times [s]."""
        times = np.arange(0.0, self._time[-1] + self._period, self._period / _SUBSTEPS)
        sent = np.searchsorted(self._time, times - dead_time, side="right") - 1
        return self._command[np.maximum(sent, 0)], times

    def _response(self, held: Array, times: Array, time_constant: float) -> Array:
        """First-order response to it at the samples' times."""
        if time_constant > 0.0:
            from scipy.signal import lfilter

            keep = np.exp(-self._period / _SUBSTEPS / time_constant)
            held = lfilter([0.0, 1.0 - keep], [1.0, -keep], held - held[0]) + held[0]
        return np.interp(self._time, times, held)

    def _quick(self, series: Array) -> Array:
        """The series without its moving average, ends left out where the average would not be whole."""
        sums = np.cumsum(np.concatenate([[0.0], series]))
        half = self._width // 2
        return series[half : len(series) - half] - (sums[self._width :] - sums[: -self._width]) / self._width

    def _per_window(self, values: Array) -> Array:
        return np.add.reduceat(values, self._window_starts)


@dataclass(frozen=True)
class _Grid:
    """How well each pair of dead time and time constant explains the measured series, window by window."""

    pairs: Array
    """Dead time and time constant [s], shape (p, 2)."""
    cross: Array
    """Sum of computed times measured in each window, shape (p, w)."""
    power: Array
    """Sum of computed squared, shape (p, w)."""
    target_power: Array
    """Sum of measured squared, shape (w,)."""

    def joined(self, other: "_Grid") -> "_Grid":
        """This grid and another of the same windows."""
        return _Grid(
            np.concatenate([self.pairs, other.pairs]),
            np.concatenate([self.cross, other.cross]),
            np.concatenate([self.power, other.power]),
            self.target_power,
        )

    def best(self) -> tuple[float, float, float, float]:
        """Dead time [s], time constant [s], gain and explained part of the best pair."""
        errors = self._errors(np.ones((1, len(self.target_power))))[0]
        i = int(errors.argmin())
        gain = self.cross[i].sum() / self.power[i].sum()
        return float(self.pairs[i, 0]), float(self.pairs[i, 1]), float(gain), float(1.0 - errors[i])

    def interval(self, seed: int) -> tuple[float, float]:
        """95 % interval of the mean delay [s].

        Of resampled windows, widened to every pair that explains as much of the variance but for 0.1 % of it or 1 % of
        the rest: a command that changes but once per sample tells a dead time to a period only.
        """
        count = len(self.target_power)
        counts = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), _RESAMPLES)
        lags = self.pairs.sum(axis=1)
        drawn = lags[self._errors(counts.astype(np.float64)).argmin(axis=1)]
        errors = self._errors(np.ones((1, count)))[0]
        alike = lags[errors <= 1.01 * errors.min() + 1e-3]
        lower, upper = np.quantile(drawn, [0.025, 0.975])
        return float(min(lower, alike.min())), float(max(upper, alike.max()))

    def _errors(self, weights: Array) -> Array:
        """Unexplained part of the measured variance for windows counted that often: (r, w) gives (r, p)."""
        cross, power, target = weights @ self.cross.T, weights @ self.power.T, weights @ self.target_power
        gained = np.where(power > 0.0, cross * cross / np.maximum(power, 1e-300), 0.0)
        return 1.0 - gained / np.maximum(target, 1e-300)[:, None]
