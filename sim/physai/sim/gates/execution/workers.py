"""Processes that play batches. With one job everything is played right here."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Protocol, Self

from physai.sdk.base.errors import PhysaiError
from physai.sim.gates.execution.batch import Batch, BatchResult
from physai.sim.gates.execution.rollout import play_batch
from physai.sim.gates.execution.subject import ValidationSubject

MAX_JOBS = 256


class WorkerError(PhysaiError):
    """A worker process ended before its batch did."""


def play(subject: ValidationSubject, batch: Batch) -> BatchResult:
    """Plays a batch of a subject."""
    return play_batch(subject.policy(batch.arm), subject.task, subject.twin, batch)


WorkerAnswer = BatchResult | PhysaiError
"""What became of a batch, or why it could not be played."""


def _played(subject: ValidationSubject, batch: Batch) -> WorkerAnswer:
    try:
        return play(subject, batch)
    except PhysaiError as error:
        return error


class Workers(Protocol):
    """Whoever plays batches."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def idle(self) -> int:
        """How many more batches can be started."""
        ...

    def start(self, batch: Batch) -> None:
        """Begins with a batch; call only while `idle` is above 0."""
        ...

    def finished(self) -> list[tuple[Batch, WorkerAnswer]]:
        """Waits until at least one batch is done; empty if none is being played."""
        ...


def make_workers(subject: ValidationSubject, jobs: int) -> Workers:
    """Workers for that many batches at once.

    Raises:
        PhysaiError: jobs is out of range.
    """
    if not 1 <= jobs <= MAX_JOBS:
        raise PhysaiError(f"--jobs must lie in 1 … {MAX_JOBS}, got {jobs}")
    return InProcessWorkers(subject) if jobs == 1 else Processes(subject, jobs)


@dataclass
class InProcessWorkers:
    """Plays in this process."""

    subject: ValidationSubject
    waiting: list[Batch] = field(default_factory=list[Batch])

    @property
    def idle(self) -> int:
        return 1 - len(self.waiting)

    def start(self, batch: Batch) -> None:
        self.waiting.append(batch)

    def finished(self) -> list[tuple[Batch, WorkerAnswer]]:
        done = [(batch, _played(self.subject, batch)) for batch in self.waiting]
        self.waiting.clear()
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Processes:
    """Plays in processes of its own: an engine and a session each, none shared."""

    def __init__(self, subject: ValidationSubject, jobs: int) -> None:
        """Starts `jobs` processes."""
        # A forked process would inherit the threads' locks of onnxruntime and MuJoCo, but not the threads.
        context = multiprocessing.get_context("spawn")
        self._busy: dict[Connection, Batch] = {}
        self._free: list[Connection] = []
        self._processes: dict[Connection, Any] = {}
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, subject), daemon=True)
            process.start()
            theirs.close()
            self._processes[ours] = process
            self._free.append(ours)

    @property
    def idle(self) -> int:
        return len(self._free)

    def start(self, batch: Batch) -> None:
        connection = self._free.pop()
        self._busy[connection] = batch
        try:
            connection.send(batch)
        except OSError:
            raise self._lost(connection) from None

    def finished(self) -> list[tuple[Batch, WorkerAnswer]]:
        done: list[tuple[Batch, WorkerAnswer]] = []
        for connection in wait(list(self._busy)) if self._busy else []:
            assert isinstance(connection, Connection)
            try:
                answer: Any = connection.recv()
            except (EOFError, OSError):
                raise self._lost(connection) from None
            if isinstance(answer, BaseException) and not isinstance(answer, PhysaiError):
                raise answer
            found = answer if isinstance(answer, PhysaiError) else BatchResult.from_bytes(answer)
            done.append((self._busy.pop(connection), found))
            self._free.append(connection)
        return done

    def _lost(self, connection: Connection) -> WorkerError:
        process = self._processes[connection]
        process.join(5.0)
        return WorkerError(
            f"a worker process ended with code {process.exitcode}; where memory is short, use fewer --jobs or a "
            "smaller `batch` in the gates file. Run the same command again: it continues where it was"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in self._processes.items():
            process.terminate()
            connection.close()
        for process in self._processes.values():
            process.join()


def _serve(connection: Connection, subject: ValidationSubject) -> None:
    """A worker's life: plays what it is sent until the other side has gone."""
    # Ctrl-C reaches the whole process group; the parent decides what becomes of the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    while True:
        try:
            batch: Batch = connection.recv()
        except (EOFError, OSError):
            return
        _answer(connection.send, subject, batch)


def _answer(send: Callable[[Any], None], subject: ValidationSubject, batch: Batch) -> None:
    try:
        found = _played(subject, batch)
        answer: Any = found.to_bytes() if isinstance(found, BatchResult) else found
    except Exception as error:  # a bug of ours: the parent raises it with the worker's traceback
        answer = RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    send(answer)
