"""Commands over time: a plan between its steps, and the turn from one path into the next."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from physai.sdk.safety.limits import Array


@dataclass(frozen=True, slots=True)
class PlannedPath:
    """Joint positions over time, constant before the first step and after the last.

    From `from_s` on it is the path of its own steps, before that the path that it replaced. Over `blend_s` after
    `from_s` it is old + w(x) · (new - old) with w(x) = 3x² - 2x³ and x from 0 to 1, so that position and speed are
    continuous and the blend adds an acceleration of at most 6 · |new - old| / blend_s².
    """

    steps: Array
    """Positions [rad or m], shape (steps, joints)."""
    step_s: float
    origin_s: float
    """Time of the first step [s]."""
    interpolation: Literal["linear", "hold", "quadratic"]
    from_s: float = -np.inf
    blend_s: float = 0.0
    before: Self | None = None
    """Path that this one replaced; None if it is too long ago to matter."""

    @classmethod
    def constant(cls, position: Array) -> Self:
        """Return the path of joints that stay; position of shape (joints,)."""
        return cls(np.array(position, np.float64)[None], 1.0, 0.0, "hold")

    def since(self, time_s: float) -> Self:
        """Return the same path without what had been replaced entirely by that time."""
        if self.before is None:
            return self
        over = self.from_s + self.blend_s <= time_s
        return replace(self, before=None if over else self.before.since(time_s))

    def at(self, times: Array) -> Array:
        """Return the commands at some times.

        Args:
            times: [s], shape (n,).

        Returns:
            Positions [rad or m], shape (n, joints).
        """
        values = self._own(times)
        if self.before is None:
            return values
        x = np.clip((times - self.from_s) / self.blend_s, 0.0, 1.0) if self.blend_s else np.float64(1.0)
        weights = np.where(times < self.from_s, 0.0, x * x * (3.0 - 2.0 * x))[:, None]
        old = self.before.at(times)
        # Not old + w · (new - old) throughout: the rounding of it would leave a plan's own steps inexact.
        return np.where(weights == 1.0, values, old + weights * (values - old))

    def _own(self, times: Array) -> Array:
        last = len(self.steps) - 1
        u = np.clip((times - self.origin_s) / self.step_s, 0.0, last)
        if self.interpolation == "hold":
            return self.steps[np.floor(u).astype(np.intp)]
        if self.interpolation == "linear":
            k = np.minimum(np.floor(u).astype(np.intp), max(last - 1, 0))
            share = (u - k)[:, None]
            return (1.0 - share) * self.steps[k] + share * self.steps[np.minimum(k + 1, last)]
        return self._quadratic(u)

    def _quadratic(self, u: Array) -> Array:
        """Return the uniform quadratic B-spline of the steps (de Boor, A Practical Guide to Splines, 2001, IX).

        Its acceleration is the second difference of three steps, so it exceeds no limit that the steps keep, and it
        passes them at a distance of an eighth of that. The first and the last step it meets.
        """
        steps = self.steps
        if len(steps) == 1:
            return np.repeat(steps, len(u), axis=0)
        ends = 2.0 * steps[0] - steps[1], 2.0 * steps[-1] - steps[-2]
        points = np.concatenate([ends[0][None], steps, ends[1][None]])
        k = np.floor(u + 0.5).astype(np.intp)
        s = (u - k + 0.5)[:, None]
        return 0.5 * (1.0 - s) ** 2 * points[k] + (0.5 + s - s * s) * points[k + 1] + 0.5 * s * s * points[k + 2]
