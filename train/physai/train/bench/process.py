"""Runs `physai` as a person does: in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from physai.sdk.base.benchmark import WorkloadError

_START = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Finished:
    """A `physai` that has ended well."""

    output: str
    seconds: float
    """From starting the process to its end [s]."""
    peak_bytes: int
    """Greatest resident memory."""

    @property
    def record(self) -> dict[str, Any]:
        """The JSON object it printed."""
        return json.loads(self.output)


def physai(*arguments: str) -> Finished:
    """Runs `physai` with the arguments and waits for it.

    Raises:
        WorkloadError: it failed.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([sys.executable, "-c", _START, *arguments], stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            tail = errors.read().strip().splitlines()[-3:]
            raise WorkloadError(f"physai {' '.join(arguments)} ended with {process.returncode}: {' / '.join(tail)}")
        return Finished(output=output.read(), seconds=seconds, peak_bytes=usage.ru_maxrss * 1024)
