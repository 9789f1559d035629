"""Estimate states of a recording by smoothing positions, more accurately than a noisy speed sensor."""

import numpy as np
import numpy.typing as npt

from physai.twin.logs import RobotLog
from physai.twin.logs.signals.noise import noise_std
from physai.twin.logs.signals.speed import speed_origin

Array = npt.NDArray[np.float64]

HALF_WIDTHS_S = (0.01, 0.015, 0.02, 0.03, 0.05, 0.075)
"""Candidate half widths of the smoothing window; the last one is only used to widen."""
WIDENED_MAX_S = 0.05
"""Maximum half width after widening: a parabola over ±h underestimates the slope of a sine with angular frequency w by
(w·h)²/10 of its amplitude, one per cent at 1 Hz."""
DEGREE = 2
SLOW_DEGREE = 3
"""Of the polynomial through `MIN_SAMPLES` samples of a slow recording: over as long a time a parabola is too stiff."""
MIN_SAMPLES = 5
"""Minimum number of samples in the smoothing window."""
_TRIED = 400
"""Number of samples at which each width is evaluated."""


class StateEstimate:
    """Positions and speeds at samples of a recording.

    A parabola is fitted to the measured positions around the sample. Slow recordings use the measured speed; those
    without one are smoothed over the nearest `MIN_SAMPLES` samples. A speed that the robot computes from earlier
    positions is late: there the slope of a cubic through the nearest `MIN_SAMPLES` positions takes its place.
    """

    def __init__(self, log: RobotLog) -> None:
        self._log = log
        self.half_width_s = self._best_width()
        """Selected half width [s]; None if the measured speed is used."""
        slow = self.half_width_s is None and log.joint_vel is not None
        self._late = _late_joints(log) if slow else np.zeros(len(log.joint_names), dtype=np.bool_)

    def at(self, samples: npt.NDArray[np.int64]) -> tuple[Array, Array]:
        """Return position and speed at the samples, shape (len(samples), J) each."""
        # Not the measured speed where it can be avoided: on recordings of a double pendulum its error in motion is 0.1
        # to 0.3 rad/s, which after 0.25 s exceeds the entire replay error of a good model.
        log = self._log
        if self.half_width_s is None and log.joint_vel is not None:
            speed = log.joint_vel[samples].copy()
            if self._late.any():
                speed[:, self._late] = self._cubic_slopes(samples)[:, self._late]
            return log.joint_pos[samples].copy(), speed
        fits = [self._parabola(sample, self.half_width_s or 0.0, leave_out=False) for sample in samples.tolist()]
        return np.array([fit[0] for fit in fits]), np.array([fit[1] for fit in fits])

    def errors(self) -> tuple[Array, Array]:
        """Return the typical errors of positions and speeds, shape (J,) each.

        For positions, from left-out predictions, reduced by the smoothing. For speeds, from the difference between the
        slopes of parabola and cubic, which includes the parabola's bias; for measured speeds, their noise, and for
        those that the robot computes from earlier positions, that of the cubic's slope, from the noise of the positions
        and the difference between its slopes and those through the two neighbours.
        """
        log = self._log
        if self.half_width_s is None and log.joint_vel is not None:
            noise = [
                (noise_std(x, []), noise_std(v, [])) for x, v in zip(log.joint_pos.T, log.joint_vel.T, strict=True)
            ]
            position, speed = np.array([pos for pos, _ in noise]), np.array([vel for _, vel in noise])
            return position, np.where(self._late, self._cubic_error(position), speed)
        width, last = self.half_width_s or 0.0, len(log.time) - MIN_SAMPLES
        tried = np.arange(MIN_SAMPLES, max(last, MIN_SAMPLES + 1), max(1, last // _TRIED)).tolist()
        plain = [self._parabola(sample, width, leave_out=False)[1] for sample in tried]
        cubic = [self._parabola(sample, width, leave_out=False, degree=DEGREE + 1)[1] for sample in tried]
        left = [self._parabola(sample, width, leave_out=True)[0] - log.joint_pos[sample] for sample in tried]
        count = max(MIN_SAMPLES, int(2.0 * width / float(np.median(np.diff(log.time)))))
        # The centre of a parabola fitted to n samples has 9/(4·n) of the variance of one.
        position = np.sqrt((np.array(left) ** 2).mean(axis=0) * 2.25 / count)
        return position, np.sqrt(((np.array(plain) - np.array(cubic)) ** 2).mean(axis=0))

    def _cubic_slopes(self, samples: npt.NDArray[np.int64]) -> Array:
        """Return slopes of cubics at the samples [rad/s or m/s], shape (len(samples), J)."""
        fits = [self._parabola(sample, 0.0, leave_out=False, degree=SLOW_DEGREE) for sample in samples.tolist()]
        return np.array([slope for _, slope in fits])

    def _cubic_error(self, noise: Array) -> Array:
        """Return the typical error of the cubics' slopes, given the positions' noise [rad or m], shape (J,)."""
        time, position = self._log.time, self._log.joint_pos
        inside = np.arange(MIN_SAMPLES, len(time) - MIN_SAMPLES)
        if not len(inside):
            return np.full(len(noise), np.inf)
        central = (position[inside + 1] - position[inside - 1]) / (time[inside + 1] - time[inside - 1])[:, None]
        bias = np.sqrt(((self._cubic_slopes(inside) - central) ** 2).mean(axis=0))
        # The slope is (x(-2) - 8·x(-1) + 8·x(1) - x(2))/(12·dt), with √130/12 of a sample's noise.
        return np.hypot(130.0**0.5 / 12.0 / float(np.median(np.diff(time))) * noise, bias)

    def _best_width(self) -> float | None:
        time = self._log.time
        period = float(np.median(np.diff(time)))
        widths = [width for width in HALF_WIDTHS_S if 2.0 * width / period + 1.0 >= MIN_SAMPLES]
        if len(widths) < 2:
            return None
        inside = np.flatnonzero((time > widths[-1]) & (time < time[-1] - widths[-1]))
        if len(inside) < MIN_SAMPLES:
            return widths[0]
        tried = inside[:: max(1, len(inside) // _TRIED)]
        # Relative to each joint's motion, so that one width suits all joints; the tiny term is for a joint at rest.
        scale = self._log.joint_pos.std(axis=0) + 1e-12
        errors: list[float] = []
        for width in widths[:-1]:
            fitted = np.array([self._parabola(sample, width, leave_out=True)[0] for sample in tried.tolist()])
            errors.append(float((((fitted - self._log.joint_pos[tried]) / scale) ** 2).mean()))
        # One step wider than what best predicts left-out positions, because a slope needs more samples than a position.
        best = int(np.argmin(errors))
        return widths[best + 1] if widths[best + 1] <= WIDENED_MAX_S else widths[best]

    def _parabola(
        self, sample: int, half_width_s: float, *, leave_out: bool, degree: int = DEGREE
    ) -> tuple[Array, Array]:
        """Return position and slope of a fitted polynomial at a sample, shape (J,) each."""
        time = self._log.time
        first = int((time < time[sample] - half_width_s).sum())
        last = int((time <= time[sample] + half_width_s).sum())
        # At least MIN_SAMPLES samples, also at the ends of the recording and beside gaps.
        first = max(0, min(first, sample - MIN_SAMPLES // 2, len(time) - MIN_SAMPLES))
        last = min(len(time), max(last, sample + MIN_SAMPLES // 2 + 1, first + MIN_SAMPLES))
        chosen = np.arange(first, last)
        if leave_out:
            chosen = chosen[chosen != sample]
        # Savitzky and Golay, Analytical Chemistry 36, 1964, generalised to uneven sampling.
        powers = np.vander(np.asarray(time[chosen] - time[sample]), degree + 1, increasing=True)
        solution = np.linalg.lstsq(powers, self._log.joint_pos[chosen], rcond=None)[0]
        return solution[0], solution[1]


def _late_joints(log: RobotLog) -> npt.NDArray[np.bool_]:
    """Return which joints' recorded speeds are computed from earlier positions, shape (J,)."""
    speeds = () if log.joint_vel is None else log.joint_vel.T
    origins = [speed_origin(log.time, x, v) for x, v in zip(log.joint_pos.T, speeds, strict=True)]
    return np.array([origin is not None and origin.kind == "backward" for origin in origins], dtype=np.bool_)
