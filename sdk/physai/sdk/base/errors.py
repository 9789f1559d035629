"""The errors physai raises for bad input: one small tree, each caught by its root.

The command line prints them as one line and exits with 2; a traceback means a bug in physai.
"""

import difflib
from collections.abc import Iterable


class PhysaiError(Exception):
    """Root of every error that a user's input or machine can cause."""


class ContractError(PhysaiError):
    """A contract is malformed, out of bounds or inconsistent."""


class ContractMismatchError(PhysaiError):
    """Two sides of a boundary hold different contracts."""


class UnknownNameError(PhysaiError):
    """A robot, task, option or verb of that name does not exist."""


class ModelError(PhysaiError):
    """A robot model (MJCF or URDF) is missing, unreadable or not physical."""


class TaskError(PhysaiError):
    """A task file is missing, unreadable or inconsistent with its robot."""


class CheckpointError(PhysaiError):
    """A checkpoint or run folder cannot be read or written."""


class ExportError(PhysaiError):
    """A policy cannot be exported, or the export does not agree with its source."""


class DeviceError(PhysaiError):
    """The machine lacks what was asked for: a GPU, a driver, a display."""


class MissingExtraError(PhysaiError):
    """A verb needs an optional part of physai that is not installed."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among those known, with the closest ones.

    Args:
        kind: what the name names, as a user would say it ("task", "robot").
        name: the name that was given.
        known: every name that would have been right.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
    return UnknownNameError(f"no {kind} named {name!r}; {hint}")
