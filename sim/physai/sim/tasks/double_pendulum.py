"""Swing-up of the double pendulum with one of its two motors: pendubot (shoulder) and acrobot (elbow).

Both joints hang at zero; the end effector must come to stand above and stay there. The rewards are, per second, a
share for being up and costs on energy, torque, its change and velocity in the proportions of the RealAIGym board
(github.com/dfki-ric-underactuated-lab/double_pendulum, leaderboard v2), whose score they make comparable.
"""

import math
from dataclasses import replace

import numpy as np

from physai.sdk.contract import (
    ActionSpec,
    ActionTerm,
    CommandSpec,
    JointEnvelope,
    ObservationSpec,
    ObservationTerm,
    PolicyContract,
    SafetyEnvelope,
    TimingSpec,
)
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.task import Delay, Push, Randomise, RewardTerm, SensorModel, Success, Task, Uniforms, WorldView

LINK_LENGTHS = (0.2, 0.3)
"""Joint to joint and elbow to end effector [m]: l1, l2 of the identified parameters."""
UP_HEIGHT = 0.45
"""Height of the end effector above the shoulder that counts as up [m]: 0.9 · (l1 + l2)."""
CONTROL_DT = 0.002
"""Control period [s]: the rate of the hardware's own loop and of the board."""


def height(view: WorldView) -> Array:
    """Height of the end effector above the shoulder [m]."""
    shoulder, elbow = view.joint_pos[:, 0], view.joint_pos[:, 1]
    l1, l2 = LINK_LENGTHS
    return -l1 * view.xp.cos(shoulder) - l2 * view.xp.cos(shoulder + elbow)


def is_up(view: WorldView) -> Array:
    """True where the end effector is above UP_HEIGHT."""
    return height(view) > UP_HEIGHT


def upright(view: WorldView) -> Array:
    """Height of the end effector, 0 hanging to 1 standing."""
    return 0.5 + height(view) / (2.0 * sum(LINK_LENGTHS))


def standing(view: WorldView) -> Array:
    """1 where the end effector is up, smoothly less below: exp(-(distance below the top / 0.1 m)²)."""
    gap = (sum(LINK_LENGTHS) - height(view)) / 0.1
    return view.xp.exp(-gap * gap)


def torque_squared(view: WorldView) -> Array:
    """Σ τ² [N²·m²]."""
    return (view.target**2).sum(axis=1)


def torque_rate_squared(view: WorldView) -> Array:
    """Σ (Δτ / Δt)² [N²·m²/s²]."""
    return (((view.target - view.previous_target) / view.control_dt) ** 2).sum(axis=1)


def velocity_squared(view: WorldView) -> Array:
    """Σ q'² [rad²/s²]."""
    return (view.joint_vel**2).sum(axis=1)


def too_fast(view: WorldView) -> Array:
    """True where a joint exceeds 30 rad/s, half as much again as the hardware's limit."""
    return (view.xp.abs(view.joint_vel) > 30.0).any(axis=1)


def critic_state(view: WorldView) -> Array:
    """Sine and cosine of both joints, velocities / 10, last command and height, shape (num_worlds, 8)."""
    xp = view.xp
    return xp.concatenate(
        [
            xp.sin(view.joint_pos),
            xp.cos(view.joint_pos),
            0.1 * view.joint_vel,
            0.2 * view.target,
            height(view)[:, None],
        ],
        axis=1,
    )


def hanging(draw: Uniforms) -> tuple[Array, Array]:
    """Hanging at rest up to 0.05 rad and 0.05 rad/s."""
    return 0.1 * (draw[:, :2] - 0.5), 0.1 * (draw[:, 2:4] - 0.5)


def anywhere(draw: Uniforms) -> tuple[Array, Array]:
    """Of the episodes 40 % hanging, 45 % anywhere up to 8 rad/s, 15 % near the top."""
    qpos, qvel = hanging(draw)
    kind = draw[:, 4:5]
    wild = 2.0 * math.pi * (draw[:, :2] - 0.5), 16.0 * (draw[:, 2:4] - 0.5)
    top = np.array([math.pi, 0.0]) + 0.6 * (draw[:, :2] - 0.5), 4.0 * (draw[:, 2:4] - 0.5)
    qpos = np.where(kind < 0.4, qpos, np.where(kind < 0.85, wild[0], top[0]))
    qvel = np.where(kind < 0.4, qvel, np.where(kind < 0.85, wild[1], top[1]))
    return qpos, qvel


