"""mjlab in a process of its own: its requirements exclude ours."""

import contextlib
import json
import select
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

from benchmarks.gpu import counting, mjlab_peer
from benchmarks.measure import WorkloadError

TIMEOUT_S = 580.0
"""Time that an answer may take [s]; the first compiles mjlab's kernels."""
_MAX_ANSWER = 1_000_000


class Peer:
    """Steps, trains and counts mjlab's Go1 when asked to, and is idle otherwise."""

    def __init__(self, process: "subprocess.Popen[str]", errors: IO[str]) -> None:
        """Takes over a process that runs `mjlab_peer`."""
        self._process, self._errors = process, errors
        self._described: dict[str, Any] | None = None

    @property
    def described(self) -> dict[str, Any]:
        """`versions`, `decimation`, `physics_dt` and `worlds`; waits until mjlab has started.

        Raises:
            WorkloadError: it did not start.
        """
        if self._described is None:
            self._described = self._read("starting")
        return self._described

    @property
    def name(self) -> str:
        """The libraries that run, with versions."""
        return ", ".join(f"{name} {version}" for name, version in self.described["versions"].items())

    def ask(self, what: str, **numbers: int) -> dict[str, Any]:
        """The answer to a request of `mjlab_peer`.

        Raises:
            WorkloadError: mjlab failed, took longer than TIMEOUT_S, or what it computed is not finite.
        """
        _ = self.described
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": what, **numbers}) + "\n")
            self._process.stdin.flush()
        answer = self._read(what)
        if not answer.get("finite", True):
            raise WorkloadError(f"mjlab, {what}: rewards or weights are not finite")
        return answer

    def _read(self, what: str) -> dict[str, Any]:
        answers = self._process.stdout
        assert answers is not None
        # One request has one answer, so that nothing can be left in the buffer.
        if not select.select([answers], [], [], TIMEOUT_S)[0]:
            raise WorkloadError(f"mjlab, {what}: no answer in {TIMEOUT_S:g} s")
        line = answers.readline(_MAX_ANSWER)
        try:
            return json.loads(line)
        except ValueError:
            self._errors.seek(0)
            tail = " / ".join(self._errors.read().strip().splitlines()[-3:])
            raise WorkloadError(f"mjlab, {what}: {line[:80]!r} is no answer: {tail}") from None


@contextlib.contextmanager
def mjlab(python: Path, device: str, worlds: int) -> Generator[Peer]:
    """Starts mjlab and ends it after the block; it builds its worlds while others work.

    Args:
        python: of the environment that mjlab is installed in.
        device: `cpu` or `cuda:N`.
        worlds: number of its worlds.

    Raises:
        WorkloadError: there is no such Python.
    """
    command = [str(python), mjlab_peer.__file__, device, str(worlds), counting.__file__]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        except OSError as error:
            raise WorkloadError(f"--peer-python {python} cannot be run: {error.strerror}") from error
        try:
            yield Peer(process, errors)
        finally:
            process.kill()
            process.communicate()
