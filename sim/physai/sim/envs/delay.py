"""Errors between a policy and its robot: sensor noise, bias and age, and the lag of commands."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import TaskError, unknown_name
from physai.sdk.contract.interface import graph_interface, refuse_plans
from physai.sim.engines.protocol import AnyEngine, Array, Engine, Snapshot, put
from physai.sim.envs.readings import Readings
from physai.sim.envs.rng import Seeds, Stream, normal, uniform
from physai.sim.robots.spec import home_controls, joint_columns
from physai.sim.tasks.task import Delay, SensorModel, Stage, Task

Mask = npt.NDArray[np.bool_]


def draw_lags(delay: Delay, period_s: float, seeds: Seeds, column: int) -> npt.NDArray[np.int64]:
    """Whole periods of lag per world, uniform over the range in seconds, shape (len(seeds),); see `Delay.at`."""
    # Both ends are included: `draw` is below 1, so the floor reaches at most `upper`.
    lower, upper = round(delay.lower_s / period_s), round(delay.upper_s / period_s)
    draw = uniform(seeds, Stream.DELAY, 2)[:, column]
    return (lower + np.floor(draw * (upper - lower + 1))).astype(np.int64)


@dataclass(frozen=True)
class SensorLayout:
    """The sensor fields that a contract's graph reads, side by side, and how their readings come about."""

    slices: dict[str, slice]
    """Columns of each field."""
    sources: list[Callable[[], Array]]
    """For each field, and for the positions if only a speed is computed from them, what returns the true values, shape
    (num_worlds, size)."""
    noise_std: npt.NDArray[np.float32]
    """Standard deviation of the noise of each column."""
    bias: npt.NDArray[np.float32]
    """Greatest deviation of the constant offset of each column from its mean."""
    bias_mean: npt.NDArray[np.float32]
    readings: Readings

    @classmethod
    def of(cls, task: Task, engine: AnyEngine, step_dt: float) -> "SensorLayout":
        """The layout of a task's sensors, read every `step_dt` seconds.

        Raises:
            TaskError: the task reads or distorts a sensor that is not there, or does not keep it current.
            ContractError: the task's policy plans.
        """
        refuse_plans(task.contract)
        known = [sensor.name for sensor in task.contract.robot.sensors]
        for name in task.sensors:
            if name not in known:
                raise TaskError(f"task {task.name}: {unknown_name('sensor', name, known)}")
        fields = dict(graph_interface(task.contract).sensors)
        visible = tuple(fields)
        if "joint_vel" in fields and task.sensors.get("joint_vel", SensorModel()).difference_span:
            # At the end, so that the draws of the other fields stay the same.
            fields.setdefault("joint_pos", fields["joint_vel"])
        slices: dict[str, slice] = {}
        width = 0
        for name, size in fields.items():
            slices[name] = slice(width, width + size)
            width += size
        std, bias, mean = np.zeros((3, width), np.float32)
        for name, part in slices.items():
            model = task.sensors.get(name, SensorModel())
            for array, values in ((std, model.noise_std), (bias, model.bias), (mean, model.bias_mean)):
                if isinstance(values, tuple) and len(values) != fields[name]:
                    raise TaskError(
                        f"task {task.name}: the sensor model of {name} has {len(values)} values, it has {fields[name]}"
                    )
                array[part] = values
        sources = [_source(name, task, engine) for name in fields]
        readings = Readings(slices, task.sensors, step_dt=step_dt)
        return cls({name: slices[name] for name in visible}, sources, std, bias, mean, readings)


