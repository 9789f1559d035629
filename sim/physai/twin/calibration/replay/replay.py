"""Score a twin by open-loop replay of recordings from measured states."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sim.engines.mujoco import quiet_model
from physai.sim.robots import Robot
from physai.twin.calibration.replay.bootstrap import Resamples, interval
from physai.twin.calibration.replay.drive import Responses, choose_drive, responses_of, servo_gain_factors
from physai.twin.calibration.replay.pose import channel_names
from physai.twin.calibration.replay.random_effects import RandomEffects
from physai.twin.calibration.replay.simulate import Simulator
from physai.twin.calibration.replay.touch import touching
from physai.twin.calibration.replay.windows import Windows, cut
from physai.twin.logs import LogError, RobotLog
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Interval
from physai.twin.parameters.parameters import OFFSET_STD, Drive, LogChannel, channel

Array = npt.NDArray[np.float64]

WINDOW_S = 0.25
WINDOW_MIN_S, WINDOW_MAX_S = 0.01, 5.0
STARTS = 4
"""Overlapping windows per window length; they average over errors of the measured start states."""
STRETCH = 2.0
"""Length of the resampled stretches in window lengths; longer than the overlap of windows from two stretches."""
WINDOWS_AT_ONCE = 1000
"""Maximum number of windows per simulation, to limit memory."""
OFFSET_WINDOWS, OFFSET_WINDOWS_EACH = 600, 40
"""Number of windows from which offsets are estimated, at least so many per recording: their derivatives take three
replays per joint, and more windows make an offset no more certain than a score needs."""
DIVERGED = 100.0
"""Error assigned to a diverged world [rad or m]."""


@dataclass(frozen=True)
class ReplayScore:
    """Errors of W windows for a robot with J joints and C coordinates; see `Windows`."""

    windows: Windows
    joint_names: tuple[str, ...]
    """Names of the S scored errors: `base.position` and `base.rotation` of a floating base, then the joints."""
    squared: Array
    """Mean square position error of each window [rad² or m²], shape (W, S)."""
    seed: int
    positions: Array
    """Positions of the twin at the samples of `windows`, shape (W, M, C)."""
    offsets: Array
    """Measured minus true position that the R recordings show under this model [rad or m], shape (R, J)."""
    offset_std: Array
    """Standard deviation of the offsets given the model, shape (R, J)."""
    effects: RandomEffects
    """What start states and offsets explain of the errors."""
    squared_at_zero: Array
    """As `squared`, with the recordings' own zeros: offsets of 0."""

    @property
    def rmse(self) -> tuple[Interval, ...]:
        """Root mean square error per joint [rad or m], with its 95 % bootstrap interval."""
        return _intervals(np.sqrt(self.squared.mean(axis=0)), self._resamples().rmse(self.squared))

    @property
    def rmse_at_zero(self) -> Array:
        """Root mean square error per joint with the recordings' own zeros [rad or m], shape (S,)."""
        return np.sqrt(self.squared_at_zero.mean(axis=0))

    def at_zero(self) -> "ReplayScore":
        """Return the score with the recordings' own zeros."""
        return replace(self, squared=self.squared_at_zero)

    def gain_over(self, other: "ReplayScore") -> tuple[Interval, ...]:
        """Return the other's error minus this one's per joint, paired by window; above 0 this one is better.

        Raises:
            LogError: the scores are of different windows.
        """
        self._require_same_windows(other)
        # The same resamples for both scores: their difference varies far less than either of them.
        resamples = self._resamples()
        draws = resamples.rmse(other.squared) - resamples.rmse(self.squared)
        values = np.sqrt(other.squared.mean(axis=0)) - np.sqrt(self.squared.mean(axis=0))
        return _intervals(values, draws)

    def apart_from(self, other: "ReplayScore") -> tuple[bool, ...]:
        """Whether the 95 % intervals of the two errors are disjoint, per joint."""
        return tuple(mine.hi < its.lo or its.hi < mine.lo for mine, its in zip(self.rmse, other.rmse, strict=True))

    def ratio_to(self, other: "ReplayScore") -> Interval:
        """Return this error relative to the other's, geometric mean over the joints, paired by window.

        Raises:
            LogError: the scores are of different windows.
        """
        self._require_same_windows(other)
        resamples = self._resamples()
        draws = _ratio(resamples.rmse(self.squared), resamples.rmse(other.squared))
        value = _ratio(np.sqrt(self.squared.mean(axis=0)), np.sqrt(other.squared.mean(axis=0)))
        return interval(float(value), draws)

    def _require_same_windows(self, other: "ReplayScore") -> None:
        if not np.array_equal(self.windows.target, other.windows.target):
            raise LogError("scores of different recordings or joints cannot be compared pair by pair")

    def _resamples(self) -> Resamples:
        stretch_s = STRETCH * self.windows.window_s
        return Resamples(self.windows.log_index, (self.windows.start_s / stretch_s).astype(np.int64), self.seed)

    def per_log(self) -> dict[str, Array]:
        """Return the root mean square error per joint by recording."""
        index = self.windows.log_index
        return {
            log.name: np.sqrt(self.squared[index == number].mean(axis=0))
            for number, log in enumerate(self.windows.logs)
        }


