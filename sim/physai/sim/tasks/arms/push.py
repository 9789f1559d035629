"""Pushing a cube on a table to a target place, with any arm.

The policy sees its joints, where the cube is and where it shall be, both relative to its tip. The position of the cube
is a sensor field of the contract, `cube_pos` in the base frame, which a camera or markers measure on a robot. How fast
the cube is and how it is turned is known to the critic alone, or to nobody.
"""

import math
from typing import Any

from array_api_compat import array_namespace

from physai.sdk.contract.terms import CommandField, ObservationTerm
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, load_robot
from physai.sim.robots.spec import chain_joints
from physai.sim.tasks.arms.arm import TIP
from physai.sim.tasks.arms.cube_scene import CubeScene
from physai.sim.tasks.arms.scene_state import SceneState, norm
from physai.sim.tasks.arms.tabletop import Tabletop, tabletop
from physai.sim.tasks.common import once
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import CommandFunction, Task, Uniforms, WorldView

PLACE = "place"
"""Command field: where the centre of the cube shall be, in the base frame [m]."""
RING = (0.7, 1.0)
"""Distance of the target place from the middle of the table, as a share of `Tabletop.half`: the cube, which starts at
the middle, is pushed in any direction."""
TOLERANCE = 1.0
"""Distance of the cube from its place that counts as there, in its edges."""
FINGER = 0.25
"""Radius of the ball at the tip that pushes, in edges of the cube. It has no mass; on a robot, mount a finger or close
the gripper."""


def places(table: Tabletop, state: SceneState) -> CommandFunction:
    """Draws places in a ring around the middle of the table."""
    middle, (inner, outer) = Constant([*table.centre, table.height]), RING

    def draw_place(draw: Uniforms) -> dict[str, Array]:
        xp: Any = array_namespace(draw)
        angle, radius = 2.0 * math.pi * draw[:, :1], table.half * (inner + (outer - inner) * draw[:, 1:2])
        offset = xp.concatenate([radius * xp.cos(angle), radius * xp.sin(angle), 0.0 * angle], axis=1)
        return {PLACE: state.in_base(middle.like(draw) + offset)}

    return draw_place


class Pushing:
    """Distances between tip, cube and place."""

    def __init__(self, table: Tabletop, state: SceneState) -> None:
        self._table, self._state = table, state
        self._behind = (0.5 + FINGER + 0.2) * table.edge

    def way(self, view: WorldView) -> Array:
        """From the cube to its place, level, in the world frame [m], shape (num_worlds, 3)."""
        return once(view, "way", self._way)

    def distance(self, view: WorldView) -> Array:
        """From the cube to its place [m]."""
        return once(view, "distance", lambda v: norm(self.way(v), v.xp))

    def approach(self, view: WorldView) -> Array:
        """From the tip to where it can push the cube to its place: behind it [m], shape (num_worlds, 3)."""
        return once(view, "approach", self._approach)

    def _way(self, view: WorldView) -> Array:
        way = self._state.in_world(view.commands[PLACE]) - self._state.cube(view)
        return view.xp.concatenate([way[:, :2], 0.0 * way[:, 2:]], axis=1)

    def _approach(self, view: WorldView) -> Array:
        # Level with the cube's centre, though the cube may be tipped.
        level = self._state.cube(view) - self._state.tip(view)
        direction = self.way(view) / (self.distance(view)[:, None] + 1e-3 * self._table.edge)
        return level - self._behind * direction


def critic_of(table: Tabletop, state: SceneState, pushing: Pushing) -> Any:
    """Joints, lag of the targets, cube and place, scaled by the size of the area."""
    per_m = 1.0 / table.half

    def critic(view: WorldView) -> Array:
        return view.xp.concatenate(
            [
                state.joints(view),
                per_m * (state.cube(view) - state.tip(view)),
                per_m * pushing.way(view),
                per_m * pushing.approach(view),
                per_m * state.cube_velocity(view),
                per_m * pushing.distance(view)[:, None],
                per_m * norm(pushing.approach(view), view.xp)[:, None],
            ],
            axis=1,
        )

    return critic


def push(robot: Robot | None = None) -> Task:
    """Any arm with position servos, a site `ee` and at least three joints before it; a UR10e by default.

    Raises:
        TaskError: the robot is no such arm, or reaches no table.
    """
    robot = robot or load_robot("ur10e")
    table = tabletop(robot)
    driven = tuple(str(robot.model.joint(j).name) for j in chain_joints(robot.model, robot.model.site(TIP).id))
    scene = CubeScene.of(robot, table, driven, finger_radius=FINGER * table.edge)
    state = scene.state
    pushing = Pushing(table, state)
    tolerance = TOLERANCE * table.edge

    def there(view: WorldView) -> Array:
        return pushing.distance(view) < tolerance

    def near(view: WorldView) -> Array:
        return view.xp.exp(-pushing.distance(view) / table.edge)

    def far(view: WorldView) -> Array:
        return pushing.distance(view) / table.half

    def not_behind(view: WorldView) -> Array:
        # Once the cube is there, it does not matter where the tip is.
        share = view.xp.clip(pushing.distance(view) / tolerance, 0.0, 1.0)
        return share * norm(pushing.approach(view), view.xp) / table.half

    def fell(view: WorldView) -> Array:
        return state.cube(view)[:, 2] < table.height - 0.5 * table.edge

    observed = (
        ObservationTerm(name="to_cube", kind="position_error", source=state.sensor, chain=TIP, scale=5.0),
        ObservationTerm(name="to_place", kind="position_error", source=PLACE, chain=TIP, scale=5.0),
    )
    return Task(
        **scene.parts("push", observed, (place_field(table, state),)),
        summary="push a cube on a table to a target place",
        rewards=scene.rewards(near=(near, 2.0), far=(far, -1.0), not_behind=(not_behind, -0.5)),
        terminations={"fell": fell},
        success=scene.held(there, f"cube within {1e2 * tolerance:.3g} cm of its place"),
        critic=critic_of(table, state, pushing),
        critic_size=state.joints_size + 14,
        command=places(table, state),
        command_draws=2,
        metrics={"cube_error_m": pushing.distance},
    )


def place_field(table: Tabletop, state: SceneState) -> CommandField:
    """The command, with the bounds of what `places` draws."""
    lower, upper = state.bounds_in_base(table.centre, table.height, RING[1] * table.half)
    return CommandField(name=PLACE, size=3, unit="m", frame="b", lower=lower, upper=upper)
