"""Results of a sweep: a row per trial, points in order, and the best run."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from physai.cluster.sweep.folder import State, SweepFolder, SweepTrial
from physai.cluster.sweep.plan import Point, SweepError
from physai.sdk.base.files import oserror_as, write_atomic

CSV_FILE = "results.csv"


@dataclass(frozen=True)
class TrialResult:
    """Result of one trial."""

    trial: SweepTrial
    state: State
    value: float | None
    """Last known value of the metric; None before the first."""
    time: float
    """How long it trained, in the unit of the budget."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True)
class PointResult:
    """The trials of one point, one per seed."""

    number: int
    point: Point
    trials: tuple[TrialResult, ...]

    @property
    def values(self) -> list[float]:
        """Known values of the metric."""
        return [result.value for result in self.trials if result.value is not None]

    @property
    def mean(self) -> float | None:
        """Mean of the metric over the seeds; None if no value is known."""
        return sum(self.values) / len(self.values) if self.values else None

    @property
    def ended(self) -> int:
        """Seeds that trained to the end."""
        return sum(result.state == "ended" for result in self.trials)

    @property
    def best(self) -> TrialResult | None:
        """The best seed of those that trained to the end; None if there is none."""
        ended = [result for result in self.trials if result.state == "ended" and result.value is not None]
        return max(ended, key=lambda result: result.value or 0.0, default=None)


def trial_results(folder: SweepFolder) -> list[TrialResult]:
    """Read the run folders, in the order of trials."""
    found: list[TrialResult] = []
    for trial in folder.trials:
        curve = folder.curve(trial)
        known = [value for _, value in curve if math.isfinite(value)]
        found.append(
            TrialResult(
                trial,
                folder.state_of(trial),
                known[-1] if known else None,
                curve[-1][0] if curve else 0.0,
                folder.state.failed.get(trial.name, ""),
            )
        )
    return found


def ranked(results: Sequence[TrialResult]) -> list[PointResult]:
    """Points, best first: by how many of their seeds trained to the end, then by the mean of the metric.

    Values of trials that were stopped early say less than those of whole ones, so they come second.
    """
    points: dict[int, list[TrialResult]] = {}
    for result in results:
        points.setdefault(result.trial.number, []).append(result)
    found = [PointResult(number, group[0].trial.point, tuple(group)) for number, group in points.items()]

    def rank(point: PointResult) -> tuple[int, float]:
        return point.ended, -math.inf if point.mean is None else point.mean

    return sorted(found, key=rank, reverse=True)


def best_trial(points: Sequence[PointResult]) -> TrialResult | None:
    """The best seed of the best point; None if no trial trained to the end with a known value."""
    return next((point.best for point in points if point.best is not None), None)


def write_csv(folder: SweepFolder, results: Sequence[TrialResult]) -> None:
    """Write a row per trial to `results.csv`.

    Raises:
        SweepError: it cannot be written.
    """
    names = list(folder.record.sweep.parameters)
    metric, clock = folder.record.sweep.metric, folder.record.sweep.budget.clock
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["trial", "seed", "state", metric, clock, *names, "run"])
    for result in results:
        trial = result.trial
        value = "" if result.value is None else f"{result.value:.7g}"
        run = folder.run(trial).relative_to(folder.path)
        row = [trial.number, trial.seed, result.state, value, f"{result.time:g}"]
        writer.writerow([*row, *(trial.point[name] for name in names), run])
    with oserror_as(SweepError, f"cannot write {folder.path / CSV_FILE}"):
        write_atomic(folder.path / CSV_FILE, text.getvalue().encode())
