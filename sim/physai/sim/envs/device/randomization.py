"""Randomised model parameters on a device, with the draws of `physai.sim.envs.domain_randomization`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from physai.sim.engines.protocol import DeviceEngine
from physai.sim.envs.device.device_rng import Seeds, uniform
from physai.sim.envs.domain_randomization import NEEDS_CONSTANTS, ParameterDraws, entries
from physai.sim.envs.rng import Stream
from physai.sim.tasks.task import Task


@dataclass(frozen=True)
class _Round:
    """Changes of elements of the fields, each of them once: x · (keep + scale · d) + shift · d for a draw d."""

    elements: torch.Tensor
    """Columns of the elements among those of all fields, shape (k,)."""
    draws: torch.Tensor
    """Number of each element's draw, shape (k,)."""
    lower: torch.Tensor
    """Least draw, float64, shape (k,); the others likewise."""
    width: torch.Tensor
    keep: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor


_EFFECTS = {"scale": (0.0, 1.0, 0.0), "add": (1.0, 0.0, 1.0), "set": (0.0, 0.0, 1.0)}
"""What each operation keeps of a value, how it scales it with the draw, and how it shifts it."""


class DeviceParameters:
    """Draws every randomised field of a task for the worlds that start a new episode."""

    def __init__(self, task: Task, engine: DeviceEngine, device: torch.device) -> None:
        """Resolves the task's rules against the engine's model."""
        self._engine, self._device = engine, device
        fields = ParameterDraws.fields(task)
        self._values = {name: engine.parameter(name) for name in fields}
        sizes = {name: math.prod(np.shape(getattr(engine.model, name))) for name in fields}
        ends = np.cumsum([0, *sizes.values()])
        self._columns = {name: slice(first, last) for name, first, last in zip(fields, ends, ends[1:], strict=False)}
        nominal = [np.array(getattr(engine.model, name), np.float64).reshape(-1) for name in fields]
        self._nominal = torch.as_tensor(np.concatenate([*nominal, np.zeros(0)])).to(device)
        self._rounds, self._count = self._resolve(task, engine)
        self._needs_constants = any(name in NEEDS_CONSTANTS for name in fields)

    def _resolve(self, task: Task, engine: DeviceEngine) -> tuple[list[_Round], int]:
        """The changes of all rules, and how many numbers they draw."""
        changes: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]] = []
        count = 0
        for entry in entries(task, engine.model):
            for name in (entry.rule.field, *entry.rule.together):
                shape = np.shape(getattr(engine.model, name))
                index: Any = entry.index[1:]
                numbers: npt.NDArray[np.int64] = np.arange(math.prod(shape)).reshape(shape)[index]
                draws = np.arange(count, count + math.prod(entry.grid))
                grid = (*entry.grid, *[1] * numbers.ndim)[: numbers.ndim]
                drawn = np.broadcast_to(draws.reshape(grid), numbers.shape)
                changes.append((self._columns[name].start + numbers.reshape(-1), drawn.reshape(-1), entry.rule))
            count += math.prod(entry.grid)
        return self._in_rounds(changes), count

    def _in_rounds(self, changes: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]]) -> list[_Round]:
        """As few rounds as possible: a change of what an earlier one changed belongs to a later round."""
        rounds: list[list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]]] = []
        seen = np.zeros(len(self._nominal), np.int64)
        for change in changes:
            number = int(seen[change[0]].max(initial=0))
            seen[change[0]] = number + 1
            rounds += [[] for _ in range(number + 1 - len(rounds))]
            rounds[number].append(change)
        return [self._round(part) for part in rounds]

    def _round(self, changes: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Any]]) -> _Round:
        def tensor(parts: list[Any]) -> torch.Tensor:
            return torch.as_tensor(np.concatenate(parts)).to(self._device)

        def repeated(value: Callable[[Any], float]) -> torch.Tensor:
            return tensor([np.full(len(elements), value(rule), np.float64) for elements, _, rule in changes])

        return _Round(
            elements=tensor([elements for elements, _, _ in changes]),
            draws=tensor([draws for _, draws, _ in changes]),
            lower=repeated(lambda rule: rule.lower),
            width=repeated(lambda rule: rule.upper - rule.lower),
            keep=repeated(lambda rule: _EFFECTS[rule.operation][0]),
            scale=repeated(lambda rule: _EFFECTS[rule.operation][1]),
            shift=repeated(lambda rule: _EFFECTS[rule.operation][2]),
        )

    def draw(self, mask: torch.Tensor, seeds: Seeds) -> None:
        """Draws for the masked worlds, bool, shape (num_worlds,); seeds are those of all worlds."""
        if not self._rounds:
            return
        numbers = uniform(seeds, Stream.PARAMETERS, self._count)
        rows = self._nominal.expand(len(seeds), -1).clone()
        for part in self._rounds:
            drawn = part.lower + part.width * numbers[:, part.draws]
            changed = rows[:, part.elements] * (part.keep + part.scale * drawn) + part.shift * drawn
            rows.index_copy_(1, part.elements, changed)
        for name, values in self._values.items():
            fresh = rows[:, self._columns[name]].to(values.dtype).reshape(values.shape)
            values.copy_(torch.where(mask.reshape(-1, *[1] * (values.ndim - 1)), fresh, values))
        if self._needs_constants:
            self._engine.parameters_changed(mask)
