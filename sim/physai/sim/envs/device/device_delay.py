"""Sensor errors and lagging commands on a device, with the draws of `physai.sim.envs.delay`."""

from collections.abc import Sequence

import torch

from physai.sim.engines.protocol import DeviceEngine
from physai.sim.envs.delay import SensorLayout, actuator_columns
from physai.sim.envs.device.device_rng import Seeds, normal, uniform
from physai.sim.envs.rng import Stream
from physai.sim.robots.spec import home_controls
from physai.sim.tasks.task import Delay, Task


def draw_lags(delay: Delay, period_s: float, seeds: Seeds, column: int) -> torch.Tensor:
    """Whole periods of lag per world, uniform over the range in seconds, int64, shape (len(seeds),); see `Delay.at`."""
    lower, upper = round(delay.lower_s / period_s), round(delay.upper_s / period_s)
    draw = uniform(seeds, Stream.DELAY, 2)[:, column]
    return lower + torch.floor(draw * (upper - lower + 1)).long()


class DeviceSensors:
    """Turns the true state into the sensor fields a policy gets."""

    def __init__(self, task: Task, engine: DeviceEngine, *, step_dt: float, active: bool, device: torch.device) -> None:
        """Prepares the fields the contract's graph reads; `active` switches noise, bias and delay on.

        Raises:
            TaskError: see `SensorLayout.of`.
        """
        layout = SensorLayout.of(task, engine, step_dt)
        self._slices, self._sources = layout.slices, layout.sources
        self._active = active
        self._std = torch.as_tensor(layout.noise_std).to(device)
        self._bias_range = torch.as_tensor(layout.bias).to(device)
        self._bias_mean = torch.as_tensor(layout.bias_mean).to(device)
        self._biased = active and bool(layout.bias.any() or layout.bias_mean.any())
        self._noisy = active and bool(layout.noise_std.any())
        self._quat = layout.slices.get("imu_quat") if active else None
        count, width = engine.num_worlds, len(layout.bias)
        self._bias = torch.zeros(count, width, device=device)
        self._readings = layout.readings
        joints = self._readings.position.stop - self._readings.position.start
        span, filtered = (self._readings.span, self._readings.filtered) if active else (0, False)
        self._positions = torch.zeros(span, count, joints, device=device)
        self._smooth = torch.zeros(count, width if filtered else 0, device=device)
        self._delay, self._step_dt = task.sensor_delay.at(task.contract.timing.control_dt), step_dt
        depth = 1 + (round(self._delay.upper_s / step_dt) if active else 0)
        self._past = torch.zeros(depth, count, width, device=device)
        self._lag = torch.zeros(count, dtype=torch.int64, device=device)
        self._fresh = torch.ones(count, dtype=torch.bool, device=device)
        self._worlds = torch.arange(count, device=device)

    def reset(self, mask: torch.Tensor, seeds: Seeds) -> None:
        """Draws bias and lag for the new episodes of the masked worlds; seeds are those of all worlds."""
        self._fresh |= mask
        if self._biased:
            draw = uniform(seeds, Stream.NOISE, self._bias.shape[1])
            bias = (self._bias_mean + (2.0 * draw - 1.0) * self._bias_range).float()
            self._bias.copy_(torch.where(mask[:, None], bias, self._bias))
        if len(self._past) > 1:
            self._lag.copy_(torch.where(mask, draw_lags(self._delay, self._step_dt, seeds, column=0), self._lag))

    def live(self) -> dict[str, torch.Tensor]:
        """Arrays that a restart needs, first axis the world."""
        state = {"bias": self._bias, "past": self._past.swapaxes(0, 1), "lag": self._lag, "fresh": self._fresh}
        return state | {"positions": self._positions.swapaxes(0, 1), "smooth": self._smooth}

    def measure(self, seeds: Seeds, steps: torch.Tensor) -> dict[str, torch.Tensor]:
        """One sample of every field, float32, shape (num_worlds, size) each."""
        sample = torch.cat([source().float() for source in self._sources], dim=1)
        if self._active:
            sample = self._read(sample, seeds, steps)
        if len(self._past) > 1:
            older = torch.cat([sample[None], self._past[:-1]])
            # A new episode has no past: its first sample fills the whole history.
            self._past.copy_(torch.where(self._fresh[:, None], sample, older))
            sample = self._past[self._lag, self._worlds]
        self._fresh.zero_()
        return {name: sample[:, part] for name, part in self._slices.items()}

    def _read(self, truth: torch.Tensor, seeds: Seeds, steps: torch.Tensor) -> torch.Tensor:
        """The readings for true values, shape (num_worlds, width)."""
        readings, new = self._readings, self._fresh[:, None]
        # In all worlds, where the host's pipeline picks those with a new episode: a captured graph has fixed shapes.
        if self._smooth.shape[1]:
            self._smooth.copy_(torch.where(new, truth, self._smooth))
        if len(self._positions):
            std = self._std[readings.position].repeat(len(self._positions))
            noise = std * normal(seeds, Stream.HISTORY, len(std))
            before = torch.stack(readings.before(truth, self._bias, noise))
            self._positions.copy_(torch.where(new, before, self._positions))
        errors = self._bias
        if self._noisy:
            errors = errors + self._std * normal(seeds, Stream.NOISE, len(self._std), steps=steps + 1)
        older = self._positions[-1] if len(self._positions) else None
        sample = readings.read(truth, errors, self._smooth, older)
        if len(self._positions):
            newest = sample[:, readings.position][None]
            self._positions.copy_(torch.cat([newest, self._positions[:-1]]))
        if self._quat is not None:
            # Isotropic noise on the unit sphere is a rotation by twice as much about a random axis.
            quat = sample[:, self._quat]
            sample[:, self._quat] = quat / (quat * quat).sum(dim=1, keepdim=True).sqrt()
        return sample


