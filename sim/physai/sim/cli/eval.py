"""`physai eval`: evaluates an exported policy in simulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.compute.cli.progress_bars import share_bar
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.sim.teams.evaluation import evaluate

if TYPE_CHECKING:
    from physai.sim.policies.evaluate import Episodes
    from physai.sim.tasks.task import Task
    from physai.sim.teams.evaluation import PolicyEvaluation, TeamEvaluation


@verb(evaluate, summary="evaluate an exported policy in simulation")
def command(
    call: Callable[..., PolicyEvaluation | TeamEvaluation],
    *,
    policy: Path,
    episodes: int,
    preset: Annotated[str | None, Option(help="")] = None,
    as_json: AsJson = False,
) -> int:
    """Print the successes."""
    from physai.sim.teams.evaluation import PolicyEvaluation

    if preset:
        raise PhysaiError(
            f"physai eval has no --preset {preset} any more; the leaderboards' trial is in physai's sources: "
            f"python examples/leaderboard_trial.py {policy}"
        )
    with share_bar(f"playing {episodes} episodes") as progress:
        found = call(progress=progress)
    if not isinstance(found, PolicyEvaluation):
        print(json.dumps(_team_record(found)) if as_json else _team_text(found))
        return 0
    if as_json:
        identity = {"policy": str(found.policy), "fingerprint": found.fingerprint, "device": str(found.device)}
        print(json.dumps({**identity, "engine": found.engine, **_record(found)}))
    else:
        print(_text(found))
    return 0


def _counts(played: Episodes) -> dict[str, Any]:
    return {
        "judged": sum(played.judged),
        "succeeded": sum(played.succeeded),
        "success": played.success,
        "success_interval_95": list(played.success_interval()),
        "metrics": played.metrics,
        "diverged_episodes": len(played.diverged),
    }


def _record(found: PolicyEvaluation) -> dict[str, Any]:
    return {"task": found.task.name, "criterion": found.task.success.text, **_counts(found.episodes)}


def _team_record(found: TeamEvaluation) -> dict[str, Any]:
    team, played = found.team, found.episodes
    return {
        "team": team.name,
        "episodes": len(played.together),
        "succeeded": sum(played.together),
        "success": played.success,
        "success_interval_95": list(played.success_interval()),
        "members": {
            name: {"task": team.members[name].name, **_counts(episodes)} for name, episodes in played.members.items()
        },
    }


def _successes(task: Task, played: Episodes) -> str:
    lower, upper = played.success_interval()
    return (
        f"{sum(played.succeeded)} of {sum(played.judged)} succeeded, {played.success:.1%} "
        f"(95 % interval {lower:.1%} to {upper:.1%}; {task.success.text})"
    )


def _text(found: PolicyEvaluation) -> str:
    played = found.episodes
    lines = [f"{found.task.name}: {_successes(found.task, played)}"]
    if played.diverged:
        lines.append(f"  {len(played.diverged)} ended because a command was not finite or the physics diverged")
    lines += [f"  mean {key} {value:.4g}" for key, value in played.metrics.items()]
    if found.device.kind != "cpu":
        lines.append(f"  computed on {found.device}")
    return "\n".join(lines)


def _team_text(found: TeamEvaluation) -> str:
    team, played = found.team, found.episodes
    lower, upper = played.success_interval()
    lines = [
        f"{team.name}: all robots succeeded in {sum(played.together)} of {len(played.together)} episodes, "
        f"{played.success:.1%} (95 % interval {lower:.1%} to {upper:.1%})"
    ]
    lines += [f"  {name}: {_successes(team.members[name], episodes)}" for name, episodes in played.members.items()]
    return "\n".join(lines)
