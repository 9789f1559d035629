"""A measured value with its interval, and what intervals of a difference may be."""

from collections.abc import Sequence
from typing import Self

from pydantic import model_validator

from physai.sdk.contract.robot import Finite, Frozen

ROUNDING = 1e-9
"""Share of two errors by which rounding may change their difference."""

INTERVAL_FACTOR = 2.0
"""Factor by which a root mean square error may be outside the interval of its resamples."""


class Interval(Frozen):
    """A measured value and its 95 % bootstrap interval."""

    value: Finite
    lo: Finite
    hi: Finite

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        # The value may be outside: an interval of resampled values need not contain that of the original sample.
        if not self.lo <= self.hi:
            raise ValueError(f"an interval begins at {self.lo}, above its end {self.hi}")
        return self


def require_difference(name: str, gain: Interval, nominal: Interval, twin: Interval) -> None:
    """Require that a gain is the nominal robot's error less the twin's, within what the two intervals allow.

    Raises:
        ValueError: it is not.
    """
    most = nominal.hi - twin.lo
    least = nominal.lo - twin.hi
    rounding = ROUNDING * (abs(nominal.hi) + abs(twin.hi) + abs(nominal.value) + abs(twin.value))
    if not abs(gain.value - (nominal.value - twin.value)) <= rounding:
        raise ValueError(
            f"{name}: a gain of {gain.value:g} is not the nominal robot's error {nominal.value:g} less the twin's "
            f"{twin.value:g}"
        )
    # Each end of an error's interval leaves out 2.5 % of the resamples, so at most 5 % of the differences, and hence no
    # interval that contains 95 % of them, lie beyond the difference of two ends.
    if not (gain.lo <= most + rounding and gain.hi >= least - rounding):
        raise ValueError(
            f"{name}: a gain of {gain.lo:g} to {gain.hi:g} is outside {least:g} to {most:g}, which its errors allow"
        )


def require_rmse(name: str, errors: Sequence[Interval]) -> None:
    """Require intervals of root mean square errors, or of ratios of them: above 0, about as large as their value.

    Raises:
        ValueError: they are not.
    """
    for error in errors:
        if error.lo < 0.0:
            raise ValueError(f"{name} may not be below 0, got {error.lo}")
        # Resamples scatter about the value.
        if not error.lo / INTERVAL_FACTOR <= error.value <= INTERVAL_FACTOR * error.hi:
            raise ValueError(f"{name} of {error.value:g} is not near its interval, {error.lo:g} to {error.hi:g}")
