"""Destinations of the lines about requests."""

import logging
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from physai.sdk.base.errors import PhysaiError
from physai.service.database.private import keep_private
from physai.service.observe.requests import log

MAX_BYTES = 10_000_000
OLD_FILES = 4


class _PrivateFile(RotatingFileHandler):
    """A file that only its owner may read."""

    def _open(self) -> TextIOWrapper:
        keep_private(Path(self.baseFilename))
        return super()._open()


def log_requests(path: Path) -> None:
    """Writes a JSON line per request to a file, or to standard error if it is `-`.

    Raises:
        PhysaiError: the file cannot be written.
    """
    try:
        stream = str(path) == "-"
        handler = logging.StreamHandler() if stream else _PrivateFile(path, "a", MAX_BYTES, OLD_FILES, "utf-8")
        for old_file in () if stream else path.parent.glob(f"{path.name}.[0-9]"):
            keep_private(old_file)
    except OSError as error:
        raise PhysaiError(f"`log` {path}: {error.strerror}; choose a file that can be written") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    for old in log.handlers[:]:
        log.removeHandler(old)
        old.close()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
