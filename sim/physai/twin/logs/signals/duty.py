"""Gain of a position servo from its recorded duty cycle."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SATURATED = 0.95
"""Duty from which a servo counts as saturated."""
MIN_SAMPLES = 50
MAX_RESIDUAL = 0.1
"""Maximum root mean square deviation of the duty from the line, as a share of its own."""


def duty_gain(error: Array, duty: Array) -> float | None:
    """Return the slope of duty over position error [1/rad or 1/m]; None if the duty is not proportional to the error.

    Args:
        error: commanded minus measured position [rad or m], shape (n,).
        duty: share of its full effort that the servo applied, shape (n,).
    """
    known = np.isfinite(error) & np.isfinite(duty) & (np.abs(duty) < SATURATED)
    if known.sum() < MIN_SAMPLES:
        return None
    x, y = error[known], duty[known]
    power = float(x @ x)
    if not power > 0.0:
        return None
    gain = float(x @ y) / power
    if not (
        gain > 0.0 and float(np.sqrt(((y - gain * x) ** 2).mean())) <= MAX_RESIDUAL * float(np.sqrt((y**2).mean()))
    ):
        return None
    return gain
