"""Model parameters drawn per world and episode, so that a policy does not learn one twin by heart."""

import math
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array, Engine
from physai.sim.envs.rng import Seeds, Stream, uniform
from physai.sim.tasks.task import Randomise, Task

_INPUTS = "_setconst_inputs"
NEEDS_CONSTANTS: frozenset[str] = frozenset(getattr(mujoco.MjModel, _INPUTS))
"""Fields after whose change MuJoCo's derived constants must be computed again: MuJoCo's own list (`Batch.expand`)."""


@dataclass(frozen=True)
class Entry:
    """A rule, resolved against a model."""

    rule: Randomise
    index: tuple[object, ...]
    """Index of the selected elements, the world axis included."""
    grid: tuple[int, int]
    """Draws per world: rows and, where columns are named, columns."""


class ParameterDraws:
    """Draws every randomised field of a task for the worlds that start a new episode."""

    def __init__(self, task: Task, engine: Engine) -> None:
        """Resolves the task's rules against the engine's model."""
        self._engine = engine
        self._values = {name: engine.parameter(name) for name in self.fields(task)}
        self._nominal = {name: np.array(getattr(engine.model, name)) for name in self._values}
        self._entries = entries(task, engine.model)
        self._count = sum(math.prod(entry.grid) for entry in self._entries)
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
        # Several rules may change one field: all start from its nominal values.
        fresh = {name: np.repeat(nominal[None], len(seeds), axis=0) for name, nominal in self._nominal.items()}
        start = 0
        for entry in self._entries:
            rule, end = entry.rule, start + math.prod(entry.grid)
            change = rule.lower + (rule.upper - rule.lower) * numbers[:, start:end]
            start = end
            for name in (rule.field, *rule.together):
                _apply(entry, fresh[name], change)
        worlds = np.flatnonzero(mask)
        for name, values in self._values.items():
            values[worlds] = fresh[name]
        if self._needs_constants:
            self._engine.parameters_changed(mask)


def entries(task: Task, model: Any) -> tuple[Entry, ...]:
    """The task's rules in the order of their draws.

    Raises:
        TaskError: a range is empty, an element does not exist, or MuJoCo simplifies a body that a rule changes.
    """
    for rule in task.randomisation:
        _require_general_bodies(rule, model, task)
    return tuple(_entry(rule, np.array(getattr(model, rule.field)), task) for rule in task.randomisation)


def _apply(entry: Entry, rows: Array, change: Array) -> None:
    """Changes the selected elements; rows has shape (n, …), change (n, draws)."""
    change = change.reshape(len(rows), *(*entry.grid, *[1] * rows.ndim)[: rows.ndim - 1])
    if entry.rule.operation == "scale":
        rows[entry.index] *= change
    elif entry.rule.operation == "add":
        rows[entry.index] += change
    else:
        rows[entry.index] = change


def _require_general_bodies(rule: Randomise, model: Any, task: Task) -> None:
    """MuJoCo keeps only the diagonal of the inertia of a body whose centre of mass lies on its joints' axes."""
    if not {"body_ipos", "body_iquat"} & {rule.field, *rule.together}:
        return
    for body in range(1, model.nbody) if rule.rows is None else rule.rows:
        if model.body_simple[body]:
            raise TaskError(
                f"task {task.name}: the centre of mass of body {model.body(body).name!r} lies in its joints' origin, "
                f'which MuJoCo takes for granted; to randomise {rule.field}, write <body simple="false"> in the model'
            )


def _require_elements(rule: Randomise, nominal: Array, task: Task) -> None:
    for axis, (what, chosen) in enumerate((("row", rule.rows), ("column", rule.columns))):
        size = nominal.shape[axis] if axis < nominal.ndim else 0
        wrong = [number for number in chosen or () if not 0 <= number < size]
        if wrong:
            raise TaskError(f"task {task.name}: randomisation of {rule.field}: no {what} {wrong[0]}, it has {size}")


def _entry(rule: Randomise, nominal: Array, task: Task) -> Entry:
    if not rule.lower <= rule.upper:
        raise TaskError(f"task {task.name}: range of {rule.field} is [{rule.lower}, {rule.upper}]")
    _require_elements(rule, nominal, task)
    index: tuple[object, ...] = (slice(None), slice(None) if rule.rows is None else list(rule.rows))
    if rule.columns is not None:
        rows = np.array(range(nominal.shape[0]) if rule.rows is None else rule.rows)
        index = (slice(None), rows[:, None], np.array(rule.columns)[None, :])
    selected = nominal[index[1:]]
    # One number per row, or per element where columns are named: inertia and gains scale as a whole otherwise.
    per_row = 1 if rule.shared else selected.shape[0]
    per_column = 1 if rule.shared or rule.columns is None else selected.shape[1]
    return Entry(rule=rule, index=index, grid=(per_row, per_column))
