"""Each robot learns from its own reward, with a critic that sees all; what is exported is what was trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from physai.sdk.base.errors import TaskError
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import RewardTerm, Success
from physai.sim.teams.cartpoles import tethered_cartpoles
from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment
from physai.sim.teams.team_evaluate import play_team
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.onnx_export.export import export_policy
from physai.train.settings.config import ConfigError, TrainConfig, with_settings
from physai.train.teams.trainer import TeamTrainer

TEAM = tethered_cartpoles()
CONFIG = TrainConfig(
    num_envs=16, horizon=16, epochs=2, minibatches=2, hidden=(16,), action_repeat=2, num_threads=1, seed=4
)


def with_reward_of_left(factor: float) -> Team:
    left = TEAM.members["left"]
    rewards = {n: RewardTerm(term=r.term, weight=factor * r.weight) for n, r in left.rewards.items()}
    return replace(TEAM, members={**TEAM.members, "left": replace(left, rewards=rewards)})


def weights(trainer: TeamTrainer, name: str) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in trainer.learners[name].parameters()])


@pytest.mark.parametrize("shared", [True, False])
def test_a_reward_reaches_its_own_robots_networks_only(shared: bool) -> None:
    one, other = (TeamTrainer(t, CONFIG, shared_critic=shared) for t in (TEAM, with_reward_of_left(-3.0)))
    assert torch.equal(weights(one, "left"), weights(other, "left"))
    one.train_iteration()
    other.train_iteration()
    assert torch.equal(weights(one, "right"), weights(other, "right"))
    assert not torch.equal(weights(one, "left"), weights(other, "left"))


def test_a_run_depends_on_its_seed_alone() -> None:
    runs = [TeamTrainer(TEAM, replace(CONFIG, seed=seed)) for seed in (4, 4, 5)]
    for run in runs:
        run.train_iteration()
        run.train_iteration()
    first, same, other = (weights(run, "right") for run in runs)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not torch.equal(weights(runs[0], "left"), first)


def test_the_shared_critic_sees_both_robots_and_the_actor_one() -> None:
    shared, separate = (TeamTrainer(TEAM, CONFIG, shared_critic=shared) for shared in (True, False))
    for name in TEAM.members:
        assert shared.learners[name].critic_normaliser(torch.zeros(1, 10)).shape == (1, 10)
        assert separate.learners[name].critic_normaliser(torch.zeros(1, 5)).shape == (1, 5)
        assert shared.graphs[name].contract == TEAM.members[name].contract
        assert shared.graphs[name].observation.size == separate.graphs[name].observation.size == 5


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"overlap": True}, "overlap is True, but a team learns with overlap=False only"),
        ({"engine": "warp"}, "engine is warp"),
        ({"staleness": 1}, "staleness is 1"),
        ({"shards": 2}, "shards is 2"),
    ],
)
def test_settings_for_one_robot_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TeamTrainer(TEAM, replace(CONFIG, **setting))


@pytest.mark.slow
def test_an_exported_policy_commands_what_the_trained_one_does(tmp_path: Path) -> None:
    trainer = TeamTrainer(TEAM, CONFIG)
    trainer.train_iteration()
    files: dict[str, OnnxPolicy] = {}
    for name, graph in trainer.graphs.items():
        report = export_policy(graph, TEAM.members[name], tmp_path / name, provenance={}, states=50)
        assert report.fingerprint == TEAM.members[name].contract.fingerprint
        files[name] = OnnxPolicy((tmp_path / name / "policy.onnx").read_bytes(), source=name)
    graphs = {name: GraphPolicy(graph) for name, graph in trainer.graphs.items()}
    env = TeamEnvironment(TEAM, 8, seed=1)
    now = env.reset()
    for name in env.members:
        files[name].reset(8)
        graphs[name].reset(8)
    sizes: list[float] = []
    for _ in range(60):
        both = {n: (files[n](r.sensors, r.commands), graphs[n](r.sensors, r.commands)) for n, r in now.items()}
        for file, graph in both.values():
            for target, values in graph.items():
                assert file[target] == pytest.approx(values, abs=1e-4)
                sizes.append(float(np.abs(values).max()))
        now = env.step({name: graph for name, (_, graph) in both.items()})
    assert max(sizes) > 0.01
    played = play_team(files, TEAM, episodes=4)
    assert [len(episodes.judged) for episodes in played.members.values()] == [4, 4]


def test_evaluation_counts_each_robot_and_all_together() -> None:
    trainer = TeamTrainer(TEAM, CONFIG)
    graph = trainer.graphs["left"]
    with pytest.raises(TaskError, match="needs a policy for each of left, right, got policies for left"):
        play_team({"left": GraphPolicy(graph)}, TEAM, episodes=2)
    policy = GraphPolicy(graph)
    with pytest.raises(TaskError, match="two members share one policy"):
        play_team({"left": policy, "right": policy}, TEAM, episodes=2)
    policies = {name: GraphPolicy(graph) for name in TEAM.members}
    with pytest.raises(TaskError, match="at least one episode must be played, got 0"):
        play_team(policies, TEAM, episodes=0)

    # Success for the one is where the cart is left of the middle in the end, for the other where it is right of it.
    def on_side(side: float) -> Success:
        return Success(condition=lambda view: side * view.joint_pos[:, 0] > 0.0, text="on its side")

    def judged_by(left: float, right: float) -> Team:
        sides = {"left": left, "right": right}
        members = {n: replace(t, success=on_side(sides[n]), terminations={}) for n, t in TEAM.members.items()}
        return replace(TEAM, members=members)

    one, other, mixed = (
        play_team(policies, judged_by(*sides), episodes=40) for sides in ((1.0, 1.0), (-1.0, -1.0), (1.0, -1.0))
    )
    for name in TEAM.members:
        assert one.members[name].judged == (1,) * 40
        assert sum(one.members[name].succeeded) + sum(other.members[name].succeeded) == 40
    expected = [a and not b for a, b in zip(*(one.members[name].succeeded for name in TEAM.members), strict=True)]
    assert list(mixed.together) == expected
    assert mixed.success == sum(expected) / 40
    lower, upper = mixed.success_interval()
    assert lower <= mixed.success <= upper


@pytest.mark.slow
def test_both_robots_learn() -> None:
    settings = {**TEAM.training, "num_envs": 256, "num_threads": 2, "seed": 1}
    trainer = TeamTrainer(TEAM, with_settings(TrainConfig(), settings, source="the test"))
    first, *_, last = [trainer.train_iteration() for _ in range(21)]
    gains = {name: last[name].reward_per_s - first[name].reward_per_s for name in TEAM.members}
    assert min(gains.values()) > 0.15, gains
