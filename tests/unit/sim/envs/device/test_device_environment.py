"""The device environment plays what the CPU environment plays: the same draws, episodes, rewards and verdicts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import BUILT_IN, load_task
from physai.sim.tasks.task import Task, WorldView

torch = pytest.importorskip("torch")
from tests.support.torch_mujoco import TorchMujoco  # noqa: E402

from physai.sim.envs.device.device_environment import DeviceEnvironment, DeviceStep, seeds_of  # noqa: E402

WORLDS, STEPS = 6, 120
FLAGS = ("terminated", "truncated", "judged", "succeeded")


def commands(task: Task, random: np.random.Generator, amplitude: float) -> dict[str, Any]:
    """Random joint commands within the action terms' bounds."""
    targets: dict[str, Any] = {}
    for term in task.contract.action.terms:
        lower, upper = np.maximum(term.lower, -3.0), np.minimum(term.upper, 3.0)
        middle = np.array(term.offset)
        targets[term.target_name] = middle + amplitude * random.uniform(
            lower - middle, upper - middle, (WORLDS, len(lower))
        )
    return targets


def check_same(step: Any, found: DeviceStep, *, tolerance: float) -> None:
    for name in FLAGS:
        assert np.array_equal(getattr(found, name).numpy(), getattr(step, name)), name
    for name in ("critic", "final_critic", "reward"):
        assert np.allclose(getattr(found, name).numpy(), getattr(step, name), rtol=tolerance, atol=tolerance), name
    for fields, others in ((found.sensors, step.sensors), (found.commands, step.commands)):
        assert fields.keys() == others.keys()
        for name, value in fields.items():
            assert np.allclose(value.numpy(), others[name], rtol=tolerance, atol=tolerance), name
    for name, values in step.metrics.items():
        assert np.allclose(found.metrics[name].numpy()[step.judged], values, atol=tolerance), name


@pytest.mark.slow
@pytest.mark.parametrize("name", [*sorted(BUILT_IN), "velocity:terrain", "ur10e-reach:position"])
@pytest.mark.parametrize(
    ("training", "randomise", "repeat"), [(False, True, 1), (True, True, 1), (True, False, 1), (True, True, 3)]
)
def test_both_play_the_same(name: str, training: bool, randomise: bool, repeat: int) -> None:
    name, _, preset = name.partition(":")
    task = load_task(name, preset=preset or None)
    options: dict[str, Any] = {"seed": 3, "training": training, "randomise": randomise, "action_repeat": repeat}
    host = Environment(task, WORLDS, num_threads=1, **options)
    device = DeviceEnvironment(task, TorchMujoco(task, WORLDS), **options)
    check_same(host.reset(), device.reset(), tolerance=1e-6)
    random = np.random.default_rng(0)
    ends = 0
    for number in range(STEPS):
        # Episodes end by time, too.
        if number == STEPS // 2:
            host.steps_in_episode[0] = device.steps_in_episode[0] = host.episode_steps - 3
        targets = [commands(task, random, amplitude=0.3) for _ in range(repeat)]
        step = host.step(*targets)
        found = device.step(*({key: torch.as_tensor(value) for key, value in part.items()} for part in targets))
        check_same(step, found, tolerance=1e-5)
        assert np.array_equal(seeds_of(device), host.episode_seeds)
        assert np.array_equal(device.steps_in_episode.numpy(), host.steps_in_episode)
        for index, mean in enumerate(step.reward_terms.values()):
            assert float(found.reward_terms[index]) == pytest.approx(mean, rel=1e-6, abs=1e-9)
        ends += int(step.done.sum())
    assert ends > 0


@pytest.mark.parametrize("name", ["pendubot-swingup", "go2-velocity", "ur10e-reach"])
def test_it_continues_from_a_snapshot_bit_for_bit(name: str) -> None:
    task = load_task(name)
    random = np.random.default_rng(1)
    played = [commands(task, random, amplitude=0.5) for _ in range(40)]
    targets = [{key: torch.as_tensor(value) for key, value in part.items()} for part in played]
    first = DeviceEnvironment(task, TorchMujoco(task, WORLDS), seed=5, training=True)
    first.reset()
    for part in targets[:20]:
        first.step(part)
    kept = first.snapshot()
    second = DeviceEnvironment(task, TorchMujoco(task, WORLDS), seed=5, training=True)
    second.reset()
    second.restore(kept)
    for part in targets[20:]:
        left, right = first.step(part), second.step(part)
        for name, value in vars(left).items():
            other = vars(right)[name]
            same = (
                torch.equal(value, other)
                if isinstance(value, torch.Tensor)
                else all(torch.equal(x, other[key]) for key, x in value.items())
            )
            assert same, name


def test_a_metric_that_is_a_part_of_the_state_is_that_of_the_episode_which_ended() -> None:
    task = load_task("cartpole-swingup")

    def cart(view: WorldView) -> Any:
        return view.joint_pos[:, 0]

    def copied(view: WorldView) -> Any:
        return view.joint_pos[:, 0] * 1.0

    metrics = {"cart": cart, "copied": copied}
    task = replace(task, episode_length_s=0.2, training_age=None, metrics=metrics)
    environment = DeviceEnvironment(task, TorchMujoco(task, WORLDS), seed=0)
    environment.reset()
    (term,) = task.contract.action.terms
    ended = False
    for _ in range(12):
        step = environment.step({term.target_name: torch.full((WORLDS, 1), 3.0)})
        assert torch.equal(step.metrics["cart"], step.metrics["copied"])
        ended |= bool(step.truncated.any())
    assert ended
