"""A rollout collected on a device is the one that the CPU collects with the same physics and exploration."""

import contextlib
import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support.torch_mujoco import TorchMujoco
from torch import Tensor

from physai.sdk.base.errors import DeviceError
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.envs.device.device_rng import base_of, episode_seeds, normal
from physai.sim.envs.device.graph import Captured, CapturedEnvironment
from physai.sim.envs.rng import Stream
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import PPO
from physai.train.collectors.collector import Collector, Learner
from physai.train.collectors.device_collector import DeviceCollector
from physai.train.models.numpy_policy import seed_torch, seeded
from physai.train.models.policy_graph import Normaliser
from physai.train.runners.runner import Trainer, build_graph
from physai.train.settings.config import TrainConfig

CONFIG = TrainConfig(
    num_envs=6, horizon=25, epochs=2, minibatches=3, hidden=(8,), gru_size=5, seed=11, num_threads=1, initial_std=0.3
)


class Noise:
    """The exploration of `DeviceCollector` for the worlds of `Collector`, in the shape that this draws it in."""

    def __init__(self, config: TrainConfig) -> None:
        worlds = torch.arange(config.num_envs)
        self.seeds = episode_seeds(base_of(config.seed), worlds, torch.zeros_like(worlds))
        self.steps = 0

    def __call__(self, shape: tuple[int, int, int], generator: Any) -> Tensor:
        rows = [
            normal(self.seeds, Stream.EXPLORATION, shape[2], steps=torch.tensor(self.steps + t))
            for t in range(shape[0])
        ]
        self.steps += shape[0]
        return torch.stack(rows)


def pair(task: Task, config: TrainConfig) -> tuple[Trainer, Collector, DeviceCollector]:
    trainer = Trainer(task, config)
    host = trainer.collector
    assert isinstance(host, Collector)
    return trainer, host, DeviceCollector(task, config, trainer.learner, TorchMujoco(task, config.num_envs))


@pytest.mark.parametrize("name", ["cartpole-swingup", "pendubot-swingup", "ur10e-reach", "go2-velocity"])
@pytest.mark.parametrize("actor", ["mlp", "gru"])
def test_both_collect_the_same(name: str, actor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(name)
    repeat = 5 if name == "pendubot-swingup" else 1
    config = replace(CONFIG, actor=actor, action_repeat=repeat, curriculum_iterations=3)
    trainer, host, device = pair(task, config)
    monkeypatch.setattr(torch, "randn", Noise(config))
    for _ in range(2):
        left, right = host.collect(trainer.new_rollout()), device.collect(trainer.new_rollout())
        for key, value in left.state_dict().items():
            torch.testing.assert_close(right.state_dict()[key], value, rtol=1e-3, atol=1e-4, msg=key)
        assert right.reward_terms == pytest.approx(left.reward_terms, rel=1e-4, abs=1e-6)
        assert right.metrics == pytest.approx(left.metrics, rel=1e-4, abs=1e-6)
        assert device.success == pytest.approx(host.success)
        assert device.diverged == host.diverged == 0


def test_it_continues_bit_for_bit() -> None:
    task = load_task("go2-velocity")
    trainer, _, first = pair(task, replace(CONFIG, actor="gru"))
    first.collect(trainer.new_rollout())
    data = io.BytesIO()
    torch.save(first.state_dict(), data)
    data.seek(0)
    kept = torch.load(data, weights_only=True)
    _, _, second = pair(task, replace(CONFIG, actor="gru"))
    second.load_state_dict(kept)
    left, right = first.collect(trainer.new_rollout()), second.collect(trainer.new_rollout())
    for key, value in left.state_dict().items():
        assert torch.equal(right.state_dict()[key], value), key
    assert left.metrics == right.metrics
    assert first.success == second.success


class Unrepeatable(TorchMujoco):
    """Adds rounding that is another one in each step, as kernels do that add in no fixed order."""

    steps = 0

    def drive(self, controls: Any) -> None:
        super().drive(controls)
        self.steps += 1
        self.state("qvel")[0, 0] += 1e-9 * self.steps


@pytest.mark.parametrize("name", ["cartpole-swingup", "pendubot-swingup", "go2-velocity"])
def test_a_deterministic_run_is_one_whose_steps_repeat(name: str) -> None:
    task = load_task(name)
    config = replace(CONFIG, deterministic=True, action_repeat=5 if name == "pendubot-swingup" else 1)
    learner = Trainer(task, config).learner
    told = DeviceCollector(task, config, learner, TorchMujoco(task, config.num_envs))
    plain = DeviceCollector(task, replace(config, deterministic=False), learner, TorchMujoco(task, config.num_envs))
    # The trial leaves nothing behind.
    for key, value in plain.state_dict()["environment"].items():
        assert torch.equal(told.state_dict()["environment"][key], value), key
    with pytest.raises(DeviceError, match=r"does not repeat itself on cpu: 12 steps, played twice, differ by up to"):
        DeviceCollector(task, config, learner, Unrepeatable(task, config.num_envs))


def test_the_critic_learns_the_same_beside_the_actor_and_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU has no thread for the critic."""
    task = load_task("cartpole-swingup")

    def learned() -> dict[str, Tensor]:
        seed_torch(1)
        graph = build_graph(task, CONFIG)
        ppo = PPO(graph.actor, task.critic_size, task.contract.action.size, CONFIG)
        learner = Learner(graph, ppo, Normaliser(task.critic_size))
        rollout = Collector(task, CONFIG, learner, num_threads=1).collect(Trainer(task, CONFIG).new_rollout())
        ppo.update(rollout, 0.99, seeded(3))
        return learner.state_dict()

    beside = learned()

    def nobody(_: PPO) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    monkeypatch.setattr(PPO, "_beside", nobody)
    after = learned()
    for name, value in beside.items():
        assert torch.equal(after[name], value), name


def test_an_environment_that_is_not_replayed_plays_the_same() -> None:
    task = load_task("cartpole-swingup")
    plain = DeviceEnvironment(task, TorchMujoco(task, 4), seed=2, training=True)
    captured = CapturedEnvironment(DeviceEnvironment(task, TorchMujoco(task, 4), seed=2, training=True))
    assert captured.why_not == "cpu has no CUDA graphs"
    plain.reset()
    captured.reset()
    (term,) = task.contract.action.terms
    for number in range(20):
        targets = {term.target_name: torch.full((4, len(term.joints)), 0.1 * number)}
        assert torch.equal(plain.step(targets).critic, captured.step(targets).critic)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU records it")
def test_a_function_that_cannot_be_recorded_is_called_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """Without a GPU every recording fails, with torch's own error."""
    calls: list[int] = []
    captured = Captured(lambda: calls.append(1), torch.device("cuda:0"))
    for _ in range(5):
        captured()
    assert len(calls) == 5
    assert not captured.replayed
    assert captured.why_not is not None
    assert captured.why_not.startswith("it cannot be recorded in a CUDA graph: ")
    assert len(caplog.records) == 1
