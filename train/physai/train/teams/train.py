"""Trains a team into a folder, in which each robot has a run folder of its own."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from physai.sdk.base.errors import TaskError
from physai.sdk.policy.team_record import MEMBER_KEY, TEAM_KEY
from physai.sim.tasks.registry import BUILT_IN
from physai.sim.teams.registry import save_team
from physai.sim.teams.team import Team
from physai.train.config import TrainConfig
from physai.train.runners.checkpoint import save_policy
from physai.train.runners.eval_scheduler import EPISODES, EvalScheduler
from physai.train.runners.reporting import CsvSink, draw_learning_curve
from physai.train.runners.run_config import RunTaskSource, begin_run, require_no_run, training_alone
from physai.train.runners.runner import IterationStats, learner_threads
from physai.train.runners.session import CUT_OFF, StopRequest, TrainingOutcome, record_of, stop_on_signal
from physai.train.runners.summary import save_outcome
from physai.train.teams.trainer import TeamTrainer

Report = Callable[[Mapping[str, IterationStats]], None]


def train_team(
    team: Team,
    folder: Path,
    config: TrainConfig,
    *,
    shared_critic: bool = True,
    time_budget_s: float | None = None,
    report: Report | None = None,
    say: Callable[[str], None] | None = None,
) -> TrainingOutcome:
    """Trains all robots of a team; Ctrl-C ends the run with what was learned.

    Args:
        team: what to learn; the tasks of its members must be built in.
        folder: gets `team.json` and for each member a run folder, which `physai export` takes.
        config: settings of every robot.
        shared_critic: see `TeamTrainer`.
        time_budget_s: training time after which to stop [s].
        report: called after each iteration.
        say: takes the line that says what is trained, once nothing was refused.

    Returns:
        How the run ended; its success is the share of episodes in which all robots succeeded.

    Raises:
        CheckpointError: the folder holds a run, or cannot be written.
        ConfigError: a setting is for runs of one robot.
        TaskError: the task of a member is not built in.
    """
    for name, task in team.members.items():
        if task.name not in BUILT_IN:
            raise TaskError(
                f"member {name}: the task {task.name} is not built in, so a run folder could not name it; train with "
                "physai.train.TeamTrainer and export its graphs"
            )
    for path in (folder, *(folder / name for name in team.members)):
        require_no_run(path)
    torch.set_num_threads(learner_threads(config))
    with training_alone(folder):
        trainer = TeamTrainer(team, config, shared_critic=shared_critic)
        if say is not None:
            worlds = f"{config.num_envs} worlds, seed {config.seed}"
            say(f"training {', '.join(team.members)} of {team.name} in {worlds}, into {folder}")
        for name, task in team.members.items():
            origin = {TEAM_KEY: team.name, MEMBER_KEY: name}
            begin_run(folder / name, RunTaskSource(task=task.name), config, task, origin=origin)
        save_team(team, folder)
        with ExitStack() as stack:
            sinks = {name: CsvSink(folder / name, 0) for name in team.members}
            for sink in sinks.values():
                stack.callback(sink.close)
            request = stack.enter_context(stop_on_signal())
            outcome = _loop(trainer, folder, request, time_budget_s, [_to_sinks(sinks), *([report] if report else [])])
        _conclude(trainer, folder, outcome)
    return outcome


def _to_sinks(sinks: Mapping[str, CsvSink]) -> Report:
    def write(stats: Mapping[str, IterationStats]) -> None:
        for name, sink in sinks.items():
            sink.write(stats[name])

    return write


def _loop(
    trainer: TeamTrainer, folder: Path, request: StopRequest, time_budget_s: float | None, reports: list[Report]
) -> TrainingOutcome:
    config = trainer.config
    scheduler = EvalScheduler(config.stop_at_success, config.eval_min_success)
    success, reason = None, "all iterations done"
    saved_s = -math.inf
    while trainer.iteration < config.iterations:
        stats = trainer.train_iteration()
        for report in reports:
            report(stats)
        if request.requested:
            reason = CUT_OFF
            break
        if time_budget_s is not None and trainer.seconds >= time_budget_s:
            reason = f"time budget of {time_budget_s:g} s used"
            break
        if scheduler.due(min(one.success for one in stats.values()), trainer.seconds):
            begun = time.perf_counter()
            success = trainer.evaluate(EPISODES).success
            start_s = trainer.seconds
            # Evaluations count as training time, in the budget as in what is reported.
            trainer.seconds += time.perf_counter() - begun
            if scheduler.judged(success, start_s, trainer.seconds):
                reason = f"all robots succeed in {success:.1%} of the episodes without exploration"
                break
        if trainer.seconds - saved_s >= config.checkpoint_every_s:
            _save(trainer, folder)
            saved_s = trainer.seconds
    return TrainingOutcome(
        iterations=trainer.iteration,
        env_steps=trainer.env_steps,
        seconds=trainer.seconds,
        success=success,
        reason=reason,
    )


def _save(trainer: TeamTrainer, folder: Path) -> None:
    counts = {"iteration": trainer.iteration, "env_steps": trainer.env_steps}
    for name, learner in trainer.learners.items():
        save_policy(folder / name, learner, **counts, seconds=trainer.seconds)


def _conclude(trainer: TeamTrainer, folder: Path, outcome: TrainingOutcome) -> None:
    _save(trainer, folder)
    for name in trainer.team.members:
        # The success of a team is of no robot alone.
        save_outcome(folder / name, record_of(replace(outcome, success=None)))
        draw_learning_curve(folder / name, f"{trainer.team.name}, {name}, seed {trainer.config.seed}")
