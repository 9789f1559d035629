"""Reaching an end-effector pose with a position-controlled arm."""

import math
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.contract.terms import (
    ActionSpec,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
)
from physai.sim.engines.protocol import Array, Stage
from physai.sim.robots import Robot, load_robot
from physai.sim.robots.payload import moving_mass, payload_body
from physai.sim.robots.spec import chain_joints
from physai.sim.tasks import rotations
from physai.sim.tasks.common import (
    compiled,
    envelope,
    joint_vel_squared,
    once,
    overspeed,
    position_action,
    target_rate_squared,
    timing,
)
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.reach_targets import COMMAND, Targets, box, reachable
from physai.sim.tasks.sensor_ranges import plausible_ranges
from physai.sim.tasks.task import (
    Delay,
    Randomise,
    ResetFunction,
    RewardTerm,
    SensorModel,
    Success,
    Task,
    Uniforms,
    WorldView,
)
from physai.sim.tasks.workspace import sampled_workspace

TIP = "ee"
TOLERANCE_M = 0.02
TOLERANCE_RAD = 0.1
DEFAULT_SPEED = 2.0
"""Velocity limit assumed for joints without one [rad/s]."""
RISE_S = 0.05
"""Time in which a commanded position reaches its greatest speed [s]: a reversal takes three control periods. UR10e:
21 and 31 rad/s². Its manufacturer states no limit; 330 N·m accelerate the stretched arm with its load (about 25 kg·m²)
by 13 rad/s², 54 N·m a wrist (0.1 kg·m², mainly the rotor) by a multiple of 31 rad/s²."""
MISMATCH_S = 0.04
"""Greatest difference between position and integrated velocity, as time at the velocity limit [s]. In simulation with
random full-scale commands, noise, delay and end stops a UR10e reaches 0.018 s. A velocity stuck at 0 is detected from
16 % of the limit."""
FROZEN_SAMPLES = 5
"""Number of equal samples that count as a frozen sensor: 0.16 s."""
STRETCHED = 4.0
"""Greatest following error of an arm without measured values, in multiples of the error at which the servo saturates; a
UR10e reaches 2 in simulation."""
UR10E_FOLLOWING_ERROR = (0.45, 0.65, 1.0, 0.5, 0.5, 0.5)
"""Greatest following errors of a UR10e [rad]: twice the 0.21, 0.31, 0.49, 0.25, 0.23 and 0.22 rad in simulation with
random full-scale commands, parameters and delays, before a joint exceeds its velocity limit. A policy that reaches its
targets stays below 0.2 rad."""
START_SPREAD = 0.3
"""Greatest distance of a joint from home at the start of an episode [rad]."""
LOAD_SHARE = 0.035
"""Greatest load at the end effector while training, as a share of the mass that moves: 1 kg for a UR10e, and more
than the 3 % with which policies are judged."""
TARGET_INTERVAL_S = 4.0
"""Time after which the target is evaluated and a new one drawn [s]."""


class PoseError:
    """Difference between target and end effector, from the engine's own kinematics."""

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

    def position(self, view: WorldView) -> Array:
        """Target minus actual position [m], shape (num_worlds, 3)."""
        return once(view, "position", self._position)

    def rotation(self, view: WorldView) -> Array:
        """Rotation from actual to target as axis · 2 sin(angle / 2), shape (num_worlds, 3)."""
        return once(view, "rotation", self._rotation)

    def distance(self, view: WorldView) -> Array:
        """Distance to the target [m]."""
        return once(view, "distance", lambda v: _norm(self.position(v), v.xp))

    def angle(self, view: WorldView) -> Array:
        """Angle to the target orientation [rad], from 0 to π."""
        return once(view, "angle", self._angle)

    def _position(self, view: WorldView) -> Array:
        return view.commands[COMMAND][:, :3] - view.derived["site_xpos"][:, self._site]

    def _rotation(self, view: WorldView) -> Array:
        actual = rotations.multiply(view.derived["xquat"][:, self._body], self._quat.like(view.qpos), view.xp)
        return rotations.error_vector(view.commands[COMMAND][:, 3:], actual, view.xp)

    def _angle(self, view: WorldView) -> Array:
        # Rounding may bring the sine slightly above 1, where arcsin is NaN.
        half_sine = 0.5 * _norm(self.rotation(view), view.xp)
        return 2.0 * view.xp.arcsin(view.xp.clip(half_sine, 0.0, 1.0))


