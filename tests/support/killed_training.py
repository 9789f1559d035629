"""Training that is killed again and again; a program of its own, since it forks.

Arguments: `robot` or `team`, the folder, the time budget [s], and for each attempt the number of the function call or
return, in the modules that keep a run's files and its time, at which SIGKILL comes; 0 lets the attempt end. Prints the
exit code of every attempt, negative for a signal, and the time of every iteration that was logged.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from physai.sdk.cli.main import main

_COUNTED = tuple(
    f"physai/{name}.py"
    for name in (
        *(f"train/runners/{name}" for name in ("session", "reporting", "checkpoint", "run_config")),
        "train/teams/train",
        "sim/teams/registry",
        "sdk/base/files",
    )
)
_SETTINGS = (
    "num_envs=8",
    "horizon=8",
    "epochs=1",
    "minibatches=2",
    "hidden=8",
    "num_threads=1",
    "stop_at_success=none",
    "checkpoint_every_s=1e6",
)
_TASKS = {"robot": "cartpole-swingup", "team": "cartpoles-tethered"}
_BEGUN = ("checkpoint.pt", "team.pt")
"""Files that `TrainSpec` of the service takes for a run to be continued."""


class Killer:
    """A profiler that kills its process, and notes the time of the iterations that were logged before."""

    def __init__(self, at: int, journal: int) -> None:
        self.at, self.journal = at, journal
        self.seen = 0

        self._counted: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        counted = self._counted.get(code)
        if counted is None:
            counted = self._counted[code] = code.co_filename.endswith(_COUNTED)
        if not counted or event not in ("call", "return"):
            return
        if event == "return" and code.co_qualname == "CsvSink.write":
            folder, stats = frame.f_locals["self"]._path.parent, frame.f_locals["stats"]
            if folder.name != "right":
                steps = stats.env_steps / stats.iteration
                os.write(self.journal, f"{steps / stats.steps_per_s!r}\n".encode())
        self.seen += 1
        if self.seen == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def new_run(kind: str, folder: Path) -> list[str]:
    """Arguments of `physai train` for a new run, which saves checkpoints at its begin and its end alone."""
    settings = [word for setting in _SETTINGS for word in ("--set", setting)]
    return [_TASKS[kind], "--out", str(folder), *settings]


def attempt(kind: str, folder: Path, budget_s: float, at: int, journal: int) -> int:
    """Train in a process of its own; returns its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    begun = any((folder / name).exists() for name in _BEGUN)
    words = ["--resume", str(folder)] if begun else new_run(kind, folder)
    sys.setprofile(Killer(at, journal))
    code = main(["train", *words, "--time-budget-s", repr(budget_s), "--iterations", "100000"])
    sys.setprofile(None)
    os._exit(code)


if __name__ == "__main__":
    kind, folder, budget_s, *kills = sys.argv[1:]
    with tempfile.TemporaryDirectory() as warm_up:
        # All modules are imported once, not by every attempt.
        main(["train", *new_run(kind, Path(warm_up) / "run"), "--iterations", "1"])
    journal = os.memfd_create("journal")
    codes = [attempt(kind, Path(folder), float(budget_s), int(at), journal) for at in kills]
    os.lseek(journal, 0, os.SEEK_SET)
    with os.fdopen(journal) as lines:
        print(json.dumps({"codes": codes, "iterations_s": [float(line) for line in lines]}))
