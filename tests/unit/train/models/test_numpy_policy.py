"""A policy graph as a player in the twin."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from physai.sim.policies.evaluate import play_episodes
from physai.sim.tasks.pendulums.double_pendulum import pendubot_swingup
from physai.sim.tasks.task import Task
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.runner import evaluate_graph


class Full(nn.Module):
    """An actor that always answers 1."""

    state_size = 0

    def forward(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return torch.ones(len(observation), 1), hidden


@pytest.fixture(scope="module")
def task() -> Task:
    return pendubot_swingup()


def sensors(worlds: int) -> dict[str, np.ndarray]:
    return {"joint_pos": np.zeros((worlds, 2), np.float32), "joint_vel": np.zeros((worlds, 2), np.float32)}


def test_memory_is_kept_and_forgotten_world_by_world(task: Task) -> None:
    """An incremental torque rises by its scale each period, and from zero again where it was forgotten."""
    scale = task.contract.action.terms[0].scale[0]
    policy = GraphPolicy(PolicyGraph(task.contract, Full()))
    policy.reset(2)
    first = policy(sensors(2), {})["joint_effort_target"]
    second = policy(sensors(2), {})["joint_effort_target"]
    policy.reset_worlds(np.array([True, False]))
    third = policy(sensors(2), {})["joint_effort_target"]
    assert first.ravel().tolist() == pytest.approx([scale, scale])
    assert second.ravel().tolist() == pytest.approx([2 * scale, 2 * scale]), "returned commands must not change later"
    assert third.ravel().tolist() == pytest.approx([scale, 3 * scale])
    policy.reset(1)
    assert policy(sensors(1), {})["joint_effort_target"].ravel().tolist() == pytest.approx([scale])


def test_a_graph_is_judged_as_every_policy_is(task: Task) -> None:
    graph = PolicyGraph(task.contract, Full())
    played = play_episodes(GraphPolicy(graph), task, episodes=4)
    assert evaluate_graph(graph, task, episodes=4) == {
        "judged": 4,
        "succeeded": 0,
        "success": 0.0,
        **played.metrics,
    }
