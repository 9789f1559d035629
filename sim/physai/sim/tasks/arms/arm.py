"""Common parts of tasks for arms with position servos: contract, limits, starts and randomisation."""

import math
from collections.abc import Sequence
from typing import Any

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.contract.terms import ActionSpec, CommandField, CommandSpec, ObservationSpec, ObservationTerm
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot
from physai.sim.robots.payload import moving_mass, payload_body
from physai.sim.tasks.common import envelope, position_action, timing
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.sensor_ranges import plausible_ranges
from physai.sim.tasks.task import Randomise, ResetFunction, SensorModel, Uniforms

TIP = "ee"
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
START_SPREAD = 0.3
"""Greatest distance of a joint from home at the start of an episode [rad]."""
LOAD_SHARE = 0.035
"""Greatest load at the end effector while training, as a share of the mass that moves: 1 kg for a UR10e, and more
than the 3 % with which policies are judged."""
JOINT_SENSORS = {
    "joint_pos": SensorModel(noise_std=2e-4, bias=1e-3),
    "joint_vel": SensorModel(noise_std=5e-3),
}
"""Encoders of an arm."""
CUBE_SENSOR = SensorModel(noise_std=1e-3, bias=2e-3)
"""A camera that finds a marker at half a metre."""
TOP_SPEED = 0.6
"""Greatest speed of a joint's target [rad/s]: a faster tip throws the cube."""
INSET = 0.02
"""Share of a joint's range that commands keep away from its limits; targets of `reach` keep 0.05."""
CONTROL_DT = 0.032
"""Control period [s], as far as the robot's physics step divides it."""


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
        max(0.001, round(STRETCHED * joint.effort_limit / joint.stiffness, 3))
        if joint.stiffness * joint.effort_limit
        else None
        for joint in robot.joints
    ]


def _of(driven: Sequence[str], robot: RobotSpec, limits: Sequence[float | None]) -> list[float | None]:
    """Limits of commands, which only driven joints have."""
    return [limit if name in driven else None for name, limit in zip(robot.joint_names, limits, strict=True)]


def arm_contract(
    name: str,
    robot: Robot,
    *,
    observed: Sequence[ObservationTerm],
    commands: Sequence[CommandField],
    physics_dt: float,
    decimation: int,
    driven: Sequence[str],
    following_error: Sequence[float] | None = None,
    inset: float = 0.0,
    top_speed: float = math.inf,
) -> PolicyContract:
    """Contract of a policy that moves the position targets of an arm's joints.

    Args:
        name: task name.
        robot: the arm.
        observed: what the policy sees besides its joints and the lag of their targets.
        commands: fields that an operator sets.
        physics_dt: physics time step [s].
        decimation: physics steps per control period.
        driven: joints that the policy commands.
        following_error: limit per joint [rad]; None for `STRETCHED` times the error at which its servo saturates.
        inset: share of a joint's range by which commands stay away from its limits.
        top_speed: greatest speed of a target [rad/s or m/s], if half the joint's limit is not less.
    """
    spec = robot.spec
    terms = (
        ObservationTerm(name="joint_pos", kind="joint_pos_rel"),
        ObservationTerm(name="joint_vel", kind="sensor", source="joint_vel", scale=0.5),
        *observed,
        ObservationTerm(name="target_lag", kind="last_target", scale=4.0),
    )
    # Half the limit leaves room for the servo's overshoot when a target starts or reverses.
    fastest = [0.5 * (joint.velocity_limit or DEFAULT_SPEED) for joint in spec.joints]
    control_dt = physics_dt * decimation
    scale = [
        min(speed, top_speed) * control_dt
        for speed, joint in zip(fastest, spec.joints, strict=True)
        if joint.name in driven
    ]
    return PolicyContract(
        task=name,
        robot=spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(
            terms=(position_action(spec, scale=scale, kind="joint_pos_incremental", names=driven, inset=inset),)
        ),
        command=CommandSpec(fields=tuple(commands)),
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


def start_spread(robot: RobotSpec, driven: Sequence[str]) -> list[float]:
    """Greatest distance of each joint's start from home [rad]: commanded ones within their limits, others not at
    all.
    """
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


def require_servos(robot: Robot, names: Sequence[str]) -> None:
    """Raises TaskError unless each joint has a position servo: a motor would take a position in rad as N·m."""
    for joint in robot.spec.joints:
        if joint.name in names and not joint.stiffness > 0.0:
            drive = "a motor, which takes an effort" if joint.effort_limit > 0.0 else "no actuator of that name"
            raise TaskError(
                f"joint {joint.name!r} of {robot.name} has {drive}; the task commands positions, so give it a "
                f"servo: physai robots import {robot.path} --servo auto"
            )


def arm_randomisation(model: Any, *, objects: bool = False) -> tuple[Randomise, ...]:
    """Uncertain quantities of an arm.

    Args:
        model: the robot's own model.
        objects: whether the task's model has objects after the robot, which the rules must leave alone.
    """
    tip, load = payload_body(model), LOAD_SHARE * moving_mass(model)
    bodies, dofs = (tuple(range(model.nbody)), tuple(range(model.nv))) if objects else (None, None)
    carried: tuple[Randomise, ...] = ()
    if model.body_gravcomp[tip] > 0.0:
        # What carries the arm's weight does not know of the load; see `add_payload`.
        share = float(model.body_mass[tip] / (model.body_mass[tip] + load))
        carried = (Randomise(field="body_gravcomp", rows=(tip,), operation="scale", lower=share, upper=1.0),)
    return (
        Randomise(field="body_mass", rows=bodies, operation="scale", lower=0.9, upper=1.1, together=("body_inertia",)),
        Randomise(field="body_mass", rows=(tip,), operation="add", lower=0.0, upper=load),
        *carried,
        Randomise(field="dof_armature", rows=dofs, operation="scale", lower=0.8, upper=1.2),
        Randomise(field="dof_damping", rows=dofs, operation="add", lower=0.0, upper=2.0),
    )
