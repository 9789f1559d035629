"""A robot small enough to compute by hand: two masses on rails, each pushed by a motor."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import (
    ActionSpec,
    ActionTerm,
    CommandField,
    CommandSpec,
    ObservationSpec,
    ObservationTerm,
    TimingSpec,
)
from physai.sim.robots import Robot, load_robot
from physai.sim.tasks.common import envelope, target_squared
from physai.sim.tasks.task import RewardTerm, Success, Task, Uniforms, WorldView

SLIDERS = """
<mujoco model="sliders">
  <compiler autolimits="true"/>
  <option timestep="0.01" integrator="Euler" gravity="0 0 0"/>
  <worldbody>
    <body name="light"><joint name="left" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="2" contype="0" conaffinity="0"/></body>
    <body name="heavy" pos="0 1 0"><joint name="right" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="4" contype="0" conaffinity="0"/><site name="tip" pos="0 0 0.5"/></body>
  </worldbody>
  <actuator>
    <motor name="right" joint="right" ctrlrange="-100 100"/>
    <motor name="left" joint="left" ctrlrange="-100 100"/>
  </actuator>
</mujoco>
"""
"""Joint order left, right; actuator order right, left. Masses 2 and 4 kg, physics step 10 ms, no friction."""

TaskMaker = Callable[..., Task]


@pytest.fixture(scope="session")
def sliders(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path: Path = tmp_path_factory.mktemp("robots") / "sliders.xml"
    path.write_text(SLIDERS)
    return load_robot(path)


def contract(robot: Robot) -> PolicyContract:
    action = ActionTerm(
        kind="joint_effort",
        joints=("left", "right"),
        scale=(1.0, 1.0),
        offset=(0.0, 0.0),
        lower=(-50, -50),
        upper=(50, 50),
    )
    terms = (
        ObservationTerm(name="pos", kind="sensor", source="joint_pos"),
        ObservationTerm(name="vel", kind="sensor", source="joint_vel"),
    )
    goal = CommandField(name="goal", size=1, unit="m", lower=(0.0,), upper=(1.0,))
    return PolicyContract(
        task="sliders",
        robot=robot.spec,
        observation=ObservationSpec(terms=terms),
        action=ActionSpec(terms=(action,)),
        command=CommandSpec(fields=(goal,)),
        timing=TimingSpec(control_dt=0.04, physics_dt=0.01, decimation=4, deadline_s=0.04, max_observation_age_s=0.4),
        safety=envelope(robot.spec, parity_tolerance=0.1),
    )


def start(draw: Uniforms) -> tuple[Any, Any]:
    """Both masses at rest, the left one at 0 to 1 m, the right one at 0."""
    qpos = np.zeros((len(draw), 2))
    qpos[:, 0] = draw[:, 0]
    return qpos, np.zeros((len(draw), 2))


def critic(view: WorldView) -> Any:
    """Left position, left velocity, time."""
    return np.stack([view.joint_pos[:, 0], view.joint_vel[:, 0], view.episode_time], axis=1)


@pytest.fixture(scope="session")
def slider_task(sliders: Robot) -> TaskMaker:
    """Makes the task with fields replaced: 10 periods of 0.04 s an episode, one command, nothing randomised."""
    task = Task(
        name="sliders",
        summary="two masses on rails",
        robot=sliders,
        model=sliders.model,
        contract=contract(sliders),
        episode_length_s=0.4,
        reset=start,
        reset_draws=1,
        rewards={
            "alive": RewardTerm(term=lambda view: np.ones(len(view.qpos)), weight=3.0),
            "effort": RewardTerm(term=target_squared, weight=-0.5),
        },
        terminations={"far": lambda view: np.abs(view.joint_pos[:, 0]) > 5.0},
        success=Success(condition=lambda view: view.joint_pos[:, 0] > 2.0, text="left mass beyond 2 m"),
        critic=critic,
        critic_size=3,
        command=lambda draw: {"goal": draw[:, :1]},
        command_draws=1,
        metrics={"left_m": lambda view: view.joint_pos[:, 0]},
    )

    def make(**changes: Any) -> Task:
        return replace(task, **changes)

    return make
