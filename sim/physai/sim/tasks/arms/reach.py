"""Reaching an end-effector pose with a position-controlled arm."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np

from physai.sdk.base.errors import TaskError, unknown_name
from physai.sdk.contract.terms import CommandField, ObservationTerm
from physai.sim.engines.protocol import Array, Stage
from physai.sim.robots import Robot, load_robot
from physai.sim.robots.spec import chain_joints, posed
from physai.sim.tasks import rotations
from physai.sim.tasks.arms.arm import (
    CONTROL_DT,
    INSET,
    JOINT_SENSORS,
    TIP,
    arm_contract,
    arm_randomisation,
    near,
    require_servos,
    start_spread,
)
from physai.sim.tasks.arms.reach_targets import COMMAND, Targets, box, reachable
from physai.sim.tasks.arms.scene_state import norm
from physai.sim.tasks.arms.workspace import base_body, sampled_workspace
from physai.sim.tasks.common import compiled, joint_vel_squared, once, overspeed, target_rate_squared
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import Delay, RewardTerm, Success, Task, WorldView

TOLERANCE_M = 0.02
TOLERANCE_RAD = 0.1
UR10E_FOLLOWING_ERROR = (0.45, 0.65, 1.0, 0.5, 0.5, 0.5)
"""Greatest following errors of a UR10e [rad]: twice the 0.21, 0.31, 0.49, 0.25, 0.23 and 0.22 rad in simulation with
random full-scale commands, parameters and delays, before a joint exceeds its velocity limit. A policy that reaches its
targets stays below 0.2 rad."""
POSITION = "position"
"""Preset in which the orientation of targets does not count, but the arm is to stay above the plane it stands on."""
CLEARANCE_M = 0.08
"""Height of joints and tip above that plane from which on it costs nothing [m]; links are about as thick."""
TARGET_INTERVAL_S = 4.0
"""Time after which the target is evaluated and a new one drawn [s]."""


class PoseError:
    """Difference between target and end effector in the frame of the base, from the engine's own kinematics."""

    def __init__(self, model: Any, site_name: str) -> None:
        """Resolves the end effector's site.

        Raises:
            TaskError: the model has no such site.
        """
        self._site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, site_name)
        if self._site < 0:
            raise TaskError(f"the model has no site named {site_name!r}; a reach task needs one at the end effector")
        self._body = int(model.site_bodyid[self._site])
        self._quat = Constant(np.array(model.site_quat[self._site])[None])
        data, base = posed(model, model.qpos0), base_body(model, self._site)
        # The engine's poses are in the world, where the base of a fixed robot may stand anywhere and be turned.
        self._origin = Constant(np.array(data.xpos[base])[None])
        self._base_quat = Constant(np.array(data.xquat[base])[None])
        self._to_base = Constant(np.array(data.xquat[base] * [1.0, -1.0, -1.0, -1.0])[None])

    def position(self, view: WorldView) -> Array:
        """Target minus actual position [m], shape (num_worlds, 3)."""
        return once(view, "position", self._position)

    def rotation(self, view: WorldView) -> Array:
        """Rotation from actual to target as axis · 2 sin(angle / 2), shape (num_worlds, 3)."""
        return once(view, "rotation", self._rotation)

    def distance(self, view: WorldView) -> Array:
        """Distance to the target [m]."""
        return once(view, "distance", lambda v: norm(self.position(v), v.xp))

    def angle(self, view: WorldView) -> Array:
        """Angle to the target orientation [rad], from 0 to π."""
        return once(view, "angle", self._angle)

    def _position(self, view: WorldView) -> Array:
        actual = view.derived["site_xpos"][:, self._site] - self._origin.like(view.qpos)
        return view.commands[COMMAND][:, :3] - rotations.rotate_inverse(self._base_quat.like(actual), actual, view.xp)

    def _rotation(self, view: WorldView) -> Array:
        in_world = rotations.multiply(view.derived["xquat"][:, self._body], self._quat.like(view.qpos), view.xp)
        actual = rotations.multiply(self._to_base.like(in_world), in_world, view.xp)
        return rotations.error_vector(view.commands[COMMAND][:, 3:], actual, view.xp)

    def _angle(self, view: WorldView) -> Array:
        # Rounding may bring the sine slightly above 1, where arcsin is NaN.
        half_sine = 0.5 * norm(self.rotation(view), view.xp)
        return 2.0 * view.xp.arcsin(view.xp.clip(half_sine, 0.0, 1.0))


