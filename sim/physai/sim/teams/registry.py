"""Finds the built-in teams, and the team of a run folder."""

import importlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from physai.sdk.base.documents import DocumentKind
from physai.sdk.base.errors import TaskError, unknown_name
from physai.sdk.base.files import read_plain, write_atomic
from physai.sdk.contract.robot import Frozen
from physai.sim.teams.team import MAX_MEMBERS, Team

BUILT_IN: dict[str, tuple[str, str]] = {
    "cartpoles-tethered": ("physai.sim.teams.cartpoles", "tethered_cartpoles"),
}
"""Team name to the module and function that make it; imported on demand."""

TEAM_FILE = "team.json"
"""In the folder of a team's run, whose subfolders are the run folders of the members."""


class _Record(Frozen):
    """Document in `TEAM_FILE`."""

    format_version: Literal[1] = 1
    team: Annotated[str, Field(min_length=1, max_length=128)]
    members: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")], ...],
        Field(min_length=2, max_length=MAX_MEMBERS),
    ]


_KIND = DocumentKind(name="team's record", format_version=1, max_bytes=1 << 16, max_depth=3, error=TaskError)


def team_names() -> tuple[str, ...]:
    """Names of the built-in teams."""
    return tuple(BUILT_IN)


def load_team(name: str) -> Team:
    """Makes a built-in team.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in BUILT_IN:
        raise unknown_name("team", name, BUILT_IN)
    module, function = BUILT_IN[name]
    team: Team = getattr(importlib.import_module(module), function)()
    return team


def save_team(team: Team, folder: Path) -> None:
    """Writes of which team a folder's runs are.

    Raises:
        TaskError: it cannot be written.
    """
    record = _Record(team=team.name, members=tuple(team.members))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / TEAM_FILE, record.model_dump_json(indent=2).encode())
    except OSError as error:
        raise TaskError(f"cannot write {folder / TEAM_FILE}: {error.strerror or error}") from error


def team_of(folder: Path) -> Team:
    """The team whose runs a folder holds.

    Raises:
        TaskError: the record cannot be read, its team is not built in, or has other members.
    """
    path = folder / TEAM_FILE
    try:
        data = read_plain(path, limit=_KIND.max_bytes)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror or error}") from None
    record = _KIND.parse(_Record, data, source=str(path))
    if record.team not in BUILT_IN:
        raise TaskError(
            f"{path} says it is of the team {record.team!r}, which is not built in; play it with "
            "physai.sim.play_team and the team that you trained"
        )
    team = load_team(record.team)
    if tuple(team.members) != record.members:
        raise TaskError(f"{path} has the members {record.members}, the team {team.name} {tuple(team.members)}")
    return team
