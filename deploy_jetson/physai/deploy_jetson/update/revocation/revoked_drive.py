"""Note that a policy lost its verdict on this robot, until an operator has the robot driven again.

A robot that drives after a boot does not while the note is there, whatever version is active by then.
"""

import os
from contextlib import suppress
from pathlib import Path

from physai.sdk.base.files import sync_folder, write_atomic

NOTE_FILE = "revoked"

_MAX_BYTES = 1000


def note_revocation(root: Path, why: str) -> None:
    """Write the note durably.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(root / NOTE_FILE, why.encode()[:_MAX_BYTES])


def noted_revocation(root: Path) -> str:
    """Return why a policy lost its verdict, empty without a note."""
    path = root / NOTE_FILE
    # Whatever lies there counts, because only its absence lets a robot drive by itself.
    if not os.path.lexists(path):
        return ""
    with suppress(OSError):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                return file.read(_MAX_BYTES).decode(errors="replace") or "a verdict was revoked"
    return "a verdict was revoked"


def lift_revocation(root: Path) -> None:
    """Remove the note.

    Raises:
        OSError: it cannot be removed.
    """
    (root / NOTE_FILE).unlink(missing_ok=True)
    sync_folder(root)
