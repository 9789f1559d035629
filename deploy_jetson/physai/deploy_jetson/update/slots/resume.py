"""Note of an update that restarts the runtime: a policy that drove goes on, so that its trial counts ticks.

The agent leaves the note before it restarts the service; a runtime that ends while its policy drives signs it.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from physai.deploy_jetson.update.slots.health import boot_id
from physai.sdk.base.files import write_atomic

RESUME_FILE = "resume"

VALID_S = 120.0
"""Age above which the note is ignored [s]: nobody expects the robot to move any more."""

_MAX_BYTES = 1000


def leave_note(root: Path, *, drove: bool = False) -> None:
    """Note that an update ends the runtime.

    Args:
        root: the robot's tree.
        drove: whether the policy drove; False if the runtime has yet to say so.

    Raises:
        OSError: it cannot be written; the successor then waits for `activate`.
    """
    note = {"boot": boot_id(), "boottime_s": _boottime_s(), "drove": drove}
    write_atomic(root / RESUME_FILE, json.dumps(note).encode())


def sign_note(root: Path) -> None:
    """Note that the policy drove, if an update ends the runtime and not something else."""
    with suppress(OSError):
        if _read(root) is not None:
            leave_note(root, drove=True)


def take_note(root: Path) -> bool:
    """Remove the note; return whether the policy drove when an update of this boot ended it, not long ago."""
    note = _read(root)
    try:
        (root / RESUME_FILE).unlink()
    except OSError:
        # One that stays would make every later runtime drive.
        return False
    return note is not None and note["drove"] is True


def _read(root: Path) -> dict[str, Any] | None:
    """Return a note of this boot that is recent enough; None without one."""
    try:
        note: Any = json.loads((root / RESUME_FILE).read_bytes()[:_MAX_BYTES])
        recent = note["boot"] == boot_id() and 0.0 <= _boottime_s() - float(note["boottime_s"]) <= VALID_S
        return note if recent and isinstance(note["drove"], bool) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
