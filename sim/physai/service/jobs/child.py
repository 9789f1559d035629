"""A job's own process: runs one command line of physai in the job's folder, or two, once at a time.

`python -m physai.service.jobs.child PARENT_PID FOLDER ARGUMENT… [; ARGUMENT…]`; the first one's stdout goes to
`FOLDER/stdout`, the second one's, which follows if the first one succeeds, to `FOLDER/stdout.2`.
"""

import fcntl
import json
import os
import sys
from pathlib import Path

from physai.sdk.base.files import write_atomic
from physai.sdk.base.process.isolation import die_with_parent
from physai.sdk.cli.main import main
from physai.service.jobs.kinds import THEN

LOCK_FILE, STDOUT_FILE, LOG_FILE, EXIT_FILE = "lock", "stdout", "log", "exit.json"
INTERRUPTED_FILE = "interrupted"
"""Written by the worker before it interrupts the command."""


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The two command lines in a list of arguments."""
    at = arguments.index(THEN) if THEN in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def run(parent: int, folder: Path, arguments: list[str]) -> int:
    """Runs the command; its exit code is in `EXIT_FILE` once all it wrote is complete."""
    if not die_with_parent(parent):
        return 1
    # An earlier attempt whose worker was killed may take a moment to die, with its own processes. They share its
    # open file, so the lock is free when the last of them has gone.
    lock = os.open(folder / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    if (folder / EXIT_FILE).exists():
        # That attempt had finished its work, and only its worker had not said so.
        return 0
    os.chdir(folder)
    stdout = os.open(STDOUT_FILE, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.dup2(stdout, 1)
    (folder / INTERRUPTED_FILE).unlink(missing_ok=True)
    first, second = split(arguments)
    code = main(first)
    sys.stdout.flush()
    os.fsync(1)
    if code == 0 and second and not (folder / INTERRUPTED_FILE).exists():
        os.dup2(os.open(f"{STDOUT_FILE}.2", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), 1)
        code = main(second)
    # Interrupted, some commands save what they have and report success; the job is not done all the same.
    if code != 130 and not (folder / INTERRUPTED_FILE).exists():
        write_atomic(folder / EXIT_FILE, json.dumps({"code": code}).encode())
    return 0


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
