"""A task of your own on one page: a crane's trolley goes where it is told, and its load must not swing.

physai train examples/crane_task.py --out crane && physai play crane --task examples/crane_task.py
"""

import math

import numpy as np

from physai.sdk import (
    ActionSpec,
    ActionTerm,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
    PolicyContract,
)
from physai.sim import Array, RewardTerm, SensorModel, Success, Task, WorldView, compiled, envelope, load_robot, timing

FORCE = 10.0


def distance(view: WorldView) -> Array:
    return view.xp.abs(view.joint_pos[:, 0] - view.commands["place"][:, 0])


def swing(view: WorldView) -> Array:
    return 1.0 + view.xp.cos(view.joint_pos[:, 1]) + 0.02 * view.joint_vel[:, 1] ** 2


def make_task() -> Task:
    robot = load_robot("cartpole")
    seen = [("joint_pos", 1.0), ("joint_vel", 0.3)]
    terms = [ObservationTerm(name=name, kind="sensor", source=name, scale=scale) for name, scale in seen]
    force = ActionTerm(
        kind="joint_effort",
        joints=(robot.spec.joints[0].name,),
        scale=(FORCE,),
        offset=(0,),
        lower=(-FORCE,),
        upper=(FORCE,),
    )
    contract = PolicyContract(
        task="crane",
        robot=robot.spec,
        observation=ObservationSpec(terms=(*terms, ObservationTerm(name="place", kind="command", source="place"))),
        action=ActionSpec(terms=(force,)),
        command=CommandSpec(fields=(CommandField(name="place", size=1, unit="m", lower=(-1.0,), upper=(1.0,)),)),
        timing=timing(physics_dt=0.005, decimation=4, max_observation_age=3.0),
        safety=envelope(robot.spec, parity_tolerance=0.5),
    )
    return Task(
        name="crane",
        summary="move a hanging load without swinging it",
        robot=robot,
        model=compiled(robot, physics_dt=0.005),
        contract=contract,
        episode_length_s=6.0,
        reset=lambda draw: (np.array([2.0, 0.4]) * (draw - 0.5) + [0.0, math.pi], np.zeros_like(draw)),
        reset_draws=2,
        command=lambda draw: {"place": 2.0 * draw - 1.0},
        command_draws=1,
        rewards={"near": RewardTerm(term=distance, weight=-1.0), "calm": RewardTerm(term=swing, weight=-2.0)},
        success=Success(
            condition=lambda view: (distance(view) < 0.05) & (swing(view) < 0.01),
            hold_s=1.0,
            text="there and calm for 1 s",
        ),
        critic=lambda view: view.xp.concat([view.joint_pos, 0.3 * view.joint_vel, view.commands["place"]], axis=1),
        critic_size=5,
        sensors={"joint_pos": SensorModel(noise_std=0.001), "joint_vel": SensorModel(noise_std=0.01)},
        training={"num_envs": 256, "discount_s": 1.0, "hidden": (32, 32), "stop_at_success": 0.95, "iterations": 500},
    )
