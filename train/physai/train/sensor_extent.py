"""What a robot's sensors show while a policy plays: the ranges that a runtime compares its robot's numbers with."""

from collections.abc import Mapping

import numpy as np

from physai.sdk.contract import PolicyContract
from physai.sdk.interface import graph_interface
from physai.sdk.policy_file import Bounds, Ranges
from physai.sim.engines.protocol import Array

ORIENTATION = "imu_quat"
"""A rotation has two quaternions of opposite signs, so that bounds on their numbers say nothing."""

DIGITS = 6


class SensorExtent:
    """Least and greatest value of every number of the sensor fields that a policy reads."""

    def __init__(self, contract: PolicyContract) -> None:
        """Nothing seen yet."""
        sizes = graph_interface(contract).sensors
        self._lower = {name: np.full(size, np.inf) for name, size in sizes.items() if name != ORIENTATION}
        self._upper = {name: np.full(size, -np.inf) for name, size in sizes.items() if name != ORIENTATION}
        # However often a joint without end stops has turned, its position means the same.
        self._turning = np.array([joint.kind == "continuous" for joint in contract.robot.joints])

    def add(self, fields: Mapping[str, Array]) -> None:
        """Takes in what was measured, shape (n, size) each."""
        for name, lower in self._lower.items():
            np.minimum(lower, fields[name].min(0), out=lower)
            np.maximum(self._upper[name], fields[name].max(0), out=self._upper[name])

    def ranges(self) -> Ranges:
        """What was seen, rounded; without a bound where none means anything: on turns, and on what never changed."""
        found: dict[str, tuple[Bounds, Bounds]] = {}
        for name, lower in self._lower.items():
            upper = self._upper[name]
            bounded = lower < upper
            if name == "joint_pos":
                bounded &= ~self._turning
            if bounded.any():
                found[name] = (_bounds(lower, bounded), _bounds(upper, bounded))
        return found


def _bounds(values: Array, bounded: Array) -> Bounds:
    pairs = zip(values.tolist(), bounded.tolist(), strict=True)
    return tuple(float(f"{value:.{DIGITS}g}") if known else None for value, known in pairs)
