"""Test whether recorded runs and those of a twin differ: success, time, trajectories, speeds and commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from physai.sim.calibration.closed_loop.runs import Runs, commanded_joints
from physai.sim.stats.statistics import holm
from physai.sim.stats.two_sample import (
    centred,
    detectable_rate_difference,
    detectable_shift,
    energy_distances,
    rank_p_value,
    rate_difference_p_value,
)
from physai.sim.tasks.task import Task
from physai.sim.twin.closed_loop import POWER, SIGNIFICANCE, SUCCESS, TIME, TRAJECTORIES, ClosedLoopTest

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MARGIN = 0.1
"""Negligible difference, relative to the recorded value; of trajectories, to the recorded motion."""
NEEDED = 2.0
"""A test counts as powerful where it would have found a difference of this many margins."""
RATE_NEEDED = 0.5
"""The test of success counts as powerful where it would have found this difference."""
MOTION_FLOOR = 0.1
"""Least motion by which trajectories are scaled [rad or m], so that noise of a joint at rest does not count."""
PERIODS_FLOOR = 2.0
"""Negligible difference of a time in control periods."""
MAX_MOMENTS = 100
"""Greatest number of moments of a trajectory that are compared."""

ALONE = SIGNIFICANCE / 3.0
"""Greatest p-value with which one of the three deciding tests contradicts a twin, whatever the others find (Holm)."""

Outcome = Literal["succeeded", "failed"]


@dataclass(frozen=True)
class Comparison:
    """Recorded runs against the twin's."""

    real_success: Bools
    """Shape (L,)."""
    twin_success: Bools
    """Shape (K, L): K draws of the twin, each with one run per recording."""
    compared: Outcome
    """How the runs ended whose times and trajectories were compared."""
    tests: tuple[ClosedLoopTest, ...]
    spreads: dict[str, tuple[float, float]]
    """95 % interval of the draws' means by test, of those that compare a mean."""


def compare(task: Task, real: Runs, twin: Runs) -> Comparison:
    """Compare L recorded runs with K · L of a twin, all recordings of a draw one after another.

    Outcomes are compared first. Times, trajectories, speeds and commands are compared among those runs that ended like
    most recorded ones: how a failed run goes on has nothing to do with how a successful one does.
    """
    count = len(real)
    real_success = real.succeeded(task.success.hold_s)
    twin_success = twin.succeeded(task.success.hold_s).reshape(-1, count)
    most = bool(real_success.mean() >= 0.5)
    data_set = np.repeat(np.arange(1 + len(twin_success)), count)
    chosen = np.concatenate([real_success, twin_success.ravel()]) == most
    # The recorded runs are at least half of this kind; draws without any run of it differ in success, not in these.
    sets = _Sets.of(_joined(real, twin).subset(chosen), data_set[chosen])
    deciding = [_success(real_success, twin_success), _time(sets, most), _trajectories(sets)]
    names, joints = task.contract.robot.joint_names, commanded_joints(task.contract)
    informing = [
        *(_size(sets, sets.runs.speed[:, :, j], f"speed of {name}", "rad/s or m/s") for j, name in enumerate(names)),
        *(
            _size(sets, sets.runs.command[:, :, c], f"command of {names[j]}", "rad, m, N·m or N")
            for c, j in enumerate(joints)
        ),
    ]
    for_information = [test.model_copy(update={"decides": False}) for test in _adjusted(informing)]
    tests = (*_adjusted(deciding), *for_information)
    return Comparison(real_success, twin_success, "succeeded" if most else "failed", tests, sets.spreads)


@dataclass(frozen=True)
class _Sets:
    """Runs of the compared outcome in data sets: 0 the recorded one, then one per draw of the twin."""

    runs: Runs
    data_set: npt.NDArray[np.int64]
    """Number of each run's data set; every data set has a run."""
    spreads: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    @classmethod
    def of(cls, runs: Runs, data_set: npt.NDArray[np.int64]) -> "_Sets":
        """Number the data sets anew, without those of which no run is left."""
        return cls(runs, np.unique(data_set, return_inverse=True)[1].astype(np.int64))

    @property
    def count(self) -> int:
        """Number of data sets."""
        return int(self.data_set.max()) + 1

    def means(self, values: Array) -> Array:
        """Return the mean of a property of runs in each data set, shape (count,)."""
        return np.bincount(self.data_set, weights=values) / np.bincount(self.data_set)


