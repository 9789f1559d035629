"""Load generator: busy processes during the measurement of a control loop.

Each alternates every few milliseconds between computing, copying more memory than the caches hold, and system calls.
"""

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

TURN_S = 0.005
BYTES = 32 << 20


@contextmanager
def cpu_load(count: int, *, cores: set[int] | None = None) -> Generator[None]:
    """Runs busy processes of default priority during the block.

    Args:
        count: number of processes.
        cores: cores to run on; None for any.
    """
    command = [sys.executable, "-m", __name__, ",".join(map(str, sorted(cores or ())))]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        if running:
            time.sleep(1.0)  # until the last one has started
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def _load(cores: set[int]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    parent = os.getppid()
    source, target = bytearray(BYTES), bytearray(BYTES)
    while os.getppid() == parent:
        for work in (_compute, lambda: target.__setitem__(slice(None), source), lambda: os.stat("/")):
            end = time.monotonic() + TURN_S
            while time.monotonic() < end:
                work()


def _compute() -> int:
    return sum(number * number for number in range(1000))


if __name__ == "__main__":
    _load({int(word) for word in sys.argv[1].split(",") if word})
