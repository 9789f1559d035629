"""Calls the functions of somebody's task once, so that a wrong shape is an error at once and not a wrong result."""

from typing import Any

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array
from physai.sim.tasks.task import ResetFunction, Task, Term, WorldView

WORLDS = 3
"""Not the number of a usual task's joints, commands or draws, so that axes that are swapped are noticed."""


def require_sound_functions(task: Task) -> None:
    """Start episodes in a few worlds and call every function of a task on them.

    Raises:
        TaskError: a function returns another shape or type than it should, or values that are not finite.
    """
    draws = np.random.default_rng(0).random
    engine = MujocoEngine(task.model, WORLDS, num_threads=1, stage=task.stage, derived=task.derived)
    starts: dict[str, ResetFunction] = {"reset": task.reset}
    if task.training_reset is not None:
        starts["training_reset"] = task.training_reset
    for name, start in starts.items():
        qpos, qvel = start(draws((WORLDS, task.reset_draws)))
        _require(task, f"qpos of {name}", qpos, (WORLDS, engine.model.nq))
        _require(task, f"qvel of {name}", qvel, (WORLDS, engine.model.nv))
        engine.reset(np.ones(WORLDS, bool), qpos, qvel)
    rest = np.zeros((WORLDS, task.contract.action.size))
    view = WorldView.of(engine, task, control_dt=task.contract.timing.control_dt, target=rest, previous_target=rest)
    _require_commands(task, view, draws)
    for name, reward in task.rewards.items():
        _require_term(task, f"reward {name}", reward.term, view)
    for name, term in task.metrics.items():
        _require_term(task, f"metric {name}", term, view)
    for name, term in (*task.terminations.items(), ("success", task.success.condition)):
        found = np.asarray(term(view))
        if found.dtype != np.bool_:
            raise TaskError(f"task {task.name}: {name} returns {found.dtype}, expected bool: where it is the case")
        _require_term(task, name, term, view)
    _require(task, "critic", task.critic(view), (WORLDS, task.critic_size))


def _require_commands(task: Task, view: WorldView, draws: Any) -> None:
    fields = {field.name: field.size for field in task.contract.command.fields}
    if task.command is None:
        return
    drawn = task.command(draws((WORLDS, task.command_draws)))
    if set(drawn) != set(fields):
        raise TaskError(f"task {task.name}: command draws {sorted(drawn)}, the contract has {sorted(fields)}")
    for name, size in fields.items():
        _require(task, f"command {name}", drawn[name], (WORLDS, size))
        view.commands[name][...] = drawn[name]


def _require_term(task: Task, name: str, term: Term, view: WorldView) -> None:
    found = np.asarray(term(view))
    # One number for all worlds is unusual and does no harm.
    if found.shape != () or not np.isfinite(found):
        _require(task, name, found, (WORLDS,))


def _require(task: Task, name: str, found: Array, expected: tuple[int, ...]) -> None:
    values = np.asarray(found)
    if values.shape != expected:
        raise TaskError(
            f"task {task.name}: {name} has shape {values.shape} for {WORLDS} worlds, expected {expected}"
            + ("; select a column, as in view.joint_pos[:, 0]" if len(expected) == 1 else "")
        )
    if not np.isfinite(values).all():
        raise TaskError(f"task {task.name}: {name} is not finite at the start of an episode: {values.ravel()[:4]}")