def _contract(name: str, robot: Robot, driven: str, torque_limit: float, torque_rate: float) -> PolicyContract:
    terms = (
        ObservationTerm(name="joint_angle", kind="sin_cos"),
        ObservationTerm(name="joint_vel", kind="sensor", source="joint_vel", scale=0.1),
        ObservationTerm(name="torque", kind="last_target", scale=1.0 / torque_limit),
    )
    action = ActionTerm(
        kind="joint_effort_incremental",
        joints=(driven,),
        scale=(torque_rate * CONTROL_DT,),
        offset=(0.0,),
        lower=(-torque_limit,),
        upper=(torque_limit,),
    )
    envelope = tuple(
        JointEnvelope(
            joint=joint.name,
            velocity_limit=joint.velocity_limit,
            effort_limit=torque_limit if joint.name == driven else 0.0,
        )
        for joint in robot.spec.joints
    )
    return PolicyContract(
        task=name,
        robot=robot.spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(terms=(action,)),
        command=CommandSpec(),
        timing=TimingSpec(
            control_dt=CONTROL_DT,
            physics_dt=CONTROL_DT,
            decimation=1,
            deadline_s=0.001,
            max_observation_age_s=0.01,
        ),
        safety=SafetyEnvelope(joints=envelope, parity_tolerance=0.02),
    )


def _swingup(name: str, driven: int, torque_limit: float, torque_rate: float) -> Task:
    robot = load_robot("double_pendulum")
    spec = robot.model_spec.copy()
    spec.option.timestep = CONTROL_DT
    contract = _contract(name, robot, robot.spec.joint_names[driven], torque_limit, torque_rate)

    def driven_power(view: WorldView) -> Array:
        return view.xp.abs(view.target[:, 0] * view.joint_vel[:, driven])

    return Task(
        name=name,
        summary=f"swing up with the {'shoulder' if driven == 0 else 'elbow'} motor alone and stand",
        robot=robot,
        model=spec.compile(),
        contract=contract,
        episode_length_s=10.0,
        reset=hanging,
        training_reset=anywhere,
        reset_draws=5,
        rewards={
            "standing": RewardTerm(term=standing, weight=1.0),
            "upright": RewardTerm(term=upright, weight=0.2),
            "power": RewardTerm(term=driven_power, weight=-0.002),
            "torque": RewardTerm(term=torque_squared, weight=-0.005),
            "torque_rate": RewardTerm(term=torque_rate_squared, weight=-2e-6),
            "velocity": RewardTerm(term=velocity_squared, weight=-0.0005),
        },
        terminations={"too_fast": too_fast},
        success=Success(
            condition=is_up, hold_s=2.0, text="end effector above 0.45 m for the last 2 s of 10 s, from hanging"
        ),
        critic=critic_state,
        critic_size=8,
        sensors={"joint_pos": SensorModel(noise_std=1e-4), "joint_vel": SensorModel(noise_std=0.05)},
        action_delay=Delay(lower_s=0.0, upper_s=0.004),
        randomisation=RANDOMISATION,
        push=Push(interval_s=3.0, velocity=(0.3, 0.3)),
    )


RANDOMISATION = (
    Randomise(field="body_mass", operation="scale", lower=0.95, upper=1.05, together=("body_inertia",)),
    Randomise(field="body_inertia", operation="scale", lower=0.95, upper=1.05),
    Randomise(field="body_ipos", columns=(2,), operation="add", lower=-0.005, upper=0.005),
    Randomise(field="dof_frictionloss", operation="scale", lower=0.0, upper=1.2),
    Randomise(field="dof_damping", operation="scale", lower=0.0, upper=2.0),
    Randomise(field="dof_armature", operation="scale", lower=0.0, upper=1.2),
    Randomise(field="actuator_gainprm", columns=(0,), operation="scale", lower=0.95, upper=1.05),
)
"""Spans the identified twin and the board's frictionless, rotorless one."""


def pendubot_swingup(torque_limit: float = 5.0, torque_rate: float = 100.0) -> Task:
    """Shoulder driven; torque limit [N·m]."""
    return _swingup("pendubot-swingup", 0, torque_limit, torque_rate)


def acrobot_swingup(torque_limit: float = 5.0, torque_rate: float = 100.0) -> Task:
    """Elbow driven; torque limit [N·m]."""
    return _swingup("acrobot-swingup", 1, torque_limit, torque_rate)


def with_weights(task: Task, **weights: float) -> Task:
    """The task with some reward weights changed."""
    rewards = {
        name: replace(entry, weight=weights[name]) if name in weights else entry for name, entry in task.rewards.items()
    }
    return replace(task, rewards=rewards)
