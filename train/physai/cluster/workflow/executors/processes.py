"""The processes of one attempt at a stage."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from physai.cluster.workflow.cache.reads import NOTE
from physai.cluster.workflow.cache.store import OUTPUTS_FOLDER
from physai.cluster.workflow.executors.place import Given
from physai.cluster.workflow.model import WorkflowStage
from physai.cluster.workflow.placeholders import filled

STOP_S = 10.0
"""How long a process may take to end after SIGINT before it is killed [s]."""

# The kernel kills a stage whose run was killed, so that it does not go on computing what nothing reads.
_PROGRAM = """
import sys
from physai.sdk.base.process.isolation import die_with_parent
if not die_with_parent(int(sys.argv.pop(1))):
    sys.exit(1)
from pathlib import Path
from physai.cluster.workflow.cache.read_hook import note_reads
note_reads(Path(sys.argv.pop(1)), Path(sys.argv.pop(1)))
from physai.sdk.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


class Attempt:
    """Starts the commands of a stage in a fresh folder; the lead's process is the stage's."""

    pidfd = -1
    """File descriptor that is readable once the lead has ended."""

    def __init__(
        self,
        stage: WorkflowStage,
        inputs: Mapping[str, Given],
        fresh: Path,
        log: Path,
        *,
        gpus: Sequence[int | str],
        first: bool,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.fresh = fresh
        self.started = time.monotonic()
        self._stopped = False
        self._secrets = dict(secrets or {})
        self._processes: list[subprocess.Popen[bytes]] = []
        outputs = {name: fresh / OUTPUTS_FOLDER / output.path for name, output in stage.outputs.items()}
        for name, path in outputs.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if (source := stage.outputs[name].copy_of) is not None:
                _copy(inputs[source].path, path)
        (fresh / "work").mkdir()
        for given in inputs.values():
            _link(given.path, given.shown)
        stdout = None if stage.stdout is None else outputs[stage.stdout]
        try:
            paths = {"inputs": {name: given.shown for name, given in inputs.items()}, "outputs": outputs}
            self._start(stage, paths, stdout, log, gpus, "wb" if first else "ab")
            self.pidfd = os.pidfd_open(self._lead.pid)
        except BaseException:
            self.stop()
            raise

    def _start(
        self,
        stage: WorkflowStage,
        paths: Mapping[str, Mapping[str, Path]],
        stdout: Path | None,
        log: Path,
        gpus: Sequence[int | str],
        mode: Literal["wb", "ab"],
    ) -> None:
        def value(kind: str, name: str) -> str:
            return "127.0.0.1" if kind == "host" else str(paths[kind][name])

        free = list(gpus)
        with ExitStack() as files:
            said = files.enter_context(log.open(mode))
            printed = said if stdout is None else files.enter_context(stdout.open("wb"))
            for member in stage.gang:
                own, free = free[: member.resources.gpus], free[member.resources.gpus :]
                words = filled(member.command, value)
                said.write(
                    f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} physai {' '.join(words)}\n".encode(
                        errors="surrogateescape"
                    )
                )
                said.flush()
                process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, str(os.getpid()), *self._reads(), *words],
                    cwd=self.fresh / "work",
                    # As in a cluster, a stage sees the GPUs that it asks for, and no others.
                    env={
                        **os.environ,
                        **self._secrets,
                        "PYTHONSAFEPATH": "1",
                        "CUDA_VISIBLE_DEVICES": ",".join(map(str, own)),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=printed if member.lead else said,
                    stderr=said,
                    # Ctrl-C reaches this process only, which then stops them.
                    start_new_session=True,
                )
                self._processes.append(process)
                if member.lead:
                    self._lead = process

    def _reads(self) -> tuple[str, str]:
        """Folder of results, and file that gets what the stage reads outside that."""
        return str(self.fresh.parents[1]), str(self.fresh / NOTE)

    def finish(self) -> int:
        """Wait for the lead, stop the other members and return the lead's exit code; negative if a signal ended it."""
        code = self._lead.wait()
        self.seconds = time.monotonic() - self.started
        self.stop()
        return code

    def stop(self) -> None:
        """Stop all processes: SIGINT, and SIGKILL 10 s later."""
        if self._stopped:
            return
        for process in self._processes:
            if process.poll() is None:
                _signal(process, signal.SIGINT)
        deadline = time.monotonic() + STOP_S
        try:
            for process in self._processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            self._stopped = True
            for process in self._processes:
                # The group, for what a command left running: nothing may change an output after its hash is taken.
                _signal(process, signal.SIGKILL)
                process.wait()
            if self.pidfd >= 0:
                os.close(self.pidfd)


def _link(source: Path, target: Path) -> None:
    """Hard-link a file, or all files of a folder; copy what another file system or another user has."""
    # An attempt whose computer was lost, or whose run was killed, may have left some.
    shutil.rmtree(target.parent, ignore_errors=True)
    target.parent.mkdir(parents=True)

    def link_or_copy(file: str, new: str) -> None:
        try:
            os.link(file, new)
        except OSError:
            shutil.copy2(file, new)

    if source.is_dir():
        shutil.copytree(source, target, copy_function=link_or_copy)
        _open_folders(target)
    else:
        link_or_copy(str(source), str(target))


def _open_folders(folder: Path) -> None:
    """Let the owner change copied folders: of a read-only original, they could be neither filled nor removed."""
    for path, _, _ in os.walk(folder):
        os.chmod(path, os.stat(path).st_mode | stat.S_IRWXU)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # Each process leads a session, so its group has its number, also after its end.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
        _open_folders(target)
    else:
        shutil.copy2(source, target)
    files = [target] if target.is_file() else [path for path in target.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