def _joined(one: Runs, other: Runs) -> Runs:
    names = ("position", "speed", "command", "held", "ended")
    return replace(one, **{name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in names})


def _adjusted(tests: Sequence[ClosedLoopTest]) -> list[ClosedLoopTest]:
    adjusted = holm([test.p_value for test in tests])
    return [test.model_copy(update={"p_value": p}) for test, p in zip(tests, adjusted, strict=True)]


def _success(real: Bools, twin: Bools) -> ClosedLoopTest:
    successes, trials, rate = int(real.sum()), len(real), float(twin.mean())
    return ClosedLoopTest(
        name=SUCCESS,
        real=successes / trials,
        twin=rate,
        difference=rate - successes / trials,
        p_value=rate_difference_p_value(successes, trials, twin.mean(axis=1)),
        margin=0.0,
        detectable=detectable_rate_difference(trials, rate, ALONE, POWER),
        needed=RATE_NEEDED,
    )


def _time(sets: _Sets, succeeded: bool) -> ClosedLoopTest:
    runs = sets.runs
    test = _mean_test(sets, runs.settled_s if succeeded else runs.length_s, TIME, "s")
    margin = max(test.margin, PERIODS_FLOOR * runs.control_dt)
    return test.model_copy(update={"margin": margin, "needed": NEEDED * margin})


def _size(sets: _Sets, series: Array, name: str, unit: str) -> ClosedLoopTest:
    """Test of the root mean square of a series, shape (R, M)."""
    known = np.isfinite(series)
    squares = np.where(known, series, 0.0) ** 2
    return _mean_test(sets, np.sqrt(squares.sum(axis=1) / np.maximum(known.sum(axis=1), 1)), name[:64], unit)


def _mean_test(sets: _Sets, values: Array, name: str, unit: str) -> ClosedLoopTest:
    means = sets.means(values)
    statistics, drawn = centred(means), means[1:]
    real, twin = float(means[0]), float(drawn.mean()) if len(drawn) else 0.0
    if len(drawn):
        lower, upper = np.quantile(drawn, (0.025, 0.975)).tolist()
        sets.spreads[name] = lower, upper
    margin = MARGIN * abs(real)
    return ClosedLoopTest(
        name=name,
        unit=unit,
        real=real,
        twin=twin,
        difference=twin - real if len(drawn) else 0.0,
        # Without a comparable run in the twin, the test of success says what there is to say.
        p_value=rank_p_value(statistics) if len(drawn) > 1 else 1.0,
        margin=margin,
        detectable=detectable_shift(statistics[1:], ALONE, POWER),
        needed=NEEDED * margin,
    )


def _trajectories(sets: _Sets) -> ClosedLoopTest:
    statistics = energy_distances(_distances(sets), sets.data_set, sets.count)
    # The distance of a single run from others holds no spread to compare theirs with.
    few = int((sets.data_set == 0).sum()) < 2 or sets.count < 3
    found = 0.0 if few else float(statistics[0])
    return ClosedLoopTest(
        name=TRAJECTORIES,
        unit="of the motion",
        real=0.0,
        twin=found,
        difference=found,
        p_value=1.0 if few else rank_p_value(statistics),
        margin=MARGIN,
        detectable=None if few else detectable_shift(statistics[1:], ALONE, POWER),
        needed=NEEDED * MARGIN,
    )


def _distances(sets: _Sets) -> Array:
    """Return the distances of all pairs of runs, shape (R, R).

    Root mean square over moments and joints of the difference of positions, each relative to the joint's motion, the
    standard deviation of its recorded positions. A run that has ended stays where it was.
    """
    position = sets.runs.position[:, :: -(-sets.runs.position.shape[1] // MAX_MOMENTS)]
    moments = np.arange(position.shape[1])[:, None]
    last = np.maximum.accumulate(np.where(np.isfinite(position[:, :, :1]), moments, 0), axis=1)
    held = np.take_along_axis(position, np.broadcast_to(last, position.shape), axis=1)
    motion = np.maximum(held[sets.data_set == 0].std(axis=(0, 1)), MOTION_FLOOR)
    points = (held / motion).reshape(len(held), -1) / np.sqrt(held.shape[1] * held.shape[2])
    # Centred first: squares of large numbers would cost digits of their difference.
    points = points - points.mean(axis=0)
    squares = (points**2).sum(axis=1)
    squared = squares[:, None] + squares[None] - 2.0 * points @ points.T
    distances = np.sqrt(np.maximum(squared, 0.0))
    np.fill_diagonal(distances, 0.0)
    return distances