def _ratio(one: Array, other: Array) -> Array:
    """Return the geometric mean of ratios over the last axis."""
    tiny = np.finfo(np.float64).tiny
    return np.exp(np.log(np.maximum(one, tiny) / np.maximum(other, tiny)).mean(axis=-1))


def _intervals(values: Array, draws: Array) -> tuple[Interval, ...]:
    """Return the interval of each joint, from values (J,) and resampled values (RESAMPLES, J)."""
    return tuple(interval(float(value), drawn) for value, drawn in zip(values, draws.T, strict=True))


def score_record(score: ReplayScore) -> dict[str, Any]:
    """Convert a score to JSON values: `rmse.<joint>` with `lo` and `hi`, and each recording's errors."""
    names = score.joint_names
    return {
        "window_s": score.windows.window_s,
        "windows": len(score.windows),
        "rmse": {
            name: {"value": error.value, "lo": error.lo, "hi": error.hi}
            for name, error in zip(names, score.rmse, strict=True)
        },
        "rmse_at_zero": dict(zip(names, score.rmse_at_zero.tolist(), strict=True)),
        "motion": dict(zip(names, (float(x) for x in score.windows.motion()), strict=True)),
        "logs": {
            log: dict(zip(names, (float(x) for x in errors), strict=True)) for log, errors in score.per_log().items()
        },
        "joint_pos_offset": {
            log.name: {
                name: {"value": float(value), "std": float(std)}
                for name, value, std in zip(log.joint_names, values, stds, strict=True)
            }
            for log, values, stds in zip(score.windows.logs, score.offsets, score.offset_std, strict=True)
        },
    }


def replay(
    model_or_twin: Any,
    robot: Robot,
    logs: Sequence[RobotLog],
    *,
    window_s: float = WINDOW_S,
    seed: int = 0,
    num_threads: int = 0,
    drive: Drive | None = None,
) -> ReplayScore:
    """Score a model or a twin on recordings.

    Every window starts at its measured state and runs open loop under the recorded input. A new window starts every
    quarter of a window.

    Args:
        model_or_twin: a compiled model of the robot, or its twin.
        robot: the recorded robot.
        logs: recordings in the robot's joint order.
        window_s: length of a window [s].
        seed: seed of the bootstrap.
        num_threads: threads; 0 for one per available processor.
        drive: input of the replay; by default that of `choose_drive`. From commands, a twin that was fitted to measured
            efforts applies the measured response of its motors between command and effort, and a model an ideal one.

    Raises:
        LogError: the recordings are of another robot, too short, or do not fit the robot's actuators.
        TwinError: the twin's robot file is missing or has changed.
    """
    require_logs_of(robot, logs)
    if not WINDOW_MIN_S <= window_s <= WINDOW_MAX_S:
        raise PhysaiError(f"`window_s` must lie in {WINDOW_MIN_S:g} … {WINDOW_MAX_S:g} s, got {window_s:g}")
    windows = windows_of(robot, logs, window_s, stride_s=window_s / STARTS)
    twin = model_or_twin if isinstance(model_or_twin, Twin) else None
    names = () if twin is None else tuple(parameter.name for parameter in twin.parameters)
    values = np.zeros((1, 0)) if twin is None else twin.values[None]
    responses = None
    if drive == "command" and choose_drive(robot, logs) == "effort":
        responses = [responses_of(twin, log) for log in logs]
    model: Any = model_or_twin if twin is None else twin.model()
    if twin is not None and responses is not None:
        twin.add_motor_inertia(model)
    return score_windows(
        model,
        channel(robot.spec.joint_names, names, values),
        robot,
        windows,
        seed=seed,
        num_threads=num_threads,
        responses=responses,
    )


def windows_of(robot: Robot, logs: Sequence[RobotLog], window_s: float, *, stride_s: float) -> Windows:
    """Cut recordings of a robot into windows, see `cut`."""
    return cut(
        logs,
        window_s,
        stride_s=stride_s,
        effort_limits=[joint.effort_limit for joint in robot.spec.joints],
        touching=partial(touching, robot) if robot.spec.base == "floating" else None,
    )


