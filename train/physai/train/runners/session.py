"""A training session: time budget, signals, checkpoints, logs, resume."""

import math
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

from physai.compute.ray.cluster import ClusterError
from physai.train.collectors.distributed import Ranks
from physai.train.runners import eval_scheduler
from physai.train.runners.checkpoint import CHECKPOINT_FILE, restore_checkpoint, save_checkpoint
from physai.train.runners.mlflow_sink import MlflowSink
from physai.train.runners.reporting import (
    CsvSink,
    LiveSink,
    StatisticsSink,
    TensorBoardSink,
    WandbSink,
    draw_learning_curve,
    logged_seconds,
)
from physai.train.runners.runner import IterationStats, Trainer
from physai.train.runs.summary import OUTCOME_FILE, Outcome, save_outcome
from physai.train.settings.config import TrainConfig

Stats = TypeVar("Stats")
Stats_co = TypeVar("Stats_co", covariant=True)
"""Statistics of an iteration: of a task, or of a team by member."""

STOPPED = "stopped by a signal; continue with --resume"
"""Reason of a run that a signal ended."""
CUT_OFF = "stopped by a signal; such a run cannot be continued"
"""Reason of one that learns from what `physai train` does not know."""


@dataclass(frozen=True)
class TrainingOutcome:
    """Result of a run."""

    iterations: int
    env_steps: int
    seconds: float
    """Time spent training [s]."""
    success: float | None
    """Success rate without exploration in the last evaluation; None if there was none."""
    reason: str
    """Why the run ended, for the user."""

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it."""
        return self.reason in (STOPPED, CUT_OFF)


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingOutcome):
    """Result of a run, and its folder."""

    run: Path
    """Run folder."""
    contract: str
    """Fingerprint of the task's contract."""
    task: str
    """Name of the task, or path of its file."""
    leads: bool = True
    """Whether this process is the first of several ranks, which writes the run folder."""
    diverged_episodes: int = 0
    """Episodes that ended because the physics diverged."""
    totals: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Work of the generators in this session."""


class StopRequest:
    """Set by the first SIGINT or SIGTERM, so that the iteration is completed; a second SIGINT stops immediately.

    Of several ranks none stops by itself: torchrun passes on a SIGINT that they got from the terminal already.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self.requested = False
        self._alone = alone

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        if self.requested and self._alone and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stop_on_signal(*, alone: bool = True) -> Generator[StopRequest]:
    """Handles SIGINT and SIGTERM as a stop request while the block runs; see `StopRequest`."""
    request = StopRequest(alone=alone)
    previous = {number: signal.signal(number, request.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class AnyTrainer(Protocol[Stats_co]):
    """A trainer in memory: of a task, or of a team."""

    config: TrainConfig
    ranks: Ranks
    seconds: float

    @property
    def iteration(self) -> int:
        """Number of iterations."""
        ...

    @property
    def env_steps(self) -> int:
        """Steps of worlds."""
        ...

    def train_iteration(self) -> Stats_co:
        """Collects, learns and reports."""
        ...


@dataclass(frozen=True, kw_only=True)
class Course(Generic[Stats]):
    """Actions of a run's loop that depend on its kind: of a task, or of a team."""

    save: Callable[[], None]
    """Writes a checkpoint."""
    report: Callable[[Stats], None]
    success: Callable[[Stats], float]
    """Success rate with exploration of an iteration."""
    judge: Callable[[int], float]
    """Success rate without exploration in that many episodes."""
    reached: str
    """Reason of a run that reached its success threshold, with a place for the rate."""
    stop: Callable[[], str | None] | None = None
    """Called after each iteration; a reason ends the run."""
    checkpoints: bool = True
    """Whether to save while the run goes on, not only at its end."""


def run(
    trainer: Trainer,
    folder: Path,
    *,
    time_budget_s: float | None = None,
    resume: bool = False,
    wandb_project: str | None = None,
    mlflow_experiment: str | None = None,
    extra_sinks: Sequence[StatisticsSink] = (),
    stop: Callable[[], str | None] | None = None,
    resumable: bool = True,
    settle: Callable[[], None] | None = None,
    live: bool = True,
) -> TrainingOutcome:
    """Train until the time budget, the iterations, the success threshold or a signal ends the run.

    All ranks call it; the first one writes the folder and reports.

    Args:
        trainer: a new trainer.
        folder: existing run folder, for checkpoints, logs and the learning curve.
        time_budget_s: training time after which to stop [s], earlier sessions of the run included, killed ones too.
        resume: continue from the folder's checkpoint.
        wandb_project: log to this Weights & Biases project, too.
        mlflow_experiment: log to this MLflow experiment, too.
        extra_sinks: further destinations of the statistics.
        stop: called after each iteration; a reason ends the run.
        resumable: whether `physai train --resume` continues a run that a signal ended.
        settle: called at the end, decides on the weights that are saved; until then only those at the start are.
        live: whether to show progress on stderr.
    """
    ranks = trainer.ranks
    if resume:
        restore_checkpoint(trainer, folder)
        count_repeated(trainer, [folder], lambda: save_checkpoint(trainer, folder))
    if ranks.leads:
        (folder / OUTCOME_FILE).unlink(missing_ok=True)
    with ExitStack() as stack:
        sinks: list[StatisticsSink] = []
        if ranks.leads:
            sinks += [CsvSink(folder, trainer.iteration), TensorBoardSink(folder, trainer.iteration)]
            if live:
                sinks.append(stack.enter_context(LiveSink(trainer.config, time_budget_s)))
            if wandb_project:
                sinks.append(WandbSink(folder, trainer.config, wandb_project))
            if mlflow_experiment:
                sinks.append(MlflowSink(folder, trainer.config, mlflow_experiment))
            sinks += extra_sinks
        for sink in sinks:
            stack.callback(sink.close)
        request = stack.enter_context(stop_on_signal(alone=ranks.size == 1))
        course = Course[IterationStats](
            save=lambda: save_checkpoint(trainer, folder),
            report=lambda stats: write_all(sinks, stats),
            success=lambda stats: stats.success,
            judge=lambda episodes: trainer.evaluate(episodes)["success"],
            reached="{:.1%} success without exploration",
            stop=stop,
            checkpoints=settle is None,
        )
        if not ranks.first((folder / CHECKPOINT_FILE).exists):
            course.save()
        outcome = loop(trainer, course, request, time_budget_s)
        if settle is not None:
            settle()
        course.save()
        if outcome.interrupted and not resumable:
            outcome = replace(outcome, reason=CUT_OFF)
    if ranks.leads:
        save_outcome(folder, record_of(outcome))
        draw_learning_curve(folder, f"{trainer.task.name}, seed {trainer.config.seed}")
    return outcome


def count_repeated(trainer: AnyTrainer[Any], folders: Sequence[Path], save: Callable[[], None]) -> None:
    """Count the time of iterations after the checkpoint of a resumed run, which are repeated, and save it.

    Args:
        trainer: restored trainer.
        folders: run folders, whose logs state the time.
        save: writes a checkpoint.
    """
    spent_s = trainer.ranks.first(lambda: max(map(logged_seconds, folders)))
    if spent_s > trainer.seconds:
        # Saved now, because the rows that tell of it are dropped by the session's first one, which may be killed before
        # it logs one.
        trainer.seconds = spent_s
        save()


def write_all(sinks: Sequence[StatisticsSink], stats: IterationStats) -> None:
    """Write statistics to all destinations."""
    for sink in sinks:
        sink.write(stats)


def budget_used(time_budget_s: float | None, seconds: float, begun_s: float) -> str | None:
    """Reason to end a run whose time budget is used up, else None.

    Args:
        time_budget_s: training time after which to stop [s]; None for no limit.
        seconds: training time of all sessions [s].
        begun_s: that of the sessions before this one [s].
    """
    if time_budget_s is None or seconds < time_budget_s:
        return None
    reason = f"time budget of {time_budget_s:g} s used"
    before = f"; {begun_s:.0f} s of training before this session count, so give more"
    return reason + before if begun_s >= time_budget_s else reason


def loop(
    trainer: AnyTrainer[Stats], course: Course[Stats], request: StopRequest, time_budget_s: float | None
) -> TrainingOutcome:
    """Train until the time budget, the iterations, the success threshold or a signal ends the run.

    All ranks call it. The last iterations are not saved; the caller does that.
    """
    config, ranks = trainer.config, trainer.ranks
    begun_s = saved_s = trainer.seconds
    begun_at = trainer.iteration
    scheduler = eval_scheduler.EvalScheduler(config.stop_at_success, config.eval_min_success)
    success: float | None = None
    reason = "all iterations done"

    def used_up() -> str | None:
        return budget_used(time_budget_s, trainer.seconds, begun_s)

    def judged() -> tuple[float, float]:
        start = time.perf_counter()
        return course.judge(eval_scheduler.EPISODES), time.perf_counter() - start

    while trainer.iteration < config.iterations:
        if (used := used_up()) is not None:
            reason = used
            break
        try:
            stats = trainer.train_iteration()
        except ClusterError:
            # No trace of the iteration that failed is in what it would have changed.
            if trainer.iteration > begun_at:
                course.save()
            raise
        course.report(stats)
        if ranks.any(request.requested):
            reason = STOPPED
            break
        if course.stop is not None and (asked := course.stop()) is not None:
            reason = asked
            break
        if used_up() is None and scheduler.due(course.success(stats), trainer.seconds):
            start = trainer.seconds
            success, spent_s = ranks.first(judged)
            # Evaluations count as training time, in the budget as in what is reported.
            trainer.seconds += spent_s
            if scheduler.judged(success, start, trainer.seconds):
                reason = course.reached.format(success)
                break
        if course.checkpoints and trainer.seconds - saved_s >= config.checkpoint_every_s:
            course.save()
            saved_s = trainer.seconds
    return TrainingOutcome(
        iterations=trainer.iteration,
        env_steps=trainer.env_steps,
        seconds=trainer.seconds,
        success=success,
        reason=reason,
    )


def record_of(outcome: TrainingOutcome) -> Outcome:
    """Record of the last session's end for a run folder."""
    return Outcome(
        reason=outcome.reason,
        interrupted=outcome.interrupted,
        iterations=outcome.iterations,
        env_steps=outcome.env_steps,
        seconds=outcome.seconds,
        success=outcome.success if outcome.success is not None and math.isfinite(outcome.success) else None,
    )
