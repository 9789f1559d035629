"""Runs `physai` and programs of `examples/` in a separate process, as a user does."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import WorkloadError

_EXAMPLES = Path(__file__).parents[2] / "examples"
_START = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Finished:
    """A `physai` process that exited with status 0."""

    output: str
    seconds: float
    """Wall time of the process [s]."""
    peak_bytes: int
    """Peak resident set size."""

    @property
    def record(self) -> dict[str, Any]:
        """The JSON object it printed."""
        return json.loads(self.output)


def physai(*arguments: str) -> Finished:
    """Runs `physai` with the arguments and waits for it to exit.

    Raises:
        WorkloadError: the exit status is not 0.
    """
    return _finished(("-c", _START), ("physai", *arguments))


def example(name: str, *arguments: str) -> Finished:
    """Runs a program of `examples/` with the arguments and waits for it to exit.

    Raises:
        WorkloadError: the exit status is not 0.
    """
    return _finished((str(_EXAMPLES / f"{name}.py"),), (f"{name}.py", *arguments))


def _finished(program: tuple[str, ...], command: tuple[str, ...]) -> Finished:
    """Runs a program of Python as `command`, whose first word is its name.

    Raises:
        WorkloadError: the exit status is not 0.
    """
    start = time.perf_counter()
    # `physai bench` is a verb, and verbs hide a program's own folder from what they start (PYTHONSAFEPATH).
    path = os.pathsep.join(filter(None, (str(_EXAMPLES), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    words = [sys.executable, *program, *command[1:]]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stdout=output, stderr=errors, env=environment)
        # wait4 rather than wait: it reports the resource usage of this child alone.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            tail = errors.read().strip().splitlines()[-3:]
            raise WorkloadError(f"{' '.join(command)} exited with status {process.returncode}: {' / '.join(tail)}")
        # ru_maxrss is in KiB on Linux.
        return Finished(output=output.read(), seconds=seconds, peak_bytes=usage.ru_maxrss * 1024)
