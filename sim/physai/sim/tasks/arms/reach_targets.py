"""Targets of a reach task: poses in a box, or poses that the arm is known to reach."""

from dataclasses import dataclass

from array_api_compat import array_namespace

from physai.sim.engines.protocol import Array
from physai.sim.tasks import rotations
from physai.sim.tasks.arms.workspace import Workspace
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import CommandFunction, Uniforms

COMMAND = "ee_pose_target"
"""Command field: position [m] and quaternion (wxyz) of the end effector in the base frame."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Region in which targets are drawn."""

    draw: CommandFunction
    draws: int
    """Uniform numbers that `draw` takes."""
    lower: tuple[float, float, float]
    """Smallest position in the base frame [m]."""
    upper: tuple[float, float, float]


def box(
    centre: tuple[float, float, float],
    half_size: tuple[float, float, float],
    facing: tuple[float, float, float],
    tilt: tuple[float, float, float],
) -> Targets:
    """Target poses uniform in a box.

    Args:
        centre: middle of the box in the base frame [m].
        half_size: half edges of the box [m].
        facing: orientation in the middle as rotations about fixed x, y, z [rad].
        tilt: greatest deviation from it about each axis [rad].
    """
    (x, y, z), (width, depth, height) = centre, half_size
    middle, size = Constant([*centre, *facing]), Constant([*half_size, *tilt])

    def draw_pose(draw: Uniforms) -> dict[str, Array]:
        xp = array_namespace(draw)
        pose = middle.like(draw) + (2.0 * draw - 1.0) * size.like(draw)
        return {COMMAND: xp.concatenate([pose[:, :3], rotations.from_euler_xyz(pose[:, 3:], xp)], axis=1)}

    lower, upper = (x - width, y - depth, z - height), (x + width, y + depth, z + height)
    return Targets(draw=draw_pose, draws=6, lower=lower, upper=upper)


def reachable(workspace: Workspace) -> Targets:
    """Targets among the poses of a workspace."""
    poses = Constant(workspace.poses)

    def draw_pose(draw: Uniforms) -> dict[str, Array]:
        xp = array_namespace(draw)
        number = xp.astype(xp.floor(draw[:, 0] * len(workspace.poses)), xp.int64)
        return {COMMAND: xp.take(poses.like(draw), number, axis=0)}

    return Targets(draw=draw_pose, draws=1, lower=workspace.lower, upper=workspace.upper)
