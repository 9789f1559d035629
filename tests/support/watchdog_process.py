"""A runtime as a process of its own: `python watchdog_process.py ROOT FREEZER TRANSPORT [--no-watchdog] [KEY=VALUE …]`.

When the file FREEZER appears, the policy's call sleeps for as many microseconds as it says, once, without letting go of
Python's lock; `hang` lets go of it and sleeps for ever, as a graph that never ends would. If it says `crash`, the loop
ends by an exception.
"""

import ctypes
import sys
import time
from pathlib import Path

from physai.deploy_jetson.driving import caught_signals
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.sdk.transport.registry import open_transport

FOREVER_S = 600.0


def freeze_where(freezer: Path) -> None:
    compute, sleep = BoundPolicy.step, ctypes.PyDLL(None).usleep

    def step(self: BoundPolicy) -> bool:
        if freezer.exists():
            told = freezer.read_text()
            freezer.unlink()
            if told == "crash":
                raise KeyboardInterrupt
            if told == "hang":
                time.sleep(FOREVER_S)
            sleep(int(told))
        return compute(self)

    BoundPolicy.step = step


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    root, freezer, transport, *options = sys.argv[1:]
    freeze_where(Path(freezer))
    watchdog = "--no-watchdog" not in options
    wanted = RunOptions(
        root=Path(root), unsafe_no_verdict=True, realtime=Realtime(lock_memory=False), watchdog=watchdog
    )
    pairs = [(key, value) for key, _, value in (option.partition("=") for option in options) if value]
    runtime = Runtime(wanted, open_transport(transport, dict(pairs)), say=say)
    with caught_signals(runtime.commands, keep=True):
        end = runtime.run()
    say(f"end: {end.value}, {runtime.guard_state}")


if __name__ == "__main__":
    main()
