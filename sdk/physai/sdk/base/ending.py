"""How this process ends."""

import os
import sys
from typing import NoReturn

_abrupt: list[str] = []


def end_abruptly(reason: str) -> None:
    """Have the command end without a tear-down: a thread of a library waits for something and cannot be stopped."""
    _abrupt.append(reason)


def ends_abruptly() -> bool:
    """Whether that has been asked for."""
    return bool(_abrupt)


def leave(code: int) -> NoReturn:
    """Ends the process at once, with what was printed."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
