"""Test conditions of an episode: delay, noise, jitter, pushes and payload, derived from the twin's measurements."""

import math
from dataclasses import dataclass, replace

import numpy as np

from physai.sim.engines.protocol import Array
from physai.sim.robots.payload import moving_mass
from physai.sim.tasks.task import Delay, Push, Task, WorldView
from physai.twin.model.measured_task import lag_range, measured_sensors, plausible_lag_range, sensor_age
from physai.twin.model.twin import Twin

OVERRUN_SHARE = 0.01
"""Share of control periods that start late; an overrun is defined as exceeding the 99th percentile."""

PUSH_SCALE = 1.0
"""Default multiple of the task's push."""
PAYLOAD_FRACTION = 0.03
"""Default payload as a share of the moving mass."""
PUSH_INTERVAL_S = 3.0
PUSH_SPEED_SHARE = 0.1
"""Default push of a task without one, as a share of each joint's speed limit."""
UNKNOWN_SPEED = 1.0
"""Speed limit assumed for a joint without one [rad/s or m/s]."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Perturbations of an episode in addition to what its seed draws."""

    name: str
    lag_lower_s: float
    """Minimum delay from a command to its effect; each episode draws its own [s]."""
    lag_upper_s: float
    noise_scale: float = 1.0
    """Multiple of the measured sensor noise."""
    sensor_lag_scale: float = 1.0
    """Multiple of the age of sensor samples, its seconds and its periods; see `sensor_age`."""
    late_periods: int = 0
    """Length of a loop overrun in control periods; 0 for a loop that meets its deadlines."""
    push_scale: float = 0.0
    """Multiple of the task's push, or of the default push."""
    payload_kg: float = 0.0
    spread: float = 1.0
    """1 to draw the twin's parameters from the posterior, 0 for the fitted values."""

    def as_json(self) -> dict[str, str | float]:
        """Return the fields by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def conditions(
    task: Task,
    twin: Twin,
    *,
    push_scale: float = PUSH_SCALE,
    payload_fraction: float = PAYLOAD_FRACTION,
    doubtful_lags: bool = True,
) -> dict[str, Condition]:
    """Return the conditions of the gates by name.

    `calibrated` reproduces the logs; `measured` fixes the delay at its 99th percentile; `twice` doubles delay, noise
    and overruns; `pushes` and `payload` add to `measured` disturbances that logs do not contain.

    Args:
        task: the policy's task.
        twin: the twin.
        push_scale: multiple of the task's push.
        payload_fraction: payload as a share of the moving mass.
        doubtful_lags: have delays that the held-out recordings do not exclude, too; see `plausible_lag_range`.
    """
    stated = lag_range(task, twin)[1]
    lower, upper = plausible_lag_range(task, twin) if doubtful_lags else lag_range(task, twin)
    late = late_periods(task, twin, 1.0)
    calibrated = Condition(name="calibrated", lag_lower_s=lower, lag_upper_s=upper, late_periods=late)
    measured = replace(calibrated, name="measured", lag_lower_s=upper)
    every = (
        calibrated,
        measured,
        Condition(
            name="twice",
            lag_lower_s=max(2.0 * stated, upper),
            lag_upper_s=max(2.0 * stated, upper),
            noise_scale=2.0,
            sensor_lag_scale=2.0,
            late_periods=late_periods(task, twin, 2.0),
        ),
        replace(measured, name="pushes", push_scale=push_scale),
        replace(measured, name="payload", payload_kg=payload_fraction * moving_mass(task.model)),
    )
    return {condition.name: condition for condition in every}


def late_periods(task: Task, twin: Twin, scale: float) -> int:
    """Return how many control periods an overrun at the measured 99th percentile of the loop's period lasts.

    A longer period that still meets the deadline is not an overrun.
    """
    median, p99 = twin.timing.period_median_s, twin.timing.period_p99_s
    if median is None or p99 is None:
        return 0
    excess, timing = scale * (p99 - median), task.contract.timing
    return math.ceil(excess / timing.control_dt) if excess > timing.deadline_s else 0


def task_under(task: Task, twin: Twin, condition: Condition) -> Task:
    """Return the task with a condition's noise, delays and pushes, without what only training needs."""
    return replace(
        task,
        rewards={},
        # Judging needs neither rewards nor a critic, and both cost time per step.
        critic=_empty_critic,
        critic_size=1,
        training_reset=None,
        randomisation=(),  # the twin's posterior replaces it
        sensors=measured_sensors(task.sensors, task.contract.robot.joints, twin, condition.noise_scale),
        sensor_delay=sensor_age(task, twin).scaled(condition.sensor_lag_scale),
        action_delay=Delay(lower_s=condition.lag_lower_s, upper_s=condition.lag_upper_s),
        push=_push(task, condition.push_scale) if condition.push_scale > 0.0 else None,
    )


def _empty_critic(view: WorldView) -> Array:
    return np.zeros((len(view.qpos), 1), np.float32)


def _push(task: Task, scale: float) -> Push:
    if task.push is not None:
        return replace(task.push, velocity=tuple(scale * speed for speed in task.push.velocity))
    joints = [PUSH_SPEED_SHARE * (joint.velocity_limit or UNKNOWN_SPEED) for joint in task.contract.robot.joints]
    # m/s and rad/s of a floating base.
    free = [0.5] * 3 + [0.3] * 3 if task.contract.robot.base == "floating" else []
    # Nobody knocks against the objects.
    still = [0.0] * (task.model.nv - len(free) - len(joints))
    return Push(interval_s=PUSH_INTERVAL_S, velocity=tuple(scale * speed for speed in (*free, *joints, *still)))
