"""Private files of a service: keys and locks in the folders of jobs, its database and its log."""

import contextlib
import os
from pathlib import Path, PurePosixPath

from sqlalchemy import Engine, delete, exists, or_, select
from sqlalchemy.orm import Session

from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX
from physai.service.database.tables import ArtefactRow, EntryRow

_OTHERS = 0o077


def is_private(name: str) -> bool:
    """Whether a file in a job's output folder is no artefact: a private key, such as `run.key`, or a hidden file.

    Args:
        name: its path in that folder.
    """
    path = PurePosixPath(name)
    return path.suffix == PRIVATE_SUFFIX or any(part.startswith(".") for part in path.parts)


def remove_private(engine: Engine, data: Path) -> None:
    """Removes what earlier versions published of such files, and what is stored of the keys.

    Raises:
        SQLAlchemyError: the database cannot be used.
        OSError: a file cannot be removed.
    """
    suspects = or_(
        ArtefactRow.name.endswith(PRIVATE_SUFFIX), ArtefactRow.name.startswith("."), ArtefactRow.name.contains("/.")
    )
    with Session(engine) as session, session.begin():
        for row in session.scalars(select(ArtefactRow).where(suspects)).all():
            if not is_private(row.name):
                continue
            session.execute(delete(ArtefactRow).where(ArtefactRow.job_id == row.job_id, ArtefactRow.name == row.name))
            # A hidden file may be empty, as others are; a key is nobody else's.
            named = (exists().where(table.sha256 == row.sha256) for table in (ArtefactRow, EntryRow))
            if row.name.endswith(PRIVATE_SUFFIX) and not any(session.scalar(select(one)) for one in named):
                # Before the row is gone for good: whoever is killed in between does this again.
                (data / "blobs" / row.sha256[:2] / row.sha256).unlink(missing_ok=True)


def keep_private(path: Path) -> None:
    """Has only its owner read a file, which is made if it is missing; one that is no plain file is left alone.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    mode = path.stat().st_mode
    if path.is_file() and mode & _OTHERS:
        # One of another account, such as root, is theirs to protect.
        with contextlib.suppress(PermissionError):
            path.chmod(mode & 0o7777 & ~_OTHERS)
