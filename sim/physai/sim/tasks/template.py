"""NAME: balance a pole on a cart. A task of your own: change it piece by piece and look at it in between.

    physai tasks show NAME.py          # what the policy sees, commands and is rewarded for
    physai play NAME.py --agent random # what happens without a policy
    physai train NAME.py               # settings: physai train NAME.py --set help

Angles are in rad, lengths in m, times in s, forces in N, torques in N·m. Terms get all worlds at once: the first axis
of every array is the world. Use `view.xp` instead of numpy, and the same task runs on a GPU.
"""

from physai.sdk import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm, PolicyContract
from physai.sim import (
    Array,
    Randomise,
    RewardTerm,
    SensorModel,
    Success,
    Task,
    Uniforms,
    WorldView,
    compiled,
    envelope,
    load_robot,
    timing,
)

CART, POLE = 0, 1
"""Columns of the joint vectors, in the order of the robot's joints (`physai robots show cartpole`)."""


def reset(draw: Uniforms) -> tuple[Array, Array]:
    """Positions and velocities at the start of an episode, from uniform numbers in [0, 1), the only random ones."""
    return 0.2 * (draw[:, 0:2] - 0.5), 0.2 * (draw[:, 2:4] - 0.5)


def upright(view: WorldView) -> Array:
    """Reward: 1 for a pole that stands, less the more it leans."""
    return view.xp.cos(view.joint_pos[:, POLE])


def off_centre(view: WorldView) -> Array:
    """Penalty: square of the distance from the middle of the rail."""
    return view.joint_pos[:, CART] ** 2


def has_fallen(view: WorldView) -> Array:
    """Ends the episode: the pole leans by more than 0.5 rad, or the cart is near the end of its rail."""
    return (view.xp.abs(view.joint_pos[:, POLE]) > 0.5) | (view.xp.abs(view.joint_pos[:, CART]) > 1.5)


def is_balanced(view: WorldView) -> Array:
    """Success: within 0.1 rad of upright."""
    return view.xp.abs(view.joint_pos[:, POLE]) < 0.1


def critic(view: WorldView) -> Array:
    """Inputs of the critic, in training only: the true state, scaled to about one."""
    return view.xp.concat([view.joint_pos, 0.3 * view.joint_vel], axis=1)


def make_task() -> Task:
    """Called by physai; may take `robot` (for --model) and `preset` (for --preset)."""
    # Your own robot: load_robot(Path(__file__).with_name("my_robot.urdf")). Put it next to this file or below, so that
    # run folders can keep a copy.
    robot = load_robot("cartpole")
    physics_dt, decimation = 0.005, 4  # the policy acts every 4th physics step, at 50 Hz
    force = 10.0
    contract = PolicyContract(
        task="NAME",
        robot=robot.spec,
        # What the policy sees. Only what the robot measures; more kinds: docs/reference/tasks.md.
        observation=ObservationSpec(
            terms=(
                ObservationTerm(name="position", kind="sensor", source="joint_pos"),
                ObservationTerm(name="velocity", kind="sensor", source="joint_vel", scale=0.2),
            )
        ),
        # What it commands: network outputs from -1 to 1 become offset + scale · output, within the bounds.
        action=ActionSpec(
            terms=(
                ActionTerm(
                    kind="joint_effort",
                    joints=(robot.spec.joints[CART].name,),
                    scale=(force,),
                    offset=(0.0,),
                    lower=(-force,),
                    upper=(force,),
                ),
            )
        ),
        command=CommandSpec(),  # what an operator asks for, such as a velocity: nothing here
        timing=timing(physics_dt, decimation, max_observation_age=3.0),
        safety=envelope(robot.spec, parity_tolerance=0.05 * force),
    )
    return Task(
        name="NAME",
        summary="balance a pole on a cart",
        robot=robot,
        model=compiled(robot, physics_dt=physics_dt),
        contract=contract,
        episode_length_s=5.0,
        reset=reset,
        reset_draws=4,
        # Rewards are per second: weight · term · control period, summed over the steps.
        rewards={
            "upright": RewardTerm(term=upright, weight=1.0),
            "off_centre": RewardTerm(term=off_centre, weight=-0.5),
        },
        terminations={"has_fallen": has_fallen},
        success=Success(condition=is_balanced, hold_s=1.0, text="pole within 0.1 rad of upright for the last second"),
        critic=critic,
        critic_size=4,
        # What the real robot does differently: noise of its sensors, and properties drawn anew in each episode.
        sensors={"joint_pos": SensorModel(noise_std=0.002), "joint_vel": SensorModel(noise_std=0.02)},
        randomisation=(
            Randomise(field="body_mass", operation="scale", lower=0.9, upper=1.1, together=("body_inertia",)),
            Randomise(field="dof_damping", operation="scale", lower=0.5, upper=2.0),
        ),
        # How to train it; `--config FILE.yaml` and `--set` go over these.
        training={"num_envs": 256, "discount_s": 1.0, "hidden": (32, 32), "stop_at_success": 0.95, "iterations": 300},
    )
