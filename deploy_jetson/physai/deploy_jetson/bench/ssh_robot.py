"""A robot behind an ssh server on this machine: for benchmarks and tests."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from physai.deploy_jetson.agent.agent import Agent
from physai.deploy_jetson.bench.sample import Workshop, sample_policy
from physai.deploy_jetson.bench.sshd import SshServer
from physai.deploy_jetson.flash.target import Target
from physai.deploy_jetson.slots.layout import INCOMING
from physai.deploy_jetson.slots.records import HealthLimits, RobotIdentity

SLOWER = 40.0
"""Factor on a contract's times with which no machine misses its deadlines, however busy."""


def patient_bundle(workshop: Workshop, version: int, *, width: int = 4) -> bytes:
    """A pendulum's bundle that passes the latency self-test on a busy machine, too."""
    members = sample_policy(seed=version, width=width, slower=SLOWER)
    return workshop.validated(workshop.published(members, version=version))


@dataclass(frozen=True)
class SshRobot:
    """The tree of a robot, and how to reach it."""

    root: Path
    target: Target

    @classmethod
    def make(
        cls, server: SshServer, root: Path, workshop: Workshop, robot: str, *, limits: HealthLimits | None = None
    ) -> "SshRobot":
        """A new robot that believes a workshop.

        Args:
            server: what it is behind.
            root: its tree, made here.
            workshop: whom it believes.
            robot: its model.
            limits: what a version on trial must show.
        """
        Agent(root=root).setup(RobotIdentity(robot=robot), workshop.signed(), limits)
        return cls(root, Target.parse(server.address, root=PurePosixPath(root)))

    @property
    def agent(self) -> Agent:
        """Changes its slots without ssh."""
        return Agent(root=self.root)

    @property
    def active_version(self) -> int | None:
        """Version of what is active, if its slot is whole."""
        store = self.agent.store
        slot = store.active()
        marker = None if slot is None or store.problems(slot) else store.marker(slot)
        return None if marker is None else marker.version

    @property
    def uploads(self) -> dict[str, int]:
        """Bytes of what lies in its uploads, by name."""
        return {path.name: path.stat().st_size for path in (self.root / INCOMING).iterdir()}

    @contextmanager
    def running(self, *, faulty: str = "") -> Generator[None]:
        """With a stand-in for its runtime.

        Args:
            faulty: SHA-256 of a bundle that does not work.
        """
        command = [sys.executable, "-m", "physai.deploy_jetson.bench.stand_in", str(self.root), faulty]
        process = subprocess.Popen(command)
        try:
            yield
        finally:
            process.kill()
            process.wait()
