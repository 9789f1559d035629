"""Refuses tasks that look at values on the host, which waits for the device in every step and cannot be captured."""

import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from physai.sdk.base.errors import TaskError
from physai.sim.tasks.task import Task, WorldView

_ONE_PER_WORLD = ("reward ", "termination ", "metric ", "the success condition")


def require_capturable(task: Task, view: WorldView, device: torch.device) -> None:
    """Calls every function of a task with tensors that have shapes, but no values.

    Raises:
        TaskError: one branches on data, selects by a mask, calls numpy, or returns no tensor; with its name and line.
    """
    for what, function, size in _functions(task):
        real: Any = (
            view if size is None else torch.full((len(view.qpos), size), 0.5, dtype=torch.float64, device=device)
        )
        view.shared.clear()
        try:
            # Once with values, so that `Constant`s keep real copies and not those without values.
            result = function(real)
            _require_tensors(result)
            view.shared.clear()
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                _require_tensors(function(_without_values(real, mode)))
            if what.startswith(_ONE_PER_WORLD) and result.shape != (len(view.qpos),):
                raise TypeError(f"it returns shape {tuple(result.shape)} instead of ({len(view.qpos)},), one per world")
        except Exception as error:  # whatever the task's code raises when its arrays have no values
            raise TaskError(
                f"task {task.name}: {what} cannot run on a device ({_place(error)}): {_reason(error)}; compute for all "
                "worlds with view.xp, choose with view.xp.where, and keep constants in "
                "physai.sim.tasks.constant.Constant"
            ) from error
        finally:
            view.shared.clear()


def _functions(task: Task) -> Iterator[tuple[str, Callable[[Any], Any], int | None]]:
    """What each function is, the function, and how many uniform numbers it takes; None if it takes the view."""
    for name, entry in task.rewards.items():
        yield f"reward {name!r}", entry.term, None
    for name, term in task.terminations.items():
        yield f"termination {name!r}", term, None
    for name, term in task.metrics.items():
        yield f"metric {name!r}", term, None
    yield "the success condition", task.success.condition, None
    yield "the critic", task.critic, None
    yield "the reset", task.reset, task.reset_draws
    if task.training_reset is not None:
        yield "the training reset", task.training_reset, task.reset_draws
    if task.training_age is not None:
        yield "the training age", task.training_age, task.reset_draws
    if task.command is not None:
        yield "the command", task.command, task.command_draws


def _require_tensors(result: Any) -> None:
    if isinstance(result, dict):
        result = tuple(cast("dict[str, Any]", result).values())
    for value in cast("tuple[Any, ...]", result) if isinstance(result, tuple) else (result,):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"it returns a {type(value).__name__} instead of an array of view.xp")


def _without_values(real: Any, mode: FakeTensorMode) -> Any:
    if isinstance(real, torch.Tensor):
        return mode.from_tensor(real)
    names = ("joint_pos", "joint_vel", "target", "previous_target", "episode_time", "qpos", "qvel")
    arrays = {name: mode.from_tensor(getattr(real, name)) for name in names}
    commands = {name: mode.from_tensor(value) for name, value in real.commands.items()}
    derived = {name: mode.from_tensor(value) for name, value in real.derived.items()}
    return replace(real, **arrays, commands=commands, derived=derived, shared={})


def _place(error: Exception) -> str:
    """File and line of the task's code nearest to the error."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and frame.filename != __file__
    ]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "its result"


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "DataDependentOutputException":
        return "it needs a value on the host, as `if`, float() and .any() do"
    if kind == "DynamicOutputShapeException":
        return "the shape of its result depends on values, as selection by a mask does"
    return (str(error).splitlines() or [kind])[0][:200]
