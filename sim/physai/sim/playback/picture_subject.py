"""Subject of a picture: a robot with its commands, or a team."""

from typing import TypeAlias

import numpy as np

from physai.sdk.contract.terms import CommandField
from physai.sim.engines.protocol import Array
from physai.sim.playback.markers import CommandMarkers
from physai.sim.playback.moment import Vector
from physai.sim.playback.rendering import reachable_poses
from physai.sim.tasks.task import Task
from physai.sim.teams.team import Team

Scene: TypeAlias = Task | Team
STARTS = 32


def markers_of(scene: Scene) -> CommandMarkers | None:
    """Markers of the robot's commands; None for a team: tasks that read joints only have no commands with a place."""
    return None if isinstance(scene, Team) else CommandMarkers(scene.contract, scene.model)


def command_fields(scene: Scene) -> tuple[CommandField, ...]:
    """Commands that are written into a film."""
    return () if isinstance(scene, Team) else scene.contract.command.fields


def framing(scene: Scene, markers: CommandMarkers | None) -> tuple[list[Array], Vector]:
    """Poses, each of shape (nq,), and points [m], shape (n, 3), that a picture must hold.

    An arm that is sent to targets stays between them and where its episodes start; other robots go wherever they can.
    """
    points = np.zeros((0, 3)) if markers is None else markers.reach()
    if len(points) and isinstance(scene, Task) and scene.contract.robot.base == "fixed":
        starts, _ = scene.reset(np.random.default_rng(0).random((STARTS, scene.reset_draws)))
        return list(starts), points
    return reachable_poses(scene.model), points
