"""A runtime of its own process with a robot that writes down what it gets: `python runtime_process.py ROOT LOG [S]`.

Every command is one record of the log: CLOCK_MONOTONIC now, and when the sample it rests on was taken in [ns].
"""

import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.harness.fixtures.local_robot import LocalRobot

from physai.deploy_jetson.driving import caught_signals
from physai.deploy_jetson.runtime.loop.summary import summary_text
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.sdk.transport.protocol import Array

RECORD = struct.Struct("<qq")


class WritingRobot(LocalRobot):
    """Appends to a file, unbuffered."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb", buffering=0)

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        self._file.write(RECORD.pack(self._now(), self.sample().received_ns))
        super().send(targets, stamp_ns)


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    root, log, *seconds = sys.argv[1:]
    options = RunOptions(
        root=Path(root),
        seconds=float(seconds[0]) if seconds else None,
        unsafe_no_verdict=True,
        realtime=Realtime(lock_memory=False),
    )
    runtime = Runtime(options, WritingRobot(Path(log)), say=say)
    with caught_signals(runtime.commands, keep=True):
        end = runtime.run()
    say(f"end: {end.value}, {runtime.state.value}, {runtime.guard_state}")
    say(summary_text(runtime.summary()))


if __name__ == "__main__":
    main()
