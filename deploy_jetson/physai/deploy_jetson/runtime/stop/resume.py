"""Note of a runtime that drove when an update ended it, so that its successor goes on and a trial counts ticks."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.slots.health import boot_id, health_path
from physai.sdk.base.files import write_atomic
from physai.sdk.safety import GuardState

RESUME_FILE = "resume"

VALID_S = 120.0
"""Age above which the note is ignored [s]: nobody expects the robot to move any more."""

_MAX_BYTES = 1000


def drives(root: Path) -> bool:
    """Whether the runtime of a tree drives its robot by the policy now."""
    try:
        status = tell(health_path(root).with_name(CONTROL_FILE), "status")
    except ControlError:
        return False
    return (status.get("lifecycle"), status.get("guard")) == ("active", GuardState.RUN.name)


def leave_note(root: Path) -> None:
    """Note that the policy drives now.

    Raises:
        OSError: it cannot be written; the successor then waits for `activate`.
    """
    write_atomic(root / RESUME_FILE, json.dumps({"boot": boot_id(), "boottime_s": _boottime_s()}).encode())


def take_note(root: Path) -> bool:
    """Remove the note; return whether there was one of this boot that is recent enough."""
    path = root / RESUME_FILE
    try:
        data = path.read_bytes()[:_MAX_BYTES]
        # First, so that it cannot make two processes drive.
        path.unlink()
        note: Any = json.loads(data)
        return note["boot"] == boot_id() and 0.0 <= _boottime_s() - float(note["boottime_s"]) <= VALID_S
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        with suppress(OSError):
            path.unlink()
        return False


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
