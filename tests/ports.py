"""UDP ports for tests that start somebody there later."""

import itertools
import os
import socket
from contextlib import suppress

import pytest

FIRST, EACH, PROCESSES = 10_000, 8, 2_500
"""Below those that the kernel gives to whoever asks for any; so many for each process."""

_numbers = itertools.count()


def free_port() -> int:
    """One of this process's own, another one each time, as it may be used only seconds later."""
    first = FIRST + os.getpid() % PROCESSES * EACH
    for _ in range(EACH):
        port = first + next(_numbers) % EACH
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    pytest.fail(f"no free port in {first} … {first + EACH - 1}")
