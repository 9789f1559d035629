"""Steal time of the hypervisor."""

import os
from pathlib import Path

_STAT = Path("/proc/stat")


def steal_s() -> float | None:
    """Return the steal time over all cores since boot [s], or None if unknown.

    Source: https://docs.kernel.org/filesystems/proc.html, the eighth number of the line `cpu`.
    """
    try:
        with _STAT.open(encoding="ascii") as file:
            numbers = file.readline().split()
        return int(numbers[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
