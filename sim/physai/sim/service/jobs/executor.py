"""Runs a service's jobs; the interface, and processes of this machine behind it."""

import logging
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from physai.sim.service.jobs.queue import JobQueue
from physai.sim.service.jobs.worker import GRACE_S, node_name

RESTART_S = 1.0
"""How often the workers are looked at, and dead ones replaced [s]."""
UNSEEN_S = 10.0
"""Workers that were not looked at for this long are not known to live [s]."""

log = logging.getLogger("physai.service")
Member = TypeVar("Member")


class JobExecutor(Protocol):
    """Takes jobs from a queue and runs them somewhere."""

    def start(self) -> None:
        """Begins to take jobs."""
        ...

    def stop(self) -> None:
        """Stops taking jobs; running ones save what they have and return to the queue. May be called twice."""
        ...

    def trouble(self) -> str:
        """Why jobs do not run as they should; empty if they do."""
        ...


class Supervisor(ABC, Generic[Member]):
    """An executor whose workers a thread of the service watches; no error of what it does ends the thread."""

    def __init__(self, jobs: JobQueue, data: Path, workers: int) -> None:
        """Watches nothing yet.

        Args:
            jobs: the queue.
            data: data folder of the service.
            workers: how many run at once.
        """
        self._jobs = jobs
        self._node = node_name(data)
        self._members: list[Member | None] = [None] * workers
        self._gone: set[str] = set()
        """Names of dead workers whose jobs have not been returned to the queue."""
        self._missing = workers
        self._looked = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="workers", daemon=True)

    def start(self) -> None:
        """Begins to take jobs."""
        # This service holds the lock of its data folder, so workers of this node are those of a dead service.
        self._jobs.release(self._node)
        self._looked = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stops taking jobs; running ones save what they have and return to the queue. May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def trouble(self) -> str:
        """Why jobs do not run as they should; empty if they do."""
        if not self._thread.is_alive():
            return "the thread that starts the workers has ended; start the service again"
        unseen = time.monotonic() - self._looked
        if not unseen <= UNSEEN_S:
            return f"the workers were last looked at {unseen:.0f} s ago, once per {RESTART_S:g} s is usual"
        if self._missing:
            return f"{self._missing} of {len(self._members)} workers are missing; the service's log says why"
        return ""

    def _supervise(self) -> None:
        # All processes are started by this thread, which lives as long as the service: the kernel kills a worker when
        # the thread that started it ends.
        while True:
            self._missing = sum(not self._tend(index) for index in range(len(self._members)))
            self._release()
            self._looked = time.monotonic()
            if self._stopping.wait(RESTART_S):
                break
        try:
            self._end([member for member in self._members if member is not None])
        except Exception:
            log.exception("the workers cannot be stopped")

    def _tend(self, index: int) -> bool:
        """Replaces a worker if it is dead; returns whether it can be taken to live."""
        member = self._members[index]
        try:
            if member is not None and self._lives(member):
                return True
            if member is not None:
                self._gone.add(self._name(member))
                self._members[index] = None
                self._bury(member)
            self._members[index] = self._begin()
        except Exception:
            log.exception("worker %d cannot be started or looked at; tried again in %g s", index, RESTART_S)
            return False
        # What replaces a dead one has to live until the next look: it may die for the same reason.
        return member is None

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
    def _name(self, member: Member) -> str:
        """The worker's name in the queue, or the beginning of it up to a colon."""

    def _bury(self, member: Member) -> None:
        """Removes what a dead worker leaves."""

    @abstractmethod
    def _end(self, members: list[Member]) -> None:
        """Has workers save their jobs, and ends them."""


class LocalExecutor(Supervisor["subprocess.Popen[bytes]"]):
    """Worker processes of this machine, started again whenever one dies."""

    def __init__(self, jobs: JobQueue, url: str, data: Path, workers: int, *, device: str = "cpu") -> None:
        """An executor of `workers` processes, which run one job each at a time; `device` is for `validate` jobs."""
        super().__init__(jobs, data, workers)
        self._command = [
            *(sys.executable, "-m", "physai.sim.service.jobs.worker"),
            *(str(os.getpid()), self._node, url, str(data), device),
        ]

    def _begin(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)

    def _lives(self, member: "subprocess.Popen[bytes]") -> bool:
        return member.poll() is None

    def _name(self, member: "subprocess.Popen[bytes]") -> str:
        return f"{self._node}:{os.getpid()}:{member.pid}"

    def _end(self, members: "list[subprocess.Popen[bytes]]") -> None:
        for process in members:
            process.terminate()
        for process in members:
            try:
                process.wait(GRACE_S + 10.0)
            except subprocess.TimeoutExpired:
                process.kill()
