"""Runs a service's jobs; the interface, and processes of this machine behind it."""

import os
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from physai.sim.service.jobs.queue import JobQueue
from physai.sim.service.jobs.worker import GRACE_S, node_name

RESTART_S = 1.0


class JobExecutor(Protocol):
    """Takes jobs from a queue and runs them somewhere."""

    def start(self) -> None:
        """Begins to take jobs."""
        ...

    def stop(self) -> None:
        """Stops taking jobs; running ones save what they have and return to the queue. May be called twice."""
        ...


class Supervisor(ABC):
    """An executor whose workers a thread of the service watches."""

    def __init__(self, jobs: JobQueue, data: Path, workers: int) -> None:
        """Watches nothing yet.

        Args:
            jobs: the queue.
            data: data folder of the service.
            workers: how many run at once.
        """
        self._jobs = jobs
        self._node = node_name(data)
        self._workers = workers
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="workers", daemon=True)

    def start(self) -> None:
        """Begins to take jobs."""
        # This service holds the lock of its data folder, so workers of this node are those of a dead service.
        self._jobs.release(f"{self._node}:")
        self._thread.start()

    def stop(self) -> None:
        """Stops taking jobs; running ones save what they have and return to the queue. May be called twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def _supervise(self) -> None:
        """Starts the workers, replaces those that die, and ends them once `_stopping` is set."""


class LocalExecutor(Supervisor):
    """Worker processes of this machine, started again whenever one dies."""

    def __init__(self, jobs: JobQueue, url: str, data: Path, workers: int, *, device: str = "cpu") -> None:
        """An executor of `workers` processes, which run one job each at a time; `device` is for `validate` jobs."""
        super().__init__(jobs, data, workers)
        self._command = [
            *(sys.executable, "-m", "physai.sim.service.jobs.worker"),
            *(str(os.getpid()), self._node, url, str(data), device),
        ]

    def _supervise(self) -> None:
        # All processes are started by this thread, which lives as long as the service: the kernel kills a worker when
        # the thread that started it ends.
        processes = [self._spawn() for _ in range(self._workers)]
        while not self._stopping.wait(RESTART_S):
            for index, process in enumerate(processes):
                if process.poll() is not None:
                    self._jobs.release(f"{self._node}:{os.getpid()}:{process.pid}")
                    processes[index] = self._spawn()
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(GRACE_S + 10.0)
            except subprocess.TimeoutExpired:
                process.kill()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)
