"""Kills a process with SIGKILL at random moments of install, activate, commit, rollback and gc, and checks recovery.

Run as a program (`python -m tests.harness.power_cuts.kills`), because it forks, which a multithreaded
process must not do. A kill loses no data that was written, so this tests unfinished sequences of operations; lost
writes are tested by `tests.harness.power_cuts.crash`.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.harness.fixtures.sample import ROBOT, SampleSigners, quick_clock

from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.slot_records import SLOTS, RobotIdentity
from physai.sdk.base.errors import PhysaiError

BUNDLES = 24
"""Number of versions; after the last is committed, a new robot is set up."""

COMMANDS: tuple[str, ...] = ("install", "activate", "commit", "rollback", "gc")
_BEGINS = {name: 100 + index for index, name in enumerate(COMMANDS)}
"""Byte that the process writes when it begins a command; after a commit it writes the version."""

_FAILED = 255
_HEALTHY_SHARE = 0.3
_TICKS = 5
_CYCLES_TIMED = 5
_BEYOND = 1.2
"""Maximum delay of a kill, relative to the duration of its command."""

_POLL_S = 1e-4
_PATIENCE_S = 2.0

Progress = Callable[[int], object]


@dataclass
class Kills:
    """Result of the kills."""

    kills: int = 0
    bad: list[str] = field(default_factory=list[str])
    cut_short: int = 0
    """Kills that left an unfinished operation."""
    during: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COMMANDS, 0))
    """Kills aimed at each command."""
    commits: int = 0
    """Commits that returned."""


class KillBench:
    """A robot whose installer is killed repeatedly."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        """Generates the bundles.

        Args:
            folder: parent of the robot's slots.
            seed: seed of the random moments and choices.
        """
        self._root = folder / "robot"
        self._chance = random.Random(seed)
        self._workshop = SampleSigners()
        self._bundles = {version: self._workshop.bundle(version) for version in range(1, BUNDLES + 1)}
        self._started: set[str] = set()

    def run(self, kills: int) -> Kills:
        """Kills `kills` times."""
        result = Kills()
        self._renew()
        lengths = self._lengths()
        floor = 0
        while result.kills < kills:
            victim = self._chance.choice(COMMANDS)
            said = self._kill_once(victim, self._chance.uniform(0.0, _BEYOND * lengths[victim]))
            committed = [code for code in said if code <= BUNDLES]
            result.during[victim] += 1
            result.kills += 1
            result.commits += len(committed)
            try:
                if _FAILED in said:
                    raise PhysaiError("a command failed without being killed")
                floor = self._check(result, max([floor, *committed]))
            except (PhysaiError, OSError) as error:
                result.bad.append(f"{type(error).__name__}: {error}")
                floor = BUNDLES
            if floor == BUNDLES:
                self._renew()
                floor = 0
        return result

    def _agent(self) -> UpdateAgent:
        return UpdateAgent(
            root=self._root,
            restart=lambda unit: "",
            backend="onnxruntime",
            ticks=_TICKS,
            tick_clock_ns=quick_clock,
            apart=False,
        )

    def _renew(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        self._agent().setup(RobotIdentity(robot=ROBOT), self._workshop.signed())

    def _lengths(self) -> dict[str, float]:
        """CPU time of each command [s]."""
        moments: list[tuple[int, float]] = []
        for cycle in range(_CYCLES_TIMED):
            self._step(lambda code: moments.append((code, time.process_time())), healthy=cycle % 2 == 0)
        self._renew()
        moments.append((0, time.process_time()))
        found: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for (code, begin), (_, end) in itertools.pairwise(moments):
            for name in COMMANDS:
                if _BEGINS[name] == code:
                    found[name].append(end - begin)
        return {name: min(lengths, default=0.0) for name, lengths in found.items()}

    def _step(self, tell: Progress, *, healthy: bool) -> None:
        """Runs the commands that follow from the robot's state."""
        agent = self._agent()
        if agent.store.state().trial is None:
            tell(_BEGINS["install"])
            agent.install(self._bundles[min(agent.store.state().floor + 1, BUNDLES)])
            tell(_BEGINS["activate"])
            agent.activate(retry=True)
        if healthy:
            tell(_BEGINS["commit"])
            tell(agent.commit("healthy").version)
        else:
            tell(_BEGINS["rollback"])
            agent.rollback("unhealthy")
        tell(_BEGINS["gc"])
        agent.gc(idle=healthy)

    def _kill_once(self, victim: str, after_s: float) -> bytes:
        """Kills the process `after_s` of CPU time into a command; returns what it wrote."""
        reader, writer = os.pipe()
        seed = self._chance.random()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._work(writer, random.Random(seed))
        os.close(writer)
        said = b""
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            while code := pipe.read(1):
                said += code
                if code[0] == _BEGINS[victim]:
                    break
            _wait_for_work(child, after_s)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return said + pipe.read()

    def _work(self, writer: int, chance: random.Random) -> None:
        """Main function of the process that is killed; never returns."""
        try:
            # Lower priority than the parent, which must be scheduled first to kill in time.
            os.nice(2)
            self._agent().recover()
            while self._agent().store.state().floor < BUNDLES:
                self._step(lambda code: os.write(writer, bytes([code])), healthy=chance.random() < _HEALTHY_SHARE)
        except Exception:
            os.write(writer, bytes([_FAILED]))
        finally:
            os._exit(0)

    def _check(self, result: Kills, least_floor: int) -> int:
        agent = self._agent()
        store = agent.store
        unfinished = [slot for slot in SLOTS if store.fs.entries(store.path(slot)) and store.marker(slot) is None]
        result.cut_short += bool([*agent.recover().actions, *unfinished])
        state = store.state()
        if state.floor < least_floor:
            raise PhysaiError(f"the floor decreased from {least_floor} to {state.floor}")
        committed = store.active() if state.trial is None else state.trial.previous
        if committed is None:
            if state.floor:
                raise PhysaiError(f"no committed version is left, the floor is {state.floor}")
        else:
            marker = store.marker(committed)
            problems = store.problems(committed)
            if marker is None or problems or marker.version != state.floor:
                raise PhysaiError(f"slot {committed} should contain the committed version {state.floor}: {problems}")
        if store.active() is not None:
            active = open_active(self._root)
            if active.bundle.sha256 not in self._started:
                active.start()
                self._started.add(active.bundle.sha256)
        return state.floor


def _wait_for_work(process: int, seconds: float) -> None:
    """Waits until a process has used `seconds` of CPU time, which also works on a loaded machine, or until a timeout.

    The CPU clock of another process is `(~pid << 3) | CPUCLOCK_SCHED`, see clock_getcpuclockid(3).
    """
    clock = (~process << 3) | 2
    end = time.clock_gettime(clock) + seconds
    patience = time.monotonic() + _PATIENCE_S
    while time.clock_gettime(clock) < end and time.monotonic() < patience:
        time.sleep(_POLL_S)


def main() -> None:
    """Runs `--kills` kills and prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.power_cuts.kills")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="physai-kills-", dir=base) as name:
        result = KillBench(Path(name), seed=arguments.seed).run(arguments.kills)
    json.dump(asdict(result), sys.stdout)


if __name__ == "__main__":
    main()
