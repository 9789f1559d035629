"""Lifting a cube from a table with an arm that has a gripper.

The policy sees its joints, the cube relative to its tip, and the cube in the base frame: the sensor field `cube_pos`,
which a camera or markers measure on a robot.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.terms import ObservationTerm
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, load_robot
from physai.sim.robots.spec import chain_joints, joint_actuator
from physai.sim.tasks.arms.arm import TIP
from physai.sim.tasks.arms.cube_scene import CubeScene
from physai.sim.tasks.arms.scene_state import SceneState, norm
from physai.sim.tasks.arms.tabletop import Tabletop, tabletop
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import Task, WorldView

LIFT_M = 0.1
"""Height above the table that the cube must reach [m]."""
OPEN = 0.5
"""Where the gripper starts, as a share of the way from its home position, closed, to the limit farther away."""


def gripper_joints(robot: Robot) -> tuple[str, ...]:
    """Joints with a servo beyond the last joint of the arm, in the robot's order.

    Raises:
        TaskError: there is none.
    """
    model = robot.model
    arm = chain_joints(model, model.site(TIP).id)
    hand = int(model.jnt_bodyid[arm[-1]])
    found: list[str] = []
    for joint in range(model.njnt):
        body = int(model.jnt_bodyid[joint])
        while body > hand:
            body = int(model.body_parentid[body])
        if joint not in arm and body == hand and joint_actuator(model, joint) is not None:
            found.append(str(model.joint(joint).name))
    if not found:
        raise TaskError(
            f"robot {robot.name} has no gripper: no joint with a servo beyond {model.joint(arm[-1]).name}; to lift, "
            "name a robot that has one, or train push"
        )
    return tuple(found)


def opened(table: Tabletop, robot: Robot, fingers: Sequence[str]) -> Tabletop:
    """The table with the gripper open in all starts."""
    starts = table.starts.copy()
    for name in fingers:
        closed, far = _closed_and_far(robot, name)
        starts[:, int(robot.model.joint(name).qposadr[0])] = closed + OPEN * (far - closed)
    return replace(table, starts=starts)


def _closed_and_far(robot: Robot, name: str) -> tuple[float, float]:
    """Home position and the limit farther from it [rad or m]; a joint without limits opens by a radian."""
    joint = robot.spec.joints[robot.spec.joint_names.index(name)]
    limits = [x for x in (joint.position_lower, joint.position_upper) if x is not None] or [joint.default_pos + 1.0]
    return joint.default_pos, max(limits, key=lambda limit: abs(limit - joint.default_pos))


class Lifting:
    """Position of the cube relative to tip and table, and how far the gripper is closed."""

    def __init__(self, table: Tabletop, state: SceneState, robot: Robot, fingers: Sequence[str]) -> None:
        self._table, self._state = table, state
        ways = np.array([_closed_and_far(robot, name) for name in fingers])
        self._columns = Constant(robot.spec.joint_index(tuple(fingers)))
        self._closed, self._way = Constant(ways[:, 0]), Constant(OPEN * (ways[:, 1] - ways[:, 0]))

    def height(self, view: WorldView) -> Array:
        """Of the cube above where it lies on the table [m]."""
        return self._state.cube(view)[:, 2] - self._table.height

    def distance(self, view: WorldView) -> Array:
        """From tip to cube [m]."""
        return norm(self._state.cube(view) - self._state.tip(view), view.xp)

    def closing(self, view: WorldView) -> Array:
        """Mean share by which the fingers are closed: 0 as they start, 1 closed."""
        fingers = view.xp.take(view.joint_pos, self._columns.like(view.joint_pos), axis=1)
        share = (fingers - self._closed.like(fingers)) / self._way.like(fingers)
        return 1.0 - view.xp.mean(view.xp.clip(share, 0.0, 1.0), axis=1)

    def critic(self, view: WorldView) -> Array:
        """Joints, cube relative to tip and table, its velocity, and the gripper."""
        per_m = 1.0 / self._table.half
        return view.xp.concatenate(
            [
                self._state.joints(view),
                per_m * (self._state.cube(view) - self._state.tip(view)),
                per_m * self._state.cube_velocity(view),
                per_m * self.height(view)[:, None],
                per_m * self.distance(view)[:, None],
                self.closing(view)[:, None],
            ],
            axis=1,
        )


def lift(robot: Robot | None = None) -> Task:
    """Any arm with a gripper, position servos and a site `ee` at it; an SO-101 by default.

    Raises:
        TaskError: the robot is no such arm, or reaches no table.
    """
    robot = robot or load_robot("so101")
    table = tabletop(robot)
    fingers = gripper_joints(robot)
    table = opened(table, robot, fingers)
    arm = [str(robot.model.joint(j).name) for j in chain_joints(robot.model, robot.model.site(TIP).id)]
    driven = tuple(name for name in robot.spec.joint_names if name in (*arm, *fingers))
    scene = CubeScene.of(robot, table, driven)
    state = scene.state
    lifting = Lifting(table, state, robot, fingers)

    def lifted(view: WorldView) -> Array:
        return lifting.height(view) > LIFT_M

    def near(view: WorldView) -> Array:
        return view.xp.exp(-lifting.distance(view) / table.edge)

    def gripped(view: WorldView) -> Array:
        return near(view) * lifting.closing(view)

    def high(view: WorldView) -> Array:
        return view.xp.clip(lifting.height(view) / (1.2 * LIFT_M), 0.0, 1.0)

    def fell(view: WorldView) -> Array:
        return lifting.height(view) < -table.edge

    observed = (
        ObservationTerm(name="to_cube", kind="position_error", source=state.sensor, chain=TIP, scale=10.0),
        ObservationTerm(name="cube", kind="sensor", source=state.sensor, scale=5.0),
    )
    return Task(
        **scene.parts("lift", observed),
        summary="lift a cube 10 cm from a table with a gripper",
        rewards=scene.rewards(near=(near, 1.0), gripped=(gripped, 0.5), high=(high, 8.0)),
        terminations={"fell": fell},
        success=scene.held(lifted, f"cube {1e2 * LIFT_M:g} cm up"),
        critic=lifting.critic,
        critic_size=state.joints_size + 9,
        metrics={"cube_height_m": lifting.height},
    )
