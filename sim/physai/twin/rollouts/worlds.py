"""Worlds of a task with a twin's parameters, drawn by each episode's own seed."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from mujoco.batch import MODEL_FIELDS

from physai.sdk.base.errors import TaskError
from physai.sim.engines.named import load_engine
from physai.sim.engines.protocol import Array
from physai.sim.envs.delay import draw_lags
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds
from physai.sim.robots.payload import add_payload, payload_body
from physai.sim.tasks.task import Task
from physai.twin.model.conditions import Condition, task_under
from physai.twin.model.twin import Twin
from physai.twin.rollouts.batch import Batch

PARAMETER_BITS = 63
"""Bits of an episode's seed that draw its parameters."""


@dataclass(frozen=True)
class EpisodeWorlds:
    """One world per episode of a batch."""

    env: Environment
    task: Task
    """The task under the batch's condition."""
    seeds: Seeds
    values: Array
    """Parameters of the twin, shape (n, P)."""
    lag_s: Array
    """Delay of commands [s], shape (n,)."""
    sensor_age_s: Array
    """Age of sensor samples [s], shape (n,)."""


def build_worlds(task: Task, twin: Twin, batch: Batch, *, room: tuple[int, int] | None = None) -> EpisodeWorlds:
    """Build the worlds of a batch; reset the environment with `seeds`.

    `room` is the second engine's memory for contacts and constraints of a world; None for its estimate.

    Raises:
        TaskError: the model simplifies a body that the twin changes.
        TwinError: the twin is of another robot.
        UnknownNameError: no installed package has the batch's engine.
        MissingExtraError: a package that the engine needs is not installed.
    """
    under = task_under(task, twin, batch.condition)
    seeds = np.array(batch.seeds, np.uint64)
    values = parameter_values(twin, batch)
    models = world_models(task, twin, batch.condition, values)
    fields = differing_fields(task.model, models)
    _require_general_bodies(task, fields)
    make = load_engine(batch.engine)
    engine = make(task.model, len(seeds), fields=fields, stage=under.stage, derived=under.derived, room=room)
    offset = None if batch.joint_pos_offset is None else np.array(batch.joint_pos_offset, np.float64)
    env = Environment(under, len(seeds), engine=engine, joint_pos_offset=offset)
    timing = task.contract.timing
    lag, age = under.action_delay.at(timing.control_dt), under.sensor_delay.at(timing.control_dt)
    return EpisodeWorlds(
        env=env,
        task=under,
        seeds=seeds,
        values=values,
        lag_s=draw_lags(lag, timing.physics_dt, seeds, 1) * timing.physics_dt,
        sensor_age_s=draw_lags(age, env.step_dt, seeds, 0) * env.step_dt,
    )


def _require_general_bodies(task: Task, fields: dict[str, Array]) -> None:
    """Raise TaskError if the twin moves the centre of mass of a body that MuJoCo treats as simple."""
    # MuJoCo keeps only the diagonal of a simple body's inertia, so the change would be ignored silently.
    for name in ("body_ipos", "body_iquat"):
        moved = fields.get(name, np.zeros((0, task.model.nbody, 1))) != np.asarray(getattr(task.model, name))
        for body in np.flatnonzero(moved.any(axis=(0, 2))):
            if task.model.body_simple[body]:
                raise TaskError(
                    f"task {task.name}: the twin moves the centre of mass of body "
                    f"{task.model.body(int(body)).name!r}, which MuJoCo assumes at its joints' origin; set "
                    '<body simple="false"> in the model'
                )


def parameter_values(twin: Twin, batch: Batch) -> Array:
    """Return each episode's parameters, shape (n, P): given, fitted, or drawn from the posterior by its seed."""
    if batch.values is not None:
        return np.array(batch.values, np.float64).reshape(len(batch.seeds), len(twin.parameters))
    if batch.condition.spread == 0.0 or not twin.parameters:
        return np.tile(twin.values, (len(batch.seeds), 1))
    # One draw per seed, not one of all: an episode must not depend on its batch.
    return np.concatenate([twin.draw(1, seed >> (64 - PARAMETER_BITS)) for seed in batch.seeds])


def world_models(task: Task, twin: Twin, condition: Condition, values: Array) -> list[Any]:
    """Return one copy of the task's model per row of parameters, with the payload."""
    models: list[Any] = []
    for row in values:
        model = copy.copy(task.model)
        twin.apply_commanded(model, row)
        if condition.payload_kg > 0.0:
            add_payload(model, payload_body(model), condition.payload_kg)
        models.append(model)
    return models


def differing_fields(nominal: Any, models: list[Any]) -> dict[str, Array]:
    """Return the model fields in which any world differs from the nominal model, shape (n, …)."""
    differing: dict[str, Array] = {}
    for name in sorted(MODEL_FIELDS):
        # A name such as `opt.gravity` is a field of the model's options.
        owner, _, option = name.rpartition(".")
        rows = [np.asarray(getattr(model.opt if owner else model, option)) for model in models]
        usual = np.asarray(getattr(nominal.opt if owner else nominal, option))
        if usual.dtype.kind == "f" and any(not np.array_equal(row, usual) for row in rows):
            # The boxes of meshes follow those of bodies; they are far more, and the same in every world.
            own = int(nominal.body_bvhnum.sum()) if name == "bvh_aabb" else len(usual)
            differing[name] = np.stack([row[:own] for row in rows])
    return differing
