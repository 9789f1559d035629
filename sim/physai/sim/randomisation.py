"""Model parameters drawn per world and episode, so that a policy does not learn one twin by heart."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.errors import TaskError
from physai.sim.engines.protocol import Array, Engine
from physai.sim.randomness import Seeds, Stream, uniform
from physai.sim.tasks.task import Randomise, Task

NEEDS_CONSTANTS = frozenset({"body_mass", "body_inertia", "body_ipos", "dof_armature", "qpos0"})
"""Fields after whose change MuJoCo's derived constants (inverse weights) must be computed again."""


@dataclass(frozen=True)
class _Entry:
    rule: Randomise
    fields: tuple[Array, ...]
    """Live per-world values of each field, shape (num_worlds, …)."""
    nominal: tuple[Array, ...]
    index: tuple[object, ...]
    """Index of the selected elements behind the world axis."""
    draws: int


class ParameterDraws:
    """Draws every randomised field of a task for the worlds that start a new episode."""

    def __init__(self, task: Task, engine: Engine) -> None:
        """Resolves the task's rules against the engine's model."""
        self._engine = engine
        self._entries = tuple(_entry(rule, engine, task) for rule in task.randomisation)
        self._count = sum(entry.draws for entry in self._entries)
        self._needs_constants = any(f in NEEDS_CONSTANTS for f in self.fields(task))

    @staticmethod
    def fields(task: Task) -> tuple[str, ...]:
        """Model fields the task's rules change."""
        return tuple(dict.fromkeys(f for rule in task.randomisation for f in (rule.field, *rule.together)))

    def draw(self, mask: npt.NDArray[np.bool_], seeds: Seeds) -> None:
        """Draws for the masked worlds; seeds are those of the masked worlds, shape (mask.sum(),)."""
        if not self._entries:
            return
        numbers = uniform(seeds, Stream.PARAMETERS, self._count)
        worlds = np.flatnonzero(mask)
        restored: set[int] = set()
        for entry in self._entries:
            for values, nominal in zip(entry.fields, entry.nominal, strict=True):
                if id(values) not in restored:  # several rules may change one field: start from its nominal once
                    values[worlds] = nominal
                    restored.add(id(values))
        start = 0
        for entry in self._entries:
            draw = numbers[:, start : start + entry.draws]
            start += entry.draws
            _apply(entry, worlds, entry.rule.lower + (entry.rule.upper - entry.rule.lower) * draw)
        if self._needs_constants:
            self._engine.parameters_changed(mask)


def _apply(entry: _Entry, worlds: npt.NDArray[np.intp], draw: Array) -> None:
    for values in entry.fields:
        rows = values[worlds]
        selected = rows[(slice(None), *entry.index)]
        per_row = 1 if entry.rule.shared else selected.shape[1]
        per_column = selected.shape[2] if entry.rule.columns is not None and not entry.rule.shared else 1
        change = draw.reshape(len(worlds), *([per_row, per_column] + [1] * selected.ndim)[: selected.ndim - 1])
        if entry.rule.operation == "scale":
            selected = selected * change
        elif entry.rule.operation == "add":
            selected = selected + change
        else:
            selected = np.broadcast_to(change, selected.shape)
        rows[(slice(None), *entry.index)] = selected
        values[worlds] = rows


def _entry(rule: Randomise, engine: Engine, task: Task) -> _Entry:
    if not rule.lower <= rule.upper:
        raise TaskError(f"task {task.name}: range of {rule.field} is [{rule.lower}, {rule.upper}]")
    fields = tuple(engine.parameter(name) for name in (rule.field, *rule.together))
    nominal = tuple(np.array(getattr(engine.model, name)) for name in (rule.field, *rule.together))
    rows = list(rule.rows) if rule.rows is not None else list(range(nominal[0].shape[0]))
    index: tuple[object, ...] = (rows,)
    if rule.columns is not None:
        index = (np.array(rows)[:, None], np.array(rule.columns)[None, :])
    selected = nominal[0][index]
    # One number per row, or per element where columns are named: inertia and gains scale as a whole otherwise.
    draws = 1 if rule.shared else int(selected.size if rule.columns is not None else selected.shape[0])
    return _Entry(rule=rule, fields=fields, nominal=nominal, index=index, draws=draws)
