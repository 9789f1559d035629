"""The double pendulum is to come to rest hanging: a task short enough to judge many twins of it."""

import numpy as np

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.safety_envelope import JointEnvelope, SafetyEnvelope
from physai.sdk.contract.terms import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm, TimingSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.common import compiled
from physai.sim.tasks.task import SensorModel, Success, Task, Uniforms, WorldView

SPEED_LIMIT, EFFORT_LIMIT = 8.0, 5.0
"""Of the envelope, well within the robot's own [rad/s, N·m]."""


def start(draw: Uniforms) -> tuple[Array, Array]:
    """At rest, each joint up to 0.5 rad from hanging."""
    return draw[:, :2] - 0.5, np.zeros((len(draw), 2))


def make_task(robot: Robot | None = None) -> Task:
    """2 s episodes, 100 Hz; success is to be within 0.2 rad of hanging for the last 0.2 s."""
    robot = robot or load_robot("double_pendulum")
    names = robot.spec.joint_names
    terms = (
        ObservationTerm(name="pos", kind="sensor", source="joint_pos"),
        ObservationTerm(name="vel", kind="sensor", source="joint_vel"),
    )
    action = ActionTerm(
        kind="joint_effort",
        joints=names,
        scale=(EFFORT_LIMIT,) * 2,
        offset=(0.0,) * 2,
        lower=(-EFFORT_LIMIT,) * 2,
        upper=(EFFORT_LIMIT,) * 2,
    )
    return Task(
        name="settle",
        summary="bring the double pendulum to rest",
        robot=robot,
        model=compiled(robot, physics_dt=0.002),
        contract=PolicyContract(
            task="settle",
            robot=robot.spec,
            observation=ObservationSpec(terms=terms),
            action=ActionSpec(terms=(action,)),
            command=CommandSpec(),
            timing=TimingSpec(
                control_dt=0.01, physics_dt=0.002, decimation=5, deadline_s=0.008, max_observation_age_s=0.05
            ),
            safety=SafetyEnvelope(
                joints=tuple(
                    JointEnvelope(joint=name, velocity_limit=SPEED_LIMIT, effort_limit=EFFORT_LIMIT) for name in names
                ),
                parity_tolerance=0.5,
            ),
        ),
        episode_length_s=2.0,
        reset=start,
        reset_draws=2,
        rewards={},
        terminations={},
        success=Success(
            condition=lambda view: (np.abs(view.joint_pos) < 0.2).all(axis=1),
            hold_s=0.2,
            text="within 0.2 rad for 0.2 s",
        ),
        critic=_critic,
        critic_size=2,
        sensors={"joint_pos": SensorModel(noise_std=1e-3), "joint_vel": SensorModel(noise_std=1e-2)},
    )


def _critic(view: WorldView) -> Array:
    return view.joint_pos
