"""Swing-up of the double pendulum with one of its two motors: pendubot (shoulder) and acrobot (elbow).

Both joints are zero when hanging; the end effector must swing up and stay up. The rewards per second are a bonus for
being up and costs of energy, torque, torque rate and velocity in the proportions of the RealAIGym leaderboard v2
(github.com/dfki-ric-underactuated-lab/double_pendulum).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
from array_api_compat import array_namespace

from physai.sdk.base.errors import unknown_name
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.safety_envelope import JointEnvelope, SafetyEnvelope
from physai.sdk.contract.terms import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm, TimingSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.common import compiled, joint_vel_squared, target_rate_squared, target_squared
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.pendulums.realaigym import PRESET, board_model
from physai.sim.tasks.sensor_ranges import plausible_ranges
from physai.sim.tasks.task import Delay, Push, Randomise, RewardTerm, SensorModel, Success, Task, Uniforms, WorldView

LINK_LENGTHS = (0.2, 0.3)
"""Joint to joint and elbow to end effector [m]: l1, l2 of the identified parameters."""
UP_HEIGHT = 0.45
"""Height of the end effector above the shoulder that counts as up [m]: 0.9 · (l1 + l2)."""
EPISODE_LENGTH_S = 10.0
"""Episode length of the leaderboard [s]."""
CONTROL_DT = 0.002
"""Control period of the hardware and of the leaderboard [s]."""
MISMATCH_RAD = 0.08
"""Greatest difference between position and integrated velocity [rad]. Hardware recordings show up to 0.019 rad, the
twin with random full-scale torques 0.027 rad below the speed limit and 0.038 rad above it."""
FROZEN_SAMPLES = 50
"""Number of equal samples that count as a frozen sensor: 0.1 s. The hardware's encoders repeat up to 8 samples under
torque, and up to 39 while hanging at rest without a command."""

_TOP = Constant([math.pi, 0.0])


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
    """1 where the end effector is up, smoothly less below: exp(-(distance below the top / 0.2 m)²)."""
    gap = (sum(LINK_LENGTHS) - height(view)) / 0.2
    return view.xp.exp(-gap * gap)


def balanced(view: WorldView) -> Array:
    """1 where both links are upright, smoothly less below: exp(-(distance below the top / 0.03 m)²)."""
    # Without this term policies rest on the friction of a bent elbow, where `standing` is almost 1.
    gap = (sum(LINK_LENGTHS) - height(view)) / 0.03
    return view.xp.exp(-gap * gap)


def too_fast(view: WorldView) -> Array:
    """True where a joint exceeds 30 rad/s, 1.5 times the hardware's limit."""
    return view.xp.any(view.xp.abs(view.joint_vel) > 30.0, axis=1)


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
    """Hanging nearly at rest, within 0.05 rad and 0.05 rad/s."""
    return 0.1 * (draw[:, :2] - 0.5), 0.1 * (draw[:, 2:4] - 0.5)


HANGING_SHARE, WILD_SHARE = 0.2, 0.35
"""Fractions of the training episodes that start hanging and anywhere; the others start near the top."""
SHORT_S = 2.5
"""Length of training episodes that do not start hanging [s]; their informative part is at the start."""


def anywhere(draw: Uniforms) -> tuple[Array, Array]:
    """Hanging, anywhere up to 8 rad/s, or near the top."""
    # All three kinds of start reuse the same draws: rows differ in kind, so no two depend on each other.
    xp = array_namespace(draw)
    qpos, qvel = hanging(draw)
    kind = draw[:, 4:5]
    # Any angle with up to 8 rad/s, so that the policy also learns to recover from a failed swing-up.
    wild = 2.0 * math.pi * (draw[:, :2] - 0.5), 16.0 * (draw[:, 2:4] - 0.5)
    top = _TOP.like(draw) + 0.6 * (draw[:, :2] - 0.5), 4.0 * (draw[:, 2:4] - 0.5)
    rest = kind < HANGING_SHARE
    moving = kind < HANGING_SHARE + WILD_SHARE
    qpos = xp.where(rest, qpos, xp.where(moving, wild[0], top[0]))
    qvel = xp.where(rest, qvel, xp.where(moving, wild[1], top[1]))
    return qpos, qvel


