"""Randomised model parameters on a device, with the draws of `physai.sim.envs.domain_randomization`."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from physai.sim.engines.protocol import DeviceEngine
from physai.sim.envs.device.rng import Seeds, uniform
from physai.sim.envs.domain_randomization import NEEDS_CONSTANTS, ParameterDraws, entries
from physai.sim.envs.rng import Stream
from physai.sim.tasks.task import Task


@dataclass(frozen=True)
class _Change:
    """A rule on one field: what it does with which elements, and the draw that each one takes."""

    field: str
    operation: str
    lower: float
    upper: float
    elements: torch.Tensor
    """Indices into a world's flattened field, shape (k,)."""
    draws: torch.Tensor
    """Number of each element's draw, shape (k,)."""


class DeviceParameters:
    """Draws every randomised field of a task for the worlds that start a new episode."""

    def __init__(self, task: Task, engine: DeviceEngine, device: torch.device) -> None:
        """Resolves the task's rules against the engine's model."""
        self._engine = engine
        fields = ParameterDraws.fields(task)
        self._values = {name: engine.parameter(name) for name in fields}
        self._nominal = {
            name: torch.as_tensor(np.array(getattr(engine.model, name), np.float64).reshape(1, -1))
            .to(device)
            .expand(engine.num_worlds, -1)
            for name in fields
        }
        self._changes: list[_Change] = []
        self._count = 0
        for entry in entries(task, engine.model):
            for name in (entry.rule.field, *entry.rule.together):
                shape = np.shape(getattr(engine.model, name))
                index: Any = entry.index[1:]
                numbers: npt.NDArray[np.int64] = np.arange(math.prod(shape)).reshape(shape)[index]
                draws = np.arange(self._count, self._count + math.prod(entry.grid))
                grid = (*entry.grid, *[1] * numbers.ndim)[: numbers.ndim]
                drawn = np.broadcast_to(draws.reshape(grid), numbers.shape)
                self._changes.append(
                    _Change(
                        field=name,
                        operation=entry.rule.operation,
                        lower=entry.rule.lower,
                        upper=entry.rule.upper,
                        elements=torch.as_tensor(numbers.reshape(-1).copy()).to(device),
                        draws=torch.as_tensor(drawn.reshape(-1).copy()).to(device),
                    )
                )
            self._count += math.prod(entry.grid)
        self._needs_constants = any(name in NEEDS_CONSTANTS for name in fields)

    def draw(self, mask: torch.Tensor, seeds: Seeds) -> None:
        """Draws for the masked worlds, bool, shape (num_worlds,); seeds are those of all worlds."""
        if not self._changes:
            return
        numbers = uniform(seeds, Stream.PARAMETERS, self._count)
        # Several rules may change one field: all start from its nominal values.
        fresh = dict(self._nominal)
        for change in self._changes:
            drawn = change.lower + (change.upper - change.lower) * numbers[:, change.draws]
            rows = fresh[change.field]
            if change.operation == "scale":
                drawn = rows[:, change.elements] * drawn
            elif change.operation == "add":
                drawn = rows[:, change.elements] + drawn
            fresh[change.field] = rows.index_copy(1, change.elements, drawn)
        for name, values in self._values.items():
            rows = fresh[name].to(values.dtype).reshape(values.shape)
            values.copy_(torch.where(mask.reshape(-1, *[1] * (values.ndim - 1)), rows, values))
        if self._needs_constants:
            self._engine.parameters_changed(mask)
