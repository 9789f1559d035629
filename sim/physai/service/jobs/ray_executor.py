"""Runs a service's jobs on Ray: its worker processes are started by actors, here or on other computers."""

import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physai.compute.ray.cluster import ClusterError, answers
from physai.service.database.hold import StoreHold
from physai.service.jobs.executor import Supervisor
from physai.service.jobs.pulse import Pulse
from physai.service.jobs.queue import JobQueue
from physai.service.jobs.worker import GRACE_S

HEAD_S = 2.0
"""How long the head of the cluster may take to accept a connection, and to answer [s]."""


class JobWorkerActor:
    """Starts a worker process, which dies with the actor, on the actor's computer."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pulse: Pulse | None = None
        self._stopping = False

    def run(self, node: str, *arguments: str) -> int:
        """Runs the worker; returns its exit code."""
        command = [sys.executable, "-m", "physai.service.jobs.worker", str(os.getpid()), node, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        self._pulse = Pulse(self._process.stdout)
        if self._stopping:
            self._process.terminate()
        return self._process.wait()

    def hear(self) -> tuple[bool, float]:
        """Whether the worker has ever been heard of, and since when not [s]."""
        return self._pulse.listen() if self._pulse is not None else (False, 0.0)

    def stop(self) -> None:
        """Has the worker save its job and end."""
        self._stopping = True
        if self._process is not None:
            self._process.terminate()


@dataclass
class _Member:
    actor: Any
    running: Any
    """Reference of the worker's exit code."""
    node: str
    """Begin of the worker's name in the queue."""
    asked: Any
    """Reference of the answer to `hear`."""
    began: bool = False
    silent_s: float = 0.0
    answered: float = field(default_factory=time.monotonic)


class RayJobExecutor(Supervisor[_Member]):
    """Worker processes on the computers of a Ray cluster, started again whenever one dies."""

    def __init__(
        self, ray: Any, jobs: JobQueue, url: str, data: Path, workers: int, hold: StoreHold | None = None
    ) -> None:
        """An executor of `workers` processes, which run one job each at a time.

        Args:
            ray: the module, connected with a cluster for longer than the executor runs.
            jobs: the queue.
            url: the database; all computers reach it.
            data: the service's folder; at the same path on all computers.
            workers: number of processes.
            hold: the service's lock of the store.

        Raises:
            ClusterError: the cluster has several computers, and the database is a file of this one.
        """
        computers = sum(bool(node["Alive"]) for node in ray.nodes())
        if computers > 1 and url.startswith("sqlite"):
            raise ClusterError(
                f"the cluster has {computers} computers, and SQLite works on one only; add `db` "
                "postgresql+psycopg://USER@HOST/NAME, or use `ray` local"
            )
        super().__init__(jobs, data, workers, hold)
        self._ray = ray
        self._head: str = ray.get_runtime_context().gcs_address
        self._answered = time.monotonic()
        self._arguments = url, str(data), "cpu", hold.name if hold else ""
        # Three calls at a time: `hear` and `stop` arrive while `run` runs. Supervision is ours: the queue has to know.
        self._actor: Any = ray.remote(num_cpus=1, max_concurrency=3, max_restarts=0)(JobWorkerActor)

    def _look(self) -> str:
        # Ray's calls may wait for the head for ever.
        if answers(self._head, timeout_s=HEAD_S):
            self._answered = time.monotonic()
            return super()._look()
        silent_s = time.monotonic() - self._answered
        return f"Ray has not answered for {silent_s:.0f} s at {self._head}; start its head and this service again"

    def _begin(self) -> _Member:
        actor, node = self._actor.remote(), f"{self._node}:{secrets.token_hex(4)}"
        return _Member(actor, actor.run.remote(node, *self._arguments), node, actor.hear.remote())

    def _lives(self, member: _Member) -> bool:
        # The reference is also ready if the actor or its computer died.
        return not self._ray.wait([member.running], timeout=0.0)[0]

    def _hear(self, member: _Member) -> tuple[bool, float]:
        if self._ray.wait([member.asked], timeout=0.0)[0]:
            member.began, member.silent_s = self._ray.get(member.asked)
            member.answered = time.monotonic()
            member.asked = member.actor.hear.remote()
        return member.began, member.silent_s + time.monotonic() - member.answered

    def _name(self, member: _Member) -> str:
        return member.node

    def _bury(self, member: _Member) -> None:
        self._ray.kill(member.actor)

    def _end(self, members: list[_Member]) -> None:
        if not answers(self._head, timeout_s=HEAD_S):
            # The actors end with the cluster, and their jobs go on at the next start.
            return
        for member in members:
            member.actor.stop.remote()
        if members:
            running = [member.running for member in members]
            self._ray.wait(running, num_returns=len(running), timeout=GRACE_S + 10.0)
        for member in members:
            self._ray.kill(member.actor)
