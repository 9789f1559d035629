"""Starts the ranks of a run on this computer, and ends them together."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from physai.train.collectors.distributed import PARENT, STORE, RanksError
from physai.train.runners.checkpoint import CHECKPOINT_FILE

LOST = 75
"""Exit code of a rank that ended because it lost contact with another one."""
_GRACE_S = 10.0
"""Time the other ranks have to end after the first one failed [s]."""
_STOPPED = (130, -signal.SIGINT, -signal.SIGTERM)


class _Rank:
    """One process of the run."""

    def __init__(self, command: Sequence[str], number: int, count: int, folder: Path) -> None:
        self.number = number
        self._errors = folder / f"rank-{number}.txt"
        here = str(number)
        # Whatever network the user's environment names is for runs on several computers.
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", STORE: str(folder / "store"), PARENT: str(os.getpid())}
        # No file of the working folder is imported.
        environment |= {"PYTHONSAFEPATH": "1"}
        environment |= {"RANK": here, "LOCAL_RANK": here, "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        with self._errors.open("wb") as errors:
            # A session of its own: Ctrl-C reaches this process alone, which passes it on once.
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=errors if number else None,
                start_new_session=True,
            )
        self.ended: int | None = None
        """Exit code by itself; stays None if it was killed here."""

    def running(self) -> bool:
        self.ended = self._process.poll()
        return self.ended is None

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def how(self) -> str:
        """Description of the process's end, with the last line that it wrote to its standard error."""
        code = self.ended or 0
        text = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        with self._errors.open("rb") as file:
            file.seek(max(0, self._errors.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"rank {self.number} {text}" + (f" ({said[-1][:500]})" if said else "")


class _Signals:
    """The first SIGINT or SIGTERM is passed on to the ranks, a second SIGINT ends them at once."""

    def __init__(self) -> None:
        self.seen = False
        self.ranks: list[_Rank] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        if self.seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.seen = True
        for rank in self.ranks:
            rank.send(number)


def launch(command: Sequence[str], count: int, *, run: Path) -> int:
    """Runs the command as `count` ranks that find each other, and waits for them.

    Args:
        command: command of each rank; the first one's output is shown.
        count: number of ranks.
        run: run folder, for the message that names the way out.

    Returns:
        Exit code: 0, 130 after a signal, or 2 if the first rank refused its input.

    Raises:
        RanksError: a rank failed; all have ended.
    """
    signals = _Signals()
    previous = {number: signal.signal(number, signals.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    with tempfile.TemporaryDirectory(prefix="physai-ranks-") as folder:
        try:
            for number in range(count):
                signals.ranks.append(_Rank(command, number, count, Path(folder)))
            _wait(signals.ranks)
            return _judged(signals, run)
        finally:
            for rank in signals.ranks:
                rank.kill()
            for number, handler in previous.items():
                signal.signal(number, handler)


def _wait(ranks: Sequence[_Rank]) -> None:
    """Returns when all ranks have ended, or some time after one failed."""
    deadline_s = float("inf")
    while [rank for rank in ranks if rank.running()] and time.monotonic() < deadline_s:
        if deadline_s == float("inf") and any(rank.ended for rank in ranks):
            deadline_s = time.monotonic() + _GRACE_S
        time.sleep(0.05)


def _judged(signals: _Signals, run: Path) -> int:
    ranks = signals.ranks
    if all(rank.ended == 0 for rank in ranks):
        return 0
    failed = [rank for rank in ranks if rank.ended not in (None, 0, LOST)]
    if signals.seen and all(rank.ended in _STOPPED for rank in failed):
        return 130
    culprit = next((rank for rank in failed if rank.ended not in _STOPPED), None) or (failed or ranks)[0]
    if culprit.number == 0 and culprit.ended == 2:
        return 2
    saved = f"continue from the last checkpoint with `resume` {run}"
    raise RanksError(
        f"{culprit.how()}, so the other ranks were ended; "
        + (saved if (run / CHECKPOINT_FILE).exists() else "nothing was saved yet, start again")
    )