def short_unless_hanging(draw: Uniforms) -> Array:
    """Initial episode time [s], such that all training episodes but the hanging ones last SHORT_S."""
    return (EPISODE_LENGTH_S - SHORT_S) * array_namespace(draw).astype(draw[:, 4] >= HANGING_SHARE, draw.dtype)


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
            velocity_mismatch_limit=MISMATCH_RAD,
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
        safety=SafetyEnvelope(
            joints=envelope,
            parity_tolerance=0.02,
            frozen_samples=FROZEN_SAMPLES,
            sensor_ranges=plausible_ranges(robot.spec),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Differences between the hardware's twin and the leaderboard's."""

    torque_limit: float
    """Greatest torque of the driven joint [N·m]."""
    torque_rate: float
    """Greatest torque rate [N·m/s]; the policy commands the rate, so torque is smooth by construction."""
    weights: dict[str, float]
    """Reward per second and unit of each term."""
    initial_weights: dict[str, float]
    """Different weights at the start of training, with costs low enough to encourage exploring the swing-up."""
    randomisation: tuple[Randomise, ...]
    model: Any
    """Compiled MjModel."""
    sensors: dict[str, SensorModel]
    action_delay: Delay
    push: Push | None


def _hardware() -> Variant:
    robot = load_robot("double_pendulum")
    return Variant(
        torque_limit=5.0,
        torque_rate=40.0,
        weights={
            "standing": 0.6,
            "balanced": 0.4,
            "upright": 0.2,
            "power": -0.002,
            "torque": -0.002,
            "torque_rate": -1e-6,
            "velocity": -2e-4,
        },
        initial_weights={},
        randomisation=(
            Randomise(field="body_mass", operation="scale", lower=0.95, upper=1.05, together=("body_inertia",)),
            Randomise(field="body_inertia", operation="scale", lower=0.95, upper=1.05),
            Randomise(field="body_ipos", columns=(2,), operation="add", lower=-0.005, upper=0.005),
            Randomise(field="dof_frictionloss", operation="scale", lower=0.5, upper=1.5),
            Randomise(field="dof_damping", operation="scale", lower=0.0, upper=2.0),
            Randomise(field="dof_armature", operation="scale", lower=0.5, upper=1.5),
            Randomise(field="actuator_gainprm", columns=(0,), operation="scale", lower=0.95, upper=1.05),
        ),
        model=compiled(robot, physics_dt=CONTROL_DT),
        sensors={"joint_pos": SensorModel(noise_std=1e-4), "joint_vel": SensorModel(noise_std=0.05)},
        action_delay=Delay(lower_s=0.0, upper_s=0.004),
        push=Push(interval_s=3.0, velocity=(0.15, 0.15)),
    )


def _board() -> Variant:
    """The leaderboard's frictionless model, with costs from the gradient of its score at the optimum."""
    # Trajectory optimisation of the score gives the gradient 0.0302 per second not up, 0.0090 per J, 0.0266 per
    # N²·m²·s, 2.4e-4 per N²·m²/s and 0.00136 per rad²/s. The costs are these values over 4 · 0.0302: standing is worth
    # four times its score, so that swinging up pays off within the discount horizon.
    model = board_model()
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return Variant(
        torque_limit=6.0,
        torque_rate=30.0,
        weights={
            "standing": 0.6,
            "balanced": 0.4,
            "upright": 0.2,
            "power": -0.075,
            "torque": -0.22,
            "torque_rate": -0.0020,
            "velocity": -0.0113,
        },
        initial_weights={"power": -0.002, "torque": -0.004, "torque_rate": -1e-4, "velocity": -5e-4},
        randomisation=(
            Randomise(field="body_mass", operation="scale", lower=0.98, upper=1.02, together=("body_inertia",)),
            Randomise(field="body_inertia", operation="scale", lower=0.98, upper=1.02),
            Randomise(field="body_ipos", columns=(2,), operation="add", lower=-0.002, upper=0.002),
            Randomise(field="dof_damping", operation="add", lower=0.0, upper=0.002),
            Randomise(field="actuator_gainprm", columns=(0,), operation="scale", lower=0.98, upper=1.02),
        ),
        model=model,
        sensors={"joint_pos": SensorModel(noise_std=1e-4), "joint_vel": SensorModel(noise_std=0.002)},
        action_delay=Delay(),
        push=Push(interval_s=3.0, velocity=(0.1, 0.1)),
    )


VARIANTS: dict[str | None, Callable[[], Variant]] = {None: _hardware, PRESET: _board}


def _swingup(name: str, driven: int, preset: str | None) -> Task:
    if preset not in VARIANTS:
        raise unknown_name(f"preset of {name}", preset or "", [PRESET])
    variant = VARIANTS[preset]()
    robot = load_robot("double_pendulum")
    joint = robot.spec.joint_names[driven]

    def power(view: WorldView) -> Array:
        """Mechanical power of the driven joint without regeneration, |τ q'| [W]."""
        return view.xp.abs(view.target[:, 0] * view.joint_vel[:, driven])

    terms = {
        "standing": standing,
        "balanced": balanced,
        "upright": upright,
        "power": power,
        "torque": target_squared,
        "torque_rate": target_rate_squared,
        "velocity": joint_vel_squared,
    }
    return Task(
        name=name,
        summary=f"swing up with the {'shoulder' if driven == 0 else 'elbow'} motor alone and stand",
        robot=robot,
        model=variant.model,
        contract=_contract(name, robot, joint, variant.torque_limit, variant.torque_rate),
        episode_length_s=EPISODE_LENGTH_S,
        reset=hanging,
        training_reset=anywhere,
        training_age=short_unless_hanging,
        reset_draws=5,
        rewards={
            key: RewardTerm(term=term, weight=variant.weights[key], initial_weight=variant.initial_weights.get(key))
            for key, term in terms.items()
        },
        terminations={"too_fast": too_fast},
        success=Success(
            condition=is_up, hold_s=2.0, text="end effector above 0.45 m for the last 2 s of 10 s, from hanging"
        ),
        critic=critic_state,
        critic_size=8,
        sensors=variant.sensors,
        action_delay=variant.action_delay,
        randomisation=variant.randomisation,
        push=variant.push,
    )


def pendubot_swingup(preset: str | None = None) -> Task:
    """Swing-up with the shoulder motor; preset `realaigym-v2` uses the leaderboard's model and score."""
    return _swingup("pendubot-swingup", 0, preset)


def acrobot_swingup(preset: str | None = None) -> Task:
    """Swing-up with the elbow motor; preset `realaigym-v2` uses the leaderboard's model and score."""
    return _swingup("acrobot-swingup", 1, preset)
