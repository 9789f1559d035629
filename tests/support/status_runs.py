"""A runtime in a thread that drives a robot in this process, and asks a folder for the word of validators."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import signed_word
from tests.support.patience import PATIENCE_S, until

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError
from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.status_rules import StatusRules

SINCE = datetime(2026, 11, 21, tzinfo=UTC)
POLL_S = 0.1


class Patient(LocalRobot):
    """A robot whose samples come every 2 ms."""

    pinned: float | None = None
    """Position at which its joints are held [rad or m]; None to let them move."""

    def poll(self) -> bool:
        if self.pinned is not None:
            self.position[:], self.velocity[:] = self.pinned, 0.0
        return super().poll()

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, 0.002))
        return self.poll()


@dataclass
class Run:
    """A runtime in a thread."""

    site: Site
    stick: Path
    runtime: Runtime
    said: list[str]
    robot: LocalRobot
    ends: list[LoopEnd] = field(default_factory=list[LoopEnd])
    refusals: list[str] = field(default_factory=list[str])

    def drive(self) -> None:
        """Runs until the end; keeps why it does not."""
        try:
            self.ends.append(self.runtime.run())
        except Exception as error:
            self.refusals.append(f"{type(error).__name__}: {error}")

    @property
    def guard(self) -> str:
        return str(self.runtime.status().get("guard", ""))

    def wait_for(self, guard: str) -> None:
        until(lambda: self.guard == guard or self.refusals, said=lambda: f"{self.guard}: {self.said}")
        assert self.refusals == []

    def word(self, serial: int, *versions: int) -> None:
        ids = [read_bundle(self.site.bundles[version]).id for version in versions]
        (self.stick / "status.json").write_bytes(signed_word(self.site.workshop, serial, *ids, issued=SINCE))

    def ask(self, command: Command) -> str:
        ticket = self.runtime.commands.put(command)
        assert ticket is not None
        return ticket.wait(PATIENCE_S)

    def reset(self) -> None:
        """Resets, as often as it takes until the joints rest."""

        def obeyed() -> bool:
            with suppress(CommandError):
                return bool(self.ask(Command.RESET))
            return False

        until(obeyed, said=lambda: self.said)

    def start(self) -> None:
        """Resets and starts, as an operator does."""
        self.reset()
        self.ask(Command.START)
        self.wait_for("RUN")


@contextmanager
def driving(
    site: Site,
    stick: Path,
    *,
    hot_swap: bool = False,
    wait: str = "RUN",
    robot: Patient | None = None,
    after_boot: bool = False,
    **rules: Any,
) -> Generator[Run]:
    """Drives the active policy, and asks a folder for the word.

    Args:
        site: the robot's slots.
        stick: the folder.
        hot_swap: whether to switch to what is activated meanwhile.
        wait: state of the guard to wait for; empty for none.
        robot: what is driven; None for a robot of its own.
        after_boot: whether a service runs it, whose settings say `drive_after_boot`.
        rules: of the robot's settings.
    """
    stick.mkdir(exist_ok=True)
    status = StatusRules.model_validate({"sources": (str(stick),), "poll_s": POLL_S, **rules})
    requirements = Requirements(status=status, drive_after_boot=after_boot)
    site.agent.setup(site.agent.config.identity(), requirements=requirements)
    realtime = Realtime(lock_memory=False)
    options = RunOptions(root=site.agent.root, realtime=realtime, hot_swap=hot_swap, service=after_boot)
    said: list[str] = []
    robot = robot or Patient()
    run = Run(site, stick, Runtime(options, robot, say=said.append), said, robot)
    thread = threading.Thread(target=run.drive)
    thread.start()
    try:
        if wait:
            run.wait_for(wait)
        yield run
    finally:
        run.runtime.commands.put(Command.SHUTDOWN)
        thread.join()
