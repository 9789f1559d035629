"""Worker processes that play batches; a single job runs in this process."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from physai.sdk.base.errors import PhysaiError
from physai.sim.gates.execution.batch import Batch, BatchResult
from physai.sim.gates.execution.rollout import play_batch
from physai.sim.gates.execution.subject import ValidationSubject

MAX_JOBS = 256


class WorkerError(PhysaiError):
    """A worker process died before it finished its batch."""


def play(subject: ValidationSubject, batch: Batch) -> BatchResult:
    """Play a batch of a subject."""
    return play_batch(subject.policy(batch.arm), subject.task, subject.twin, batch)


WorkerResult = BatchResult | PhysaiError
"""Result of a batch, or the error that prevented it."""


def _try_play(subject: ValidationSubject, batch: Batch) -> WorkerResult:
    try:
        return play(subject, batch)
    except PhysaiError as error:
        return error


class Workers:
    """Plays one batch at a time, in this process."""

    def __init__(self, subject: ValidationSubject) -> None:
        self._subject = subject
        self._waiting: list[Batch] = []

    @property
    def idle(self) -> int:
        """Number of further batches that can be started."""
        return 1 - len(self._waiting)

    def start(self, batch: Batch) -> None:
        """Start a batch; call only while `idle` is above 0."""
        self._waiting.append(batch)

    def finished(self) -> list[tuple[Batch, WorkerResult]]:
        """Wait until at least one batch is done; empty if none is running."""
        done = [(batch, _try_play(self._subject, batch)) for batch in self._waiting]
        self._waiting.clear()
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Processes(Workers):
    """Plays batches in `jobs` processes, each with its own engine and inference session."""

    def __init__(self, subject: ValidationSubject, jobs: int) -> None:
        """Start the processes."""
        super().__init__(subject)
        # Not a `ProcessPoolExecutor`: it neither terminates running batches on an error nor reports the exit code of a
        # worker that died.
        # A forked process would inherit the locks of onnxruntime's and MuJoCo's threads without the threads.
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

    def finished(self) -> list[tuple[Batch, WorkerResult]]:
        done: list[tuple[Batch, WorkerResult]] = []
        for connection in wait(list(self._busy)) if self._busy else []:
            assert isinstance(connection, Connection)
            try:
                answer: Any = connection.recv()
            except (EOFError, OSError):
                raise self._lost(connection) from None
            if isinstance(answer, BaseException) and not isinstance(answer, PhysaiError):
                raise answer
            result = answer if isinstance(answer, PhysaiError) else BatchResult.from_bytes(answer)
            done.append((self._busy.pop(connection), result))
            self._free.append(connection)
        return done

    def _lost(self, connection: Connection) -> WorkerError:
        process = self._processes[connection]
        process.join(5.0)
        return WorkerError(
            f"a worker process ended with code {process.exitcode}; if memory is short, use fewer --jobs or a "
            "smaller `batch` in the gates file. Run the same command again to resume"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in self._processes.items():
            process.terminate()
            connection.close()
        for process in self._processes.values():
            process.join()


def make_workers(subject: ValidationSubject, jobs: int) -> Workers:
    """Return workers that play `jobs` batches at a time.

    Raises:
        PhysaiError: jobs is out of range.
    """
    if not 1 <= jobs <= MAX_JOBS:
        raise PhysaiError(f"--jobs must be in 1 … {MAX_JOBS}, got {jobs}")
    return Workers(subject) if jobs == 1 else Processes(subject, jobs)


def _serve(connection: Connection, subject: ValidationSubject) -> None:
    """Play the batches received until the parent closes the connection."""
    # Ctrl-C reaches the whole process group, but only the parent may stop the workers.
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
        result = _try_play(subject, batch)
        answer: Any = result.to_bytes() if isinstance(result, BatchResult) else result
    except Exception as error:  # a bug: the parent raises it with the worker's traceback
        answer = RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    send(answer)
