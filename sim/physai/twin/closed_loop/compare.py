"""Test whether recorded runs and those of a twin differ: success, time, trajectories, speeds and commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from physai.sdk.stats.two_sample import (
    centred,
    detectable_rate_difference,
    detectable_shift,
    excess_distances,
    rank_p_value,
    rate_difference_p_value,
)
from physai.sim.tasks.task import Task
from physai.twin.closed_loop.runs import Runs, commanded_joints
from physai.twin.model.closed_loop_evidence import (
    OUTPUTS,
    POWER,
    SIGNIFICANCE,
    SUCCESS,
    TIME,
    TRAJECTORIES,
    ClosedLoopTest,
)

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MARGIN = 0.1
"""Negligible difference, relative to the recorded value; of trajectories, to the recorded motion."""
NEEDED = 2.0
"""A test counts as powerful where it would have found a difference of this many margins."""
RATE_NEEDED = 0.5
"""The test of success counts as powerful where it would have found this difference."""
OUTPUTS_NEEDED = 0.5
"""The test of speeds and commands counts as powerful where it would have found this difference, relative to the
recorded value: a controller that balances commands little and irregularly."""
OUTPUT_FLOOR, OUTPUT_LEAST, OUTPUT_MOST = 0.1, 1e-9, 1e6
"""Least recorded value to which a speed's or a command's difference is relative, as a share of the greatest speed or
command: noise of a joint at rest does not count. Where all are 0 throughout, the least one, and the greatest result."""
MOTION_FLOOR = 0.1
"""Least motion by which trajectories are scaled [rad or m], so that noise of a joint at rest does not count."""
PERIODS_FLOOR = 2.0
"""Negligible difference of a time in control periods."""
MAX_MOMENTS = 100
"""Greatest number of moments of a trajectory that are compared."""

SUCCESS_SHARE, OTHER_SHARE = 1.0 / 3.0, 2.0 / 9.0
"""Shares of the significance that the test of success has, and each of the three others (weighted Bonferroni)."""
SUCCESS_LEVEL, OTHER_LEVEL = SUCCESS_SHARE * SIGNIFICANCE, OTHER_SHARE * SIGNIFICANCE
"""Greatest p-values with which they contradict a twin."""

MIN_SETS = 10
"""Least number of data sets of which trajectories are compared."""

Outcome = Literal["succeeded", "failed"]


@dataclass(frozen=True)
class RunComparison:
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


def compare(task: Task, real: Runs, twin: Runs) -> RunComparison:
    """Compare L recorded runs with K · L of a twin, all recordings of a draw one after another.

    Outcomes are compared first. Times, trajectories, speeds and commands are compared among those runs that ended like
    most recorded ones: how a failed run goes on has nothing to do with how a successful one does.
    """
    count = len(real)
    real_success = real.succeeded(task.success.hold_s)
    twin_success = twin.succeeded(task.success.hold_s).reshape(-1, count)
    most = bool(real_success.mean() >= 0.5)
    sets = _Sets.of(real, twin, real_success == most, twin_success == most)
    names, joints = task.contract.robot.joint_names, commanded_joints(task.contract)
    sizes = {(f"speed of {name}", "rad/s or m/s"): _sizes(sets.runs.speed[:, :, j]) for j, name in enumerate(names)}
    for c, j in enumerate(joints):
        sizes[f"command of {names[j]}", "rad, m, N·m or N"] = _sizes(sets.runs.command[:, :, c])
    informing = [_mean_test(sets, values, name[:64], unit) for (name, unit), values in sizes.items()]
    outputs = _outputs(sets, informing, list(sizes.values()))
    success, others = _success(real_success, twin_success), (_time(sets, most), _trajectories(sets), outputs)
    for_information = [test.model_copy(update={"decides": False}) for test in informing]
    tests = (_adjusted(success, SUCCESS_SHARE), *(_adjusted(one, OTHER_SHARE) for one in others), *for_information)
    return RunComparison(real_success, twin_success, "succeeded" if most else "failed", tests, sets.spreads)


@dataclass(frozen=True)
class _Sets:
    """Runs of the compared outcome: G data sets of L starts; the first is the recorded one, then one per draw."""

    runs: Runs
    """G · L runs, all starts of a data set one after another."""
    known: Bools
    """Where the run ended like those that are compared, shape (G, L); everywhere in the first data set."""
    spreads: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    @classmethod
    def of(cls, real: Runs, twin: Runs, real_alike: Bools, twin_alike: Bools) -> "_Sets":
        """Keep the starts of recorded runs of the compared outcome, and the draws with a run of it.

        Recorded runs are at least half of that outcome. A draw without any differs in success, not in these.
        """
        starts = np.flatnonzero(real_alike)
        draws = np.flatnonzero(twin_alike[:, starts].any(axis=1))
        rows = (draws[:, None] * twin_alike.shape[1] + starts).ravel()
        known = np.concatenate([np.ones((1, len(starts)), bool), twin_alike[np.ix_(draws, starts)]])
        one, other = real.subset(starts), twin.subset(rows)
        names = ("position", "speed", "command", "held", "ended")
        joined = {name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in names}
        return cls(replace(one, **joined), known)

    def means(self, values: Array) -> Array:
        """Return the mean of a property of runs in each data set, shape (G,), relative to all runs from each start."""
        table = np.where(self.known, values.reshape(self.known.shape), 0.0)
        # What differs between starts must not matter where draws lack different ones.
        centre = table.sum(axis=0) / self.known.sum(axis=0)
        return np.where(self.known, table - centre, 0.0).sum(axis=1) / self.known.sum(axis=1)


def _adjusted(test: ClosedLoopTest, share: float) -> ClosedLoopTest:
    return test.model_copy(update={"p_value": min(1.0, test.p_value / share)})


def _success(real: Bools, twin: Bools) -> ClosedLoopTest:
    successes, trials, rate = int(real.sum()), len(real), float(twin.mean())
    return ClosedLoopTest(
        name=SUCCESS,
        real=successes / trials,
        twin=rate,
        difference=rate - successes / trials,
        p_value=rate_difference_p_value(successes, trials, twin.mean(axis=1)),
        margin=0.0,
        detectable=detectable_rate_difference(trials, rate, SUCCESS_LEVEL, POWER),
        needed=RATE_NEEDED,
    )


def _time(sets: _Sets, succeeded: bool) -> ClosedLoopTest:
    runs = sets.runs
    test = _mean_test(sets, runs.settled_s if succeeded else runs.length_s, TIME, "s")
    margin = max(test.margin, PERIODS_FLOOR * runs.control_dt)
    return test.model_copy(update={"margin": margin, "needed": NEEDED * margin})


def _sizes(series: Array) -> Array:
    """Root mean square of each run's series, (R, M) to (R,)."""
    known = np.isfinite(series)
    squares = np.where(known, series, 0.0) ** 2
    return np.sqrt(squares.sum(axis=1) / np.maximum(known.sum(axis=1), 1))


