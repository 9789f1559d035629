"""Helpers shared by tasks: parts of contracts, and terms for any robot."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from physai.sdk.contract.robot import JointSpec, RobotSpec
from physai.sdk.contract.safety_envelope import JointEnvelope, SafetyEnvelope, SensorRange
from physai.sdk.contract.terms import ActionTerm, TimingSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import Term, WorldView


def compiled(robot: Robot, *, physics_dt: float) -> Any:
    """The robot's model with another time step [s]."""
    spec = robot.model_spec.copy()
    spec.option.timestep = physics_dt
    return spec.compile()


Limits = Sequence[float | None]
"""One limit per joint in the robot's order, None for no limit; empty for no limits."""


def envelope(
    robot: RobotSpec,
    *,
    parity_tolerance: float,
    acceleration: Limits = (),
    following_error: Limits = (),
    velocity_mismatch: Limits = (),
    frozen_samples: int | None = None,
    sensor_ranges: tuple[SensorRange, ...] | None = None,
) -> SafetyEnvelope:
    """A safety envelope with the robot's own limits and the given additional ones."""
    none: Limits = (None,) * len(robot.joints)
    joints = tuple(
        JointEnvelope(
            joint=joint.name,
            position_lower=joint.position_lower,
            position_upper=joint.position_upper,
            velocity_limit=joint.velocity_limit,
            effort_limit=joint.effort_limit,
            acceleration_limit=change,
            following_error_limit=lag,
            velocity_mismatch_limit=mismatch,
        )
        for joint, change, lag, mismatch in zip(
            robot.joints, acceleration or none, following_error or none, velocity_mismatch or none, strict=True
        )
    )
    return SafetyEnvelope(
        joints=joints, parity_tolerance=parity_tolerance, frozen_samples=frozen_samples, sensor_ranges=sensor_ranges
    )


def timing(physics_dt: float, decimation: int, *, max_observation_age: float) -> TimingSpec:
    """Timing with a deadline of half a control period.

    Args:
        physics_dt: physics time step [s].
        decimation: physics steps per control period.
        max_observation_age: greatest age of an observation, in control periods.
    """
    control_dt = physics_dt * decimation
    return TimingSpec(
        control_dt=control_dt,
        physics_dt=physics_dt,
        decimation=decimation,
        deadline_s=0.5 * control_dt,
        max_observation_age_s=max_observation_age * control_dt,
    )


def position_action(
    robot: RobotSpec,
    *,
    scale: float | Sequence[float],
    kind: Literal["joint_pos", "joint_pos_incremental"],
    names: Sequence[str] | None = None,
    inset: float = 0.0,
) -> ActionTerm:
    """Position commands for joints, all if no names are given, relative to their defaults and within their limits.

    `inset` is the share of its range by which a command stays away from a limit, which leaves room for overshoot.
    """
    joints = [joint for joint in robot.joints if names is None or joint.name in names]
    scales = tuple(float(s) for s in scale) if isinstance(scale, Sequence) else (float(scale),) * len(joints)
    return ActionTerm(
        kind=kind,
        joints=tuple(joint.name for joint in joints),
        scale=scales,
        offset=tuple(joint.default_pos for joint in joints),
        # An action term needs bounds; a joint without limits, such as a wheel, gets ones that it never reaches.
        lower=tuple(_inside(joint, inset)[0] for joint in joints),
        upper=tuple(_inside(joint, inset)[1] for joint in joints),
    )


def _inside(joint: JointSpec, inset: float) -> tuple[float, float]:
    if joint.position_lower is None or joint.position_upper is None:
        return -1e3, 1e3
    room = inset * (joint.position_upper - joint.position_lower)
    return joint.position_lower + room, joint.position_upper - room


def once(view: WorldView, name: str, compute: Term) -> Array:
    """Caches the value of a shared term, so that it is computed once per state."""
    if name not in view.shared:
        view.shared[name] = compute(view)
    return view.shared[name]


def target_rate_squared(view: WorldView) -> Array:
    """Σ ((u - u_previous) / Δt)² over the commanded joints, in (joint unit / s)²."""
    rate = (view.target - view.previous_target) / view.control_dt
    return view.xp.vecdot(rate, rate)


def joint_vel_squared(view: WorldView) -> Array:
    """Σ q'² over all joints [rad²/s²]."""
    return view.xp.vecdot(view.joint_vel, view.joint_vel)


def overspeed(robot: RobotSpec, margin: float = 0.7) -> Term:
    """Makes the term Σ max(0, |q'| - margin · limit)² over the joints with a velocity limit [rad²/s²].

    It trains the policy to stay below the limits at which the robot's guard stops it.
    """
    # An infinite limit gives an excess of 0, so that joints without a limit need no case of their own.
    limits = Constant([math.inf if j.velocity_limit is None else margin * j.velocity_limit for j in robot.joints])

    def term(view: WorldView) -> Array:
        excess = view.xp.clip(view.xp.abs(view.joint_vel) - limits.like(view.joint_vel), 0.0, None)
        return view.xp.vecdot(excess, excess)

    return term


def target_squared(view: WorldView) -> Array:
    """Σ u² over the commanded joints, in squared joint units."""
    return view.xp.vecdot(view.target, view.target)
