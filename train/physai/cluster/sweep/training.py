"""One trial: `physai train` in a process of its own, followed by what it writes into its run folder."""

import math
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from physai.cluster.sweep.folder import read_curve
from physai.cluster.sweep.plan import SweepError
from physai.compute.ray.cluster import ClusterError, require_same_versions
from physai.sdk.base.errors import CheckpointError
from physai.train.runs.run_config import CHECKPOINT_FILE, training_alone

POLL_S = 0.2
"""How often the run folder is looked at [s]."""
STOP_S = 60.0
"""How long an iteration may take to end after SIGTERM before the process is killed [s]."""
_REFUSED = 2
"""Exit code of a command whose input is bad: it would fail in the same way again."""

# SIGTERM when the worker dies: the iteration is completed and saved. Ray's processes block SIGINT.
_PROGRAM = """
import signal, sys
from physai.sdk.base.process.isolation import die_with_parent
signal.pthread_sigmask(signal.SIG_SETMASK, [])
if not die_with_parent(int(sys.argv.pop(1)), by=signal.SIGTERM):
    sys.exit(1)
from physai.train.api.process import main
sys.exit(main(sys.argv[2]))
"""


@dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """Inputs of a worker that trains a trial."""

    name: str
    run: str
    """Absolute path of its run folder."""
    log: str
    """Absolute path of the file for what it prints."""
    begun: str
    """Options that begin it, as JSON; see `TrainOptions.document`."""
    resumed: str
    """Options that continue it, as JSON."""
    clock: str
    """Column of `progress.csv` that the budget limits."""
    metric: str
    rungs: tuple[float, ...]
    """Times at which the metric is reported exactly, ascending."""
    end: float
    """The budget."""
    versions: dict[str, str]
    """Of the packages that numbers depend on, where the sweep was started."""
    until: float | None = None
    """Report again what the run folder holds, up to this time, and train nothing; None to train."""


@dataclass(frozen=True)
class TrialReport:
    """Progress report of a trial."""

    time: float
    """In the unit of the budget; 0 before the first iteration."""
    value: float
    """The metric; NaN while it is not known."""
    ended: bool = False
    failure: str = ""
    """Why it cannot be trained; empty if nothing is known against it."""


class LostTrainingError(SweepError):
    """A training process was killed, and can be continued."""


class Training:
    """A trial's process and what it has reported."""

    def __init__(self, order: TrialOrder) -> None:
        """Starts or continues the training."""
        self._order = order
        self._last = TrialReport(0.0, math.nan)
        self._refusal = _refusal(order)
        self._process = None if self._refusal or order.until is not None else _start(order)

    def report(self, wait_s: float) -> TrialReport:
        """The next rung that was reached, or, after a while, how far the trial has come.

        Raises:
            LostTrainingError: the process was killed.
        """
        if self._refusal:
            return TrialReport(0.0, math.nan, ended=True, failure=self._refusal)
        deadline = time.monotonic() + wait_s
        while True:
            # In this order, so that rows which the process wrote last are seen.
            code = 0 if self._process is None else self._process.poll()
            last = self._look(ended=code is not None)
            if last is not None:
                self._last = last
                return last
            if code is not None:
                return self._ending(code)
            if time.monotonic() >= deadline:
                return self._last
            time.sleep(POLL_S)

    def _look(self, *, ended: bool) -> TrialReport | None:
        """A rung, if one was reached since the last report; otherwise notes the latest row and returns None."""
        order = self._order
        until = math.inf if order.until is None else order.until
        curve = [row for row in read_curve(Path(order.run), order.clock, order.metric) if row[0] <= until]
        new = [row for row in curve if row[0] > self._last.time]
        rung = next((rung for rung in order.rungs if rung > self._last.time), math.inf)
        for at, value in new:
            if at >= rung:
                return TrialReport(at, value)
        # The last row is reported when the process has ended: Tune would stop it at its budget before it saved.
        if new and (ended or new[-1][0] < order.end):
            self._last = TrialReport(*new[-1])
        return None

    def _ending(self, code: int) -> TrialReport:
        if code == 0:
            return TrialReport(self._last.time, self._last.value, ended=True)
        said = _last_line(Path(self._order.log))
        if code != _REFUSED:
            raise LostTrainingError(f"{self._order.name}: the training ended with code {code}: {said}")
        return TrialReport(self._last.time, self._last.value, ended=True, failure=said)

    def stop(self) -> None:
        """Has the iteration completed and saved, and waits for it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _refusal(order: TrialOrder) -> str:
    """Why this computer cannot train a trial; empty if it can."""
    try:
        require_same_versions("the computer with the sweep", order.versions)
    except ClusterError as error:
        return f"{socket.gethostname()}: {error}"
    return ""


def _start(order: TrialOrder) -> "subprocess.Popen[bytes]":
    run = Path(order.run)
    _await_end(run)
    options = order.resumed if (run / CHECKPOINT_FILE).exists() else order.begun
    with open(order.log, "ab") as log:
        log.write(f"physai train {options}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(os.getpid()), order.run, options],
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _await_end(run: Path) -> None:
    """Wait for the process of a worker that died: it completes its iteration."""
    deadline = time.monotonic() + STOP_S
    while run.exists():
        try:
            with training_alone(run):
                return
        except CheckpointError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(POLL_S)


def _last_line(log: Path) -> str:
    try:
        lines = log.read_bytes()[-4096:].decode(errors="replace").strip().splitlines()
    except OSError:
        return "it left no log"
    return lines[-1][:500] if lines else "it printed nothing"
