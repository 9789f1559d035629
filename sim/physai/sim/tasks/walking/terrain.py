"""Ground for robots that walk: tiles of rough ground and stairs, each harder than the one before it."""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array as AnyArray
from physai.sim.tasks.constant import Constant

Array = NDArray[np.float64]

LEVELS = 7
"""Tiles of a kind: the first is flat, the last is as hard as `roughness` and `rise` say."""
KINDS = ("rough", "down", "up")
"""Rough ground, and stairs that lead down or up from the middle of a tile in all four directions."""
TILE_M, BORDER_M, CELL_M = 8.0, 6.0, 0.05
"""Edge of a tile, width of the flat ground around all of them, and distance of two heights [m]."""
PLATFORM_M = 1.0
"""Half the edge of the flat ground in the middle of a tile [m], where episodes begin."""
TREAD_M = 0.3
"""Depth of a stair [m]."""
ROUGHNESS, RISE = 0.2, 0.3
"""Greatest height of rough ground and of a step, in heights of the base above the floor: 6 and 10 cm for a Go2."""
BUMP_M = 0.2
"""Distance of neighbouring bumps [m]; the ground between them is smooth."""


class Terrain:
    """Heights on a grid, and where on it episodes begin."""

    def __init__(self, standing: float) -> None:
        """Makes the same ground each time.

        Args:
            standing: height of the robot's base above the floor [m], which sets the height of bumps and steps.
        """
        self.roughness, self.rise = ROUGHNESS * standing, RISE * standing
        tile, border = round(TILE_M / CELL_M), round(BORDER_M / CELL_M)
        self.heights: Array = np.zeros((2 * border + LEVELS * tile + 1, 2 * border + len(KINDS) * tile + 1))
        """Heights [m] at distances of `CELL_M`, shape (places along x, places along y)."""
        random, middle = np.random.default_rng(0), tile // 2
        starts = np.zeros((len(KINDS), LEVELS, 3))
        self._origin = -0.5 * CELL_M * (np.array(self.heights.shape) - 1.0)
        for column, kind in enumerate(KINDS):
            for level in range(LEVELS):
                row, left = border + level * tile, border + column * tile
                ground = _tile(kind, level / (LEVELS - 1.0), self.roughness, self.rise, random, tile)
                self.heights[row : row + tile, left : left + tile] = ground
                place = self._origin + CELL_M * np.array([row + middle, left + middle])
                starts[column, level] = (*place, ground[middle, middle])
        self._heights = Constant(self.heights.ravel())
        self._corner = Constant(self._origin)
        self._starts = Constant(starts.reshape(-1, 3))

    def add_to(self, spec: mujoco.MjSpec) -> None:
        """Gives the floor of a model this shape.

        Raises:
            TaskError: the model has no floor, a plane that belongs to the world.
        """
        planes = [geom for geom in spec.worldbody.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
        if not planes:
            raise TaskError("the robot's model has no floor; physai robots import gives a floating robot one")
        low, high = float(self.heights.min()), float(self.heights.max())
        # MuJoCo's rows run along y, and its heights from 0 to 1.
        data = ((self.heights.T - low) / (high - low)).ravel()
        half_x, half_y = -self._origin
        spec.add_hfield(
            name="physai_terrain",
            nrow=self.heights.shape[1],
            ncol=self.heights.shape[0],
            size=[half_x, half_y, high - low, 0.1],
            userdata=data,
        )
        floor = planes[0]
        floor.type, floor.hfieldname = mujoco.mjtGeom.mjGEOM_HFIELD, "physai_terrain"
        floor.pos, floor.quat = [0.0, 0.0, low], [1.0, 0.0, 0.0, 0.0]

    def height(self, x: AnyArray, y: AnyArray, xp: Any) -> AnyArray:
        """Height of the ground at a place [m], between the grid's heights bilinear; beyond it, that of its edge."""
        rows, columns = self.heights.shape
        corner = self._corner.like(x)
        along, across = (x - corner[0]) / CELL_M, (y - corner[1]) / CELL_M
        along = xp.clip(along, 0.0, rows - 1.001)
        across = xp.clip(across, 0.0, columns - 1.001)
        row, column = xp.astype(xp.floor(along), xp.int64), xp.astype(xp.floor(across), xp.int64)
        share_x, share_y = along - xp.floor(along), across - xp.floor(across)
        first = row * columns + column
        near = self._at(first, share_y, xp)
        return near + share_x * (self._at(first + columns, share_y, xp) - near)

    def _at(self, index: AnyArray, share: AnyArray, xp: Any) -> AnyArray:
        heights, flat = self._heights.like(share), xp.reshape(index, (-1,))
        low, high = xp.take(heights, flat, axis=0), xp.take(heights, flat + 1, axis=0)
        low, high = xp.reshape(low, index.shape), xp.reshape(high, index.shape)
        return low + share * (high - low)

    def start(self, kind: AnyArray, level: AnyArray, xp: Any) -> AnyArray:
        """Middle of a tile [m], shape (n, 3), from two uniform numbers: its kind, and how hard it is."""
        row = xp.astype(xp.floor(kind * len(KINDS)), xp.int64)
        column = xp.astype(xp.floor(level * LEVELS), xp.int64)
        return xp.take(self._starts.like(kind), row * LEVELS + column, axis=0)


def _tile(kind: str, hard: float, roughness: float, rise: float, random: np.random.Generator, size: int) -> Array:
    """Heights of one tile [m], shape (size, size); 0 at its edges."""
    places = np.abs(CELL_M * (np.arange(size) - size // 2))
    # Distance from the middle as a square has it: the greater of the two.
    off = np.maximum(places[:, None], places[None])
    if kind == "rough":
        edge = np.clip(np.minimum(off - PLATFORM_M, 0.5 * TILE_M - CELL_M - off) / 0.5, 0.0, 1.0)
        return edge * hard * roughness * _bumps(random, size)
    steps = int((0.5 * TILE_M - PLATFORM_M) / TREAD_M)
    stair = np.clip(np.ceil((off - PLATFORM_M) / TREAD_M - 1e-9), 0.0, steps)
    heights = hard * rise * (steps - stair)
    return heights if kind == "down" else -heights


def _bumps(random: np.random.Generator, size: int) -> Array:
    """Smooth random heights from 0 to 1, shape (size, size)."""
    every = round(BUMP_M / CELL_M)
    coarse = random.uniform(size=(size // every + 2, size // every + 2))
    place = np.arange(size) / every
    return _between(_between(coarse, place).T, place).T


def _between(values: Array, place: Sequence[float] | Array) -> Array:
    low = np.floor(place).astype(int)
    share = (np.asarray(place) - low)[:, None]
    return (1.0 - share) * values[low] + share * values[low + 1]
