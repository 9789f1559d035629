"""The record in the folder of a team's run, whose subfolders are the run folders of the robots."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from physai.sdk.base.errors import TaskError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen

TEAM_FILE = "team.json"
MAX_MEMBERS = 16
TEAM_KEY, MEMBER_KEY = "team", "member"
"""Entries of a run's provenance that name the team it was trained in, and the robot."""


class TeamRecord(Frozen):
    """The team that a folder's runs belong to."""

    format_version: Literal[1] = 1
    team: Annotated[str, Field(min_length=1, max_length=128)]
    members: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")], ...],
        Field(min_length=2, max_length=MAX_MEMBERS),
    ]


_KIND = DocumentKind(name="team's record", format_version=1, max_bytes=1 << 16, max_depth=3, error=TaskError)


def save_team_record(record: TeamRecord, folder: Path) -> None:
    """Writes the record into a folder, which is created if missing.

    Raises:
        TaskError: it cannot be written.
    """
    with oserror_as(TaskError, f"cannot write {folder / TEAM_FILE}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / TEAM_FILE, record.model_dump_json(indent=2).encode())


def holds_team(folder: Path) -> bool:
    """Whether a folder holds the runs of a team."""
    return (folder / TEAM_FILE).is_file()


def load_team_record(folder: Path) -> TeamRecord:
    """Reads the record of a folder.

    Raises:
        TaskError: it is missing, cannot be read or is damaged.
    """
    path = folder / TEAM_FILE
    with oserror_as(TaskError, f"{path}: cannot be read"):
        data = read_plain(path, limit=_KIND.max_bytes)
    return _KIND.parse(TeamRecord, data, source=str(path))


def require_one_robot(folder: Path) -> None:
    """Raises TaskError for the folder of a team where the run folder of one robot is needed."""
    if holds_team(folder):
        record = load_team_record(folder)
        members = " or ".join(str(folder / member) for member in record.members)
        raise TaskError(
            f"{folder} holds the runs of a team, {record.team}; name the run of one robot, {members} "
            f"(physai play and eval take {folder} and play all together)"
        )
