"""`physai eval` and `physai play` of a team."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import progress_bar, require_range
from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.sdk.onnx.device import PolicyDevice
    from physai.sim.policies.evaluate import Policy
    from physai.sim.policies.onnx import OnnxPolicy
    from physai.sim.teams.team import Team
    from physai.sim.teams.team_evaluate import TeamEpisodes


def evaluate_team(arguments: argparse.Namespace, *, max_episodes: int) -> int:
    """Plays the exported policies of all members in their shared twin and prints the successes of each and of all."""
    from physai.sim.policies.devices import choose_policy_device
    from physai.sim.teams.team_evaluate import play_team

    _refuse(arguments, ("task", "robot", "preset"), arguments.policy)
    if arguments.engine != "mujoco":
        raise PhysaiError(f"--engine {arguments.engine} is for one robot; a team is played by engine mujoco")
    require_range("--episodes", arguments.episodes, 1, max_episodes)
    device = choose_policy_device(arguments.device)
    team, policies = _trained(arguments.policy, device)
    with progress_bar() as bar:
        line = bar.add_task(f"playing {arguments.episodes} episodes", total=1.0)
        played = play_team(
            policies,
            team,
            episodes=arguments.episodes,
            randomise=not arguments.nominal,
            progress=lambda share: bar.update(line, completed=share),
        )
    print(json.dumps(_summary(team, played)) if arguments.json else _text(team, played))
    return 0


def open_team(arguments: argparse.Namespace) -> "tuple[Team, dict[str, Policy], str] | None":
    """The team that `physai play` is to show, what plays it, and the name of that; None if it is to show one robot.

    Raises:
        PhysaiError: an option is for one robot.
    """
    from physai.sdk.policy.team_record import holds_team
    from physai.sim.policies.scripted import ScriptedPolicy
    from physai.sim.tasks.registry import TEAMS
    from physai.sim.teams.team_registry import load_team

    folder = Path(arguments.what)
    named = arguments.what in TEAMS
    if not named and not holds_team(folder):
        return None
    _refuse(arguments, ("task", "robot", "preset", "record"), arguments.what)
    if not named:
        _refuse(arguments, ("agent",), arguments.what)
        team, trained = _trained(folder, None)
        return team, {**trained}, str(folder)
    team, agent = load_team(arguments.what), arguments.agent or "zero"
    members = enumerate(team.members.items())
    return team, {m: ScriptedPolicy(task.contract, agent, seed=arguments.seed + i) for i, (m, task) in members}, agent


def _trained(folder: Path, device: "PolicyDevice | None") -> "tuple[Team, dict[str, OnnxPolicy]]":
    """The team of a run folder, and its members' exported policies."""
    from physai.sim.policies.devices import choose_policy_device, make_policy
    from physai.sim.policies.onnx import read_policy
    from physai.sim.policies.resolve import find_policy
    from physai.sim.teams.team_registry import team_of

    team = team_of(folder)
    files = {name: find_policy(folder / name) for name in team.members}
    device = device or choose_policy_device("cpu")
    return team, {name: make_policy(read_policy(path), source=str(path), device=device) for name, path in files.items()}


def _refuse(arguments: argparse.Namespace, options: Sequence[str], what: object) -> None:
    for name in options:
        if getattr(arguments, name) is not None:
            raise PhysaiError(f"--{name} is for one robot, and {what} is a team; omit it, or name the run of one robot")


def _summary(team: "Team", played: "TeamEpisodes") -> dict[str, Any]:
    members = {
        name: {
            "task": team.members[name].name,
            "judged": sum(episodes.judged),
            "succeeded": sum(episodes.succeeded),
            "success": episodes.success,
            "success_interval_95": list(episodes.success_interval()),
            "metrics": episodes.metrics,
            "diverged_episodes": len(episodes.diverged),
        }
        for name, episodes in played.members.items()
    }
    return {
        "team": team.name,
        "episodes": len(played.together),
        "succeeded": sum(played.together),
        "success": played.success,
        "success_interval_95": list(played.success_interval()),
        "members": members,
    }


def _text(team: "Team", played: "TeamEpisodes") -> str:
    lower, upper = played.success_interval()
    lines = [
        f"{team.name}: all robots succeeded in {sum(played.together)} of {len(played.together)} episodes, "
        f"{played.success:.1%} (95 % interval {lower:.1%} to {upper:.1%})"
    ]
    for name, episodes in played.members.items():
        lower, upper = episodes.success_interval()
        lines.append(
            f"  {name}: {sum(episodes.succeeded)} of {sum(episodes.judged)} succeeded, {episodes.success:.1%} "
            f"(95 % interval {lower:.1%} to {upper:.1%}; {team.members[name].success.text})"
        )
    return "\n".join(lines)
