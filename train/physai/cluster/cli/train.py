"""`physai train`: learn a policy."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.cluster.cli.generators import GeneratorOptions
from physai.cluster.cli.train_team import present_team
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.train.api.training import resolve_config, train, train_seeds

if TYPE_CHECKING:
    from physai.train.runners.session import TrainingRun


@verb(train, summary="train a policy for a task")
def command(
    call: functools.partial[TrainingRun],
    *,
    generators: Annotated[GeneratorOptions, Option(flatten=True)],
    task: str | None = None,
    resume: Path | None = None,
    staleness: int | None = None,
    settings: Mapping[str, str] | None = None,
    seeds: Annotated[str | None, Option(metavar="A..B")] = None,
    as_json: AsJson = False,
) -> int:
    """Train, alone or as one rank of several.

    exit code: 0 when the run ended, 130 when a signal ended it, with its checkpoint saved

    Args:
        seeds: train once per seed, one after another: 0..4 or 0,3,7; run it again to go on.
    """
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.tasks.registry import TEAMS

    given: dict[str, Any] = call.keywords
    if "help" in (settings or {}):
        print(_settings_text(given, is_team=task in TEAMS))
        return 0
    if task in TEAMS or (resume is not None and holds_team(resume)):
        return present_team(task, {**given, **vars(generators), "seeds": seeds}, as_json=as_json)
    pool = generators.pool(staleness=staleness)
    if seeds is None:
        trained = call(generators=pool, say=_say)
        if trained.leads:
            _report(trained, as_json=as_json)
        return 130 if trained.interrupted else 0
    several = train_seeds(seeds, **given, generators=pool, say=_say, done=lambda one: _report(one, as_json=as_json))
    if several.interrupted:
        return 130
    _say(f"next: physai runs compare {several.folder}")
    return 0


def _report(trained: TrainingRun, *, as_json: bool) -> None:
    if as_json:
        outcome = {name: getattr(trained, name) for name in ("iterations", "env_steps", "seconds", "success", "reason")}
        print(json.dumps({"run": str(trained.run), "contract": trained.contract, **outcome, **trained.totals}))
    _say(f"{trained.reason}: {trained.env_steps / 1e6:.2f} M steps in {trained.seconds:.0f} s")
    if trained.diverged_episodes:
        _say(f"{trained.diverged_episodes} episodes ended because the physics diverged")
    task = ["--task", str(trained.run)] if trained.task.endswith(".py") else []
    _say(f"next: {shlex.join(['physai', 'export', str(trained.run), *task])}")


def _settings_text(given: Mapping[str, Any], *, is_team: bool) -> str:
    """All settings, with the values that they have for the named task and the other options."""
    from physai.train.api.options import TrainOptions
    from physai.train.api.team_training import team_config
    from physai.train.settings.config import describe_settings

    settings = {name: value for name, value in given["settings"].items() if name != "help"}
    options = {**given, "settings": settings}
    if given.get("task") is None:
        return describe_settings(None)
    return describe_settings(team_config(TrainOptions.of(**options)) if is_team else resolve_config(**options))


def _say(text: str) -> None:
    print(text, file=sys.stderr)
