"""Notes the files that the process of a command opens. Imports little, since each command waits for it."""

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

import physai

_READ_EVENT = "physai.read"
"""Raised by `physai.sim.robots.files.named_files`, which is not imported here."""
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/run", "/var")
_KEYED = ("cache", "new", "inputs", "results", "logs")
"""Folders of a `Store`."""


def note_reads(store: Path, note: Path) -> None:
    """From now on, note the paths of files that this process opens for reading, but for its own and the system's.

    Args:
        store: folder of results, in which all files have keys.
        note: file to append to; several processes may.
    """
    passed_over = tuple(
        f"{os.path.realpath(path)}{os.sep}"
        for path in (
            *(store / name for name in _KEYED),
            *(*_SYSTEM, *physai.__path__, *site.getsitepackages(), *sysconfig.get_paths().values()),
            *(sys.prefix, sys.base_prefix),
        )
    )
    descriptor = os.open(note, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    seen: set[str] = set()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", _READ_EVENT):
            return
        flags = arguments[2] if event == "open" else os.O_RDONLY
        if isinstance(arguments[0], int) or flags & os.O_DIRECTORY:
            return
        try:
            path = os.path.abspath(os.fsdecode(arguments[0]))
        except OSError:
            return  # the working folder was removed
        if flags & os.O_ACCMODE != os.O_RDONLY:
            # What a process writes itself decides nothing when it reads it.
            seen.add(path)
            return
        # Hidden folders hold configuration and caches of the user.
        if path in seen or path.startswith(passed_over) or "/." in path or path.endswith((".py", ".pyc", ".so")):
            return
        seen.add(path)
        if not os.path.realpath(path).startswith(passed_over):
            os.write(descriptor, os.fsencode(path) + b"\0")

    sys.addaudithook(hook)
