"""Refuses tasks that look at values on the host, which waits for the device in every step and cannot be captured."""

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from physai.sdk.base.errors import TaskError
from physai.sim.tasks.task import Task, WorldView

_ARRAYS = ("joint_pos", "joint_vel", "target", "previous_target", "episode_time", "qpos", "qvel")


@dataclass(frozen=True, kw_only=True)
class _Function:
    """One function of a task."""

    what: str
    call: Callable[[Any], Any]
    returns: Mapping[str, tuple[int, ...]]
    """Shape of each array it returns, by name."""
    draws: int | None = None
    """How many uniform numbers per world it takes; None if it takes the view."""
    judges: bool = False
    """Whether its result is bool."""


def require_capturable(task: Task, view: WorldView, device: torch.device) -> None:
    """Calls every function of a task, with values and with tensors that have shapes, but no values.

    Raises:
        TaskError: one branches on data, selects by a mask, calls numpy, makes tensors of numbers, remembers its calls,
            or returns what the environment cannot use; with its name and line.
    """
    for function in _functions(task, view):
        try:
            _check(function, view, device)
        except Exception as error:  # whatever the task's code raises when its arrays have no values
            raise TaskError(
                f"task {task.name}: {function.what} cannot run on a device ({_place(error, function.call)}): "
                f"{_reason(error)}; compute for all worlds with view.xp, choose with view.xp.where, and keep constants "
                "in physai.sim.tasks.constant.Constant"
            ) from error
        finally:
            view.shared.clear()


def _functions(task: Task, view: WorldView) -> Iterator[_Function]:
    n = len(view.qpos)
    one_each = {"result": (n,)}
    start = {"qpos": tuple(view.qpos.shape), "qvel": tuple(view.qvel.shape)}
    for name, entry in task.rewards.items():
        yield _Function(what=f"reward {name!r}", call=entry.term, returns=one_each)
    for name, term in task.terminations.items():
        yield _Function(what=f"termination {name!r}", call=term, returns=one_each, judges=True)
    for name, term in task.metrics.items():
        yield _Function(what=f"metric {name!r}", call=term, returns=one_each)
    yield _Function(what="the success condition", call=task.success.condition, returns=one_each, judges=True)
    yield _Function(what="the critic", call=task.critic, returns={"result": (n, task.critic_size)})
    yield _Function(what="the reset", call=task.reset, returns=start, draws=task.reset_draws)
    if task.training_reset is not None:
        yield _Function(what="the training reset", call=task.training_reset, returns=start, draws=task.reset_draws)
    if task.training_age is not None:
        yield _Function(what="the training age", call=task.training_age, returns=one_each, draws=task.reset_draws)
    if task.command is not None:
        fields = {name: tuple(value.shape) for name, value in view.commands.items()}
        yield _Function(what="the command", call=task.command, returns=fields, draws=task.command_draws)


def _check(function: _Function, view: WorldView, device: torch.device) -> None:
    if function.draws is None:
        real, other = view, _with_arrays(view, lambda values: values + 0.1 if values.is_floating_point() else values)
    else:
        real, other = (
            torch.full((len(view.qpos), function.draws), value, dtype=torch.float64, device=device)
            for value in (0.5, 0.25)
        )
    # With values first, so that `Constant`s keep real copies and not those without values.
    first = [values.clone() for values in _tensors(_call(function, real))]
    _call(function, other)
    again = _tensors(_call(function, real))
    # Results of another shape are refused below.
    pairs = [(one, two) for one, two in zip(first, again, strict=False) if one.shape == two.shape]
    if not all(torch.allclose(one, two, rtol=0.0, atol=0.0, equal_nan=True) for one, two in pairs):
        raise TypeError("called again with the same state it gives other values, as with memory or numbers of its own")
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, _NoHostValues():
        if isinstance(real, torch.Tensor):
            _require_results(function, mode.from_tensor(real))
        else:
            _require_results(function, _with_arrays(real, mode.from_tensor))


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _call(function: _Function, argument: Any) -> Any:
    if isinstance(argument, WorldView):
        argument.shared.clear()
    return function.call(argument)


def _require_results(function: _Function, argument: Any) -> None:
    """Raises TypeError if the environment cannot use what a function returns."""
    result = _call(function, argument)
    if isinstance(result, dict):
        named = cast("dict[str, Any]", result)
    else:
        parts = cast("tuple[Any, ...]", result) if isinstance(result, tuple) else (result,)
        if len(parts) != len(function.returns):
            raise TypeError(f"it returns {len(parts)} arrays instead of {len(function.returns)}")
        named = dict(zip(function.returns, parts, strict=True))
    for name, values in named.items():
        if not isinstance(values, torch.Tensor):
            raise TypeError(f"it returns a {type(values).__name__} instead of an array of view.xp")
        if name not in function.returns:
            raise TypeError(f"it returns {name!r}, which is none of {', '.join(map(repr, function.returns))}")
        if tuple(values.shape) != function.returns[name]:
            raise TypeError(f"it returns shape {tuple(values.shape)} instead of {function.returns[name]}, worlds first")
        if function.judges and values.dtype != torch.bool:
            raise TypeError(f"it returns {str(values.dtype).removeprefix('torch.')} instead of bool")


def _with_arrays(view: WorldView, change: Callable[[torch.Tensor], torch.Tensor]) -> WorldView:
    arrays = {name: change(getattr(view, name)) for name in _ARRAYS}
    commands = {name: change(value) for name, value in view.commands.items()}
    derived = {name: change(value) for name, value in view.derived.items()}
    return replace(view, **arrays, commands=commands, derived=derived, shared={})


def _selects_by_mask(operation: str, arguments: Any) -> bool:
    """Whether a torch operation indexes by a bool tensor, so that the device must count what is set."""
    if operation not in ("index", "index_put_", "index_put"):
        return False
    # One number is put by masking instead.
    if operation != "index" and arguments[2].numel() == 1:
        return False
    return any(index is not None and index.dtype == torch.bool for index in arguments[1])


class _NoHostValues(TorchDispatchMode):
    """Refuses operations that wait for the device or copy to it although the shape of their result is known."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket.__name__)
        if _selects_by_mask(name, args):
            raise TypeError("it selects by a mask")
        # A single number stays on the host and goes with the launch.
        if name == "lift_fresh" and args[0].ndim:
            raise TypeError("it makes a tensor of numbers in every call")
        return func(*args, **(kwargs or {}))


def _place(error: Exception, function: Any) -> str:
    """File and line of the task's code nearest to the error, or else of the function."""
    own = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and frame.filename != __file__
    ]
    code = getattr(function, "__code__", None)
    if not own and code is not None:
        own = [(code.co_filename, code.co_firstlineno)]
    return f"{own[-1][0]}:{own[-1][1]}" if own else "its result"


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "DataDependentOutputException":
        return "it needs a value on the host, as `if`, float() and .any() do"
    if kind == "DynamicOutputShapeException":
        return "the shape of its result depends on values, as selection by a mask does"
    return (str(error).splitlines() or [kind])[0][:200]
