"""Checks whether the account that runs a robot could change the owner's files."""

import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from physai.deploy_jetson.update.agent.config import LIMITS_FILE, SETTINGS_FILE
from physai.deploy_jetson.update.slots.layout import IDENTITY_FILE
from physai.sdk.base.files import read_plain
from physai.sdk.signing.trust_file import TRUST_FILE

MAX_KEYS_BYTES = 1 << 20

_QUOTED = re.compile(r'"(?:\\"|[^"])*"')
_KEY_TYPE = re.compile(r"(?:^|\s)(?:ssh|ecdsa|sk)-\S+\s+AAAA")


def account(uid: int) -> str:
    """Name of an account."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def weakness(root: Path, folder: Path) -> str:
    """Way in which the account that runs the robot could change the owner's files; empty if it cannot.

    Args:
        root: the tree, which belongs to that account.
        folder: folder of the owner's files.

    Raises:
        OSError: a file cannot be inspected.
    """
    runner = root.stat().st_uid
    if runner == 0:
        return f"{root} belongs to root, which can change everything"
    folder = folder.resolve(strict=True)
    files = [folder / name for name in (IDENTITY_FILE, LIMITS_FILE, SETTINGS_FILE, TRUST_FILE)]
    for path in (*files, folder, *folder.parents):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if status.st_uid == runner:
            return f"{path} belongs to {account(runner)}, which runs the robot"
        is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder such as /tmp only the owner of a file can replace it.
        if stat.S_ISLNK(status.st_mode) or (is_open and not (path.is_dir() and status.st_mode & stat.S_ISVTX)):
            return f"{path} can be written by others than {account(status.st_uid)}"
    return ""


@dataclass(frozen=True)
class LoginKeys:
    """SSH keys that log in as the account that runs the robot."""

    path: Path
    total: int
    free: int
    """Number of keys that are not restricted to one command."""


def login_keys(root: Path) -> LoginKeys | None:
    """SSH keys of the account that owns a tree; None if its `authorized_keys` cannot be read."""
    try:
        path = Path(pwd.getpwuid(root.stat().st_uid).pw_dir) / ".ssh" / "authorized_keys"
        text = read_plain(path, limit=MAX_KEYS_BYTES).decode("utf-8", "replace")
    except (OSError, KeyError):
        return None
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    return LoginKeys(path, len(keys), sum(not _is_restricted(key) for key in keys))


def _is_restricted(line: str) -> bool:
    """Whether a line of `authorized_keys` forces a command and has the option `restrict`."""
    # Empty the quoted values: they can contain commas and spaces.
    bare = _QUOTED.sub('""', line)
    options = bare[: match.start()] if (match := _KEY_TYPE.search(bare)) else ""
    names = options.split(",")
    return "restrict" in names and 'command=""' in names
