"""Files that are wholly the old or wholly the new one, whatever happens while they are written."""

import os
import secrets
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replaces the file by the data, through a new file beside it, synced to disk before it takes the name.

    Raises:
        OSError: the folder is missing, not writable or full; the old file is unchanged.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with new.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
