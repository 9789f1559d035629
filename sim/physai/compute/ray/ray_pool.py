"""Workers on Ray: each an actor in a process of its own, on this computer or another one."""

import os
import socket
import time
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Generic, Self

from physai.compute.pool import MAX_JOBS, Request, Result, Subject, Work, WorkerError, Workers, attempt
from physai.compute.ray.cluster import ClusterError, brief, connected, require_same_versions, versions
from physai.compute.ray.head import Head, says_whether_lost
from physai.sdk.base.errors import PhysaiError

START_S = 180.0
"""How long the first worker may take to start, for instance while a cluster starts another computer [s]."""
MAX_LOSSES = 3
"""How often a request is computed again because its worker died."""
PACKAGES = ("physai-sdk", "mujoco", "numpy", "onnxruntime")
"""Packages that must have the same version everywhere, because numbers depend on them."""


class WorkerActor:
    """Content of an actor's process."""

    def __init__(self, work: Work[Any, Any, Any], subject: Any) -> None:
        self._work, self._subject = work, subject

    def about(self) -> dict[str, str]:
        """Versions of what computes, host and process."""
        return {**versions(PACKAGES), "host": socket.gethostname(), "pid": str(os.getpid())}

    def compute(self, request: Any) -> Any:
        """The result of a request, or the error of bad input that prevents it."""
        return attempt(self._work, self._subject, request)


class RayWorkers(Workers[Request, Result], Generic[Subject, Request, Result]):
    """Computes requests in actors; one that dies is replaced, and its request computed again."""

    def __init__(
        self,
        work: Work[Subject, Request, Result],
        subject: Subject,
        address: str,
        *,
        jobs: int | None = None,
        most: int = MAX_JOBS,
        isolate: bool = False,
    ) -> None:
        """Starts nothing yet.

        Args:
            work: see `physai.compute.pool`.
            subject: what all requests have in common; picklable, with paths that hold on all computers.
            address: see `physai.compute.ray.cluster.connected`.
            jobs: number of actors, each on a processor; None for all that the cluster has.
            most: maximum number of actors if `jobs` is None, for instance the number of requests.
            isolate: answer a request that kills its workers with the error, instead of ending the computation.
        """
        self._work, self._subject, self._address, self._jobs = work, subject, address, jobs
        self._isolate, self._most = isolate, most
        self._stack = ExitStack()
        self._free: list[Any] = []
        self._busy: dict[Any, tuple[Any, Request]] = {}
        """Actor and request by the reference of the result."""
        self._losses: dict[int, int] = {}
        """Lost workers by the identity of the request."""
        self._about: dict[Any, Any] = {}
        """References of what actors say about themselves, until they have said it."""
        self.processes: dict[Any, tuple[str, int]] = {}
        """Host and process of each actor that has started."""
        self.replaced = 0
        """Actors that died and were replaced."""

    def __enter__(self) -> Self:
        """Connects and starts the actors.

        Raises:
            ClusterError: the cluster cannot be joined.
            MissingExtraError: ray is not installed.
        """
        self._ray: Any = self._stack.enter_context(connected(self._address, processors=self._jobs or 1))
        self.head = Head(self._ray, way_out="run the command again")
        if self._jobs is None:
            self._jobs = max(1, min(MAX_JOBS, self._most, int(self._ray.cluster_resources().get("CPU", 1.0))))
        self._actor: Any = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(WorkerActor)
        # One copy per computer.
        self._shared = self._ray.put(self._subject)
        self._free = [self._begin() for _ in range(self._jobs)]
        self._since = time.monotonic()
        return self

    def _begin(self) -> Any:
        actor = self._actor.remote(self._work, self._shared)
        self._about[actor] = actor.about.remote()
        return actor

    @property
    def idle(self) -> int:
        return len(self._free)

    @says_whether_lost
    def start(self, request: Request) -> None:
        self._submit(self._free.pop(), request)

    def _submit(self, actor: Any, request: Request) -> None:
        self._busy[actor.compute.remote(request)] = actor, request

    @says_whether_lost
    def finished(self) -> list[tuple[Request, Result | PhysaiError]]:
        done: list[tuple[Request, Result | PhysaiError]] = []
        while self._busy and not done:
            self.head.require()
            self._hear()
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=1.0)
            for reference in ready:
                actor, request = self._busy.pop(reference)
                try:
                    # A result may be there before it was looked who computes it.
                    self._check(actor)
                    result = self._ray.get(reference)
                except self._ray.exceptions.RayTaskError as error:
                    raise RuntimeError(str(error)) from error
                except self._ray.exceptions.RayError as error:
                    lost = self._replace(actor, request, error)
                    if lost is not None:
                        done.append((request, lost))
                    continue
                self._losses.pop(id(request), None)
                done.append((request, result))
                self._free.append(actor)
        return done

    def _hear(self) -> None:
        """Note which actors have started, and refuse those that would compute other numbers."""
        if not self._about:
            return
        ready, _ = self._ray.wait(list(self._about.values()), num_returns=len(self._about), timeout=0.0)
        for actor, reference in list(self._about.items()):
            if reference in ready:
                # If it died, its request is lost, too, and says so.
                with suppress(self._ray.exceptions.RayActorError):
                    self._check(actor)
        waited_s = time.monotonic() - self._since
        if not self.processes and not waited_s <= START_S:
            raise ClusterError(
                f"no worker has started in {waited_s:.0f} s: each takes a processor, the cluster has "
                f"{self._ray.cluster_resources().get('CPU', 0.0):g}, "
                f"{self._ray.available_resources().get('CPU', 0.0):g} of them free; wait for other work to end, or add "
                "computers with `ray start --address`"
            )

    def _check(self, actor: Any) -> None:
        """Note where an actor is, once it has started; refuse it if it would compute other numbers."""
        reference = self._about.pop(actor, None)
        if reference is None:
            return
        about: dict[str, str] = self._ray.get(reference)
        require_same_versions(about["host"], {name: about[name] for name in PACKAGES})
        self.processes[actor] = about["host"], int(about["pid"])

    def _replace(self, actor: Any, request: Request, error: Exception) -> WorkerError | None:
        self._about.pop(actor, None)
        self.processes.pop(actor, None)
        losses = self._losses[id(request)] = self._losses.get(id(request), 0) + 1
        if losses > MAX_LOSSES:
            lost = WorkerError(
                f"{losses} workers died while they computed the same request, the last because: {brief(error)}; if "
                "memory is short, use fewer --jobs"
            )
            if not self._isolate:
                raise lost from error
            del self._losses[id(request)]
            self._free.append(self._begin())
            return lost
        self.replaced += 1
        self._submit(self._begin(), request)
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without a head they end by themselves.
        if self.head.usable:
            for actor in [*self._free, *(actor for actor, _ in self._busy.values())]:
                self._ray.kill(actor, no_restart=True)
        self.head.close()
        self._stack.close()
