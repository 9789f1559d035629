"""Fit in stages: selects parameters and windows and keeps to the time budget."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from physai.sim.calibration.fit.identifiability import Indices, covariance, identified
from physai.sim.calibration.fit.problem import Evaluation, Problem
from physai.sim.calibration.replay.windows import Windows
from physai.sim.robots import Robot
from physai.sim.twin.parameters import Drive, Parameter

Array = npt.NDArray[np.float64]

SHORT_WINDOW_S = 0.1
"""Window length of the first stage [s]. Errors of short windows are nearly linear in the parameters, so the fit
converges from a poor nominal model; longer windows then reveal errors that accumulate."""
ROUNDS = 3
"""Maximum number of revisions of the parameter selection."""
FIT_SHARE = 0.8
"""Share of the time budget for the search; the rest is for covariance and scores."""
EVALUATIONS = 200
"""Expected simulations of all windows in the last stage, in addition to those per parameter."""
MIN_WINDOWS = 60
"""Minimum number of windows regardless of the time budget."""
FIRST_WINDOWS = 100
"""Number of windows in all stages except the last, to start that one close to the solution."""


@dataclass(frozen=True, kw_only=True)
class FitProgress:
    """Progress of a fit."""

    stage: str
    evaluations: int
    rmse: Array
    """Error of the best point so far, per joint [rad or m]."""
    elapsed_s: float
    parameters: int
    """Number of parameters being fitted."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Result of a fit."""

    values: Array
    """Values of all P parameters."""
    chosen: Indices
    """Parameters that the recordings constrain."""
    covariance: Array
    """Covariance of all parameters in prior units, shape (P, P)."""
    notes: tuple[str, ...]
    windows: int
    """Number of fitted windows."""
    history: tuple[tuple[float, ...], ...]
    """Root mean square error per joint after each improvement."""


class _OutOfTimeError(Exception):
    """The time budget is spent."""


@dataclass
class _Monitor:
    """Tracks the best point, checks the time budget and reports progress."""

    deadline_s: float
    report: Callable[[FitProgress], None]
    started_s: float = field(default_factory=time.monotonic)
    stage: str = ""
    chosen: Indices = field(default_factory=lambda: np.arange(0))
    """Parameters being fitted, or fitted last."""
    best: Evaluation | None = None
    evaluations: int = 0
    history: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])

    def start(self, stage: str, chosen: Indices) -> None:
        self.stage, self.chosen, self.best = stage, chosen, None

    def __call__(self, evaluation: Evaluation) -> None:
        self.evaluations += 1
        if self.best is None or evaluation.cost < self.best.cost:
            self.best = evaluation
            self.history.append(tuple(float(x) for x in evaluation.rmse))
        self.report(
            FitProgress(
                stage=self.stage,
                evaluations=self.evaluations,
                rmse=self.best.rmse,
                elapsed_s=time.monotonic() - self.started_s,
                parameters=len(self.chosen),
            )
        )
        if not time.monotonic() < self.deadline_s:
            raise _OutOfTimeError


def fit(
    robot: Robot,
    parameters: Sequence[Parameter],
    windows: Windows,
    drive: Drive,
    *,
    time_budget_s: float,
    num_threads: int,
    report: Callable[[FitProgress], None],
) -> Fit:
    """Fit the parameters to the windows; on Ctrl-C or at the end of the time budget, return the best result so far.

    The stages use short windows, then some whole windows, then all. Each stage alternates between selecting the
    parameters that the recordings constrain and fitting them, because a better model identifies more.
    """
    started = time.monotonic()
    monitor = _Monitor(deadline_s=started + FIT_SHARE * time_budget_s, report=report)
    values = np.array([parameter.prior for parameter in parameters])
    notes: list[str] = []
    kept = _affordable(robot, parameters, windows, drive, time_budget_s, num_threads)
    if len(kept) < len(windows):
        notes.append(f"{len(kept)} of {len(windows)} windows were fitted, to stay within {time_budget_s:g} s")
    whole = Problem(robot, parameters, kept, drive, num_threads=num_threads)
    first, stages = kept.thinned(FIRST_WINDOWS), [("whole windows", whole)]
    if len(first) < len(kept):
        stages.insert(0, ("some windows", Problem(robot, parameters, first, drive, num_threads=num_threads)))
    if windows.window_s > 1.5 * SHORT_WINDOW_S:
        short = Problem(robot, parameters, first.shortened(SHORT_WINDOW_S), drive, num_threads=num_threads)
        stages.insert(0, ("short windows", short))
    try:
        for name, problem in stages:
            values = _stage(name, problem, values, monitor)
    except (_OutOfTimeError, KeyboardInterrupt) as end:
        reason = "the time was up" if isinstance(end, _OutOfTimeError) else "it was interrupted"
        notes.append(f"the fit ended early, as {reason}, after {monitor.evaluations} evaluations, with the best so far")
        if monitor.best is not None:
            values = monitor.best.values
    # The weights belong to the final values, on which the covariance depends.
    whole.measure_spread(values)
    return Fit(
        values=values,
        chosen=monitor.chosen,
        covariance=covariance(whole.linearise(values), monitor.chosen),
        notes=tuple(notes),
        windows=len(kept),
        history=tuple(monitor.history),
    )


def _stage(name: str, problem: Problem, values: Array, monitor: _Monitor) -> Array:
    """Select and fit until the selection is stable."""
    for number in range(ROUNDS):
        problem.measure_spread(values)
        chosen = identified(problem.linearise(values).information)
        # Fit at least twice, because a fit changes the weights of the errors.
        if number > 1 and np.array_equal(chosen, monitor.chosen):
            break
        start = problem.prior.copy()
        start[chosen] = values[chosen]
        monitor.start(name, chosen)
        values = problem.solve(start, chosen, monitor)
    return values


def _affordable(
    robot: Robot,
    parameters: Sequence[Parameter],
    windows: Windows,
    drive: Drive,
    time_budget_s: float,
    num_threads: int,
) -> Windows:
    """Thin the windows to as many as the time budget allows, by timing a few of them."""
    probe = windows.thinned(MIN_WINDOWS)
    problem = Problem(robot, parameters, probe, drive, num_threads=num_threads)
    prior = problem.prior[None]
    problem.errors(prior)  # untimed warm-up
    begun = time.monotonic()
    # Timed with several variants at once, because the fit mostly computes finite differences.
    problem.errors(np.repeat(prior, 4, axis=0))
    per_window = (time.monotonic() - begun) / (4 * len(probe))
    wanted = FIT_SHARE * time_budget_s / ((EVALUATIONS + 4 * len(parameters)) * per_window)
    return windows.thinned(max(MIN_WINDOWS, int(wanted)))
