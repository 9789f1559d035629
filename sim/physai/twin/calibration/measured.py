"""Sensor noise, loop period, and how motors follow their commands, from recordings."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from physai.twin.logs import RobotLog, lag_summary, sensor_noise
from physai.twin.logs.checks.base import pose_noise
from physai.twin.logs.signals.lag import LagSummary
from physai.twin.logs.signals.noise import MIN_STILL_S
from physai.twin.logs.signals.response import EffortResponse, effort_response
from physai.twin.logs.signals.speed import Speed, reading_step, speed_origin
from physai.twin.model.credibility import FLOOR_STDS
from physai.twin.model.twin_file import ActuatorResponse, Interval, JointReading, SensorNoise, Timing

Array = npt.NDArray[np.float64]


def measured_noise(logs: Sequence[RobotLog]) -> SensorNoise:
    """Return each joint's sensor noise, root mean square over the recordings."""
    # Prefer recordings with the joint at rest: part of a moving joint's apparent noise is motion.
    estimates = [sensor_noise(log) for log in logs]
    still = np.array([estimate.still_s for estimate in estimates]) >= MIN_STILL_S
    weights = np.where(still.any(axis=0), still, True).astype(np.float64)

    def pooled(values: list[Array | None]) -> tuple[float, ...]:
        known = [i for i, value in enumerate(values) if value is not None]
        if not known:
            return ()
        table = np.array([values[i] for i in known], dtype=np.float64)
        # A joint may have been at rest only in recordings without this sensor.
        share = np.where(weights[known].sum(axis=0) > 0.0, weights[known], 1.0)
        return tuple(float(x) for x in np.sqrt((share * table**2).sum(axis=0) / share.sum(axis=0)))

    names = ("joint_pos_std", "joint_vel_std", "joint_effort_std")
    return SensorNoise(**{name: pooled([getattr(estimate, name) for estimate in estimates]) for name in names})


def error_floors(logs: Sequence[RobotLog]) -> tuple[float, ...]:
    """Return the replay error that the position sensors explain, one per scored error [rad or m].

    A sensor is as noisy as its readings are, or as the rounding to its steps makes it. Of a floating base, noise of its
    position and rotation come first.
    """
    noise = measured_noise(logs).joint_pos_std
    steps = [_common_step([log.joint_pos[:, joint] for log in logs]) for joint in range(len(logs[0].joint_names))]
    stds = [max(std, step / 12.0**0.5) for std, step in zip(noise, steps, strict=True)]
    poses = [pose_noise(log.base) for log in logs if log.base is not None]
    if poses:
        # Errors of three coordinates each.
        stds = [*(3.0**0.5 * np.sqrt(np.square(poses).mean(axis=0))).tolist(), *stds]
    return tuple(FLOOR_STDS * std for std in stds)


def measured_readings(logs: Sequence[RobotLog]) -> tuple[JointReading, ...]:
    """Return how each joint's readings come about, where the recordings agree."""
    return tuple(_joint_reading(logs, joint) for joint in range(len(logs[0].joint_names)))


def _joint_reading(logs: Sequence[RobotLog], joint: int) -> JointReading:
    speeds = [(log, log.joint_vel[:, joint]) for log in logs if log.joint_vel is not None]
    origins = [speed_origin(log.time, log.joint_pos[:, joint], values) for log, values in speeds]
    told = [origin for origin in origins if origin is not None]
    position_step = _common_step([log.joint_pos[:, joint] for log in logs])
    # One recording in which the robot measures the speed, and another in which it computes it, make no model.
    if not told or len({(origin.kind, origin.span, origin.time_constant_s > 0.0) for origin in told}) > 1:
        told = [Speed()]
    computed = told[0].kind != "measured" and told[0].time_constant_s == 0.0
    return JointReading(
        joint_pos_resolution=position_step,
        # The steps of a difference are the position's steps in it.
        joint_vel_resolution=0.0 if computed else _common_step([values for _, values in speeds]),
        joint_vel=told[0].kind,
        joint_vel_span=told[0].span,
        joint_vel_time_constant_s=float(np.median([origin.time_constant_s for origin in told])),
    )


def _common_step(series: Sequence[Array]) -> float:
    """Return the step of the readings that at least half of the recordings show; 0 if fewer do."""
    steps = [step for step in map(reading_step, series) if step > 0.0]
    return float(np.median(steps)) if 2 * len(steps) >= max(1, len(series)) and steps else 0.0


SIMILAR_PERIOD = 1.5
"""Maximum ratio of two sampling periods at which lags are comparable: part of a lag is a share of the period."""

Found = tuple[RobotLog, tuple[EffortResponse | None, ...]]
"""A recording and the response of each of its joints."""


