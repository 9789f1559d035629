"""A worker process: takes jobs from the queue and runs each in a process of its own.

`python -m physai.service.jobs.worker PARENT_PID NODE URL DATA DEVICE HOLDER`; dies with the service that started
it, to which its stdout is the pulse.
"""

import contextlib
import errno
import json
import math
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError

from physai.compute.database import connect, hurry
from physai.sdk.base.files import write_atomic
from physai.sdk.base.process.isolation import die_with_parent
from physai.service.database.private import is_private
from physai.service.database.store import require_store
from physai.service.jobs.child import EXIT_FILE, INTERRUPTED_FILE, LOG_FILE, STDOUT_FILE
from physai.service.jobs.kinds import INPUT, KINDS, OUTPUT
from physai.service.jobs.pulse import beat
from physai.service.jobs.queue import LEASE_S, Artefact, ClaimedJob, JobQueue, Line
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore

POLL_S = 0.5
"""How often an idle worker looks for a job [s]."""
REPORT_S = 1.0
"""How often a busy worker renews its lease and asks whether to cancel [s]."""
GRACE_S = 30.0
"""Time that a cancelled job has to save what it has [s]."""
JOB_FILE = "job.json"
"""In a job's folder: identifier, kind and specification, for people who find the folder."""
MAX_STDOUT_BYTES = 64 * 2**20
MAX_ARTEFACTS = 10000

_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
_AWAY = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        *(errno.EAGAIN, errno.ENOTCONN, errno.EHOSTDOWN, errno.ETIMEDOUT),
    )
)
_NODE = re.compile(r"[^A-Za-z0-9._-]")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def node_name(data: Path) -> str:
    """Name of a machine and data folder; a worker's name begins with it."""
    return f"{_NODE.sub('-', socket.gethostname())[:40]}:{data.resolve()}"[:100]


def is_away(error: Exception) -> bool:
    """Whether an error says that database, disk or machine cannot do now what they can do at other times."""
    if isinstance(error, SQLAlchemyError):
        # A statement that the database refuses for what is in it is refused again.
        return not isinstance(error, DataError | IntegrityError | ProgrammingError)
    return isinstance(error, OSError) and error.errno in _AWAY


@dataclass
class Unsaid:
    """Lines of a job that may not be stored yet."""

    lines: deque[Line] = field(default_factory=lambda: deque[Line](maxlen=50))
    again: bool = False
    """Whether some may be stored nevertheless: the database went away before it said so."""


