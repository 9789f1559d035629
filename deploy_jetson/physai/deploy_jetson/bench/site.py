"""A robot in a folder, and bundles it accepts: for benchmarks and tests."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from physai.deploy_jetson.agent.agent import Agent
from physai.deploy_jetson.bench.sample import ROBOT, Workshop, quick_clock
from physai.deploy_jetson.slots.filesystem import FileSystem
from physai.deploy_jetson.slots.records import HealthLimits, Marker, RobotIdentity

BOOT_ID = "00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True)
class Site:
    """A workshop that signs, and a robot that believes it."""

    workshop: Workshop
    bundles: dict[int, bytes]
    """By version."""
    agent: Agent

    @classmethod
    def make(cls, root: Path, workshop: Workshop, bundles: dict[int, bytes], *, now: datetime) -> "Site":
        """A new robot, whose clock stands still.

        Args:
            root: its tree, made here.
            workshop: whom it believes.
            bundles: by version.
            now: the time, with a time zone.
        """
        agent = Agent(
            root=root,
            clock=lambda: now,
            boot=lambda: BOOT_ID,
            restart=lambda unit: "",
            backend="onnxruntime",
            ticks=5,
            tick_clock_ns=quick_clock,
            apart=False,
        )
        agent.setup(RobotIdentity(robot=ROBOT), workshop.signed(), HealthLimits(window_s=1.0))
        return cls(workshop, bundles, agent)

    def on(self, fs: FileSystem | None = None, **changes: Any) -> Agent:
        """The robot's agent with another file system, clock, …"""
        return replace(self.agent, fs=fs, **changes)

    def run(self, version: int, *, commit: bool = True) -> None:
        """Installs and activates a version, and commits it."""
        self.agent.install(self.bundles[version])
        self.agent.activate()
        if commit:
            self.agent.commit("healthy")

    @property
    def active(self) -> Marker | None:
        """What is active, if its slot is whole."""
        store = self.agent.store
        slot = store.active()
        return None if slot is None or store.problems(slot) else store.marker(slot)

    @property
    def active_version(self) -> int | None:
        """Version of what is active, if its slot is whole."""
        return None if self.active is None else self.active.version
