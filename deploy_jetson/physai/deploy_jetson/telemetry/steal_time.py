"""Time that a hypervisor took from this machine."""

import os
from pathlib import Path

_STAT = Path("/proc/stat")


def steal_s() -> float | None:
    """Time the machine beneath a virtual one has taken from all its cores since the start [s]; None if unknown.

    Source: https://docs.kernel.org/filesystems/proc.html, the eighth number of the line `cpu`.
    """
    try:
        with _STAT.open(encoding="ascii") as file:
            numbers = file.readline().split()
        return int(numbers[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