def _outputs(sets: _Sets, tests: Sequence[ClosedLoopTest], sizes: Sequence[Array]) -> ClosedLoopTest:
    """Test of all speeds and commands together: the one that is furthest from the twin's, in their deviations there.

    Args:
        sets: the data sets.
        tests: of each output alone.
        sizes: root mean squares of each, shape (R,).
    """
    draws, means = len(sets.known) - 1, np.stack([sets.means(values) for values in sizes])
    apart = np.stack([centred(each) for each in means])
    scale = np.sqrt((apart[:, 1:] ** 2).mean(axis=1)) if draws > 1 else np.ones(len(apart))
    scale = np.maximum(scale, np.finfo(np.float64).tiny)
    statistics = (apart / scale[:, None]).max(axis=0)
    most = {test.unit: max(one.real for one in tests if one.unit == test.unit) for test in tests}
    recorded = [max(test.real, OUTPUT_FLOOR * most[test.unit], OUTPUT_LEAST) for test in tests]
    shares = np.clip(
        [test.difference / real for test, real in zip(tests, recorded, strict=True)], -OUTPUT_MOST, OUTPUT_MOST
    )
    # Only one that is relevant contradicts: a negligible difference may be significant, and another one chance.
    relevant = np.abs(shares) > MARGIN
    if relevant.any():
        statistics[0] = (apart[:, 0] / scale)[relevant].max()
    each = [_detectable_mean(row, statistics[1:]) for row in means[:, 1:] / scale[:, None]]
    known = [shift * size / real for shift, size, real in zip(each, scale, recorded, strict=True) if shift is not None]
    return ClosedLoopTest(
        name=OUTPUTS,
        unit="of the recorded",
        real=0.0,
        twin=None if draws < 2 else float(statistics[0]),
        difference=max(shares.tolist(), key=abs),
        p_value=rank_p_value(statistics) if draws > 1 else 1.0,
        margin=MARGIN,
        detectable=min(OUTPUT_MOST, max(known)) if len(known) == len(each) else None,
        needed=OUTPUTS_NEEDED,
    )


