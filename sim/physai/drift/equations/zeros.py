"""Encoder zeros of the recordings that a twin was calibrated on, and how much they differ."""

import numpy as np
import numpy.typing as npt

from physai.twin.model.twin import Twin
from physai.twin.parameters.parameters import OFFSET_STD

Array = npt.NDArray[np.float64]

SHOWN = 0.5
"""Share of the prior's standard deviation below which a recording shows a zero."""
LEAST_STD = 0.0015
"""Minimum standard deviation of a zero between recordings [rad or m]: that of calibrations of the same robot."""


def known_zeros(twin: Twin) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Return mean and standard deviation of each joint's zero, and whether the twin was fitted together with it.

    Measured minus true position [rad or m], shape (J,). Zeros that the recordings do not show have the mean 0.
    """
    logs = [log for log in (*twin.logs.train, *twin.logs.held_out) if log.joint_pos_offset]
    count = len(twin.joint_names)
    if not logs:
        return np.zeros(count), np.full(count, LEAST_STD), np.zeros(count, bool)
    offset = np.array([log.joint_pos_offset for log in logs])
    std = np.maximum(np.array([log.joint_pos_offset_std for log in logs]), 1e-6)
    weight = 1.0 / std**2
    mean = (weight * offset).sum(axis=0) / weight.sum(axis=0)
    # What the scatter exceeds its errors by is the difference between recordings.
    between = (weight * (offset - mean) ** 2).sum(axis=0) / weight.sum(axis=0) - len(logs) / weight.sum(axis=0)
    std_all = np.sqrt(np.maximum(LEAST_STD**2, np.maximum(between, 0.0) + 1.0 / weight.sum(axis=0)))
    return mean, std_all, np.median(std, axis=0) < SHOWN * OFFSET_STD
