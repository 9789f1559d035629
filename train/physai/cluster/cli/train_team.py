"""`physai train TEAM`: several robots learn in one physics."""

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from physai.cluster.cli.settings import option_pairs
from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.sim.teams.team import Team
    from physai.train.runners.runner import IterationStats
    from physai.train.settings.config import TrainConfig
    from physai.train.teams.train import Report

_OF_ONE_ROBOT = (
    "init_from",
    "teacher",
    "gpus",
    "generators",
    "placement",
    "staleness",
    "ray",
    "robot",
    "twin",
    "preset",
    "seeds",
    "wandb",
    "mlflow",
)
_PRINT_EVERY_S = 10.0


def is_team(name: str | None) -> bool:
    """Whether `physai train` was given the name of a built-in team."""
    from physai.sim.tasks.registry import TEAMS

    return name in TEAMS


def run_team(arguments: argparse.Namespace) -> int:
    """Trains a team, or continues one; returns 0, or 130 when a signal ended it (its checkpoint is saved)."""
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.teams.team_registry import load_team, team_of
    from physai.train.api.options import TrainOptions
    from physai.train.api.resolution import require_budget, require_no_settings
    from physai.train.teams.train import resume_team, train_team

    require_budget(arguments.time_budget_s)
    resumed: Path | None = arguments.resume
    if resumed is not None and not holds_team(resumed):
        raise PhysaiError(f"{resumed} does not hold the runs of a team, and {arguments.task} is one")
    team = load_team(arguments.task) if resumed is None else team_of(resumed)
    refuse_options(arguments, team.name)
    budget_s, report = arguments.time_budget_s, _reporter()
    if resumed is None:
        folder: Path = arguments.out or Path("runs") / team.name / time.strftime("%Y%m%d-%H%M%S")
        outcome = train_team(team, folder, team_config(arguments), time_budget_s=budget_s, report=report, say=_say)
    else:
        if arguments.task not in (None, team.name):
            raise PhysaiError(f"{resumed} holds the runs of the team {team.name}, not of {arguments.task}")
        given = {name: getattr(arguments, name) for name in ("num_envs", "seed", "out", "engine", "config")}
        fresh = TrainOptions(**given, settings=option_pairs(arguments.options), deterministic=arguments.deterministic)
        require_no_settings(fresh, given)
        folder = resumed
        outcome = resume_team(folder, iterations=arguments.iterations, time_budget_s=budget_s, report=report, say=_say)
    if arguments.json:
        print(json.dumps({"run": str(folder), "team": team.name, **vars(outcome)}))
    _say(f"{outcome.reason}: {outcome.env_steps / 1e6:.2f} M steps in {outcome.seconds:.0f} s")
    _say("next: " + "; ".join(shlex.join(["physai", "export", str(folder / name)]) for name in team.members))
    return 130 if outcome.interrupted else 0


def _reporter() -> "Report":
    printed_s = -math.inf

    def report(stats: Mapping[str, "IterationStats"]) -> None:
        nonlocal printed_s
        first = next(iter(stats.values()))
        if first.seconds - printed_s >= _PRINT_EVERY_S:
            printed_s = first.seconds
            robots = "; ".join(f"{n} {s.reward_per_s:.3f}/s, success {s.success:.0%}" for n, s in stats.items())
            _say(f"iteration {first.iteration}  {first.env_steps / 1e6:.2f} M steps  {first.seconds:.0f} s  {robots}")

    return report


def team_config(arguments: argparse.Namespace) -> "TrainConfig":
    """The settings of a team's run: the team's, then those of the file, then those of the options."""
    from physai.sim.teams.team_registry import load_team
    from physai.train.settings.config import TrainConfig, read_settings, with_options, with_settings

    team: Team = load_team(arguments.task)
    config = with_settings(TrainConfig(), team.training, source=f"training settings of the team {team.name}")
    if arguments.config is not None:
        config = with_settings(config, read_settings(arguments.config), source=str(arguments.config))
    named = {n: str(value) for n in ("num_envs", "seed", "iterations") if (value := getattr(arguments, n)) is not None}
    return with_options(config, {**option_pairs(arguments.options), **named})


def refuse_options(arguments: argparse.Namespace, team: str) -> None:
    """Raises PhysaiError for options that a team's run does not have."""
    given = [name for name in _OF_ONE_ROBOT if getattr(arguments, name, None) not in (None, False)]
    given += ["deterministic"] if arguments.deterministic else []
    if given:
        raise PhysaiError(
            f"--{given[0].replace('_', '-')} is for one robot; {team} is a team, which learns from the "
            "beginning, in this process, on the CPU"
        )
    if arguments.engine == "warp" or arguments.device not in ("auto", "cpu"):
        raise PhysaiError(f"{team} is a team, which learns on the CPU with engine mujoco only")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