def _mean_test(sets: _Sets, values: Array, name: str, unit: str) -> ClosedLoopTest:
    means = sets.means(values)
    statistics, drawn = centred(means), means[1:] - means[0]
    real = float(values[: sets.known.shape[1]].mean())
    difference = float(drawn.mean()) if len(drawn) else 0.0
    if len(drawn):
        lower, upper = (real + np.quantile(drawn, (0.025, 0.975))).tolist()
        sets.spreads[name] = lower, upper
    margin = MARGIN * abs(real)
    return ClosedLoopTest(
        name=name,
        unit=unit,
        real=real,
        twin=real + difference if len(drawn) else None,
        difference=difference,
        # Without a comparable run in the twin, the test of success says what there is to say.
        p_value=rank_p_value(statistics) if len(drawn) > 1 else 1.0,
        margin=margin,
        detectable=_detectable_mean(means[1:], statistics[1:]),
        needed=NEEDED * margin,
    )


def _detectable_mean(means: Array, statistics: Array) -> float | None:
    """The difference that would be found in either direction."""
    if not len(means):
        return None
    apart = means - means.mean()
    found = [detectable_shift(statistics, side, OTHER_LEVEL, POWER) for side in (apart, -apart)]
    return max((shift for shift in found if shift is not None), default=None)


def _trajectories(sets: _Sets) -> ClosedLoopTest:
    few = len(sets.known) < MIN_SETS
    statistics = np.zeros(len(sets.known)) if few else excess_distances(_distances(sets))
    return ClosedLoopTest(
        name=TRAJECTORIES,
        unit="of the motion",
        real=0.0,
        twin=None if few else float(statistics[0]),
        difference=float(statistics[0]),
        p_value=1.0 if few else rank_p_value(statistics),
        margin=MARGIN,
        detectable=None if few else detectable_shift(statistics[1:], statistics[1:], OTHER_LEVEL, POWER),
        needed=NEEDED * MARGIN,
    )


def _distances(sets: _Sets) -> Array:
    """Return the mean distance of two data sets' runs from the same start, shape (G, G).

    The distance of two runs is the root mean square over moments and joints of the difference of positions, relative
    to the joint's motion: the standard deviation of its recorded positions. A run that has ended stays where it was.
    """
    position = sets.runs.position[:, :: -(-sets.runs.position.shape[1] // MAX_MOMENTS)]
    moments: npt.NDArray[np.int64] = np.arange(position.shape[1], dtype=np.int64)[:, None]
    last = np.maximum.accumulate(np.where(np.isfinite(position[:, :, :1]), moments, 0), axis=1)
    held = np.take_along_axis(position, np.broadcast_to(last, position.shape), axis=1)
    groups, starts = sets.known.shape
    motion = np.maximum(held[:starts].std(axis=(0, 1)), MOTION_FLOOR)
    points = (held / motion).reshape(groups, starts, -1) / np.sqrt(held.shape[1] * held.shape[2])
    total, pairs = np.zeros((groups, groups)), np.zeros((groups, groups))
    for start in range(starts):
        here = sets.known[:, start]
        # Centred first: squares of large numbers would cost digits of their difference.
        part = points[:, start] - points[0, start]
        squares = (part**2).sum(axis=1)
        apart = np.sqrt(np.maximum(squares[:, None] + squares[None] - 2.0 * part @ part.T, 0.0))
        both = np.outer(here, here)
        total += np.where(both, apart, 0.0)
        pairs += both
    # Draws without a common start are as far apart as draws are on average.
    typical = total.sum() / pairs.sum()
    distances = np.where(pairs > 0, total / np.maximum(pairs, 1.0), typical)
    np.fill_diagonal(distances, 0.0)
    return distances
