"""Exceptions that physai raises for bad input; `PhysaiError` is their base class.

The command line prints them without a traceback and exits with 2; a traceback means a bug in physai.
"""

import difflib
from collections.abc import Iterable


class PhysaiError(Exception):
    """Base class of errors caused by the user's input or machine."""


class ContractError(PhysaiError):
    """A contract is malformed, out of bounds or inconsistent."""


class ContractMismatchError(PhysaiError):
    """Two components have different contracts."""


class UnknownNameError(PhysaiError):
    """No robot, task, option or command has that name."""


class ModelError(PhysaiError):
    """A robot model (MJCF or URDF) is missing, unreadable or physically invalid."""


class TaskError(PhysaiError):
    """A task file is missing, unreadable or inconsistent with its robot."""


class CheckpointError(PhysaiError):
    """A checkpoint or run folder cannot be read or written."""


class ExportError(PhysaiError):
    """A policy cannot be exported, or the export differs from its source."""


class DeviceError(PhysaiError):
    """The machine lacks a required device: a GPU, a driver, a display."""


class MissingExtraError(PhysaiError):
    """A command needs an optional dependency of physai that is not installed."""


MAX_SHOWN = 256
"""Greatest number of characters of an unknown name that a message repeats."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown name, with suggestions.

    Args:
        kind: what the name refers to ("task", "robot").
        name: the unknown name.
        known: all valid names.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name[:MAX_SHOWN], names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names) or 'none'}"
    return UnknownNameError(f"no {kind} named {name[:MAX_SHOWN]!r}; {hint}")
