"""Trains a team into a folder, in which each robot has a run folder of its own."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from physai.sdk.base.errors import CheckpointError, TaskError
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.contract.io import parse_contract
from physai.sdk.policy.team_record import MEMBER_KEY, TEAM_KEY, holds_team
from physai.sim.tasks.registry import BUILT_IN
from physai.sim.teams.team import Team
from physai.sim.teams.team_registry import save_team, team_of
from physai.train.runners.checkpoint import MISFIT, brief, read_state, run_id, save_policy, write_state
from physai.train.runners.reporting import CsvSink, draw_learning_curve
from physai.train.runners.runner import IterationStats, learner_threads
from physai.train.runners.session import Course, TrainingOutcome, count_repeated, loop, record_of, stop_on_signal
from physai.train.runs.run_config import (
    RunTaskSource,
    begin_run,
    begin_session,
    load_config,
    require_no_run,
    training_alone,
)
from physai.train.runs.summary import OUTCOME_FILE, save_outcome
from physai.train.settings.config import TrainConfig
from physai.train.teams.trainer import TeamTrainer

TEAM_CHECKPOINT = "team.pt"
"""In a team's folder: what its training continues from."""

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
    # A run that was killed before its first checkpoint begins anew.
    if (folder / TEAM_CHECKPOINT).exists() or not holds_team(folder):
        require_no_run(folder, resumable=True)
    for name in team.members:
        require_no_run(folder / name)
    torch.set_num_threads(learner_threads(config))
    with training_alone(folder):
        trainer = TeamTrainer(team, config, shared_critic=shared_critic)
        _announce(trainer, folder, say)
        for name, task in team.members.items():
            origin = {TEAM_KEY: team.name, MEMBER_KEY: name}
            begin_run(folder / name, RunTaskSource(task=task.name), config, task, origin=origin)
        save_team(team, folder)
        _save(trainer, folder)
        return _session(trainer, folder, time_budget_s, report)


def resume_team(
    folder: Path,
    *,
    team: Team | None = None,
    iterations: int | None = None,
    time_budget_s: float | None = None,
    report: Report | None = None,
    say: Callable[[str], None] | None = None,
) -> TrainingOutcome:
    """Continues the training of a team from its last checkpoint, bit for bit.

    Args:
        folder: that of `train_team`.
        team: the team, if it is not built in.
        iterations: number of updates after which to stop, earlier ones included; None for that of the run.
        time_budget_s: see `train_team`; earlier sessions count.
        report: likewise.
        say: likewise.

    Returns:
        See `train_team`.

    Raises:
        CheckpointError: the folder has no checkpoint that fits.
        ContractMismatchError: the task of a robot has changed.
        TaskError: the folder is of no team, or of another one.
    """
    team = team or team_of(folder)
    with training_alone(folder):
        config = load_config(folder / next(iter(team.members)))[1]
        config = config if iterations is None else replace(config, iterations=iterations)
        torch.set_num_threads(learner_threads(config))
        trainer = _restored(team, folder, config)
        count_repeated(trainer, [folder / name for name in team.members], lambda: _save(trainer, folder))
        _announce(trainer, folder, say)
        for name in team.members:
            begin_session(folder / name, {})
            (folder / name / OUTCOME_FILE).unlink(missing_ok=True)
        return _session(trainer, folder, time_budget_s, report)


def _restored(team: Team, folder: Path, config: TrainConfig) -> TeamTrainer:
    path = folder / TEAM_CHECKPOINT
    state = read_state(path)
    if state.get("runs") != _runs(team, folder):
        raise CheckpointError(
            f"{path} is of other runs than the folders of {', '.join(team.members)}; restore what was changed from a "
            "copy"
        )
    trainer = TeamTrainer(team, config, shared_critic=bool(state.get("shared_critic")))
    try:
        for name, task in team.members.items():
            saved = parse_contract(state["members"][name]["contract"], source=str(path))
            require_same(saved, task.contract, left=f"the checkpoint of {name}", right=f"the task {task.name}")
        trainer.load_state_dict(state)
    except MISFIT as error:
        raise CheckpointError(f"{path} does not fit this team and its settings: {brief(error)}") from error
    return trainer


def _announce(trainer: TeamTrainer, folder: Path, say: Callable[[str], None] | None) -> None:
    if say is not None:
        team, config = trainer.team, trainer.config
        worlds = f"{config.num_envs} worlds, seed {config.seed}"
        begun = f", from iteration {trainer.iteration}" if trainer.iteration else ""
        say(f"training {', '.join(team.members)} of {team.name} in {worlds}, into {folder}{begun}")


def _session(trainer: TeamTrainer, folder: Path, time_budget_s: float | None, report: Report | None) -> TrainingOutcome:
    with ExitStack() as stack:
        sinks = {name: CsvSink(folder / name, trainer.iteration) for name in trainer.team.members}
        for sink in sinks.values():
            stack.callback(sink.close)

        def write(stats: Mapping[str, IterationStats]) -> None:
            for name, sink in sinks.items():
                sink.write(stats[name])
            if report is not None:
                report(stats)

        course = Course[dict[str, IterationStats]](
            save=lambda: _save(trainer, folder),
            report=write,
            success=lambda stats: min(one.success for one in stats.values()),
            judge=lambda episodes: trainer.evaluate(episodes).success,
            reached="all robots succeed in {:.1%} of the episodes without exploration",
        )
        outcome = loop(trainer, course, stack.enter_context(stop_on_signal()), time_budget_s)
    _conclude(trainer, folder, outcome)
    return outcome


def _save(trainer: TeamTrainer, folder: Path) -> None:
    """Saves the team in one file, so that its robots continue together, then what each learned."""
    state = {"runs": _runs(trainer.team, folder), "shared_critic": trainer.shared_critic, **trainer.state_dict()}
    write_state(folder / TEAM_CHECKPOINT, state)
    counts = {"iteration": trainer.iteration, "env_steps": trainer.env_steps}
    for name, learner in trainer.learners.items():
        save_policy(folder / name, learner, **counts, seconds=trainer.seconds)


def _runs(team: Team, folder: Path) -> dict[str, str]:
    return {name: run_id(folder / name) for name in team.members}


def _conclude(trainer: TeamTrainer, folder: Path, outcome: TrainingOutcome) -> None:
    _save(trainer, folder)
    for name in trainer.team.members:
        # The success of a team is of no robot alone.
        save_outcome(folder / name, record_of(replace(outcome, success=None)))
        draw_learning_curve(folder / name, f"{trainer.team.name}, {name}, seed {trainer.config.seed}")
