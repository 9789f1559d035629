"""Workers that fan a computation out: in this process, in processes of this computer, or on Ray.

All compute `work(subject, request)` with the same subject for many requests, so a result must not depend on the worker.
"""

import multiprocessing
import os
import signal
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.extras import missing_extra

MAX_JOBS = 256

Subject = TypeVar("Subject")
Request = TypeVar("Request")
Result = TypeVar("Result")
Work = Callable[[Subject, Request], Result]
"""A function at the top level of a module, which other processes import."""


class WorkerError(PhysaiError):
    """A worker died before it finished, or none can be started."""


class Workers(ABC, Generic[Request, Result]):
    """Computes requests, some at a time; entered before the first."""

    @property
    @abstractmethod
    def idle(self) -> int:
        """Number of further requests that can be started."""

    @abstractmethod
    def start(self, request: Request) -> None:
        """Start a request; call only while `idle` is above 0.

        Raises:
            WorkerError: the worker died and is not replaced.
        """

    @abstractmethod
    def finished(self) -> list[tuple[Request, Result | PhysaiError]]:
        """Wait until at least one request is done; empty if none is running.

        Returns:
            Requests with their results, or with the errors that prevented them.

        Raises:
            WorkerError: a worker died and is not replaced.
        """

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class InProcess(Workers[Request, Result], Generic[Subject, Request, Result]):
    """Computes one request at a time, in this process."""

    def __init__(self, work: Work[Subject, Request, Result], subject: Subject) -> None:
        self._work, self._subject = work, subject
        self._waiting: list[Request] = []

    @property
    def idle(self) -> int:
        return 1 - len(self._waiting)

    def start(self, request: Request) -> None:
        self._waiting.append(request)

    def finished(self) -> list[tuple[Request, Result | PhysaiError]]:
        done = [(request, attempt(self._work, self._subject, request)) for request in self._waiting]
        self._waiting.clear()
        return done

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Processes(Workers[Request, Result], Generic[Subject, Request, Result]):
    """Computes requests in `jobs` processes; one that dies ends the computation."""

    def __init__(
        self,
        work: Work[Subject, Request, Result],
        subject: Subject,
        jobs: int,
        *,
        advice: str = "",
        isolate: bool = False,
    ) -> None:
        """Start the processes.

        Args:
            work: see the module.
            subject: what all requests have in common; picklable.
            jobs: number of processes.
            advice: what the user can do if one dies, for the message.
            isolate: replace a process that dies, and answer its request with the error.
        """
        # Not a `ProcessPoolExecutor`: it neither terminates running requests on an error nor reports the exit code of a
        # worker that died.
        # A forked process would inherit the locks of onnxruntime's and MuJoCo's threads without the threads.
        self._context = multiprocessing.get_context("spawn")
        self._work, self._subject, self._advice, self._isolate = work, subject, advice, isolate
        self._busy: dict[Connection, Request] = {}
        self._free: list[Connection] = []
        self._processes: dict[Connection, Any] = {}
        for _ in range(jobs):
            self._begin()

    def _begin(self) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._work, self._subject), daemon=True)
        process.start()
        theirs.close()
        self._processes[ours] = process
        self._free.append(ours)

    @property
    def idle(self) -> int:
        return len(self._free)

    def start(self, request: Request) -> None:
        connection = self._free.pop()
        self._busy[connection] = request
        try:
            connection.send(request)
        except OSError:
            if not self._isolate:
                raise self._lost(connection) from None
            # The answer, which `finished` waits for, is that the process died.

    def finished(self) -> list[tuple[Request, Result | PhysaiError]]:
        done: list[tuple[Request, Result | PhysaiError]] = []
        for connection in wait(list(self._busy)) if self._busy else []:
            assert isinstance(connection, Connection)
            try:
                answer: Any = connection.recv()
            except (EOFError, OSError):
                lost = self._lost(connection)
                if not self._isolate:
                    raise lost from None
                done.append((self._busy.pop(connection), lost))
                del self._processes[connection]
                connection.close()
                self._begin()
                continue
            if isinstance(answer, BaseException) and not isinstance(answer, PhysaiError):
                raise answer
            done.append((self._busy.pop(connection), answer))
            self._free.append(connection)
        return done

    def _lost(self, connection: Connection) -> WorkerError:
        process = self._processes[connection]
        process.join(5.0)
        return WorkerError(f"a worker process ended with code {process.exitcode}{self._advice}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in self._processes.items():
            process.terminate()
            connection.close()
        for process in self._processes.values():
            process.join()


def compute_all(
    workers: Workers[Request, Result], requests: Sequence[Request]
) -> Iterator[tuple[int, Result | PhysaiError]]:
    """Compute all requests; yields the number of each in the sequence with its result, as they are done.

    Args:
        workers: entered and left here.
        requests: hashable and different.

    Raises:
        WorkerError: see `Workers`.
    """
    numbers = {request: number for number, request in enumerate(requests)}
    waiting = deque(requests)
    running = 0
    with workers:
        while waiting or running:
            while waiting and workers.idle:
                workers.start(waiting.popleft())
                running += 1
            for request, result in workers.finished():
                running -= 1
                yield numbers[request], result


def attempt(work: Work[Subject, Request, Result], subject: Subject, request: Request) -> Result | PhysaiError:
    """Return the result, or the error of bad input or of a missing extra that prevents it."""
    try:
        return work(subject, request)
    except PhysaiError as error:
        return error
    except ModuleNotFoundError as error:
        if (error.name or "physai").split(".")[0] == "physai":
            raise
        return missing_extra("a worker", error)


def _serve(connection: Connection, work: Work[Any, Any, Any], subject: Any) -> None:
    """Compute the requests received until the parent closes the connection."""
    # Ctrl-C reaches the whole process group, but only the parent may stop the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    while True:
        try:
            request: Any = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = attempt(work, subject, request)
        except Exception as error:  # a bug: the parent raises it with the worker's traceback
            answer = RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        connection.send(answer)


def require_jobs(jobs: int) -> None:
    """Raises PhysaiError for a number of workers out of range."""
    if not 1 <= jobs <= MAX_JOBS:
        raise PhysaiError(f"`jobs` must be in 1 … {MAX_JOBS}, got {jobs}")