class Worker:
    """Runs jobs one after another.

    While the database or the disk is away, a running job goes on, and what is to be stored waits.
    """

    def __init__(
        self,
        jobs: JobQueue,
        blobs: BlobStore,
        folder: Path,
        name: str,
        *,
        device: str = "cpu",
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """A worker that keeps the jobs' folders in `folder`; `device` is for `validate` jobs, `beat` is its pulse."""
        self._device = device
        self._beat = beat
        self._jobs = jobs
        self._blobs = blobs
        self._folder = folder
        self.name = name
        self.stopping = False
        self._away = -math.inf
        """When the database or the disk was last away, on the monotonic clock [s]."""

    def run(self) -> None:
        """Runs jobs until `stopping` is set."""
        while not self.stopping:
            claim = self._claim()
            if claim is None:
                time.sleep(POLL_S)
                continue
            try:
                self._run_job(claim)
            except Exception as error:
                self._give_back(claim, error)

    def _give_back(self, claim: ClaimedJob, error: Exception) -> None:
        """Returns a job that this worker could not carry out; if that fails as well, its lease ends."""
        away = self._is_away(error)
        self._report_trouble(f"job {claim.job_id} was interrupted: {error}", away=away)
        try:
            self._persist(lambda: self._jobs.give_back(claim, crashed=not away))
        except Exception as second:
            self._report_trouble(f"job {claim.job_id} cannot be given back: {second}", away=False)

    def _is_away(self, error: Exception) -> bool:
        """As `is_away`; also if the data folder is not there, as while its volume is unmounted."""
        return is_away(error) or not self._blobs.present()

    def _claim(self) -> ClaimedJob | None:
        began = time.monotonic()
        self._beat()
        try:
            self._blobs.require_present()
            # Once it was away, jobs are taken only when there is room for what they write.
            if began - self._away < LEASE_S:
                self._blobs.require_room()
            # Others report again first, as this worker does: their leases may have ended while they could not.
            claim = self._jobs.claim(self.name, silent=began - self._away > LEASE_S)
        except Exception as error:
            self._report_trouble(f"no job can be taken now: {error}", away=True)
            return None
        if time.monotonic() - began > LEASE_S / 2:
            self._away = time.monotonic()
        return claim

    def _persist(self, store: Callable[[], object]) -> None:
        """Stores how a job ended, as soon as database and disk are there.

        A worker that stops does not wait for them. The job's folder keeps what it has, and the next attempt finds it.
        """
        while not (self.stopping and time.monotonic() - self._away < LEASE_S):
            self._beat()
            try:
                store()
                return
            except Exception as error:
                if not self._is_away(error):
                    raise
                self._report_trouble(f"the end of a job cannot be stored now: {error}", away=True)
                if not self.stopping:
                    time.sleep(REPORT_S)

    def _report_trouble(self, text: str, *, away: bool) -> None:
        now = time.monotonic()
        if not away or now - self._away > LEASE_S:
            print(f"worker {self.name}: {' '.join(text.split())[:1000]}", file=sys.stderr, flush=True)
        self._away = now if away else self._away

    def _run_job(self, claim: ClaimedJob) -> None:
        folder = self._folder / claim.job_id
        try:
            arguments = self._prepare(claim, folder)
        except (ProblemError, OSError, ValueError) as error:
            if self._is_away(error):
                raise
            message = str(error)
            self._persist(lambda: self._jobs.end(claim, "failed", error=message))
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "physai.service.jobs.child", str(os.getpid()), str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C in the service's terminal must reach the service alone, which then stops its jobs in order.
            start_new_session=True,
        )
        started = time.monotonic()
        try:
            outcome = self._watch(claim, process, folder)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if outcome == "lost":
            return
        if (folder / EXIT_FILE).exists():
            self._finish(claim, folder, started)
        elif outcome == "cancelled":
            self._persist(lambda: self._jobs.end(claim, "cancelled", artefacts=self._collect(folder)))
        else:
            crashed = outcome == "ended" and not self._was_away(started)
            self._persist(lambda: self._jobs.give_back(claim, crashed=crashed))

    def _was_away(self, started: float) -> bool:
        """Whether database or disk were away since an attempt started: then its process may not be to blame."""
        return not self._has_room() or self._away >= started

    def _has_room(self) -> bool:
        """Whether the disk can be written now; a job that ended while it cannot is not to blame."""
        try:
            self._blobs.require_room()
        except OSError as error:
            self._report_trouble(f"the disk cannot be written now: {error}", away=True)
            return False
        return True

    def _prepare(self, claim: ClaimedJob, folder: Path) -> list[str]:
        """Lays out the job's folder; returns the arguments of physai."""
        spec = KINDS[claim.kind].model_validate(claim.spec)
        said = f"{json.dumps({'job': claim.job_id, 'kind': claim.kind, 'spec': claim.spec}, indent=2)}\n".encode()
        _require_own(folder, said)
        # In the place of a volume that is away, no folders are made.
        for place in (folder, folder / OUTPUT, folder / INPUT):
            place.mkdir(exist_ok=True)
        write_atomic(folder / JOB_FILE, said)
        for name, sha256 in spec.inputs().items():
            self._beat()
            target = folder / INPUT / name
            if not target.exists():
                incoming = target.with_name(f".{name}.new")
                shutil.copyfile(self._blobs.path(sha256), incoming)
                incoming.replace(target)
        return [*spec.arguments(folder), *(["--device", self._device] if spec.takes_device else [])]

    def _watch(self, claim: ClaimedJob, process: "subprocess.Popen[bytes]", folder: Path) -> str:
        """Reports progress until the process has ended; returns ended, cancelled, stopped or lost."""
        lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        assert process.stderr is not None
        reader = threading.Thread(target=_read_lines, args=(process.stderr, folder / LOG_FILE, lines), daemon=True)
        reader.start()
        # A job that writes without end must not fill the database; the log has every line.
        unsaid = Unsaid()
        outcome, kill_at = "ended", float("inf")
        while True:
            try:
                process.wait(REPORT_S)
                reader.join(REPORT_S)
            except subprocess.TimeoutExpired:
                pass
            while not lines.empty():
                unsaid.lines.append(lines.get())
            # A disk that was full for a second may have room again when the process has died of it.
            self._has_room()
            cancel = self._report(claim, unsaid)
            if cancel is None:
                process.kill()
                process.wait()
                return "lost"
            if process.returncode is not None:
                return outcome
            if outcome == "ended" and (cancel or self.stopping):
                outcome, kill_at = "cancelled" if cancel else "stopped", time.monotonic() + GRACE_S
                # A full disk has no room for it; then the command's exit code has to say it.
                with contextlib.suppress(OSError):
                    (folder / INTERRUPTED_FILE).touch()
                process.send_signal(signal.SIGINT)
            elif time.monotonic() > kill_at:
                process.kill()

    def _report(self, claim: ClaimedJob, unsaid: Unsaid) -> bool | None:
        """As `JobQueue.report`; lines that cannot be stored now are kept, and nothing is said to be cancelled."""
        self._beat()
        if self.stopping and unsaid.again:
            return False
        try:
            cancel = self._jobs.report(claim, [line for line in unsaid.lines if line.text], again=unsaid.again)
        except SQLAlchemyError as error:
            self._report_trouble(f"job {claim.job_id} goes on, its progress cannot be stored now: {error}", away=True)
            unsaid.again = is_away(error)
            if not unsaid.again:
                unsaid.lines.clear()
            return False
        unsaid.lines.clear()
        unsaid.again = False
        return cancel

    def _finish(self, claim: ClaimedJob, folder: Path, started: float) -> None:
        code = json.loads((folder / EXIT_FILE).read_bytes())["code"]
        with (folder / STDOUT_FILE).open("rb") as file:
            text = file.read(MAX_STDOUT_BYTES)
        try:
            result: Any = json.loads(text)
        except ValueError:
            result = None
        # Without a document on stdout the command refused its input, and said why on stderr; with one, it is the second
        # command that failed.
        if isinstance(result, dict) and code in KINDS[claim.kind].answers:
            answer: dict[str, Any] = {"exit_code": code, "document": result}
            self._persist(lambda: self._jobs.end(claim, "succeeded", result=answer, artefacts=self._collect(folder)))
            return
        error, away = _last_line(folder / LOG_FILE), self._was_away(started)
        if not any(text in error for text in _FULL) and self._has_room():
            self._persist(lambda: self._jobs.end(claim, "failed", error=error, artefacts=self._collect(folder)))
            # A retry runs the command again instead of finding how this attempt ended.
            (folder / EXIT_FILE).unlink()
            return
        (folder / EXIT_FILE).unlink()
        self._persist(lambda: self._jobs.give_back(claim, crashed=not away))

    def _collect(self, folder: Path) -> list[Artefact]:
        output = folder / OUTPUT
        files = sorted(
            path
            for path in output.rglob("*")
            if path.is_file() and not path.is_symlink() and not is_private(path.relative_to(output).as_posix())
        )
        found: list[Artefact] = []
        for path in files[:MAX_ARTEFACTS]:
            self._beat()
            sha256, size = self._blobs.put_file(path)
            found.append(Artefact(str(path.relative_to(output)), sha256, size))
        return found


