"""Frames and units of a stage, in metres, kilograms and radians with z up."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from physai.foreign.usd.library import pxr, refused, said

Array = NDArray[np.float64]
ENDLESS = 3.4e38
"""Least number that stands for infinity."""
SHEAR = 1e-5
"""Greatest cosine between two axes of a frame."""


@dataclass(frozen=True, kw_only=True)
class UsdFrame:
    """A frame: `p = position + rotation · (scale ∘ local)`, local in the stage's units."""

    rotation: Array
    position: Array
    """[m]"""
    scale: Array
    """Metres per unit of the stage along each axis; one is negative in a mirrored frame."""

    def point(self, local: Any) -> Array:
        """Return a point of this frame in the world [m]."""
        return self.position + self.rotation @ (self.scale * np.asarray(local, float))

    def within(self, other: "UsdFrame") -> tuple[Array, Array]:
        """Return rotation and position [m] of this frame in another."""
        return other.rotation.T @ self.rotation, other.rotation.T @ (self.position - other.position)


class UsdUnits:
    """Units of a stage, and the frames of its prims."""

    def __init__(self, stage: Any) -> None:
        """Read the units.

        Raises:
            ModelError: the stage does not state them, or states one that is no positive number.
        """
        geometry, physics = pxr("UsdGeom"), pxr("UsdPhysics")
        for name, fallback in (("metersPerUnit", "0.01, centimetres"), ("upAxis", "Y")):
            if not stage.HasAuthoredMetadata(name):
                raise refused("/", f"does not state {name}, for which USD takes {fallback}; state it in the file")
        self.metres = float(geometry.GetStageMetersPerUnit(stage))
        self.kilograms = float(physics.GetStageKilogramsPerUnit(stage))
        for name, value in (("metersPerUnit", self.metres), ("kilogramsPerUnit", self.kilograms)):
            if not (math.isfinite(value) and 1e-6 <= value <= 1e6):
                raise refused("/", f"{name} is {value:g}, outside of 1e-6 … 1e6")
        up = str(geometry.GetStageUpAxis(stage))
        self.turn = np.eye(3) if up == "Z" else np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
        self.plain = up == "Z" and self.metres == self.kilograms == 1.0
        self._cache = geometry.XformCache()

    def frame(self, prim: Any) -> UsdFrame:
        """Return the frame of a prim.

        Raises:
            ModelError: it is sheared, flat, not finite, or moves with time.
        """
        geometry = pxr("UsdGeom")
        above = prim
        while above.IsValid() and not above.IsPseudoRoot():
            if geometry.Xformable(above) and geometry.Xformable(above).TransformMightBeTimeVarying():
                raise refused(above, "moves with time; export the robot without its animation")
            above = above.GetParent()
        try:
            matrix = np.array(self._cache.GetLocalToWorldTransform(prim), float).T
        except pxr("Tf").ErrorException as error:
            raise refused(prim, f"has a transform that OpenUSD does not compute: {said(error)}") from None
        linear = self.turn @ matrix[:3, :3] * self.metres
        scale = np.linalg.norm(linear, axis=0)
        if not (np.isfinite(matrix).all() and (scale > 0.0).all()):
            raise refused(prim, "has a transform that is not finite, or flat")
        linear = linear / scale
        if abs(linear.T @ linear - np.eye(3)).max() > SHEAR:
            raise refused(prim, "is sheared: a rotation within a scale that differs by axis")
        left, _, right = np.linalg.svd(linear)
        rotation = left @ right
        if np.linalg.det(rotation) < 0.0:
            rotation[:, 0], scale[0] = -rotation[:, 0], -scale[0]
        return UsdFrame(rotation=rotation, position=self.turn @ matrix[:3, 3] * self.metres, scale=scale)

    def world(self) -> UsdFrame:
        """Return the frame of the stage itself."""
        return UsdFrame(rotation=self.turn, position=np.zeros(3), scale=np.full(3, self.metres))

    def home(self, body: Any | None) -> UsdFrame:
        """Return the frame of a rigid body, or MuJoCo's world."""
        plain = UsdFrame(rotation=np.eye(3), position=np.zeros(3), scale=np.ones(3))
        return plain if body is None else self.frame(body)


def rotation_of(quaternion: Any) -> Array:
    """Return the rotation matrix of a quaternion of OpenUSD; of zero that of none."""
    w, (x, y, z) = quaternion.GetReal(), quaternion.GetImaginary()
    values = np.array([w, x, y, z], float)
    length = float(np.linalg.norm(values))
    w, x, y, z = values / length if length > 0.0 else (1.0, 0.0, 0.0, 0.0)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def axis_of(prim: Any) -> Array:
    """Return the unit vector of a prim's attribute `axis` or `physics:axis`."""
    name = "physics:axis" if prim.HasAttribute("physics:axis") else "axis"
    token = str(prim.GetAttribute(name).Get())
    if token not in ("X", "Y", "Z"):
        raise refused(prim, f"{name} is {token!r}, neither X, Y nor Z")
    return np.eye(3)["XYZ".index(token)]


def authored(prim: Any, name: str) -> Any:
    """Return the value that a stage gives an attribute, or None.

    Raises:
        ModelError: it is a number that is not finite, or changes with time.
    """
    attribute = prim.GetAttribute(name)
    if not (attribute and attribute.HasAuthoredValue()):
        return None
    if attribute.GetNumTimeSamples() > 1:
        raise refused(attribute, "changes with time")
    return attribute.Get()


def finite(prim: Any, name: str, default: float) -> float:
    """Return an authored number, or the default.

    Raises:
        ModelError: it is not finite.
    """
    value = authored(prim, name)
    if value is None:
        return default
    if not math.isfinite(value):
        raise refused(prim, f"{name} is {value:g}, no finite number")
    return float(value)


def endless(value: float) -> bool:
    """Return whether a number stands for infinity, as the greatest number of 32 bits does in many files."""
    return not abs(value) < ENDLESS
