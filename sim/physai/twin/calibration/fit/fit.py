"""Fit in stages: selects parameters and windows and keeps to a budget of physics steps."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from physai.sim.robots import Robot
from physai.twin.calibration.fit.identifiability import Indices, covariance, identified
from physai.twin.calibration.fit.problem import Evaluation, Problem
from physai.twin.calibration.measured import error_floors
from physai.twin.calibration.replay.windows import Windows
from physai.twin.model.credibility import FLOOR_STDS
from physai.twin.parameters.parameters import Drive, Parameter

Array = npt.NDArray[np.float64]

SHORT_WINDOW_S = 0.1
"""Window length of the first stage [s]. Errors of short windows are nearly linear in the parameters, so the fit
converges from a poor nominal model; longer windows then reveal errors that accumulate."""
ROUNDS = 3
"""Maximum number of revisions of the parameter selection."""
BUDGET_STEPS = 30_000_000
"""Default number of physics steps that a fit may simulate: about two minutes on two cores for a double pendulum."""
FIT_SHARE = 0.8
"""Share of the budget that the expected search takes; the rest is for more revisions than expected."""
EVALUATIONS = 200
"""Expected simulations of all windows in the last stage, in addition to those per parameter."""
MIN_WINDOWS = 60
"""Minimum number of windows regardless of the budget."""
FIRST_WINDOWS = 100
"""Number of windows in all stages except the last, to start that one close to the solution."""


@dataclass(frozen=True, kw_only=True)
class FitProgress:
    """Progress of a fit."""

    stage: str
    evaluations: int
    rmse: Array
    """Error of the best point so far, per joint [rad or m]."""
    parameters: int
    """Number of parameters being fitted."""
    share: float
    """Share of the budget's physics steps that are simulated."""


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


class _BudgetSpentError(Exception):
    """The steps or the time for the fit are spent."""


@dataclass
class _Monitor:
    """Tracks the best point, checks the budget and reports progress."""

    budget_steps: int
    time_budget_s: float
    report: Callable[[FitProgress], None]
    # The same clock as below: bound here, it would stay the real one where a test replaces it.
    started_s: float = field(default_factory=lambda: time.monotonic())
    stage: str = ""
    chosen: Indices = field(default_factory=lambda: np.arange(0))
    """Parameters being fitted, or fitted last."""
    best: Evaluation | None = None
    evaluations: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])
    """All problems that the fit simulates."""
    history: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])

    @property
    def steps(self) -> int:
        """Number of physics steps so far."""
        return sum(problem.steps for problem in self.problems)

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
                parameters=len(self.chosen),
                share=min(1.0, self.steps / self.budget_steps),
            )
        )
        if self.steps >= self.budget_steps:
            raise _BudgetSpentError(f"its {self.budget_steps:,} physics steps were spent")
        if not time.monotonic() - self.started_s < self.time_budget_s:
            raise _BudgetSpentError("the time was up")


def fit(
    robot: Robot,
    parameters: Sequence[Parameter],
    windows: Windows,
    drive: Drive,
    *,
    budget_steps: int = BUDGET_STEPS,
    time_budget_s: float = math.inf,
    num_threads: int,
    report: Callable[[FitProgress], None],
) -> Fit:
    """Fit the parameters to the windows; on Ctrl-C or at the end of the budget, return the best result so far.

    The stages use short windows, then some whole windows, then all. Each stage alternates between selecting the
    parameters that the recordings constrain and fitting them, because a better model identifies more.

    Without a time budget the result does not depend on the speed of the computer, or on what else it does.
    """
    monitor = _Monitor(budget_steps=budget_steps, time_budget_s=time_budget_s, report=report)
    values = np.array([parameter.prior for parameter in parameters])
    notes: list[str] = []

    def problem_of(part: Windows) -> Problem:
        problem = Problem(robot, parameters, part, drive, num_threads=num_threads)
        monitor.problems.append(problem)
        return problem

    kept = _affordable(windows, problem_of(windows).steps_per_window, len(parameters), budget_steps)
    if len(kept) < len(windows):
        notes.append(
            f"{len(kept)} of {len(windows)} windows were fitted, to stay within {budget_steps:,} physics steps"
        )
    whole = problem_of(kept)
    first, stages = kept.thinned(FIRST_WINDOWS), [("whole windows", whole)]
    if len(first) < len(kept):
        stages.insert(0, ("some windows", problem_of(first)))
    if windows.window_s > 1.5 * SHORT_WINDOW_S:
        stages.insert(0, ("short windows", problem_of(first.shortened(SHORT_WINDOW_S))))
    try:
        for name, problem in stages:
            values = _stage(name, problem, values, monitor)
    except (_BudgetSpentError, KeyboardInterrupt) as end:
        reason = str(end) if isinstance(end, _BudgetSpentError) else "it was interrupted"
        notes.append(f"the fit ended early, as {reason}, after {monitor.evaluations} evaluations, with the best so far")
        if monitor.best is not None:
            values = monitor.best.values
    # The weights belong to the final values, on which the covariance depends.
    whole.measure_spread(values)
    return Fit(
        values=values,
        chosen=monitor.chosen,
        covariance=covariance(whole.linearise(values), monitor.chosen, _misfit(whole)),
        notes=tuple(notes),
        windows=len(kept),
        history=tuple(monitor.history),
    )


def _misfit(problem: Problem) -> float:
    """Return the share of the errors' variance, without start states, that noise of the sensors does not explain."""
    noise = np.array(error_floors(problem.windows.logs)) / FLOOR_STDS
    explained = noise**2 / problem.windows.by_channel(problem.spread**2)
    return float(np.clip(1.0 - explained, 0.0, 1.0).mean())


def refit(
    name: str,
    problem: Problem,
    values: Array,
    *,
    budget_steps: int,
    time_budget_s: float = math.inf,
    report: Callable[[FitProgress], None] = lambda step: None,
) -> Array:
    """Fit one problem, starting at the given values, until its physics steps or time are spent; return the best."""
    monitor = _Monitor(budget_steps=budget_steps, time_budget_s=time_budget_s, report=report, problems=[problem])
    try:
        return _stage(name, problem, values, monitor)
    except _BudgetSpentError:
        return values if monitor.best is None else monitor.best.values


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


def _affordable(windows: Windows, steps_per_window: int, parameters: int, budget_steps: int) -> Windows:
    """Thin the windows to as many as the budget allows."""
    wanted = FIT_SHARE * budget_steps / ((EVALUATIONS + 4 * parameters) * steps_per_window)
    return windows.thinned(max(MIN_WINDOWS, int(wanted)))
