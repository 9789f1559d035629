"""Processes in a ROS domain of their own, for the tests of the policy node."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from physai.deploy_jetson.bench.site import Site

HERE = Path(__file__).parent
WAIT_S = 60.0
"""Longest wait for anything, on a busy machine."""


def eventually(true: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """Waits until it is true, and returns it."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"{what}: not within {timeout_s:g} s")


@dataclass
class Started:
    """A process and what it says."""

    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def says(self, what: str, times: int = 1) -> str:
        eventually(lambda: self.text().count(what) >= times, f"{what!r} in\n{self.text()[-2000:]}")
        return self.text()

    def end(self, number: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@dataclass
class RosWorld:
    """A domain of its own, and processes in it."""

    folder: Path
    environment: dict[str, str]
    site: Site
    started: list[Started] = field(default_factory=list[Started])

    @property
    def root(self) -> Path:
        return self.site.agent.root

    def start(self, *command: str) -> Started:
        output = self.folder / f"output{len(self.started)}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True
            )
        self.started.append(Started(process, output))
        return self.started[-1]

    def python(self, *command: str) -> Started:
        return self.start(sys.executable, *command)

    def policy(self, *arguments: str, **parameters: object) -> Started:
        """The node, not yet configured."""
        given = {"root": str(self.root), "lock_memory": "false", **parameters}
        words = [word for name, value in given.items() for word in ("-p", f"{name}:={value}")]
        return self.python("-m", "physai.ros.main", "--ros-args", *words, *arguments)

    def driver(self, **options: object) -> Started:
        """A robot's driver, ready."""
        started = self.python(str(HERE / "robot_peer.py"), json.dumps(options))
        started.says("ready")
        return started

    def ros2(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A verb of ROS 2's own command line."""
        command = [sys.executable, "-c", "from ros2cli.cli import main; import sys; sys.exit(main())", *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=2 * WAIT_S
        )

    def close(self) -> None:
        """Ends every process, and the daemon that ROS 2's command line leaves in this domain."""
        self.ros2("daemon", "stop")
        for one in self.started:
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