def _require_own(folder: Path, said: bytes) -> None:
    """Moves a folder aside that is of another job of this name: clients choose names, and databases are restored."""
    with contextlib.suppress(FileNotFoundError):
        if (folder / JOB_FILE).read_bytes() != said:
            folder.rename(folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.other"))


def _read_lines(stream: IO[bytes], log: Path, lines: "queue.SimpleQueue[Line]") -> None:
    # It reads to the end whatever happens to the log: a job whose lines nobody takes stands still.
    with stream, contextlib.ExitStack() as stack:
        file: IO[bytes] | None = None
        with contextlib.suppress(OSError):
            file = stack.enter_context(log.open("ab", buffering=0))
        while line := stream.readline(65536):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.write(line)
            lines.put(Line(_CONTROL.sub("", line.decode("utf-8", "replace")).strip(), time.time()))


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")[:2000]


def main(parent: int, node: str, url: str, data: Path, device: str, holder: str) -> int:
    """Runs a worker until SIGTERM or the parent's death."""
    if not die_with_parent(parent):
        return 1
    name = f"{node}:{parent}:{os.getpid()}"
    engine = connect(url)
    # On another computer the folder of this path may be another one.
    require_store(engine, data)
    (data / "jobs").mkdir(exist_ok=True)
    jobs = JobQueue(engine, holder=holder or None)
    worker = Worker(jobs, BlobStore(data / "blobs"), data / "jobs", name, device=device, beat=beat)

    def stop(_: int, __: FrameType | None) -> None:
        worker.stopping = True
        hurry()

    # Ray's processes, one of which may have started this one, block SIGINT, which ends jobs in order.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:]))
