"""A data folder and its database know each other: both hold the same identifier."""

import os
import re
import secrets
from pathlib import Path

from sqlalchemy import Engine, exists, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain, write_atomic
from physai.service.database.tables import ArtefactRow, AuditRow, EntryRow, InstallationRow, JobRow, StoreRow

STORE_FILE = "store"
"""File of the identifier in the data folder."""
_IDENTIFIER = re.compile(r"[0-9a-f]{32}")
_LOCK = 0x70687974
_SAMPLE = 100


def bind_store(engine: Engine, data: Path) -> str:
    """Checks that a data folder and a database belong together; new ones, and those of older versions, are joined.

    Returns the identifier of the store.

    Args:
        engine: the database, with its tables.
        data: existing folder.

    Raises:
        PhysaiError: one of them belongs to another store; nothing has changed.
    """
    try:
        with Session(engine) as session, session.begin():
            if engine.dialect.name == "postgresql":
                # Of two services that start at once with different folders, one is second.
                session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            of_database, of_folder = session.scalar(select(StoreRow.id)), _read(data)
            if of_database is None and _may_join(session, data, of_folder):
                # The folder first: if this process is killed in between, the next start joins the two.
                identifier = of_folder or secrets.token_hex(16)
                write_atomic(data / STORE_FILE, f"{identifier}\n".encode())
                session.add(StoreRow(id=identifier))
                return identifier
    except (SQLAlchemyError, OSError) as error:
        raise PhysaiError(f"{data} and {engine.url.render_as_string()} cannot be used: {error}") from error
    if of_database is None or of_database != of_folder:
        raise _foreign(engine, data, of_database, of_folder)
    return of_database


def require_store(engine: Engine, data: Path) -> None:
    """Checks that a data folder and a database are of the same store.

    Raises:
        PhysaiError: they are not.
    """
    with Session(engine) as session:
        of_database, of_folder = session.scalar(select(StoreRow.id)), _read(data)
    if of_database is None or of_database != of_folder:
        raise _foreign(engine, data, of_database, of_folder)


def _read(data: Path) -> str | None:
    path = data / STORE_FILE
    try:
        text = read_plain(path, limit=100).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    if not _IDENTIFIER.fullmatch(text):
        raise PhysaiError(
            f"{path} holds {text[:40]!r}, which is no identifier of a store; restore it from a backup of the folder"
        )
    return text


def _may_join(session: Session, data: Path, of_folder: str | None) -> bool:
    """Whether a database without identifier is that of the folder."""
    used = any(session.scalar(select(exists(select(table)))) for table in (JobRow, EntryRow, AuditRow, InstallationRow))
    if not used:
        return not _has_content(data)
    # A version that wrote no identifiers has filled both; the folder got one, if joining them was interrupted.
    return _knows_files(session, data, proven=of_folder is not None)


def _knows_files(session: Session, data: Path, *, proven: bool) -> bool:
    """Whether a file that the database names is in the folder.

    If it names none, the folder of one of its jobs must be there or, unless it must be `proven`, may have been.
    """
    named: list[str] = []
    for column in (EntryRow.sha256, ArtefactRow.sha256):
        named += session.scalars(select(column).limit(_SAMPLE))
    if named:
        return any((data / "blobs" / sha256[:2] / sha256).is_file() for sha256 in named)
    jobs = session.scalars(select(JobRow.id).limit(_SAMPLE)).all()
    if any((data / "jobs" / job).is_dir() for job in jobs):
        return True
    return not proven and (_has_content(data) or not jobs)


def _has_content(data: Path) -> bool:
    """Whether a service has stored a file or run a job in the folder."""
    for folder in (data / "jobs", data / "blobs"):
        if folder.is_dir() and any(entry.name != "incoming" for entry in os.scandir(folder)):
            return True
    return False


def _foreign(engine: Engine, data: Path, of_database: str | None, of_folder: str | None) -> PhysaiError:
    url = engine.url.render_as_string()
    database = f"belongs to the store {of_database[:12]}" if of_database else "belongs to no store"
    folder = f"to the store {of_folder[:12]}" if of_folder else "to none"
    content = "" if of_folder or not _has_content(data) else ", though it holds files"
    return PhysaiError(
        f"the database {url} {database}, the data folder {data} {folder}{content}: what one names, the other does not "
        "have; start with the --data and the --db that were used together before, or with an empty folder and a new "
        "database"
    )
