"""Access to the host: clock, user, systemd, and error messages with remedies."""

import errno
import getpass
import subprocess
from datetime import UTC, datetime

_RESTART_TIMEOUT_S = 60.0


def utc_now() -> datetime:
    """The system clock."""
    return datetime.now(UTC)


def user_name() -> str:
    """Login name of the user; "an unknown user" if there is none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "an unknown user"


def restart_unit(unit: str) -> str:
    """Restarts a systemd unit if it is running; returns an error message, empty on success."""
    # Do not wait for the unit: the health window detects a runtime that does not start, and rolls back.
    command = ["systemctl", "--no-block", "try-restart", "--", unit]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_RESTART_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{unit} was not restarted: {error}"
    return "" if result.returncode == 0 else f"{unit} was not restarted: {result.stderr.strip()[:200]}"


def error_text(error: Exception) -> str:
    """Message of an error, with a remedy for common errors of the operating system."""
    if not isinstance(error, OSError):
        return str(error)
    remedy = {
        errno.ENOSPC: "; make room: `physai robot gc`",
        errno.EDQUOT: "; make room: `physai robot gc`",
        errno.EROFS: "; the file system is mounted read-only (mount -o remount,rw)",
        errno.EACCES: "; run as the user that owns the tree",
    }
    return f"{error.strerror or error}{remedy.get(error.errno or 0, '')}"
