"""Camera poses, light and pictures as they differ from one episode to the next.

Poses and exposures come from the contract's cameras, which say what the policy was trained for. The other ranges are
the twin's own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.robot import CameraSpec

Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]

GREATEST_GAIN = 4.0
"""A camera's own control keeps pictures within this factor of the brightness of its middle exposure."""


@dataclass(frozen=True, kw_only=True)
class AppearanceRanges:
    """Ranges that no contract states; each value is drawn uniformly."""

    ambient: tuple[float, float] = (0.3, 0.5)
    direct: tuple[float, float] = (0.3, 0.5)
    """Brightness of the lamp at right angles."""
    tilt_rad: float = 0.5
    """Greatest angle between the lamp's direction and the vertical [rad]."""
    gamma: tuple[float, float] = (0.8, 1.25)
    noise: tuple[float, float] = (0.0, 8.0)
    """Standard deviation of the noise of a pixel, of 255."""


@dataclass(frozen=True, kw_only=True)
class Appearance:
    """Appearance of n episodes; arrays have a row for each."""

    offsets: Mapping[str, Floats]
    """Displacement of each camera in the frame that carries it [m], shape (n, 3)."""
    turns: Mapping[str, Floats]
    """Rotation of each camera about its own axes, wxyz, shape (n, 4)."""
    gains: Mapping[str, Floats]
    """Brightness of each camera's pictures, from its exposure, shape (n,)."""
    ambient: Floats
    direct: Floats
    direction: Floats
    """Direction of the light, unit length, shape (n, 3)."""
    gamma: Floats
    noise: Floats

    def rows(self, begin: int, end: int) -> "Appearance":
        """Return some of the episodes."""
        cut = slice(begin, end)
        by_name = ({name: values[cut] for name, values in table.items()} for table in self._tables())
        offsets, turns, gains = by_name
        return Appearance(
            offsets=offsets,
            turns=turns,
            gains=gains,
            ambient=self.ambient[cut],
            direct=self.direct[cut],
            direction=self.direction[cut],
            gamma=self.gamma[cut],
            noise=self.noise[cut],
        )

    def _tables(self) -> tuple[Mapping[str, Floats], ...]:
        return self.offsets, self.turns, self.gains


def draw_appearance(
    rng: np.random.Generator, cameras: Sequence[CameraSpec], count: int, ranges: AppearanceRanges | None = None
) -> Appearance:
    """Draw the appearance of so many episodes."""
    ranges = ranges or AppearanceRanges()
    offsets: dict[str, Floats] = {}
    turns: dict[str, Floats] = {}
    gains: dict[str, Floats] = {}
    for camera in cameras:
        mount = camera.mount
        radius = mount.tolerance_m * np.cbrt(rng.uniform(0.0, 1.0, count))
        offsets[camera.name] = radius[:, None] * _directions(rng, count)
        half = 0.5 * rng.uniform(0.0, mount.tolerance_rad, count)
        axes = _directions(rng, count)
        turns[camera.name] = np.column_stack([np.cos(half), np.sin(half)[:, None] * axes])
        gains[camera.name] = _gains(rng, camera, count)
    angle, around = rng.uniform(0.0, ranges.tilt_rad, count), rng.uniform(-math.pi, math.pi, count)
    direction = [np.sin(angle) * np.cos(around), np.sin(angle) * np.sin(around), -np.cos(angle)]
    return Appearance(
        offsets=offsets,
        turns=turns,
        gains=gains,
        ambient=rng.uniform(*ranges.ambient, count),
        direct=rng.uniform(*ranges.direct, count),
        direction=np.column_stack(direction),
        gamma=rng.uniform(*ranges.gamma, count),
        noise=rng.uniform(*ranges.noise, count),
    )


def taken(images: Pixels, camera: CameraSpec, appearance: Appearance, rng: np.random.Generator) -> Pixels:
    """Return images as the camera takes them: exposed, with its gamma and its noise.

    Args:
        images: rendered, shape (n, height, width, channels).
        camera: that they are of.
        appearance: of the n episodes.
        rng: for the noise, which differs from picture to picture.
    """
    rows = (slice(None), None, None, None)
    light = np.minimum(images.astype(np.float32) / 255.0 * appearance.gains[camera.name].astype(np.float32)[rows], 1.0)
    values = 255.0 * light ** appearance.gamma.astype(np.float32)[rows]
    values += appearance.noise.astype(np.float32)[rows] * rng.standard_normal(images.shape, np.float32)
    return np.clip(np.floor(values + 0.5), 0.0, 255.0).astype(np.uint8)


def _directions(rng: np.random.Generator, count: int) -> Floats:
    """Return directions without a preference, unit length, shape (count, 3)."""
    values = rng.standard_normal((count, 3))
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def _gains(rng: np.random.Generator, camera: CameraSpec, count: int) -> Floats:
    """Return exposures of a camera over their geometric mean, drawn uniformly in their logarithm."""
    shortest, longest = camera.exposure_s
    spread = GREATEST_GAIN if shortest == 0.0 < longest else math.sqrt(longest / shortest) if shortest else 1.0
    reach = math.log(min(spread, GREATEST_GAIN))
    return np.exp(rng.uniform(-reach, reach, count))
