"""A task that looks at values is refused with the name and the line of its function."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from physai.sdk.base.errors import TaskError
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import RewardTerm, WorldView

torch = pytest.importorskip("torch")
from tests.support.torch_mujoco import TorchMujoco  # noqa: E402

from physai.sim.envs.device.device_environment import DeviceEnvironment  # noqa: E402


def branches(view: WorldView) -> Any:
    if view.qpos[0, 0] > 0.0:
        return view.qpos[:, 0]
    return view.qvel[:, 0]


def asks_any(view: WorldView) -> Any:
    return view.qpos[:, 0] if (view.qpos > 0.0).any() else view.qvel[:, 0]


def selects(view: WorldView) -> Any:
    return view.qpos[view.qpos[:, 0] > 0.0][:, 0]


def calls_numpy(view: WorldView) -> Any:
    return np.cos(view.qpos[:, 0])


def returns_numpy(view: WorldView) -> Any:
    return np.zeros(len(view.qpos))


def keeps_an_axis(view: WorldView) -> Any:
    return view.qpos[:, :1]


def counts_what_is_set(view: WorldView) -> Any:
    return view.xp.nonzero(view.qpos[:, 0] < 9.0)[0] * 1.0


def puts_by_a_mask(view: WorldView) -> Any:
    out = view.qpos[:, 0] * 1.0
    out[out < 9.0] = view.qvel[:, 0]
    return out


def puts_a_number_by_a_mask(view: WorldView) -> Any:
    out = view.qpos[:, 0] * 1.0
    out[out > 0.0] = 1.0
    return out


def makes_tensors(view: WorldView) -> Any:
    return view.qpos[:, 0] * view.xp.asarray([1.0, 2.0])


CALLS: list[Any] = []


def counts_its_calls(view: WorldView) -> Any:
    CALLS.append(0.0)
    return view.qpos[:, 0] + len(CALLS)


def remembers(view: WorldView) -> Any:
    before = CALLS[-1] if CALLS else 0.0
    CALLS.append(view.qpos[:, 0].clone())
    return view.qpos[:, 0] - before


def draws_its_own(view: WorldView) -> Any:
    return torch.rand(len(view.qpos)) + view.qpos[:, 0]


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (branches, "it needs a value on the host"),
        (asks_any, "it needs a value on the host"),
        (selects, "it selects by a mask"),
        (counts_what_is_set, "the shape of its result depends on values"),
        (calls_numpy, ""),
        (returns_numpy, "it returns a ndarray"),
        (keeps_an_axis, "it returns shape (2, 1) instead of (2,), worlds first"),
        (puts_by_a_mask, "it selects by a mask"),
        (makes_tensors, "it makes a tensor of numbers in every call"),
        (counts_its_calls, "called again with the same state it gives other values"),
        (remembers, "called again with the same state it gives other values"),
        (draws_its_own, "called again with the same state it gives other values"),
    ],
)
def test_a_term_that_looks_at_values_is_refused(term: Callable[[WorldView], Any], reason: str) -> None:
    task = load_task("cartpole-swingup")
    task = replace(task, rewards={**task.rewards, "mine": RewardTerm(term=term, weight=1.0)})
    with pytest.raises(TaskError, match=r"reward 'mine' cannot run on a device") as refusal:
        DeviceEnvironment(task, TorchMujoco(task, 2))
    assert reason in str(refusal.value)
    if term is not calls_numpy:  # whose line is in numpy
        first = term.__code__.co_firstlineno
        line = int(str(refusal.value).split("test_capturable.py:")[1].split(")")[0])
        assert first <= line <= first + 3


def test_resets_and_commands_are_checked_too() -> None:
    task = load_task("cartpole-swingup")

    def reset(draw: Any) -> Any:
        draw[draw[:, 0] > 0.5] = 0.0
        return draw[:, :2], draw[:, 2:4] + float(draw[0, 0])

    with pytest.raises(TaskError, match="the reset cannot run on a device"):
        DeviceEnvironment(replace(task, reset=reset), TorchMujoco(task, 2))


def first_column(view: WorldView) -> Any:
    return view.qpos[:, 0]


def same(draw: Any) -> Any:
    return draw


def too_narrow(draw: Any) -> Any:
    return draw[:, :1], draw[:, :2]


def unknown_field(draw: Any) -> Any:
    return {"goal": draw}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"terminations": {"fell": first_column}}, "termination 'fell' .* returns float64 .* bool"),
        ({"critic_size": 9}, r"the critic .* it returns shape \(2, 5\) instead of \(2, 9\)"),
        ({"reset": same}, "the reset .* it returns 1 arrays instead of 2"),
        ({"reset": too_narrow}, r"the reset .* it returns shape \(2, 1\) instead of"),
        ({"training_age": same}, r"the training age .* it returns shape \(2, \d\) instead of \(2,\)"),
        ({"command": unknown_field}, "the command .* it returns 'goal', which is none of"),
    ],
)
def test_results_that_the_environment_cannot_use_are_refused(change: dict[str, Any], reason: str) -> None:
    task = load_task("cartpole-swingup")
    with pytest.raises(TaskError, match=reason):
        DeviceEnvironment(replace(task, **change), TorchMujoco(task, 2))


def test_one_number_put_by_a_mask_is_accepted() -> None:
    task = load_task("cartpole-swingup")
    rewards = {**task.rewards, "mine": RewardTerm(term=puts_a_number_by_a_mask, weight=1.0)}
    DeviceEnvironment(replace(task, rewards=rewards), TorchMujoco(task, 2))
