"""Wraps a controller that was designed and not learned as a policy, which every other part judges like a learned one.

A controller is a function of the contract's fields, written with torch operations, which are recorded as an ONNX graph:

    def controller(fields):
        return -(fields["joint_pos"] @ gain)

    wrap(controller, load_task("cartpole-swingup"), Path("lqr"))

No Python is kept: the file holds the operations on tensors. A branch on values must therefore be a `torch.where`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from physai.sdk.base.errors import ExportError
from physai.sdk.contract.interface import graph_interface
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph, State
from physai.train.onnx_export.export import ExportReport, export_policy

Fields = dict[str, Tensor]
Controller = Callable[[Fields], Tensor] | Callable[[Fields, Tensor], tuple[Tensor, Tensor]]
"""From fields to commands: `controller(fields) -> commands`, or with memory `controller(fields, memory) -> (commands,
memory)`. An nn.Module is one, too."""

MAX_MEMORY = 4096
"""Greatest number of values that a controller remembers."""
_TRIED = 3


class ControllerGraph(PolicyGraph):
    """A controller between the contract's fields and its action terms, which bound the commands."""

    def __init__(self, task: Task, controller: Controller, memory: int) -> None:
        """Connects a controller with `memory` values of its own."""
        actor = controller if isinstance(controller, nn.Module) else _Function(controller)
        super().__init__(task.contract, actor)
        self._memory = memory

    @property
    def state_sizes(self) -> dict[str, int]:
        """Names and widths of the state inputs and outputs, in graph order."""
        sizes = {name: size for name, size in super().state_sizes.items() if name != "hidden"}
        return {**sizes, "hidden": self._memory} if self._memory else sizes

    def fields(self) -> dict[str, int]:
        """Names and sizes of the sensors and commands that the controller may read."""
        interface = graph_interface(self.contract)
        return {**interface.sensors, **interface.commands}

    def forward(
        self, sensors: Mapping[str, Tensor], commands: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], State]:
        """One control period: the controller's commands, within the contract's bounds."""
        _, histories = self.observe(sensors, commands, state)
        fields = {**sensors, **commands}
        wanted, remembered = self._called(fields, state)
        targets, memory = self.command(self._action(wanted, sensors, state), sensors, state)
        after: State = {**histories, **memory}
        if self._memory:
            after["hidden"] = remembered
        return targets, {name: after[name] for name in self.state_sizes}

    def _called(self, fields: dict[str, Tensor], state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        if self._memory:
            return self.actor(fields, state["hidden"])
        return self.actor(fields), state["started"]

    def _action(self, wanted: Tensor, sensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
        """The action in [-1, 1] that asks for the wanted commands."""
        parts: list[Tensor] = []
        start = 0
        for term in self.contract.action.terms:
            part = wanted[:, start : start + len(term.joints)]
            start += len(term.joints)
            scale = part.new_tensor(term.scale)
            parts.append((part - self.action.origin(term, sensors, state)) / scale)
        return torch.cat(parts, dim=1)


class _Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Controller) -> None:
        super().__init__()
        self._function: Any = function

    def forward(self, fields: Fields, *memory: Tensor) -> Any:
        # Export also computes in double precision; a function's own constants stay in single precision.
        single = {name: value.float() for name, value in fields.items()}
        kind = next(iter(fields.values())).dtype
        returned: Any = self._function(single, *(part.float() for part in memory))
        parts = cast("tuple[Any, ...]", returned) if isinstance(returned, tuple) else (returned,)
        parts = tuple(part.to(kind) if isinstance(part, Tensor) else part for part in parts)
        return parts if isinstance(returned, tuple) else parts[0]


def wrap(
    controller: Controller,
    task: Task,
    folder: str | Path,
    *,
    memory: int = 0,
    name: str = "controller",
    states: int = 1000,
) -> ExportReport:
    """Writes a controller as `policy.onnx` with its `golden.npz`, with the header and metadata of a trained policy.

    Args:
        controller: from fields, a dict of tensors of shape (n, size) in the contract's units, to commands, shape
            (n, commands) in the units of the action terms [rad, m, N·m or N]. The fields are the sensors that the
            contract's observation reads, and its commands. Commands beyond the contract's bounds are clipped; an
            incremental term bounds their change per period.
        task: the task whose contract it fulfils.
        folder: output folder; created if missing.
        memory: number of values that the controller remembers; it is then called with them, shape (n, memory), and
            returns them with its commands. They are 0 at the start of an episode.
        name: what the metadata call it.
        states: visited states in which the file is compared with the controller.

    Raises:
        ExportError: the controller fails, returns another shape or not a number, uses an operation that policy files
            may not have, or the file computes something else than it; nothing is written.
    """
    if not 0 <= memory <= MAX_MEMORY:
        raise ExportError(f"memory is {memory}; a controller remembers 0 to {MAX_MEMORY} values")
    graph = ControllerGraph(task, controller, memory).eval()
    _try(graph, task, memory)
    return export_policy(graph, task, Path(folder), provenance={"designed": name}, states=states)


def _try(graph: ControllerGraph, task: Task, memory: int) -> None:
    """Raises ExportError for a controller that does not fit the task, before anything takes long."""
    interface = graph.fields()
    fields = {key: torch.zeros(_TRIED, size) for key, size in interface.items()}
    known = ", ".join(f"{key} ({size})" for key, size in interface.items())
    wanted = task.contract.action.size
    count = (_TRIED, wanted)
    try:
        returned: Any = graph.actor(fields, torch.zeros(_TRIED, memory)) if memory else graph.actor(fields)
    except KeyError as error:
        raise ExportError(f"the controller asks for the field {error}; task {task.name} has {known}") from error
    except Exception as error:  # whatever a user's function raises
        raise ExportError(
            f"the controller failed on fields of zeros ({known}): {type(error).__name__}: {error}"
        ) from error
    parts: Any = returned if memory else (returned, torch.zeros(_TRIED, 0))
    if not (isinstance(parts, tuple) and [isinstance(part, Tensor) for part in cast("Any", parts)] == [True, True]):
        form = "a tensor of commands and one of memory" if memory else "a tensor of commands"
        raise ExportError(f"the controller returns {type(returned).__name__}; expected {form}")
    shapes: list[tuple[str, Tensor, tuple[int, int]]] = [
        ("commands", parts[0], count),
        ("memory", parts[1], (_TRIED, memory)),
    ]
    for what, part, expected in shapes:
        shape = tuple(part.shape)
        if shape != expected:
            raise ExportError(
                f"the controller returns {what} of shape {shape} for {_TRIED} worlds; task {task.name} "
                f"needs {expected}, as it commands {wanted} joints"
            )
