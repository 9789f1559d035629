"""Processes in a ROS domain of their own, for the tests of the policy node."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.site import Site
from tests.support.ros_calls import WAIT_S, RosCalls, eventually

HERE = Path(__file__).parent
ROS2 = "import sys; from ros2cli.cli import main; sys.exit(main())"
PHYSAI = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"
PRIORITY = 80
"""Of loops, where this user may have it: ROS's tools keep a small machine busy, and skipped periods are a HOLD."""

Slots = Callable[[str, str], Path]
"""From task and robot to a robot's tree of slots."""


NODE = "/physai_policy"


def transition(world: "RosWorld", name: str) -> bool:
    """One of the policy node's; whether it succeeded."""
    return world.calls.transition(NODE, name)


def present(world: "RosWorld", name: str = NODE) -> None:
    """Waits until the domain has a node of this name."""
    eventually(lambda: name in world.calls.nodes(), f"the node {name}")


def state(world: "RosWorld") -> str:
    return world.calls.state(NODE)


def commands(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def call(world: "RosWorld", service: str) -> tuple[bool, str]:
    return world.calls.trigger(f"{NODE}/{service}")


def up(world: "RosWorld", node: "Started") -> None:
    """Configured and driving."""
    assert transition(world, "configure"), node.text()
    assert transition(world, "activate"), node.text()


def not_driven(world: "RosWorld", node: "Started", told: str) -> None:
    """Configured, but never activated, and why; until the robot is discovered, another reason may be told."""
    assert transition(world, "configure"), node.text()

    def refused() -> bool:
        assert not transition(world, "activate"), node.text()
        return told in node.text()

    eventually(refused, repr(told))


def physai(*words: str) -> None:
    """A verb of physai's, to its end."""
    subprocess.run([sys.executable, "-c", PHYSAI, *words], check=True, capture_output=True, timeout=10 * WAIT_S)


def slots_of(task: str, robot: str, folder: Path) -> Path:
    """A robot with a policy of five seconds, which nobody has judged."""
    run, keys, bundle, root = folder / "run", folder / "keys", folder / "policy.physai", folder / "slots"
    physai("train", task, "--time-budget-s", "5", "--out", str(run))
    physai("export", str(run))
    physai("keys", "init", str(keys))
    signed = ("--sign", "--key", str(keys / "publisher.key"))
    physai("bundle", "pack", str(run), "--out", str(bundle), "--version", "1", *signed)
    physai("robot", "setup", "--root", str(root), "--robot", robot, "--trust", str(keys / "trust.json"))
    physai("robot", "install", str(bundle), "--root", str(root), "--activate", "--unsafe-no-verdict")
    # Not on trial: launch files watch trials, and a busy machine may be the end of one.
    physai("robot", "commit", "--root", str(root), "--now")
    return root


@dataclass
class Started:
    """A process and what it says."""

    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def says(self, what: str, times: int = 1) -> str:
        try:
            eventually(lambda: self.text().count(what) >= times, repr(what))
        except pytest.fail.Exception as error:
            pytest.fail(f"{error} in\n{self.text()[-2000:]}")
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

    @cached_property
    def calls(self) -> RosCalls:
        """A node of this process in the domain."""
        return RosCalls(int(self.environment["ROS_DOMAIN_ID"]))

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

    def physai(self, *words: str) -> Started:
        """A verb of physai's, in the background."""
        return self.python("-c", PHYSAI, *words)

    def overlay(self, prefix: Path) -> None:
        """Sources what colcon built."""
        packages = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        before = self.environment
        self.environment = {
            **before,
            "AMENT_PREFIX_PATH": f"{prefix}{os.pathsep}{before['AMENT_PREFIX_PATH']}",
            "PYTHONPATH": f"{packages}{os.pathsep}{before['PYTHONPATH']}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{before['PATH']}",
        }

    def parameters(self) -> Path:
        """A file of the node's parameters, for a machine without rights and a policy without a verdict."""
        path = self.folder / "policy.yaml"
        path.write_text("/**:\n  ros__parameters:\n    unsafe_no_verdict: true\n    lock_memory: false\n")
        return path

    def launch(self, *words: str) -> Started:
        """`ros2 launch physai_ros`, in the background."""
        return self.python("-c", ROS2, "launch", "physai_ros", *words)

    def play(self, bag: Path) -> Started:
        """Joint states of a recording, again and again."""
        return self.python("-c", ROS2, "bag", "play", "--loop", str(bag), "--topics", "/joint_states")

    def policy(self, *arguments: str, **parameters: object) -> Started:
        """The node, not yet configured."""
        given = {"root": str(self.root), "lock_memory": "false", "priority": PRIORITY, "activation_timeout_s": WAIT_S}
        words = [word for name, value in (given | parameters).items() for word in ("-p", f"{name}:={value}")]
        return self.python("-m", "physai.ros.main", "--ros-args", *words, *arguments)

    def driver(self, **options: object) -> Started:
        """A robot's driver, ready."""
        started = self.python(str(HERE / "robot_peer.py"), json.dumps(options))
        started.says("ready")
        return started

    def ros2(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A verb of ROS 2's own command line, for what rclpy has no calls for."""
        command = [sys.executable, "-c", ROS2, *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=2 * WAIT_S
        )

    def close(self) -> None:
        """Ends every process."""
        if "calls" in self.__dict__:
            self.calls.close()
        for one in self.started:
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
        _sweep_shared_memory()


def _sweep_shared_memory() -> None:
    """Removes Fast DDS's segments of processes that have ended: each killed one leaves half a megabyte."""
    for lock in Path("/dev/shm").glob(f"fastrtps_{16 * '?'}_el"):
        # The owner of a segment holds this lock as long as it lives, and takes it just after it made the file.
        with suppress(OSError), lock.open() as file:
            if time.time() - lock.stat().st_mtime < WAIT_S:
                continue
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.with_name(lock.name.removesuffix("_el")).unlink(missing_ok=True)
            lock.unlink()
