"""What Ray puts into this process's environment, and how it goes away again."""

import os
from collections.abc import Generator
from contextlib import contextmanager

_TOKEN = "RAY_AUTH_TOKEN"
_used: dict[str, str] = {}


@contextmanager
def restored_environment() -> Generator[None]:
    """Undo afterwards what Ray and we set for a cluster: its token, the niceness of its workers, a debugger.

    A Ray that this process or its children start or join later would otherwise take these for the user's.
    """
    before = dict(os.environ)
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
