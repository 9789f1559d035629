"""Runs a service's jobs; the interface, and processes of this machine behind it."""

import logging
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from physai.service.database.hold import StoreHold
from physai.service.jobs.pulse import Pulse
from physai.service.jobs.queue import JobQueue
from physai.service.jobs.worker import GRACE_S, node_name

RESTART_S = 1.0
"""How often the workers are looked at, and dead ones replaced [s]."""
UNSEEN_S = 10.0
"""Workers that were not looked at for this long are not known to live [s]."""
SILENT_S = 10.0
"""A worker that says nothing for this long hangs; every second is usual [s]."""

log = logging.getLogger("physai.service")
Member = TypeVar("Member")


class JobExecutor(Protocol):
    """Takes jobs from a queue and runs them somewhere."""

    def start(self) -> None:
        """Begins to take jobs."""
        ...

    def begin_stop(self) -> None:
        """As `stop`, without waiting for the end."""
        ...

    def stop(self) -> None:
        """Stops taking jobs; running ones save what they have and return to the queue. May be called twice."""
        ...

    def trouble(self) -> str:
        """Why jobs do not run as they should; empty if they do."""
        ...


class Supervisor(ABC, Generic[Member]):
    """An executor whose workers a thread of the service watches; no error of what it does ends the thread."""

    def __init__(self, jobs: JobQueue, data: Path, workers: int, hold: StoreHold | None = None) -> None:
        """Watches nothing yet.

        Args:
            jobs: the queue.
            data: data folder of the service.
            workers: how many run at once.
            hold: the service's lock of the store, without which none runs.
        """
        self._jobs = jobs
        self._hold = hold
        self._node = node_name(data)
        self._members: list[Member | None] = [None] * workers
        self._replaced = [False] * workers
        """Whether a worker is in the place of one that died, and has not been heard of yet."""
        self._gone: set[str] = set()
        """Names of dead workers whose jobs have not been returned to the queue."""
        self._trouble = "no worker has been started yet"
        self._silent = ""
        self._looked = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="workers", daemon=True)

    def start(self) -> None:
        """Begins to take jobs."""
        # This service holds the lock of its data folder, so workers of this node are those of a dead service.
        self._gone.add(self._node)
        self._looked = time.monotonic()
        self._thread.start()

    def begin_stop(self) -> None:
        """As `stop`, without waiting for the end."""
        self._stopping.set()

    def stop(self) -> None:
        """Stops taking jobs; running ones save what they have and return to the queue. May be called twice."""
        self.begin_stop()
        if self._thread.is_alive():
            self._thread.join()

    def trouble(self) -> str:
        """Why jobs do not run as they should; empty if they do."""
        if not self._thread.is_alive():
            return "the thread that starts the workers has ended; start the service again"
        unseen = time.monotonic() - self._looked
        if not unseen <= UNSEEN_S:
            return f"the workers were last looked at {unseen:.0f} s ago, once per {RESTART_S:g} s is usual"
        return self._trouble

    def _supervise(self) -> None:
        # All processes are started by this thread, which lives as long as the service: the kernel kills a worker when
        # the thread that started it ends.
        while True:
            self._trouble = self._look()
            self._looked = time.monotonic()
            if self._stopping.wait(RESTART_S):
                break
        self._end_all()

    def _look(self) -> str:
        """Looks at all workers, and replaces dead ones; returns why jobs do not run as they should."""
        self._release()
        taken = self._hold.trouble() if self._hold is not None else ""
        if taken:
            self._end_all()
            return taken
        if self._node in self._gone:
            # Jobs of new workers must not be returned with those of old ones.
            return "the jobs of an earlier run cannot be returned to the queue; the service's log says why"
        self._silent = ""
        missing = sum(not self._tend(index) for index in range(len(self._members)))
        self._release()
        if missing:
            return f"{missing} of {len(self._members)} workers are missing; the service's log says why"
        return self._silent

    def _end_all(self) -> None:
        members = [member for member in self._members if member is not None]
        self._members = [None] * len(self._members)
        self._replaced = [False] * len(self._members)
        try:
            if members:
                self._end(members)
        except Exception:
            log.exception("the workers cannot be stopped")

    def _tend(self, index: int) -> bool:
        """Replaces a worker if it is dead; returns whether it can be taken to live."""
        member = self._members[index]
        try:
            if member is not None and self._lives(member):
                return self._listen(index, member)
            if member is not None:
                self._gone.add(self._name(member))
                self._members[index] = None
                # What replaces a dead one has to be heard of: it may die of the same.
                self._replaced[index] = True
                self._bury(member)
            self._members[index] = self._begin()
        except Exception:
            log.exception("worker %d cannot be started or looked at; tried again in %g s", index, RESTART_S)
            return False
        return not self._replaced[index]

    def _listen(self, index: int, member: Member) -> bool:
        began, silent_s = self._hear(member)
        if began:
            self._replaced[index] = False
        if silent_s > SILENT_S:
            self._silent = (
                f"the worker {self._name(member)} has not been heard of for {silent_s:.0f} s; if it hangs for good, "
                "end its process by `kill -9`, and it is replaced"
            )
        return not self._replaced[index]

    def _release(self) -> None:
        for name in sorted(self._gone):
            try:
                self._jobs.release(name)
            except Exception as error:
                # Otherwise the jobs return when their leases end.
                log.error("jobs of the dead worker %s cannot be released now: %s", name, error)
                return
            self._gone.discard(name)

    @abstractmethod
    def _begin(self) -> Member:
        """Starts a worker."""

    @abstractmethod
    def _lives(self, member: Member) -> bool:
        """Whether a worker runs."""

    @abstractmethod
    def _hear(self, member: Member) -> tuple[bool, float]:
        """Whether a worker has ever been heard of, and since when not [s]."""

    @abstractmethod
    def _name(self, member: Member) -> str:
        """The worker's name in the queue, or the beginning of it up to a colon."""

    def _bury(self, member: Member) -> None:
        """Removes what a dead worker leaves."""

    @abstractmethod
    def _end(self, members: list[Member]) -> None:
        """Has workers save their jobs, and ends them."""


@dataclass(frozen=True)
class _Local:
    process: "subprocess.Popen[bytes]"
    pulse: Pulse


class LocalExecutor(Supervisor[_Local]):
    """Worker processes of this machine, started again whenever one dies."""

    def __init__(
        self,
        jobs: JobQueue,
        url: str,
        data: Path,
        workers: int,
        *,
        device: str = "cpu",
        hold: StoreHold | None = None,
    ) -> None:
        """An executor of `workers` processes, which run one job each at a time; `device` is for `validate` jobs."""
        super().__init__(jobs, data, workers, hold)
        self._command = [
            *(sys.executable, "-m", "physai.service.jobs.worker"),
            *(str(os.getpid()), self._node, url, str(data), device, hold.name if hold else ""),
        ]

    def _begin(self) -> _Local:
        process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        return _Local(process, Pulse(process.stdout))

    def _lives(self, member: _Local) -> bool:
        return member.process.poll() is None

    def _hear(self, member: _Local) -> tuple[bool, float]:
        return member.pulse.listen()

    def _name(self, member: _Local) -> str:
        return f"{self._node}:{os.getpid()}:{member.process.pid}"

    def _bury(self, member: _Local) -> None:
        assert member.process.stdout is not None
        member.process.stdout.close()

    def _end(self, members: list[_Local]) -> None:
        for member in members:
            member.process.terminate()
        for member in members:
            try:
                member.process.wait(GRACE_S + 10.0)
            except subprocess.TimeoutExpired:
                member.process.kill()
            self._bury(member)
