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

from physai.sim.envs.device.environment import DeviceEnvironment  # noqa: E402


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


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (branches, "it needs a value on the host"),
        (asks_any, "it needs a value on the host"),
        (selects, "the shape of its result depends on values"),
        (calls_numpy, ""),
        (returns_numpy, "it returns a ndarray"),
        (keeps_an_axis, "it returns shape (2, 1) instead of (2,), one per world"),
    ],
)
def test_a_term_that_looks_at_values_is_refused(term: Callable[[WorldView], Any], reason: str) -> None:
    task = load_task("cartpole-swingup")
    task = replace(task, rewards={**task.rewards, "mine": RewardTerm(term=term, weight=1.0)})
    with pytest.raises(TaskError, match=r"reward 'mine' cannot run on a device") as refusal:
        DeviceEnvironment(task, TorchMujoco(task, 2))
    assert reason in str(refusal.value)
    if term not in (returns_numpy, calls_numpy, keeps_an_axis):
        first = term.__code__.co_firstlineno
        line = int(str(refusal.value).split("test_capturable.py:")[1].split(")")[0])
        assert first < line <= first + 3


def test_resets_and_commands_are_checked_too() -> None:
    task = load_task("cartpole-swingup")

    def reset(draw: Any) -> Any:
        draw[draw[:, 0] > 0.5] = 0.0
        return draw[:, :2], draw[:, 2:4] + float(draw[0, 0])

    with pytest.raises(TaskError, match="the reset cannot run on a device"):
        DeviceEnvironment(replace(task, reset=reset), TorchMujoco(task, 2))
