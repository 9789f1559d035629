"""Finds the built-in teams, and the team of a run folder."""

import importlib
from pathlib import Path

from physai.sdk.base.errors import TaskError, unknown_name
from physai.sdk.policy.team_record import TEAM_FILE, TeamRecord, load_team_record, save_team_record
from physai.sim.tasks.registry import TEAMS
from physai.sim.teams.team import Team


def team_names() -> tuple[str, ...]:
    """Names of the built-in teams."""
    return tuple(TEAMS)


def load_team(name: str) -> Team:
    """Makes a built-in team.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in TEAMS:
        raise unknown_name("team", name, TEAMS)
    module, function = TEAMS[name]
    team: Team = getattr(importlib.import_module(module), function)()
    return team


def save_team(team: Team, folder: Path) -> None:
    """Writes of which team a folder's runs are.

    Raises:
        TaskError: it cannot be written.
    """
    save_team_record(TeamRecord(team=team.name, members=tuple(team.members)), folder)


def team_of(folder: Path) -> Team:
    """The team whose runs a folder holds.

    Raises:
        TaskError: the record cannot be read, its team is not built in, or has other members.
    """
    path, record = folder / TEAM_FILE, load_team_record(folder)
    if record.team not in TEAMS:
        raise TaskError(
            f"{path} says it is of the team {record.team!r}, which is not built in; play it with "
            "physai.sim.play_team and the team that you trained"
        )
    team = load_team(record.team)
    if tuple(team.members) != record.members:
        raise TaskError(f"{path} has the members {record.members}, the team {team.name} {tuple(team.members)}")
    return team