def _norm(vectors: Array, xp: Any) -> Array:
    return xp.sqrt(xp.vecdot(vectors, vectors))


def near(home: Sequence[float], spread: Sequence[float]) -> ResetFunction:
    """Joint positions within `spread` [rad] of home, at rest; one value per joint each."""
    middle, width = Constant(home), Constant(spread)

    def reset(draw: Uniforms) -> tuple[Array, Array]:
        qpos = middle.like(draw) + width.like(draw) * (2.0 * draw - 1.0)
        return qpos, 0.0 * qpos

    return reset


def _following_error(robot: RobotSpec) -> list[float | None]:
    """Following error limits for any position servo; None for joints with unknown gain or effort limit."""
    return [
        # A servo saturates at the error that takes its whole effort: effort limit / stiffness.
        round(STRETCHED * joint.effort_limit / joint.stiffness, 3) if joint.stiffness * joint.effort_limit else None
        for joint in robot.joints
    ]


def _of(driven: Sequence[str], robot: RobotSpec, limits: Sequence[float | None]) -> list[float | None]:
    """Limits of commands, which only driven joints have."""
    return [limit if name in driven else None for name, limit in zip(robot.joint_names, limits, strict=True)]


def _contract(
    name: str,
    robot: Robot,
    physics_dt: float,
    decimation: int,
    command: CommandField,
    following_error: Sequence[float] | None,
    driven: Sequence[str],
    inset: float,
) -> PolicyContract:
    spec = robot.spec
    terms = (
        ObservationTerm(name="joint_pos", kind="joint_pos_rel"),
        ObservationTerm(name="joint_vel", kind="sensor", source="joint_vel", scale=0.5),
        ObservationTerm(name="pose_error", kind="pose_error", source=COMMAND, chain=TIP),
        ObservationTerm(name="target_lag", kind="last_target", scale=4.0),
    )
    # Half the limit leaves room for the servo's overshoot when a target starts or reverses.
    fastest = [0.5 * (joint.velocity_limit or DEFAULT_SPEED) for joint in spec.joints]
    control_dt = physics_dt * decimation
    scale = [speed * control_dt for speed, joint in zip(fastest, spec.joints, strict=True) if joint.name in driven]
    return PolicyContract(
        task=name,
        robot=spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(
            terms=(position_action(spec, scale=scale, kind="joint_pos_incremental", names=driven, inset=inset),)
        ),
        command=CommandSpec(fields=(command,)),
        timing=timing(physics_dt, decimation, max_observation_age=2.0),
        safety=envelope(
            spec,
            parity_tolerance=0.005,
            acceleration=_of(driven, spec, [round(speed / RISE_S, 3) for speed in fastest]),
            following_error=_of(driven, spec, following_error or _following_error(spec)),
            velocity_mismatch=[round(2.0 * MISMATCH_S * speed, 4) for speed in fastest],
            frozen_samples=FROZEN_SAMPLES,
            sensor_ranges=plausible_ranges(spec),
        ),
    )


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
                _norm(rotation, view.xp)[:, None],
            ],
            axis=1,
        )

    return critic


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

    Raises:
        TaskError: the robot has no site `ee`, or a joint to command has no position servo.
    """
    names = tuple(driven or robot.spec.joint_names)
    _require_servos(robot, names)
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

    def reached(view: WorldView) -> Array:
        return (error.distance(view) < TOLERANCE_M) & (error.angle(view) < TOLERANCE_RAD)

    def fine_position(view: WorldView) -> Array:
        return view.xp.exp(-error.distance(view) / 0.05)

    def fine_rotation(view: WorldView) -> Array:
        # The second factor rewards orientation only near the target, so that it does not compete with getting there.
        return view.xp.exp(-error.angle(view) / 0.2) * view.xp.exp(-error.distance(view) / 0.1)

    joints = len(home)
    return Task(
        name=name,
        summary="bring the end effector to a commanded pose within 2 cm and 0.1 rad",
        robot=robot,
        model=model,
        contract=_contract(name, robot, physics_dt, decimation, command, following_error, names, inset),
        episode_length_s=3 * TARGET_INTERVAL_S,
        reset=near(home, _start_spread(robot.spec, names)),
        reset_draws=joints,
        rewards={
            "distance": RewardTerm(term=error.distance, weight=-1.0),
            "angle": RewardTerm(term=error.angle, weight=-0.3),
            "fine_position": RewardTerm(term=fine_position, weight=1.0),
            "fine_rotation": RewardTerm(term=fine_rotation, weight=1.0),
            "target_rate": RewardTerm(term=target_rate_squared, weight=-0.003),
            "joint_vel": RewardTerm(term=joint_vel_squared, weight=-0.003),
            "overspeed": RewardTerm(term=overspeed(robot.spec), weight=-10.0),
        },
        success=Success(condition=reached, text="within 2 cm and 0.1 rad when 4 s are over"),
        critic=_critic(error, home, robot.spec.joint_index(names)),
        critic_size=2 * joints + len(names) + 8,
        command=targets.draw,
        command_draws=targets.draws,
        command_interval_s=TARGET_INTERVAL_S,
        stage=Stage.POSITION,
        derived=("site_xpos", "xquat"),
        sensors={
            "joint_pos": SensorModel(noise_std=2e-4, bias=1e-3),
            "joint_vel": SensorModel(noise_std=5e-3),
        },
        action_delay=Delay(lower_s=0.0, upper_s=2 * physics_dt),
        randomisation=_randomisation(model, LOAD_SHARE * moving_mass(model)),
        metrics={"position_error_m": error.distance, "orientation_error_rad": error.angle},
    )


def _start_spread(robot: RobotSpec, driven: Sequence[str]) -> list[float]:
    """How far from home each joint starts at most [rad]: commanded ones within their limits, others not at all."""
    return [
        min(
            START_SPREAD,
            0.9 * (math.inf if joint.position_lower is None else joint.default_pos - joint.position_lower),
            0.9 * (math.inf if joint.position_upper is None else joint.position_upper - joint.default_pos),
        )
        if joint.name in driven
        else 0.0
        for joint in robot.joints
    ]


def _require_servos(robot: Robot, names: Sequence[str]) -> None:
    """Raises TaskError unless each joint has a position servo: a motor would take a position in rad as N·m."""
    for joint in robot.spec.joints:
        if joint.name in names and not joint.stiffness > 0.0:
            drive = "a motor, which takes an effort" if joint.effort_limit > 0.0 else "no actuator of that name"
            raise TaskError(
                f"joint {joint.name!r} of {robot.name} has {drive}; a reach task commands positions, so give it a "
                f"servo: physai robots import {robot.path} --servo auto"
            )


def _randomisation(model: Any, load: float) -> tuple[Randomise, ...]:
    tip = payload_body(model)
    carried = ()
    if model.body_gravcomp[tip] > 0.0:
        # What carries the arm's weight does not know of the load; see `add_payload`.
        share = float(model.body_mass[tip] / (model.body_mass[tip] + load))
        carried = (Randomise(field="body_gravcomp", rows=(tip,), operation="scale", lower=share, upper=1.0),)
    return (
        Randomise(field="body_mass", operation="scale", lower=0.9, upper=1.1, together=("body_inertia",)),
        Randomise(field="body_mass", rows=(tip,), operation="add", lower=0.0, upper=load),
        *carried,
        Randomise(field="dof_armature", operation="scale", lower=0.8, upper=1.2),
        Randomise(field="dof_damping", operation="add", lower=0.0, upper=2.0),
    )


def ur10e_reach(robot: Robot | None = None) -> Task:
    """UR10e with the target box of NVIDIA's Deploy-Reach-UR10e task.

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
    )


INSET = 0.02
"""Share of a joint's range that commands of `reach` keep away from its limits; targets keep 0.05."""
CONTROL_DT = 0.032
"""Control period of `reach` [s], as far as the robot's physics step divides it."""


def reach(robot: Robot | None = None) -> Task:
    """Any arm with position servos and a site `ee`; targets are poses that it can reach, near its home pose.

    The policy commands the joints between base and end effector. The physics step is that of the robot's model.
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
    )
