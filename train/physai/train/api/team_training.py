"""`physai train TEAM` as a function."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.train.api.options import TrainOptions
    from physai.train.runners.runner import IterationStats
    from physai.train.runners.session import TrainingOutcome
    from physai.train.settings.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class TeamRun:
    """Result of a team's training."""

    run: Path
    """Folder with a run folder per member."""
    team: str
    members: tuple[str, ...]
    outcome: TrainingOutcome
    """Its success is the share of episodes in which all robots succeeded."""


def train_team(
    team: str | None = None,
    out: str | Path | None = None,
    *,
    resume: str | Path | None = None,
    num_envs: int | None = None,
    seed: int | None = None,
    iterations: int | None = None,
    time_budget_s: float | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    report: Callable[[Mapping[str, IterationStats]], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> TeamRun:
    """Train the robots of a team in one physics, on the CPU; Ctrl-C saves a checkpoint and returns.

    Args:
        team: name of a built-in team; with `resume` only to be checked.
        out: folder for `team.json` and a run folder per member. None for runs/TEAM/DATE-TIME.
        resume: folder of a team's runs to continue from their checkpoint; it keeps its settings.
        num_envs: number of worlds simulated in parallel.
        seed: seed of all random numbers.
        iterations: number of updates after which to stop.
        time_budget_s: training time after which to stop [s]; earlier sessions of a resumed run count.
        config: YAML file of settings that go over the team's.
        settings: single settings by name, which go over `config`.
        report: called after each iteration with the statistics of each member.
        say: receives the line that names the run.

    Raises:
        PhysaiError: there is no such team, a setting is wrong or the folder cannot be used.
    """
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.teams.team_registry import load_team, team_of
    from physai.train.api.options import TrainOptions
    from physai.train.api.resolution import require_budget, require_no_settings
    from physai.train.teams import train

    require_budget(time_budget_s)
    given = {"num_envs": num_envs, "seed": seed, "out": out, "config": config}
    options = TrainOptions.of(task=team, settings=settings, iterations=iterations, **given)
    if resume is None:
        loaded = load_team(str(team))
        folder = options.out or Path("runs") / loaded.name / time.strftime("%Y%m%d-%H%M%S")
        resolved = team_config(options)
        outcome = train.train_team(loaded, folder, resolved, time_budget_s=time_budget_s, report=report, say=say)
    else:
        folder = Path(resume)
        if not holds_team(folder):
            raise PhysaiError(f"{folder} does not hold the runs of a team, and {team} is one")
        loaded = team_of(folder)
        if team not in (None, loaded.name):
            raise PhysaiError(f"{folder} holds the runs of the team {loaded.name}, not of {team}")
        require_no_settings(options, given)
        budget_s = time_budget_s
        outcome = train.resume_team(folder, iterations=iterations, time_budget_s=budget_s, report=report, say=say)
    return TeamRun(run=folder, team=loaded.name, members=tuple(loaded.members), outcome=outcome)


def team_config(options: TrainOptions) -> TrainConfig:
    """Settings of a team's run: the team's, then those of the file, then those of the options.

    Raises:
        PhysaiError: there is no such team, or a setting is wrong.
    """
    from physai.sim.teams.team_registry import load_team
    from physai.train.settings.config import TrainConfig, read_settings, with_options, with_settings

    team = load_team(str(options.task))
    config = with_settings(TrainConfig(), team.training, source=f"training settings of the team {team.name}")
    if isinstance(options.config, Path):
        config = with_settings(config, read_settings(options.config), source=str(options.config))
    named = {n: str(value) for n in ("num_envs", "seed", "iterations") if (value := getattr(options, n)) is not None}
    return with_options(config, {**options.settings, **named})
