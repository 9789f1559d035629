"""Cart-pole swing-up: a smoke test that trains in seconds."""

import math

from array_api_compat import array_namespace

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm
from physai.sim.engines.protocol import Array
from physai.sim.robots import load_robot
from physai.sim.tasks.common import compiled, envelope, target_squared, timing
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.sensor_ranges import plausible_ranges
from physai.sim.tasks.task import Delay, Push, Randomise, RewardTerm, SensorModel, Success, Task, Uniforms, WorldView

CART, POLE = 0, 1
"""Columns of the joint vectors; the pole's angle is 0 upright."""

MISMATCH = (0.04, 0.05)
"""Greatest difference between position and integrated velocity [m, rad]: three times the maximum of 0.014 m and
0.0175 rad in simulation with random full-scale forces, noise and pushes."""
FROZEN_SAMPLES = 5
"""Number of equal samples that count as a frozen sensor: 0.1 s."""
PLAUSIBLE_SPEEDS = (20.0, 60.0)
"""Greatest plausible joint speeds [m/s, rad/s], as the robot has no velocity limits. In simulation the cart reaches
9 m/s with full force along the whole rail, the pole 20 rad/s with random forces."""

_HANGING, _SPREAD = Constant([0.0, math.pi]), Constant([1.0, 0.2])


def uprightness(view: WorldView) -> Array:
    """(1 + cos pole angle) / 2: 0 hanging, 1 upright."""
    return 0.5 + 0.5 * view.xp.cos(view.joint_pos[:, POLE])


def centred_and_up(view: WorldView) -> Array:
    """Uprightness, times 1 at the middle of the rail falling to exp(-1) at 1 m from it."""
    return uprightness(view) * view.xp.exp(-(view.joint_pos[:, CART] ** 2))


def balanced(view: WorldView) -> Array:
    """1 for a pole at rest upright, falling with angle and speed: exp(-(angle / 0.3)² - (speed / 2)²)."""
    speed = view.joint_vel[:, POLE]
    # 2 (1 - cos a) equals a² for small angles, and is periodic.
    return view.xp.exp(-2.0 * (1.0 - view.xp.cos(view.joint_pos[:, POLE])) / 0.09 - 0.25 * speed * speed)


def is_balanced(view: WorldView) -> Array:
    """True where the pole is within 0.2 rad of upright."""
    return view.xp.cos(view.joint_pos[:, POLE]) > math.cos(0.2)


def critic_state(view: WorldView) -> Array:
    """Cart position and velocity, pole's sine, cosine and velocity, shape (num_worlds, 5)."""
    xp, angle = view.xp, view.joint_pos[:, POLE]
    return xp.stack(
        [
            view.joint_pos[:, CART],
            0.3 * view.joint_vel[:, CART],
            xp.sin(angle),
            xp.cos(angle),
            0.1 * view.joint_vel[:, POLE],
        ],
        axis=1,
    )


def hanging(draw: Uniforms) -> tuple[Array, Array]:
    """Cart within 0.5 m of the middle, pole hanging within 0.1 rad, nearly at rest."""
    centre = draw[:, :2] - 0.5
    qpos = _HANGING.like(draw) + centre * _SPREAD.like(draw)
    return qpos, 0.2 * (draw[:, 2:4] - 0.5)


def anywhere(draw: Uniforms) -> tuple[Array, Array]:
    """Half of the episodes start hanging, half at any angle with up to 5 rad/s."""
    xp = array_namespace(draw)
    qpos, qvel = hanging(draw)
    wild = draw[:, 4] < 0.5
    angle = xp.where(wild, 2.0 * math.pi * draw[:, 1], qpos[:, POLE])
    speed = xp.where(wild, 10.0 * (draw[:, 3] - 0.5), qvel[:, POLE])
    return xp.stack([qpos[:, CART], angle], axis=1), xp.stack([qvel[:, CART], speed], axis=1)


def cartpole_swingup() -> Task:
    """Swing the pole up from hanging and balance it; 10 s episodes, 50 Hz."""
    robot = load_robot("cartpole")
    spec = robot.spec
    slider = spec.joints[CART]
    rail = slider.position_upper or 1.0
    physics_dt, decimation = 0.005, 4
    action = ActionTerm(
        kind="joint_effort",
        joints=(slider.name,),
        scale=(slider.effort_limit,),
        offset=(0.0,),
        lower=(-slider.effort_limit,),
        upper=(slider.effort_limit,),
    )
    terms = (
        ObservationTerm(name="cart_pos", kind="sensor", source="joint_pos", joints=(slider.name,)),
        ObservationTerm(name="pole_angle", kind="sin_cos", joints=(spec.joints[POLE].name,)),
        ObservationTerm(name="joint_vel", kind="sensor", source="joint_vel", scale=0.2),
    )
    return Task(
        name="cartpole-swingup",
        summary="swing a pole up from hanging and balance it (smoke test)",
        robot=robot,
        model=compiled(robot, physics_dt=physics_dt),
        contract=PolicyContract(
            task="cartpole-swingup",
            robot=spec,
            observation=ObservationSpec(terms=terms),
            action=ActionSpec(terms=(action,)),
            command=CommandSpec(),
            timing=timing(physics_dt, decimation, max_observation_age=3.0),
            safety=envelope(
                spec,
                parity_tolerance=0.05 * slider.effort_limit,
                velocity_mismatch=MISMATCH,
                frozen_samples=FROZEN_SAMPLES,
                sensor_ranges=plausible_ranges(spec, speeds=PLAUSIBLE_SPEEDS),
            ),
        ),
        episode_length_s=10.0,
        reset=hanging,
        training_reset=anywhere,
        reset_draws=5,
        rewards={
            "upright": RewardTerm(term=centred_and_up, weight=1.0),
            "balanced": RewardTerm(term=balanced, weight=2.0),
            "effort": RewardTerm(term=target_squared, weight=-0.05 / slider.effort_limit**2),
        },
        terminations={"off_the_rail": lambda view: view.xp.abs(view.joint_pos[:, CART]) > 0.98 * rail},
        success=Success(
            condition=is_balanced, hold_s=2.0, text="pole within 0.2 rad of upright for the last 2 s of 10 s"
        ),
        critic=critic_state,
        critic_size=5,
        sensors={"joint_pos": SensorModel(noise_std=0.002), "joint_vel": SensorModel(noise_std=0.02)},
        action_delay=Delay(lower_s=0.0, upper_s=physics_dt),
        randomisation=(
            Randomise(field="body_mass", operation="scale", lower=0.9, upper=1.1, together=("body_inertia",)),
            Randomise(field="dof_damping", operation="scale", lower=0.5, upper=2.0),
            Randomise(field="actuator_gainprm", columns=(0,), operation="scale", lower=0.95, upper=1.05),
        ),
        push=Push(interval_s=4.0, velocity=(0.1, 0.3)),
    )
