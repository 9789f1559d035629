"""Ends of this process: on request, at once, or abruptly."""

import os
import sys
from threading import Event
from typing import NoReturn

_abrupt = Event()


def end_abruptly() -> None:
    """Have the command end without a tear-down: a thread of a library waits for something and cannot be stopped."""
    _abrupt.set()


def ends_abruptly() -> bool:
    """Whether that has been asked for."""
    return _abrupt.is_set()


def leave(code: int) -> NoReturn:
    """Ends the process at once, with what was printed."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
