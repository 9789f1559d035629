"""Model of a joint's recorded readings: steps of the encoder, and speeds that the robot computes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from physai.twin.logs.robot_log import Array

MAX_SPAN = 8
"""Maximum number of sampling periods of a difference quotient."""
SAME = 1e-3
"""Maximum root mean square deviation from the difference quotient, relative to the speed's, that counts as equal.

A measured speed deviates from it by its noise, and by the change of speed within a period.
"""
ROUNDED = 0.4
"""The same for a speed that is read in steps, in those: the deviation is even over ± half a step, 0.29 on average."""
MIN_SAMPLES = 50
GAIN_MIN, GAIN_MAX = 0.02, 0.95
"""Range of a filter's gain 1 - exp(-dt/T) that a recording shows: below, T is long against the motion, above, the
filter passes almost everything."""
STEPS_MIN = 0.99
"""Minimum share of the distances between readings that are multiples of a resolution."""
READINGS_MIN, READINGS_ENOUGH = 3, 20
"""Minimum number of different readings that show a resolution, if each occurs twice on average, and without that:
the distances between fewer may be multiples of something by chance."""
DIVISORS = (1, 2, 3, 4, 5)
"""The smallest distance between two readings may be that many steps."""

Kind = Literal["measured", "backward", "central"]


@dataclass(frozen=True)
class Speed:
    """Model of a recorded speed."""

    kind: Kind = "measured"
    """`backward` or `central`: the difference of the position, (q(i) - q(i - k))/(t(i) - t(i - k)), at its end or in
    its middle."""
    span: int = 0
    """Number k of samples of the difference; 0 if the speed is measured."""
    time_constant_s: float = 0.0
    """Of the first-order low-pass filter on the difference [s]; 0 for none."""

    def lag_s(self, period_s: float) -> float:
        """Return by how much the readings of a steady acceleration are late, if sampled with this period [s]."""
        if self.time_constant_s > 0.0:
            # The filter's dead time: v(i) - v(i - 1) = g·(d(i) - v(i - 1)) follows a ramp (1 - g)/g samples late.
            keep = float(np.exp(-period_s / self.time_constant_s))
            return (0.5 * self.span + keep / (1.0 - keep)) * period_s
        return 0.5 * self.span * period_s if self.kind == "backward" else 0.0


def speed_origin(time: Array, position: Array, speed: Array) -> Speed | None:
    """Return how a joint's recorded speed comes about; None if the recording does not tell.

    It does not where several explanations hold: all differences of a smooth motion without noise equal its speed.

    Args:
        time: of each sample [s], shape (n,).
        position: [rad or m], shape (n,).
        speed: [rad/s or m/s], shape (n,).
    """
    if len(time) < MIN_SAMPLES or not float(np.abs(speed).max()) > 0.0:
        return None
    found = difference(time, position, speed)
    if found is not None:
        return Speed(*found)
    if _explanations(time, position, speed):
        return None
    return filtered(time, position, speed) or Speed()


def difference(time: Array, position: Array, speed: Array) -> tuple[Literal["backward", "central"], int] | None:
    """Return the difference quotient that a speed is, and its span in samples; arguments as of `speed_origin`.

    None if there is none, or several.
    """
    found = _explanations(time, position, speed)
    return found[0] if len(found) == 1 else None


def _explanations(time: Array, position: Array, speed: Array) -> list[tuple[Literal["backward", "central"], int]]:
    size = float(np.sqrt(np.mean(speed**2)))
    if not size > 0.0:
        return []
    limit = max(SAME * size, ROUNDED * reading_step(speed))
    found: list[tuple[Literal["backward", "central"], int]] = []
    for span in range(1, MAX_SPAN + 1):
        quotient = (position[span:] - position[:-span]) / (time[span:] - time[:-span])
        # The first samples may be computed from what came before the recording, so they are left out.
        if _rms((speed[span:] - quotient)[MAX_SPAN:]) <= limit:
            found.append(("backward", span))
        if span % 2 == 0 and _rms((speed[span // 2 : -(span // 2)] - quotient)[MAX_SPAN:]) <= limit:
            found.append(("central", span))
    return found


def filtered(time: Array, position: Array, speed: Array) -> Speed | None:
    """Return the low-pass filter of a difference over one sample that a speed is; None if it is none.

    v(i) = v(i - 1) + g·(d(i) - v(i - 1)) with the difference d and the gain g = 1 - exp(-dt/T).
    """
    period = np.diff(time)[1:]
    quotient = (np.diff(position) / np.diff(time))[1:]
    before, change = speed[1:-1], np.diff(speed)[1:]
    ahead = quotient - before
    power = float(ahead @ ahead)
    if not power > 0.0:
        return None
    gain = float(ahead @ change) / power
    # A noise-free speed is a steady fraction ahead of a difference, too, with a gain of 2.
    if not GAIN_MIN <= gain <= GAIN_MAX:
        return None
    dt = float(np.median(period))
    constant = -dt / float(np.log1p(-gain))
    rest = change - (1.0 - np.exp(-period / constant)) * ahead
    if not _rms(rest) <= max(SAME * _rms(speed), ROUNDED * reading_step(speed)):
        return None
    # What a filter leaves must be small against what it explains, or slow motion alone would pass.
    return Speed("backward", 1, constant) if _rms(rest) <= 0.1 * _rms(change) else None


def reading_step(series: Array) -> float:
    """Return the step of which all readings are multiples, in their unit; 0 if there is none.

    A series of floating-point numbers without steps has a smallest distance, too, but the others are no multiples.
    """
    readings = np.unique(series)
    if len(readings) < READINGS_MIN or (len(readings) < READINGS_ENOUGH and len(series) < 2 * len(readings)):
        return 0.0
    distances = np.diff(readings)
    # Readings of one step that differ by the rounding of their decimals only are the same.
    real = distances[distances > 1e-3 * float(np.median(distances))]
    smallest = float(np.quantile(real, 0.01, method="lower"))
    for divisor in DIVISORS:
        step = smallest / divisor
        apart = np.abs(real / step - np.round(real / step))
        # Written with few decimals, the step itself is only known to a per cent.
        if float(np.mean(apart <= 0.1)) >= STEPS_MIN:
            return _refined(real, step)
    return 0.0


def _refined(distances: Array, step: float) -> float:
    """Return the step by least squares over all distances, of which the smallest ones count their steps best."""
    counts = np.round(distances / step)
    few = counts <= 10
    return float(distances[few] @ counts[few] / (counts[few] @ counts[few])) if few.any() else step


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