class DeviceDelay:
    """Advances the engine by whole control periods with each world's commands arriving at its own lag."""

    def __init__(
        self, task: Task, engine: DeviceEngine, *, active: bool, device: torch.device, periods: int = 1
    ) -> None:
        """Maps commanded joints to actuators by name; see `physai.sim.envs.delay.ActionDelay`."""
        self._engine = engine
        self._ctrl = engine.state("ctrl")
        self._columns = torch.tensor(actuator_columns(task, engine.model), device=device)
        timing = task.contract.timing
        self._decimation, self._physics_dt = timing.decimation, timing.physics_dt
        self._delay = task.action_delay.at(timing.control_dt) if active else Delay()
        depth = round(self._delay.upper_s / timing.physics_dt) // self._decimation + 2
        worlds, dtype = engine.num_worlds, self._ctrl.dtype
        self._past = torch.zeros(depth, worlds, len(self._columns), dtype=dtype, device=device)
        self._lag = torch.zeros(worlds, dtype=torch.int64, device=device)
        self._periods = periods
        self._held = torch.as_tensor(home_controls(engine.model), dtype=dtype, device=device)
        self._controls = self._held.repeat(worlds, periods * self._decimation, 1)
        self._worlds = torch.arange(worlds, device=device)
        self._steps = torch.arange(periods * self._decimation, device=device)

    def reset(self, mask: torch.Tensor, seeds: Seeds, target: torch.Tensor) -> None:
        """Draws the lag of new episodes, whose actuators hold `target` until a command arrives."""
        self._past.copy_(torch.where(mask[:, None], target.to(self._past.dtype), self._past))
        held = self._held.repeat(len(self._ctrl), 1).index_copy(1, self._columns, target.to(self._ctrl.dtype))
        self._ctrl.copy_(torch.where(mask[:, None], held, self._ctrl))
        if self._delay.upper_s > 0.0:
            self._lag.copy_(torch.where(mask, draw_lags(self._delay, self._physics_dt, seeds, 1), self._lag))

    def live(self) -> dict[str, torch.Tensor]:
        """Arrays that a restart needs, first axis the world."""
        return {"past": self._past.swapaxes(0, 1), "lag": self._lag}

    def advance(self, targets: Sequence[torch.Tensor]) -> None:
        """Plays one command per control period, each of shape (num_worlds, commanded joints), oldest first."""
        newest_first = torch.cat([torch.stack(tuple(reversed(targets))).to(self._past.dtype), self._past])
        # The command that was the newest a lag before each physics step.
        age = self._periods - 1 - (self._steps - self._lag[:, None]) // self._decimation
        self._controls[:, :, self._columns] = newest_first[age, self._worlds[:, None]]
        self._past.copy_(newest_first[: len(self._past)])
        self._engine.drive(self._controls)