class SensorPipeline:
    """Turns the true state into the sensor fields a policy gets."""

    def __init__(
        self, task: Task, engine: Engine, *, step_dt: float, active: bool, joint_pos_offset: Array | None = None
    ) -> None:
        """Prepares the fields the contract's graph reads; `active` switches errors, filters and delay on.

        `joint_pos_offset` are constant offsets of the positions' readings in all episodes of each world [rad or m],
        shape (num_worlds, joints); None to draw them.

        Raises:
            TaskError: the task reads or distorts a sensor that is not there, or does not keep it current.
        """
        layout = SensorLayout.of(task, engine, step_dt)
        self._slices, self._sources, width = layout.slices, layout.sources, len(layout.noise_std)
        self._active = active
        self._std, self._bias_mean, self._bias_range = layout.noise_std, layout.bias_mean, layout.bias
        self._biased = active and bool(self._bias_range.any() or self._bias_mean.any())
        self._noisy = active and bool(self._std.any())
        self._quat = self._slices.get("imu_quat") if active else None
        self._bias = np.zeros((engine.num_worlds, width), np.float32)
        self._readings = layout.readings
        self._given = joint_pos_offset
        joints = self._readings.position.stop - self._readings.position.start
        span, filtered = (self._readings.span, self._readings.filtered) if active else (0, False)
        self._positions = np.zeros((span, engine.num_worlds, joints), np.float32)
        """Last readings of the positions, newest first, if a speed is computed from them."""
        self._smooth = np.zeros((engine.num_worlds, width if filtered else 0), np.float32)
        """Outputs of the filters."""
        self._delay = task.sensor_delay.at(task.contract.timing.control_dt)
        self._step_dt = step_dt
        depth = 1 + (round(self._delay.upper_s / self._step_dt) if active else 0)
        self._past = np.zeros((depth, engine.num_worlds, width), np.float32)
        self._lag = np.zeros(engine.num_worlds, np.int64)
        self._fresh = np.ones(engine.num_worlds, bool)
        self._worlds = np.arange(engine.num_worlds)

    def reset(self, mask: Mask, seeds: Seeds) -> None:
        """Draws bias and lag for new episodes; seeds are those of the masked worlds."""
        self._fresh |= mask
        if not self._active:
            return
        if self._biased:
            draw = uniform(seeds, Stream.NOISE, self._bias.shape[1])
            self._bias[mask] = self._bias_mean + (2.0 * draw - 1.0) * self._bias_range
        if self._given is not None and self._readings.position.stop:
            self._bias[mask, self._readings.position] = self._given[mask]
        if len(self._past) > 1:
            self._lag[mask] = draw_lags(self._delay, self._step_dt, seeds, column=0)

    def measure(self, seeds: Seeds, steps: npt.NDArray[np.int64]) -> dict[str, Array]:
        """One sample of every field, float32, shape (num_worlds, size) each."""
        self._begin(seeds)
        sample = self._sample(slice(None), seeds, steps, self._smooth)
        if len(self._positions):
            self._positions[1:] = self._positions[:-1]
            self._positions[0] = sample[:, self._readings.position]
        if len(self._past) > 1:
            self._past[1:] = self._past[:-1]
            self._past[0] = sample
            # A new episode has no past: its first sample fills the whole history.
            self._past[:, self._fresh] = sample[self._fresh]
            sample = self._past[self._lag, self._worlds]
        self._fresh[:] = False
        return {name: sample[:, part] for name, part in self._slices.items()}

    def look(self, mask: Mask, seeds: Seeds, steps: npt.NDArray[np.int64]) -> dict[str, Array]:
        """Readings that `measure` would return for the masked worlds, shape (mask.sum(), size) each; nothing moves
        on.
        """
        sample = self._sample(mask, seeds, steps, self._smooth[mask])
        if len(self._past) > 1:
            lag = self._lag[mask]
            older = self._past[np.maximum(lag - 1, 0), self._worlds[mask]]
            sample = np.where((lag > 0)[:, None], older, sample)
        return {name: sample[:, part] for name, part in self._slices.items()}

    def _begin(self, seeds: Seeds) -> None:
        """Give worlds with a new episode the past that leads to their state, where readings depend on it."""
        new = self._fresh
        if not (len(self._positions) or self._smooth.shape[1]) or not new.any():
            return
        truth = self._truth(new)
        if self._smooth.shape[1]:
            self._smooth[new] = truth
        if len(self._positions):
            std = np.tile(self._std[self._readings.position], len(self._positions))
            noise = std * normal(seeds[new], Stream.HISTORY, len(std))
            self._positions[:, new] = self._readings.before(truth, self._bias[new], noise)

    def _truth(self, worlds: Mask | slice) -> Array:
        truth = [source()[worlds] for source in self._sources]
        return np.concatenate(truth, axis=1, dtype=np.float32, casting="same_kind")

    def _sample(self, worlds: Mask | slice, seeds: Seeds, steps: npt.NDArray[np.int64], smooth: Array) -> Array:
        """The readings of the given worlds now, shape (n, width); moves their filters' outputs on."""
        sample = self._truth(worlds)
        if not self._active:
            return sample
        errors = self._bias[worlds]
        if self._noisy:
            width = len(self._std)
            errors = errors + self._std * normal(seeds[worlds], Stream.NOISE, width, steps=steps[worlds] + 1)
        older = self._positions[-1][worlds] if len(self._positions) else None
        sample = self._readings.read(sample, errors, smooth, older)
        if self._quat is not None:
            # Isotropic noise on the unit sphere is a rotation by twice as much about a random axis.
            sample[:, self._quat] /= np.linalg.norm(sample[:, self._quat], axis=1, keepdims=True)
        return sample

    def snapshot(self) -> Snapshot:
        """State that must survive a restart; first axis the world."""
        return {name: array.copy() for name, array in self._state().items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Returns to a snapshot."""
        for name, array in self._state().items():
            put(array, snapshot, name)

    def _state(self) -> Snapshot:
        """Live arrays, first axis the world."""
        state = {"bias": self._bias, "past": self._past.swapaxes(0, 1), "lag": self._lag, "fresh": self._fresh}
        return state | {"positions": self._positions.swapaxes(0, 1), "smooth": self._smooth}


def _source(name: str, task: Task, engine: AnyEngine) -> Callable[[], Array]:
    """A function that returns the true values of a sensor field, shape (num_worlds, size).

    Raises:
        TaskError: the model has no such sensor, or the task does not keep it current.
    """
    model = engine.model
    position, velocity = joint_columns(model, task.contract.robot)
    if name == "joint_pos":
        # A view of the engine's memory, resolved once: reading it later costs no lookup.
        view = engine.state("qpos")[:, position]
    elif name == "joint_vel":
        view = engine.state("qvel")[:, velocity]
    elif name == "joint_effort":
        view = _current("qfrc_actuator", Stage.ACCELERATION, name, task, engine)[:, velocity]
    else:
        index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
        if index < 0:
            raise TaskError(f"task {task.name} reads sensor {name!r}, which the model does not have")
        start = model.sensor_adr[index]
        needed = Stage(int(model.sensor_needstage[index]))
        view = _current("sensordata", needed, name, task, engine)[:, start : start + model.sensor_dim[index]]
    return lambda: view


def _current(field: str, needed: Stage, sensor: str, task: Task, engine: AnyEngine) -> Array:
    if field not in task.derived or task.stage < needed:
        raise TaskError(
            f"task {task.name} reads sensor {sensor!r}: its derived needs {field!r} and its stage at least "
            f"{needed.name}, got derived {task.derived} and stage {task.stage.name}"
        )
    return engine.derived(field)


class ActionDelay:
    """Advances the engine by whole control periods with each world's commands arriving at its own lag."""

    def __init__(self, task: Task, engine: Engine, *, active: bool, periods: int = 1) -> None:
        """Maps commanded joints to actuators by name.

        Args:
            task: gives action terms, timing and range of the lag.
            engine: what is advanced.
            active: whether commands lag at all.
            periods: control periods per call of `advance`.
        """
        self._engine = engine
        self._ctrl = engine.state("ctrl")
        columns = actuator_columns(task, engine.model)
        # numpy writes through a slice without an index array.
        in_order = columns == list(range(columns[0], columns[0] + len(columns)))
        self._columns = slice(columns[0], columns[0] + len(columns)) if in_order else columns
        timing = task.contract.timing
        self._decimation, self._physics_dt = timing.decimation, timing.physics_dt
        self._delay = task.action_delay.at(timing.control_dt) if active else Delay()
        depth = round(self._delay.upper_s / timing.physics_dt) // self._decimation + 2
        self._past: Array = np.zeros((depth, engine.num_worlds, len(columns)))
        self._lag = np.zeros(engine.num_worlds, np.int64)
        self._periods = periods
        # Actuators that no action term commands hold the robot's home pose.
        self._held = home_controls(engine.model)
        self._controls: Array = np.tile(self._held, (engine.num_worlds, periods * self._decimation, 1))
        self._source = np.zeros((engine.num_worlds, periods * self._decimation), np.int64)
        self._aim(np.ones(engine.num_worlds, bool))

    def _aim(self, mask: Mask) -> None:
        """Finds the command each world follows in each physics step: the one that was the newest a lag ago."""
        worlds = np.flatnonzero(mask)[:, None]
        age = self._periods - 1 - (np.arange(self._source.shape[1]) - self._lag[worlds]) // self._decimation
        self._source[mask] = age * len(mask) + worlds

    def reset(self, mask: Mask, seeds: Seeds, target: Array) -> None:
        """Draws the lag of new episodes, whose actuators hold `target` until a command arrives."""
        self._past[:, mask] = target
        held = np.tile(self._held, (len(target), 1))
        held[:, self._columns] = target
        self._ctrl[mask] = held
        if self._delay.upper_s > 0.0:
            self._lag[mask] = draw_lags(self._delay, self._physics_dt, seeds, column=1)
            self._aim(mask)

    def advance(self, targets: Sequence[Array]) -> None:
        """Plays one command per control period, each of shape (num_worlds, commanded joints), oldest first."""
        newest_first = np.concatenate([*(target[None] for target in reversed(targets)), self._past])
        flat = newest_first.reshape(-1, newest_first.shape[2])
        self._controls[:, :, self._columns] = flat.take(self._source, axis=0)
        self._past[...] = newest_first[: len(self._past)]
        self._engine.drive(self._controls)

    def snapshot(self) -> Snapshot:
        """State that must survive a restart; first axis the world."""
        return {"past": self._past.swapaxes(0, 1).copy(), "lag": self._lag.copy()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Returns to a snapshot."""
        put(self._past.swapaxes(0, 1), snapshot, "past")
        put(self._lag, snapshot, "lag")
        self._aim(np.ones(len(self._lag), bool))


def actuator_columns(task: Task, model: Any) -> list[int]:
    """Columns of `ctrl` the action terms write, in the terms' joint order.

    Raises:
        TaskError: no actuator drives a commanded joint, or several do and none has its name.
    """
    columns: list[int] = []
    for term in task.contract.action.terms:
        for joint in term.joints:
            index = _actuator_of(joint, model)
            if index is None:
                raise TaskError(
                    f"task {task.name} commands joint {joint!r}, but the model has no actuator of that joint alone; "
                    "leave or add one: physai robots import FILE"
                )
            columns.append(index)
    return columns


def _actuator_of(joint: str, model: Any) -> int | None:
    """The actuator that drives a joint, whatever its name: those of other people's models have names of their own."""
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
    of_joints = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    driving = np.flatnonzero(of_joints & (model.actuator_trnid[:, 0] == number))
    if len(driving) == 1:
        return int(driving[0])
    named = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_ACTUATOR, joint)
    return named if named in driving else None
