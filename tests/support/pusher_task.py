"""A cart on a rail that is to come to the middle and stay: small enough to play hundreds of episodes in a second."""

from pathlib import Path

import numpy as np

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionSpec, ActionTerm, CommandSpec, ObservationSpec, ObservationTerm, TimingSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import load_robot
from physai.sim.tasks.common import compiled, envelope
from physai.sim.tasks.task import Delay, SensorModel, Success, Task, Uniforms, WorldView


def start(draw: Uniforms) -> tuple[Array, Array]:
    """At rest, 0.5 to 1 m left or right of the middle."""
    side = np.where(draw[:, :1] < 0.5, -1.0, 1.0)
    return side * (0.5 + 0.5 * draw[:, 1:2]), np.zeros((len(draw), 1))


def make_task() -> Task:
    """2.4 s episodes, 50 Hz; success is to be within 0.1 m of the middle for the last 0.4 s."""
    robot = load_robot(Path(__file__).with_name("pusher.xml"))
    terms = (
        ObservationTerm(name="pos", kind="sensor", source="joint_pos"),
        ObservationTerm(name="vel", kind="sensor", source="joint_vel"),
    )
    action = ActionTerm(
        kind="joint_effort", joints=("rail",), scale=(20.0,), offset=(0.0,), lower=(-20.0,), upper=(20.0,)
    )
    return Task(
        name="pusher",
        summary="bring the cart to the middle",
        robot=robot,
        model=compiled(robot, physics_dt=0.01),
        contract=PolicyContract(
            task="pusher",
            robot=robot.spec,
            observation=ObservationSpec(terms=terms),
            action=ActionSpec(terms=(action,)),
            command=CommandSpec(),
            timing=TimingSpec(
                control_dt=0.02, physics_dt=0.01, decimation=2, deadline_s=0.01, max_observation_age_s=0.1
            ),
            safety=envelope(robot.spec, parity_tolerance=0.5),
        ),
        episode_length_s=2.4,
        reset=start,
        reset_draws=2,
        rewards={},
        terminations={"off": lambda view: np.abs(view.joint_pos[:, 0]) > 1.9},
        success=Success(
            condition=lambda view: np.abs(view.joint_pos[:, 0]) < 0.1, hold_s=0.4, text="within 0.1 m for 0.4 s"
        ),
        critic=_critic,
        critic_size=1,
        sensors={"joint_pos": SensorModel(noise_std=1e-3), "joint_vel": SensorModel(noise_std=1e-2)},
        action_delay=Delay(upper_s=0.01),
        metrics={"distance_m": lambda view: np.abs(view.joint_pos[:, 0])},
    )


def _critic(view: WorldView) -> Array:
    return view.joint_pos