def score_windows(
    model: Any,
    through: LogChannel,
    robot: Robot,
    windows: Windows,
    *,
    seed: int,
    num_threads: int,
    responses: Sequence[Responses] | None = None,
    like: ReplayScore | None = None,
) -> ReplayScore:
    """Score one model on windows; see `replay` and `Simulator`.

    The encoder's zero is set anew for each recording, so it is no error of the model. Each half of a recording is
    replayed with the offsets that the other half shows: no window is scored with what was estimated from it.

    Args:
        model: compiled model.
        through: delay and biases.
        robot: the recorded robot.
        windows: the windows.
        seed: seed of the bootstrap.
        num_threads: threads; 0 for one per available processor.
        responses: of the motors in each recording, to replay from commands.
        like: score of a similar model on the same windows, of which derivatives by start states and offsets are kept.
    """
    drive = choose_drive(robot, windows.logs)
    factors = servo_gain_factors(robot, windows.logs, drive)
    quiet = quiet_model(model)
    threads = num_threads or len(os.sched_getaffinity(0))

    def positions_of(whole: Windows) -> Array:
        parts: list[Array] = []
        for chosen in np.array_split(np.arange(len(whole)), -(-len(whole) // WINDOWS_AT_ONCE)):
            part = whole.subset(chosen)
            gains = None if factors is None else factors[part.log_index]
            simulator = Simulator(quiet, part, drive, num_threads=threads, gains=gains, responses=responses)
            parts.append(simulator.positions({}, through)[0])
        return np.concatenate(parts)

    def errors_of(moved: Windows) -> Array:
        return positions_of(moved) - moved.target

    half = _halves(windows)
    count = min(len(windows), max(OFFSET_WINDOWS, OFFSET_WINDOWS_EACH * len(windows.logs)))
    chosen = np.unique(np.linspace(0, len(windows) - 1, count).round().astype(np.int64))
    effects = RandomEffects(errors_of, windows.subset(chosen)) if like is None else like.effects.of_errors(errors_of)
    by_half = effects.estimate(effects.grouped(half[chosen], 2 * len(windows.logs)))
    scored = replace(windows, offset=by_half[half ^ 1])

    def squared_errors(positions: Array) -> Array:
        error = np.where(np.isfinite(positions), positions - windows.target, DIVERGED)
        # Clipped, so that a world on the way to divergence cannot outweigh all others.
        return windows.by_channel((np.clip(error, -DIVERGED, DIVERGED) ** 2).mean(axis=1))

    positions = positions_of(scored)
    squared = squared_errors(positions)
    # Of a similar model, nothing asks for it.
    plain = squared_errors(positions_of(windows)) if like is None and scored.offset.any() else squared
    offsets, std = effects.estimate(), OFFSET_STD * effects.offsets.std
    names = channel_names(robot.spec.joint_names, windows.base is not None)
    return ReplayScore(scored, names, squared, seed, positions, offsets, std, effects, plain)


def _halves(windows: Windows) -> npt.NDArray[np.int64]:
    """Return a number for each half of each recording: twice the recording's, plus 1 in the second half, shape (W,)."""
    half = 2 * windows.log_index
    for log in np.unique(windows.log_index):
        own = np.flatnonzero(windows.log_index == log)
        half[own[len(own) // 2 :]] += 1
    return half


def require_logs_of(robot: Robot, logs: Sequence[RobotLog]) -> None:
    """Require recordings of this robot, and a robot that can be replayed.

    Raises:
        LogError: they are not.
    """
    if not logs:
        raise LogError("no recordings given; name at least one file")
    for log in logs:
        if log.joint_names != robot.spec.joint_names:
            raise LogError(
                f"log {log.name} has the joints {', '.join(log.joint_names)}, robot {robot.name} has "
                f"{', '.join(robot.spec.joint_names)}: it is a recording of another robot"
            )
    without = [log.name for log in logs if log.base is None]
    if robot.spec.base == "floating" and without:
        raise LogError(
            f"robot {robot.name} has a floating base, whose motion log {without[0]} does not contain; map its pose "
            "(`base` in the column map), or suspend the robot, record, and calibrate a model with a fixed base"
        )
    model: Any = robot.model
    slow = float(model.opt.timestep)
    if not slow <= 0.02:
        raise LogError(f"robot {robot.name}: a time step of {slow:g} s is too long to replay; give 0.02 s or less")
    if int(model.na):
        raise LogError(f"robot {robot.name}: its actuators have internal states, which recordings do not contain")
