"""Sensor noise, loop period and command lag from recordings."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from physai.sim.logs import RobotLog, command_lag, lag_summary, sensor_noise
from physai.sim.logs.signals.lag import LagSummary
from physai.sim.logs.signals.noise import MIN_STILL_S
from physai.sim.logs.signals.speed import Speed, reading_step, speed_origin
from physai.sim.twin.record import Interval, JointReading, SensorNoise, Timing

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


def measured_timing(train: Sequence[RobotLog], held_out: Sequence[RobotLog] = ()) -> Timing:
    """Return pooled loop periods of all recordings, and the lag of their commands if identified.

    The lag is that of the fitted recordings, so that the held-out ones can contradict it; without one in them, that of
    the held-out recordings.
    """
    periods = np.concatenate([np.diff(log.time) for log in (*train, *held_out)])
    lag = _lag(train) or _lag(held_out)
    return Timing(
        command_lag_mean_s=None if lag is None else max(0.0, lag.mean_s),
        command_lag_p99_s=None if lag is None else max(0.0, lag.p99_s),
        period_median_s=float(np.median(periods)),
        period_p99_s=float(np.quantile(periods, 0.99)),
        period_max_s=float(periods.max()),
    )


def held_out_lag(train: Sequence[RobotLog], held_out: Sequence[RobotLog]) -> Interval | None:
    """Return the command lag in the held-out recordings [s], of those sampled about as fast as the fitted ones.

    None if either set of recordings does not identify one.
    """
    period_s = float(np.median(np.concatenate([np.diff(log.time) for log in train])))
    alike = [log for log in held_out if _similar(float(np.median(np.diff(log.time))), period_s)]
    lag = _lag(alike)
    if lag is None or _lag(train) is None:
        return None
    mean = max(0.0, lag.mean_s)
    return Interval(value=mean, lo=max(0.0, 2.0 * mean - lag.p99_s), hi=max(mean, lag.p99_s))


def _similar(one: float, other: float) -> bool:
    return max(one, other) <= SIMILAR_PERIOD * min(one, other)


def _lag(logs: Sequence[RobotLog]) -> LagSummary | None:
    return lag_summary(estimate for log in logs for estimate in command_lag(log))