def measured_timing(train: Sequence[RobotLog], held_out: Sequence[RobotLog] = ()) -> Timing:
    """Return pooled loop periods of all recordings, and the lag of their commands if identified.

    The lag is that of the fitted recordings, so that the held-out ones can contradict it; without one in them, that of
    the held-out recordings. Of recordings at different rates it is that of the rate which more of them identify.
    """
    periods = np.concatenate([np.diff(log.time) for log in (*train, *held_out)])
    found = _responses(train) or _responses(held_out)
    chosen = _main_rate(found)
    lag, period_s = _lag(chosen), _period(chosen) if chosen else None
    return Timing(
        command_lag_mean_s=None if lag is None else max(0.0, lag.mean_s),
        command_lag_p99_s=None if lag is None else max(0.0, lag.p99_s),
        command_lag_period_s=None if lag is None else period_s,
        command_lag_periods=None if lag is None else _lag_periods(found, chosen),
        period_median_s=float(np.median(periods)),
        period_p99_s=float(np.quantile(periods, 0.99)),
        period_max_s=float(periods.max()),
    )


def at_two_rates(logs: Sequence[RobotLog]) -> bool:
    """Whether the loops of the recordings differ enough in their periods to tell a delay of periods from a constant."""
    periods = [float(np.median(np.diff(log.time))) for log in logs]
    return not _similar(min(periods), max(periods))


def held_out_lag(train: Sequence[RobotLog], held_out: Sequence[RobotLog]) -> Interval | None:
    """Return the command lag in the held-out recordings [s], of those sampled about as fast as the fitted ones.

    None if either set of recordings does not identify one.
    """
    fitted = _main_rate(_responses(train))
    if not fitted:
        return None
    lag = _lag([one for one in _responses(held_out) if _similar(_period([one]), _period(fitted))])
    if lag is None:
        return None
    mean = max(0.0, lag.mean_s)
    return Interval(value=mean, lo=max(0.0, 2.0 * mean - lag.p99_s), hi=max(mean, lag.p99_s))


def measured_actuators(logs: Sequence[RobotLog]) -> tuple[ActuatorResponse, ...]:
    """Return how each motor follows its commands, pooled over recordings at the main rate; without those not shown."""
    chosen = _main_rate(_responses(logs))
    pooled: list[ActuatorResponse] = []
    for joint, name in enumerate(logs[0].joint_names):
        known = [response for _, responses in chosen if (response := responses[joint]) is not None]
        if not known:
            continue
        weights = np.array([1.0 / max(one.gain_std, GAIN_STD_MIN) ** 2 for one in known])
        gains = np.array([one.gain for one in known])
        gain = float(weights @ gains / weights.sum())
        limits = [one.effort_max for one in known if one.effort_max is not None]
        if not gain > 0.0:
            continue
        # What the recordings differ by counts, too.
        variance = 1.0 / weights.sum() + weights @ (gains - gain) ** 2 / weights.sum()
        pooled.append(
            ActuatorResponse(
                joint=name,
                gain=gain,
                # What the recordings differ by counts, too.
                gain_std=float(np.sqrt(variance)),
                dead_time_s=float(np.median([one.lag.dead_time_s for one in known])),
                time_constant_s=float(np.median([one.lag.time_constant_s for one in known])),
                inertia=float(np.median([one.inertia for one in known])),
                effort_max=float(np.median(limits)) if limits else None,
                period_s=_period(chosen),
            )
        )
    return tuple(pooled)


GAIN_STD_MIN = 1e-3
"""Minimum standard deviation of a recording's gain that is weighed."""


def _responses(logs: Sequence[RobotLog]) -> list[Found]:
    """Return the recordings that identify the response of any joint."""
    found = [(log, effort_response(log)) for log in logs]
    return [(log, responses) for log, responses in found if any(responses)]


def _main_rate(found: Sequence[Found]) -> list[Found]:
    """Return the recordings of the rate that most of them have; of two rates with as many, those of the faster."""
    groups = [[other for other in found if _similar(_period([one]), _period([other]))] for one in found]
    return max(groups, key=lambda group: (len(group), -_period(group))) if groups else []


def _period(found: Sequence[Found]) -> float:
    """Return the median sampling period [s]."""
    return float(np.median(np.concatenate([np.diff(log.time) for log, _ in found])))


def _lag_periods(found: Sequence[Found], chosen: Sequence[Found]) -> Interval:
    """Return the change of the lag per change of the loop's period."""
    others = [one for one in found if not _similar(_period([one]), _period(chosen))]
    here, there = _lag(chosen), _lag(others)
    if here is not None and there is not None:
        apart_s = _period(others) - _period(chosen)
        slope = (there.mean_s - here.mean_s) / apart_s
        doubt = float(np.hypot(here.p99_s - here.mean_s, there.p99_s - there.mean_s)) / abs(apart_s)
        return Interval(value=slope, lo=slope - doubt, hi=slope + doubt)
    # Sensors and commands are often exchanged in one message, so that a command takes effect one loop period later. At
    # one rate, whole periods within the dead time cannot be told from a constant delay.
    dead = [response.lag.dead_time_s / _period(chosen) for _, found in chosen for response in found if response]
    # A command that changes once per period shows the dead time to a quarter of a period at best.
    whole = float(np.floor(np.median(dead) + 0.25))
    return Interval(value=0.5 * whole, lo=0.0, hi=whole)


def _similar(one: float, other: float) -> bool:
    return max(one, other) <= SIMILAR_PERIOD * min(one, other)


def _lag(found: Sequence[Found]) -> LagSummary | None:
    return lag_summary(response.lag for _, responses in found for response in responses if response is not None)