class Clearance:
    """Height of an arm's joints and its tip above the plane that it stands on."""

    def __init__(self, model: Any, site_name: str, joints: Sequence[str], lowest_target: float) -> None:
        """Resolves the bodies of the joints.

        Args:
            model: the arm's.
            site_name: of its tip.
            joints: those that move it.
            lowest_target: height of the lowest target above the base [m]; if it is negative, the plane is there.
        """
        self._site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, site_name)
        self._bodies = Constant([int(model.jnt_bodyid[model.joint(name).id]) for name in joints])
        data = posed(model, model.qpos0)
        self._plane = float(data.xpos[base_body(model, self._site), 2]) + min(0.0, lowest_target)

    def lack(self, view: WorldView) -> Array:
        """Distance that is missing to `CLEARANCE_M` where it is least [m], shape (num_worlds,)."""
        return once(view, "lack", self._lack)

    def _lack(self, view: WorldView) -> Array:
        positions, xp = view.derived["xpos"], view.xp
        joints = xp.min(xp.take(positions, self._bodies.like(positions), axis=1)[:, :, 2], axis=1)
        height = xp.minimum(joints, view.derived["site_xpos"][:, self._site, 2]) - self._plane
        return xp.clip(CLEARANCE_M - height, 0.0, None)


def _critic(error: PoseError, home: Sequence[float], driven: Sequence[int]) -> Any:
    middle, columns = Constant(home), Constant(driven)
    # All joints are commanded in their order, unless the robot has others than the arm's.
    whole = len(driven) == len(home)

    def driven_pos(view: WorldView) -> Array:
        return view.xp.take(view.joint_pos, columns.like(view.joint_pos), axis=1)

    def critic(view: WorldView) -> Array:
        """Joint positions from home, velocities, lag of the targets, pose error and its norms."""
        position, rotation = error.position(view), error.rotation(view)
        return view.xp.concatenate(
            [
                view.joint_pos - middle.like(view.joint_pos),
                0.5 * view.joint_vel,
                4.0 * (view.target - (view.joint_pos if whole else driven_pos(view))),
                position,
                rotation,
                error.distance(view)[:, None],
                norm(rotation, view.xp)[:, None],
            ],
            axis=1,
        )

    return critic


def _rewards(error: PoseError, clearance: Clearance, robot: Robot, *, oriented: bool) -> dict[str, RewardTerm]:
    """Terms that bring the tip to its target; those of its orientation, or one that keeps the arm above its plane."""

    def fine_position(view: WorldView) -> Array:
        return view.xp.exp(-error.distance(view) / 0.05)

    def fine_rotation(view: WorldView) -> Array:
        # The second factor rewards orientation only near the target, so that it does not compete with getting there.
        return view.xp.exp(-error.angle(view) / 0.2) * view.xp.exp(-error.distance(view) / 0.1)

    rewards = {
        "distance": RewardTerm(term=error.distance, weight=-1.0),
        "angle": RewardTerm(term=error.angle, weight=-0.3),
        "fine_position": RewardTerm(term=fine_position, weight=1.0),
        "fine_rotation": RewardTerm(term=fine_rotation, weight=1.0),
        "target_rate": RewardTerm(term=target_rate_squared, weight=-0.003),
        "joint_vel": RewardTerm(term=joint_vel_squared, weight=-0.003),
        "overspeed": RewardTerm(term=overspeed(robot.spec), weight=-10.0),
        "clearance": RewardTerm(term=clearance.lack, weight=-20.0),
    }
    # With its orientation, a target leaves an arm hardly a way from below.
    left_out = ("clearance",) if oriented else ("angle", "fine_rotation")
    return {name: term for name, term in rewards.items() if name not in left_out}


def _reached(error: PoseError, clearance: Clearance, *, oriented: bool) -> Callable[[WorldView], Array]:
    def posed(view: WorldView) -> Array:
        return (error.distance(view) < TOLERANCE_M) & (error.angle(view) < TOLERANCE_RAD)

    def placed(view: WorldView) -> Array:
        return (error.distance(view) < TOLERANCE_M) & (clearance.lack(view) < CLEARANCE_M)

    return posed if oriented else placed


