"""Whether the account that runs a robot could change what its owner says: whom the robot believes, what it is."""

import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from physai.deploy_jetson.agent.config import LIMITS_FILE, SETTINGS_FILE
from physai.deploy_jetson.slots.layout import IDENTITY_FILE
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
    """How the account that runs the robot could change the owner's files; empty where it cannot.

    Args:
        root: the tree, which belongs to that account.
        folder: of the owner's files.

    Raises:
        OSError: they cannot be looked at.
    """
    runner = root.stat().st_uid
    if runner == 0:
        return f"{root} is root's, who can change everything"
    folder = folder.resolve(strict=True)
    files = [folder / name for name in (IDENTITY_FILE, LIMITS_FILE, SETTINGS_FILE, TRUST_FILE)]
    for path in (*files, folder, *folder.parents):
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue
        if facts.st_uid == runner:
            return f"{path} is {account(runner)}'s, who runs the robot"
        is_open = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISLNK(facts.st_mode) or (is_open and not (path.is_dir() and facts.st_mode & stat.S_ISVTX)):
            return f"{path} can be written by others than {account(facts.st_uid)}"
    return ""


@dataclass(frozen=True)
class LoginKeys:
    """Keys that log in as the account that runs the robot."""

    path: Path
    total: int
    free: int
    """How many may do more than run one command."""


def login_keys(root: Path) -> LoginKeys | None:
    """The keys in the usual place of OpenSSH's server; None where they cannot be seen.

    Args:
        root: the tree, which belongs to that account.
    """
    try:
        path = Path(pwd.getpwuid(root.stat().st_uid).pw_dir) / ".ssh" / "authorized_keys"
        text = read_plain(path, limit=MAX_KEYS_BYTES).decode("utf-8", "replace")
    except (OSError, KeyError):
        return None
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    return LoginKeys(path, len(keys), sum(not _is_restricted(key) for key in keys))


def _is_restricted(line: str) -> bool:
    """Whether a key's line forces a command and forbids the rest."""
    bare = _QUOTED.sub('""', line)
    options = bare[: found.start()] if (found := _KEY_TYPE.search(bare)) else ""
    names = options.split(",")
    return "restrict" in names and 'command=""' in names
