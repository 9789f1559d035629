"""Supported units of recordings and their factors to SI."""

import math
from typing import Literal

from physai.sdk.base.errors import unknown_name
from physai.twin.logs.robot_log import LogError

Dimension = Literal["time", "angle", "length", "angular speed", "speed", "torque", "force", "ratio"]

UNITS: dict[str, tuple[Dimension, float]] = {
    "s": ("time", 1.0),
    "ms": ("time", 1e-3),
    "us": ("time", 1e-6),
    "ns": ("time", 1e-9),
    "rad": ("angle", 1.0),
    "mrad": ("angle", 1e-3),
    "deg": ("angle", math.pi / 180.0),
    "rev": ("angle", 2.0 * math.pi),
    "m": ("length", 1.0),
    "cm": ("length", 1e-2),
    "mm": ("length", 1e-3),
    "rad/s": ("angular speed", 1.0),
    "deg/s": ("angular speed", math.pi / 180.0),
    "rev/s": ("angular speed", 2.0 * math.pi),
    "rpm": ("angular speed", 2.0 * math.pi / 60.0),
    "m/s": ("speed", 1.0),
    "mm/s": ("speed", 1e-3),
    "N*m": ("torque", 1.0),
    "mN*m": ("torque", 1e-3),
    "kgf*cm": ("torque", 0.0980665),
    "N": ("force", 1.0),
    "mN": ("force", 1e-3),
}
"""Dimension of each unit and its factor to the SI unit; 1 kgf = 9.80665 N (3rd CGPM, 1901)."""

Quantity = Literal["joint_pos", "joint_vel", "joint_effort"]

_ROTATING: dict[Quantity, Dimension] = {"joint_pos": "angle", "joint_vel": "angular speed", "joint_effort": "torque"}
_SLIDING: dict[Quantity, Dimension] = {"joint_pos": "length", "joint_vel": "speed", "joint_effort": "force"}


def dimension(quantity: Quantity, *, prismatic: bool) -> Dimension:
    """Return the dimension of a joint's quantity."""
    return (_SLIDING if prismatic else _ROTATING)[quantity]


def unit_factor(unit: str, expected: Dimension, *, where: str) -> float:
    """Return the factor from a unit to SI.

    Args:
        unit: as written in a column map; `N·m` and `N*m` are the same.
        expected: required dimension.
        where: the column, for messages.

    Raises:
        LogError: the unit is unknown or of another dimension.
    """
    name = unit.replace("·", "*").replace("°", "deg")
    if name not in UNITS:
        raise LogError(f"{where}: {unknown_name('unit', unit, UNITS)}")
    actual, factor = UNITS[name]
    if actual != expected:
        fitting = ", ".join(known for known, (kind, _) in UNITS.items() if kind == expected)
        raise LogError(f"{where}: {unit} measures {actual}, expected {expected} ({fitting})")
    return factor