def reach_task(
    name: str,
    robot: Robot,
    *,
    targets: Targets,
    driven: Sequence[str] | None = None,
    physics_dt: float = 0.008,
    decimation: int = 4,
    following_error: Sequence[float] | None = None,
    inset: float = 0.0,
    oriented: bool = True,
) -> Task:
    """A reach task for any fixed-base arm with position servos and a site `ee`.

    Args:
        name: task name.
        robot: the arm.
        targets: where targets are drawn.
        driven: joints that the policy commands; None for all. Others with servos are held at 0.
        physics_dt: physics time step [s].
        decimation: physics steps per control period.
        following_error: limit of the distance between commanded and measured position of each joint [rad]; None for
            `STRETCHED` times the error at which its servo saturates.
        inset: share of a joint's range by which commands stay away from its limits.
        oriented: whether the orientation of the target counts, too, which leaves an arm of six joints no choice how to
            stand.

    Raises:
        TaskError: the robot has no site `ee`, or a joint to command has no position servo.
    """
    names = tuple(driven or robot.spec.joint_names)
    require_servos(robot, names)
    model = compiled(robot, physics_dt=physics_dt)
    error = PoseError(model, TIP)
    home = [joint.default_pos for joint in robot.spec.joints]
    command = CommandField(
        name=COMMAND,
        size=7,
        unit="m, 1",
        frame="b",
        lower=(*targets.lower, -1.0, -1.0, -1.0, -1.0),
        upper=(*targets.upper, 1.0, 1.0, 1.0, 1.0),
    )

    clearance = Clearance(model, TIP, names, targets.lower[2])
    joints = len(home)
    within = "2 cm and 0.1 rad" if oriented else "2 cm"
    return Task(
        name=name,
        summary=f"bring the end effector to a commanded {'pose' if oriented else 'position'} within {within}",
        robot=robot,
        model=model,
        contract=arm_contract(
            name,
            robot,
            observed=(ObservationTerm(name="pose_error", kind="pose_error", source=COMMAND, chain=TIP),),
            commands=(command,),
            physics_dt=physics_dt,
            decimation=decimation,
            driven=names,
            following_error=following_error,
            inset=inset,
        ),
        episode_length_s=3 * TARGET_INTERVAL_S,
        reset=near(home, start_spread(robot.spec, names)),
        reset_draws=joints,
        rewards=_rewards(error, clearance, robot, oriented=oriented),
        success=Success(
            condition=_reached(error, clearance, oriented=oriented), text=f"within {within} when 4 s are over"
        ),
        critic=_critic(error, home, robot.spec.joint_index(names)),
        critic_size=2 * joints + len(names) + 8,
        command=targets.draw,
        command_draws=targets.draws,
        command_interval_s=TARGET_INTERVAL_S,
        stage=Stage.POSITION,
        derived=("site_xpos", "xquat") if oriented else ("site_xpos", "xquat", "xpos"),
        sensors=JOINT_SENSORS,
        action_delay=Delay(lower_s=0.0, upper_s=2 * physics_dt),
        randomisation=arm_randomisation(model),
        metrics={"position_error_m": error.distance} | ({"orientation_error_rad": error.angle} if oriented else {}),
    )


def _oriented(task: str, preset: str | None) -> bool:
    if preset not in (None, POSITION):
        raise unknown_name(f"preset of {task}", preset, [POSITION])
    return preset is None


def ur10e_reach(robot: Robot | None = None, preset: str | None = None) -> Task:
    """UR10e with the target box of NVIDIA's Deploy-Reach-UR10e task.

    Args:
        robot: a UR10e; the built-in one if None.
        preset: `position` for targets whose orientation does not count.

    Targets lie within (0.8875, -0.225, 0.2) ± (0.25, 0.125, 0.1) m in the base frame, with the tool pointing down
    within π/6 rad and rotated about the vertical by up to 2π/3 rad.
    """
    known = load_robot("ur10e")
    robot = robot or known
    return reach_task(
        "ur10e-reach",
        robot,
        targets=box(
            centre=(0.8875, -0.225, 0.2),
            half_size=(0.25, 0.125, 0.1),
            facing=(math.pi, 0.0, -math.pi / 2),
            tilt=(math.pi / 6, math.pi / 6, 2 * math.pi / 3),
        ),
        following_error=UR10E_FOLLOWING_ERROR if robot.spec == known.spec else None,
        oriented=_oriented("ur10e-reach", preset),
    )


def reach(robot: Robot | None = None, preset: str | None = None) -> Task:
    """Any arm with position servos and a site `ee`; targets are poses that it can reach, near its home pose.

    The policy commands the joints between base and end effector. The physics step is that of the robot's model.

    Args:
        robot: the arm; a UR10e if None.
        preset: `position` for targets whose orientation does not count.
    """
    robot = robot or load_robot("ur10e")
    workspace = sampled_workspace(robot.model, TIP)
    site = mujoco.mj_name2id(robot.model, mujoco.mjtObj.mjOBJ_SITE, TIP)
    step = float(robot.model.opt.timestep)
    return reach_task(
        "reach",
        robot,
        targets=reachable(workspace),
        driven=[str(robot.model.joint(joint).name) for joint in chain_joints(robot.model, site)],
        physics_dt=step,
        decimation=max(1, round(CONTROL_DT / step)),
        inset=INSET,
        oriented=_oriented("reach", preset),
    )
