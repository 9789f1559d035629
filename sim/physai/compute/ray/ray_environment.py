"""Variables that Ray sets in this process's environment, and how they are removed again."""

import os
import secrets
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_TOKEN = "RAY_AUTH_TOKEN"
_used: dict[str, str] = {}


@contextmanager
def restored_environment() -> Generator[None]:
    """Undo afterwards what Ray and we set for a cluster: its token, the niceness of its workers, a debugger.

    A Ray that this process or its children start or join later would otherwise take these for the user's.
    """
    before = dict(os.environ)
    # `ray start --head` protects a cluster as soon as there is a token, but who joins it presents the token only then.
    # Ray reads the mode when it is imported; later it is left to Ray, which would take ours for that of the import.
    if "ray" not in sys.modules and has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    # Ray reads the token once per process, so the next cluster that this one starts has to have the same.
    if _TOKEN in _used:
        os.environ.setdefault(_TOKEN, _used[_TOKEN])
    try:
        yield
    finally:
        if _TOKEN not in before and _TOKEN in os.environ:
            _used[_TOKEN] = os.environ[_TOKEN]
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def shared_token() -> str:
    """The token of all clusters that this process starts."""
    return _used.setdefault(_TOKEN, os.environ.get(_TOKEN) or secrets.token_hex(32))


def has_token() -> bool:
    """Whether Ray finds a token for this process: in a variable, a file that one names, or in the home folder."""
    named = any(os.environ.get(name) for name in (_TOKEN, "RAY_AUTH_TOKEN_PATH"))
    return named or Path("~/.ray/auth_token").expanduser().is_file()
