"""Durations of all ticks of a run, for the latency gate of `physai sim validate`."""

import numpy as np

from physai.deploy_jetson.ticks.tick_ring import Ticks
from physai.sdk.evidence.latency import MAX_TICKS


class TickLog:
    """The last `capacity` durations in preallocated memory; not thread-safe.

    Includes ticks in which the policy ran, and missed periods. A skipped period lasts until the next command is sent.
    """

    def __init__(self, period_ns: int, capacity: int = MAX_TICKS) -> None:
        self._durations = np.zeros(capacity, np.int64)
        self._period_ns = period_ns
        self._count = 0
        self._number: int | None = None

    def add(self, ticks: Ticks) -> None:
        """Add the next records."""
        if not len(ticks):
            return
        numbers, whole = ticks["tick"], ticks["whole_ns"]
        before = numbers[0] - 1 if self._number is None else self._number
        skipped = np.diff(numbers, prepend=before) - 1
        self._number = int(numbers[-1])
        # A tick in which the policy was not asked is short, and would make the policy look faster than it is.
        counted = (ticks["inference_ns"] > 0) | ticks["missed"]
        if not skipped.any():
            self._store(whole[counted])
            return
        for index in range(len(ticks)):
            # The first of the skipped periods waited longest for the next command, the last one waited one period.
            late = np.arange(min(int(skipped[index]), len(self._durations)), 0, -1) * self._period_ns
            self._store(whole[index] + late)
            self._store(whole[index : index + 1][counted[index : index + 1]])

    def seconds(self) -> tuple[float, ...]:
        """Return the durations in the order of the ticks [s]."""
        size = len(self._durations)
        if self._count <= size:
            return tuple((self._durations[: self._count] / 1e9).tolist())
        # The oldest duration is at the place that is overwritten next.
        return tuple((np.roll(self._durations, -(self._count % size)) / 1e9).tolist())

    def _store(self, durations: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        kept = durations[-len(self._durations) :]
        slots = np.arange(self._count, self._count + len(kept)) % len(self._durations)
        # The evidence takes positive durations only.
        self._durations[slots] = np.maximum(kept, 1)
        self._count += len(kept)
