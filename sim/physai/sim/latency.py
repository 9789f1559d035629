"""What lies between a policy and its robot: sensor noise, bias and age, and the lag of commands."""

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.errors import TaskError
from physai.sdk.interface import graph_interface
from physai.sim.engines.protocol import Array, Engine, Snapshot
from physai.sim.randomness import Seeds, Stream, normal, uniform
from physai.sim.tasks.task import Delay, SensorModel, Task

Mask = npt.NDArray[np.bool_]


def draw_lags(delay: Delay, period_s: float, seeds: Seeds, column: int) -> npt.NDArray[np.int64]:
    """Whole periods of lag per world, uniform over the delay's range, shape (len(seeds),)."""
    lower, upper = round(delay.lower_s / period_s), round(delay.upper_s / period_s)
    draw = uniform(seeds, Stream.DELAY, 2)[:, column]
    return (lower + np.floor(draw * (upper - lower + 1))).astype(np.int64)


class SensorPipeline:
    """Turns the true state into the sensor fields a policy gets."""

    def __init__(self, task: Task, engine: Engine, *, step_dt: float, active: bool) -> None:
        """Prepares the fields the contract's graph reads; `active` switches noise, bias and delay on."""
        self._fields = graph_interface(task.contract).sensors
        self._slices: dict[str, slice] = {}
        width = 0
        for name, size in self._fields.items():
            self._slices[name] = slice(width, width + size)
            width += size
        self._sources = [_source(name, task, engine) for name in self._fields]
        self._active = active
        self._std = np.zeros(width, np.float32)
        self._bias_range = np.zeros(width, np.float32)
        for name, part in self._slices.items():
            model = task.sensors.get(name, SensorModel())
            self._std[part] = model.noise_std
            self._bias_range[part] = model.bias
        self._noisy = active and bool(self._std.any())
        self._bias = np.zeros((engine.num_worlds, width), np.float32)
        self._delay = task.sensor_delay
        self._step_dt = step_dt
        depth = 1 + (round(task.sensor_delay.upper_s / self._step_dt) if active else 0)
        self._past = np.zeros((depth, engine.num_worlds, width), np.float32)
        self._lag = np.zeros(engine.num_worlds, np.int64)
        self._fresh = np.ones(engine.num_worlds, bool)
        self._worlds = np.arange(engine.num_worlds)

    def reset(self, mask: Mask, seeds: Seeds) -> None:
        """Draws bias and lag for new episodes; seeds are those of the masked worlds."""
        self._fresh |= mask
        if not self._active:
            return
        if self._bias_range.any():
            draw = uniform(seeds, Stream.NOISE, self._bias.shape[1])
            self._bias[mask] = (2.0 * draw - 1.0) * self._bias_range
        if len(self._past) > 1:
            self._lag[mask] = draw_lags(self._delay, self._step_dt, seeds, column=0)

    def measure(self, seeds: Seeds, steps: npt.NDArray[np.int64]) -> dict[str, Array]:
        """One sample of every field, float32, shape (num_worlds, size) each."""
        sample = np.concatenate([source() for source in self._sources], axis=1, dtype=np.float32, casting="same_kind")
        if self._active:
            sample += self._bias
        if self._noisy:
            sample += self._std * normal(seeds, Stream.NOISE, sample.shape[1], steps=steps + 1)
        if len(self._past) > 1:
            self._past[1:] = self._past[:-1]
            self._past[0] = sample
            self._past[:, self._fresh] = sample[self._fresh]
            self._fresh[:] = False
            sample = self._past[self._lag, self._worlds]
        return {name: sample[:, part] for name, part in self._slices.items()}

    def snapshot(self) -> Snapshot:
        """State that must survive a restart."""
        return {
            "bias": self._bias.copy(),
            "past": self._past.copy(),
            "lag": self._lag.copy(),
            "fresh": self._fresh.copy(),
        }

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Returns to a snapshot."""
        for name, array in (("bias", self._bias), ("past", self._past), ("lag", self._lag), ("fresh", self._fresh)):
            array[...] = snapshot[name]


def _source(name: str, task: Task, engine: Engine) -> Any:
    """A function that returns the true values of a sensor field, shape (num_worlds, size)."""
    model = engine.model
    floating = 1 if task.contract.robot.base == "floating" else 0
    first_qpos, first_dof = model.jnt_qposadr[floating], model.jnt_dofadr[floating]
    if name == "joint_pos":
        view = engine.state("qpos")[:, first_qpos:]
    elif name == "joint_vel":
        view = engine.state("qvel")[:, first_dof:]
    elif name == "joint_effort":
        view = engine.derived("qfrc_actuator")[:, first_dof:]
    else:
        index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
        if index < 0:
            raise TaskError(f"task {task.name} reads sensor {name!r}, which the model does not have")
        start = model.sensor_adr[index]
        view = engine.derived("sensordata")[:, start : start + model.sensor_dim[index]]
    return lambda: view


class ActionDelay:
    """Advances the engine by one control period with each world's command arriving at its own lag."""

    def __init__(self, task: Task, engine: Engine, *, active: bool) -> None:
        """Maps commanded joints to actuators by name; `active` switches the lag on."""
        self._engine = engine
        self._ctrl = engine.state("ctrl")
        self._columns = actuator_columns(task, engine.model)
        timing = task.contract.timing
        self._decimation, self._physics_dt = timing.decimation, timing.physics_dt
        self._delay = task.action_delay if active else Delay()
        depth = round(self._delay.upper_s / timing.physics_dt) // self._decimation + 2
        self._past: Array = np.zeros((depth, engine.num_worlds, len(self._columns)))
        self._lag = np.zeros(engine.num_worlds, np.int64)
        self._worlds = np.arange(engine.num_worlds)

    def reset(self, mask: Mask, seeds: Seeds, target: Array) -> None:
        """Draws the lag of new episodes, whose actuators hold `target` until a command arrives."""
        self._past[:, mask] = target
        if self._delay.upper_s > 0.0:
            self._lag[mask] = draw_lags(self._delay, self._physics_dt, seeds, column=1)

    def advance(self, target: Array) -> None:
        """One control period; target has shape (num_worlds, commanded joints)."""
        if self._delay.upper_s <= 0.0:
            self._ctrl[:, self._columns] = target
            self._engine.step(self._decimation)
            return
        self._past[1:] = self._past[:-1]
        self._past[0] = target
        periods, remainder = np.divmod(self._lag, self._decimation)
        switches = [0, *(int(s) for s in np.unique(remainder) if s > 0), self._decimation]
        for start, end in zip(switches[:-1], switches[1:], strict=True):
            age = periods + (remainder > start)
            self._ctrl[:, self._columns] = self._past[age, self._worlds]
            self._engine.step(end - start)

    def snapshot(self) -> Snapshot:
        """State that must survive a restart."""
        return {"past": self._past.copy(), "lag": self._lag.copy()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Returns to a snapshot."""
        self._past[...] = snapshot["past"]
        self._lag[...] = snapshot["lag"]


def actuator_columns(task: Task, model: Any) -> list[int]:
    """Columns of `ctrl` the action terms write, in the terms' joint order.

    Raises:
        TaskError: a commanded joint has no actuator of its name.
    """
    columns: list[int] = []
    for term in task.contract.action.terms:
        for joint in term.joints:
            index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_ACTUATOR, joint)
            if index < 0:
                raise TaskError(
                    f"task {task.name} commands joint {joint!r}, but the model has no actuator of that name"
                )
            columns.append(index)
    return columns
