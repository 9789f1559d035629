"""Unit and upward axis of COLLADA files, which meshes of a URDF may have."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

import mujoco
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_UNIT = re.compile(rb"<unit\b[^>]*\bmeter\s*=\s*[\"']([^\"']{1,40})[\"']")
_UP = re.compile(rb"<up_axis>\s*([XYZ])_UP\s*</up_axis>")
_TURNS = {
    "X": np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]),
    "Y": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]),
    "Z": np.eye(3),
}
"""Rotation from a file's axes to those with z up (COLLADA 1.5, up_axis)."""


@dataclass(frozen=True)
class Placed:
    """A mesh in its link."""

    centre: Array
    """Middle of its convex hull in the file's axes [m], shape (3,)."""
    turn: Array
    """Rotation that the file's `up_axis` asks for, shape (3, 3)."""
    shape: Element
    """The <visual> or <collision>."""
    mass_centre: Array
    """Centre of mass of the link [m], shape (3,)."""


def metres(content: bytes) -> float:
    """Length of the file's unit [m]; 1 if it states none, or none that is a length."""
    found = _UNIT.search(content)
    try:
        unit = float(found[1]) if found else 1.0
    except ValueError:
        return 1.0
    return unit if math.isfinite(unit) and unit > 0.0 else 1.0


def up_axis(content: bytes) -> str:
    """The axis that points upwards, X, Y or Z; Z if the file states none, as ROS takes it."""
    found = _UP.search(content)
    return found[1].decode() if found else "Z"


def turned(mesh: Any, axis: str) -> Any:
    """The mesh with z up."""
    transform = np.eye(4)
    transform[:3, :3] = _TURNS[axis]
    return mesh.copy().apply_transform(transform)


def placed(mesh: Any, axis: str, link: Element, shape: Element) -> Placed | None:
    """Placement of a mesh in its link; None if the link has no centre of mass to compare it with."""
    inertial = link.find("inertial")
    if inertial is None:
        return None
    scale = _numbers(shape.find("geometry/mesh"), "scale", 1.0)
    centre = np.asarray(mesh.convex_hull.center_mass, np.float64) * scale
    return Placed(centre, _TURNS[axis], shape, _numbers(inertial.find("origin"), "xyz", 0.0))


def distances(meshes: Iterable[Placed]) -> tuple[float, float]:
    """Mean distances of meshes from their links' centres of mass, as they are and turned upwards [m]."""
    pairs: list[tuple[float, float]] = []
    for mesh in meshes:
        origin = mesh.shape.find("origin")
        rotation = _rotation(_numbers(origin, "rpy", 0.0))
        place = _numbers(origin, "xyz", 0.0) - mesh.mass_centre
        unturned, upright = (rotation @ centre + place for centre in (mesh.centre, mesh.turn @ mesh.centre))
        pairs.append((float(np.linalg.norm(unturned)), float(np.linalg.norm(upright))))
    if not pairs:
        return math.inf, math.inf
    first, second = np.mean(pairs, axis=0)
    return float(first), float(second)


def _rotation(rpy: Array) -> Array:
    """Rotation matrix of URDF's angles, about fixed axes."""
    quat, matrix = np.zeros(4), np.zeros(9)
    mujoco.mju_euler2Quat(quat, rpy, "XYZ")
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)


def _numbers(element: Element | None, key: str, default: float) -> Array:
    """Three numbers of an attribute; the default for each where they are missing or no numbers."""
    try:
        numbers = [float(part) for part in ("" if element is None else element.get(key, "")).split()]
    except ValueError:
        numbers = []
    return np.array(numbers if len(numbers) == 3 and np.isfinite(numbers).all() else [default] * 3)
