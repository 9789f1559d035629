"""`physai train TEAM`: several robots learn in one physics."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError
from physai.train.api.team_training import train_team

if TYPE_CHECKING:
    from physai.train.runners.runner import IterationStats

_OF_A_TEAM = ("out", "resume", "num_envs", "seed", "iterations", "time_budget_s", "config", "settings")
_PRINT_EVERY_S = 10.0


def present_team(team: str | None, given: Mapping[str, Any], *, as_json: bool) -> int:
    """Train a team with the options of `physai train`; return 0, or 130 when a signal ended it.

    Args:
        team: name of the team. None for that of the folder to continue.
        given: the other options that were given, by name.
        as_json: print the outcome.

    Raises:
        PhysaiError: an option is for one robot, or see `train_team`.
    """
    _refuse(given, team or str(given["resume"]))
    options = {name: given[name] for name in _OF_A_TEAM if name in given}
    trained = train_team(team, **options, report=_reporter(), say=_say)
    outcome = trained.outcome
    if as_json:
        print(json.dumps({"run": str(trained.run), "team": trained.team, **vars(outcome)}))
    _say(f"{outcome.reason}: {outcome.env_steps / 1e6:.2f} M steps in {outcome.seconds:.0f} s")
    _say("next: " + "; ".join(shlex.join(["physai", "export", str(trained.run / one)]) for one in trained.members))
    return 130 if outcome.interrupted else 0


def _refuse(given: Mapping[str, Any], team: str) -> None:
    free = {*_OF_A_TEAM, "task", "engine", "device"}
    for name in (name for name, value in given.items() if name not in free and value is not None):
        raise PhysaiError(
            f"--{name.replace('_', '-')} is for one robot; {team} is a team, which learns from the beginning, in this "
            "process, on the CPU"
        )
    if given.get("engine") == "warp" or given.get("device", "auto") not in ("auto", "cpu"):
        raise PhysaiError(f"{team} is a team, which learns on the CPU with engine mujoco only")


def _reporter() -> Callable[[Mapping[str, IterationStats]], None]:
    printed_s = -math.inf

    def report(stats: Mapping[str, IterationStats]) -> None:
        nonlocal printed_s
        first = next(iter(stats.values()))
        if first.seconds - printed_s >= _PRINT_EVERY_S:
            printed_s = first.seconds
            robots = "; ".join(f"{n} {s.reward_per_s:.3f}/s, success {s.success:.0%}" for n, s in stats.items())
            _say(f"iteration {first.iteration}  {first.env_steps / 1e6:.2f} M steps  {first.seconds:.0f} s  {robots}")

    return report


def _say(text: str) -> None:
    print(text, file=sys.stderr)
