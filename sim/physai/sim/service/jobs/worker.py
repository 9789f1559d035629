"""A worker process: takes jobs from the queue and runs each in a process of its own.

`python -m physai.sim.service.jobs.worker PARENT_PID NODE URL DATA DEVICE`; dies with the service that started it.
"""

import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import FrameType
from typing import IO, Any

from physai.sdk.base.isolation import die_with_parent
from physai.sim.database import connect
from physai.sim.service.jobs.child import EXIT_FILE, INTERRUPTED_FILE, LOG_FILE, STDOUT_FILE
from physai.sim.service.jobs.kinds import INPUT, KINDS, OUTPUT
from physai.sim.service.jobs.queue import Artefact, Claim, JobQueue
from physai.sim.service.problems import ProblemError
from physai.sim.service.registry.blobs import BlobStore

POLL_S = 0.5
"""How often an idle worker looks for a job [s]."""
REPORT_S = 1.0
"""How often a busy worker renews its lease and asks whether to cancel [s]."""
GRACE_S = 30.0
"""Time that a cancelled job has to save what it has [s]."""
MAX_STDOUT_BYTES = 64 * 2**20
MAX_ARTEFACTS = 10000

_NODE = re.compile(r"[^A-Za-z0-9._-]")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def node_name(data: Path) -> str:
    """Name of a machine and data folder; a worker's name begins with it."""
    return f"{_NODE.sub('-', socket.gethostname())[:40]}:{data.resolve()}"[:100]


class Worker:
    """Runs jobs one after another."""

    def __init__(self, jobs: JobQueue, blobs: BlobStore, folder: Path, name: str, *, device: str = "cpu") -> None:
        """A worker that keeps the jobs' folders in `folder`; `device` is for `validate` jobs."""
        self._device = device
        self._jobs = jobs
        self._blobs = blobs
        self._folder = folder
        self.name = name
        self.stopping = False

    def run(self) -> None:
        """Runs jobs until `stopping` is set."""
        while not self.stopping:
            claim = self._jobs.claim(self.name)
            if claim is None:
                time.sleep(POLL_S)
                continue
            self._run_job(claim)

    def _run_job(self, claim: Claim) -> None:
        folder = self._folder / claim.job_id
        try:
            arguments = self._prepare(claim, folder)
        except (ProblemError, OSError, ValueError) as error:
            self._jobs.end(claim, "failed", error=str(error))
            return
        process = subprocess.Popen(
            [sys.executable, "-m", "physai.sim.service.jobs.child", str(os.getpid()), str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C in the service's terminal must reach the service alone, which then stops its jobs in order.
            start_new_session=True,
        )
        outcome = self._watch(claim, process, folder)
        if outcome == "lost":
            return
        if (folder / EXIT_FILE).exists():
            self._finish(claim, folder)
        elif outcome == "cancelled":
            self._jobs.end(claim, "cancelled", artefacts=self._collect(folder))
        else:
            self._jobs.give_back(claim, crashed=outcome == "ended")

    def _prepare(self, claim: Claim, folder: Path) -> list[str]:
        """Lays out the job's folder; returns the arguments of physai."""
        spec = KINDS[claim.kind].model_validate(claim.spec)
        (folder / OUTPUT).mkdir(parents=True, exist_ok=True)
        (folder / INPUT).mkdir(exist_ok=True)
        for name, sha256 in spec.inputs().items():
            target = folder / INPUT / name
            if not target.exists():
                incoming = target.with_name(f".{name}.new")
                shutil.copyfile(self._blobs.path(sha256), incoming)
                incoming.replace(target)
        return [*spec.arguments(folder), *(["--device", self._device] if spec.takes_device else [])]

    def _watch(self, claim: Claim, process: "subprocess.Popen[bytes]", folder: Path) -> str:
        """Reports progress until the process has ended; returns ended, cancelled, stopped or lost."""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert process.stderr is not None
        reader = threading.Thread(target=_read_lines, args=(process.stderr, folder / LOG_FILE, lines), daemon=True)
        reader.start()
        outcome, kill_at = "ended", float("inf")
        while True:
            try:
                process.wait(REPORT_S)
                reader.join(REPORT_S)
            except subprocess.TimeoutExpired:
                pass
            cancel = self._jobs.report(claim, _drain(lines))
            if cancel is None:
                process.kill()
                process.wait()
                return "lost"
            if process.returncode is not None:
                return outcome
            if outcome == "ended" and (cancel or self.stopping):
                outcome, kill_at = "cancelled" if cancel else "stopped", time.monotonic() + GRACE_S
                (folder / INTERRUPTED_FILE).touch()
                process.send_signal(signal.SIGINT)
            elif time.monotonic() > kill_at:
                process.kill()

    def _finish(self, claim: Claim, folder: Path) -> None:
        code = json.loads((folder / EXIT_FILE).read_bytes())["code"]
        with (folder / STDOUT_FILE).open("rb") as file:
            text = file.read(MAX_STDOUT_BYTES)
        try:
            result: Any = json.loads(text)
        except ValueError:
            result = None
        artefacts = self._collect(folder)
        # Without a document on stdout the command refused its input, and said why on stderr; with one, it is the second
        # command that failed.
        if not isinstance(result, dict) or code not in KINDS[claim.kind].answers:
            self._jobs.end(claim, "failed", error=_last_line(folder / LOG_FILE), artefacts=artefacts)
            # A retry runs the command again instead of finding how this attempt ended.
            (folder / EXIT_FILE).unlink()
            return
        self._jobs.end(claim, "succeeded", result={"exit_code": code, "document": result}, artefacts=artefacts)

    def _collect(self, folder: Path) -> list[Artefact]:
        output = folder / OUTPUT
        files = sorted(path for path in output.rglob("*") if path.is_file() and not path.is_symlink())
        found: list[Artefact] = []
        for path in files[:MAX_ARTEFACTS]:
            sha256, size = self._blobs.put_file(path)
            found.append(Artefact(str(path.relative_to(output)), sha256, size))
        return found


def _read_lines(stream: IO[bytes], log: Path, lines: "queue.SimpleQueue[str]") -> None:
    with stream, log.open("ab") as file:
        while line := stream.readline(65536):
            file.write(line)
            file.flush()
            lines.put(_CONTROL.sub("", line.decode("utf-8", "replace")).strip())


def _drain(lines: "queue.SimpleQueue[str]") -> list[str]:
    # A job that writes without end must not fill the database; the log has every line.
    kept: deque[str] = deque(maxlen=50)
    while not lines.empty():
        if line := lines.get():
            kept.append(line)
    return list(kept)


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")[:2000]


def main(parent: int, node: str, url: str, data: Path, device: str) -> int:
    """Runs a worker until SIGTERM or the parent's death."""
    if not die_with_parent(parent):
        return 1
    name = f"{node}:{parent}:{os.getpid()}"
    worker = Worker(JobQueue(connect(url)), BlobStore(data / "blobs"), data / "jobs", name, device=device)

    def stop(_: int, __: FrameType | None) -> None:
        worker.stopping = True

    # Ray's processes, one of which may have started this one, block SIGINT, which ends jobs in order.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5]))
