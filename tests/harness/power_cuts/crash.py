"""Simulates power cuts at every file system operation of install, activate, commit, rollback and gc, with every loss of
data that POSIX permits, and checks after recovery that the robot has exactly one valid policy.

For every disk image that a cut can leave (`tests.harness.power_cuts.disk`), after recovery:

- the active policy is entirely the old or entirely the new one, its signatures and verdict are valid, and it starts;
- policy and version floor are both as before the command, or both as after it; the floor never decreases;
- the effect of a command that has returned is permanent;
- recovering again changes nothing, and a further bundle can be installed, activated and committed.

Recovery itself is interrupted in the same way, at each of its operations.
"""

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from tests.harness.fixtures.sample import ROBOT, SampleSigners, quick_clock, sample_policy
from tests.harness.power_cuts.disk import Image, image_key, image_of, materialise
from tests.harness.power_cuts.recorder import Ignores, OperationLog, RecordingFileSystem

from physai.deploy_jetson.update.agent.active import ActivePolicy, open_active
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.agent.incoming import BUNDLE_FILE
from physai.deploy_jetson.update.slots.slot_records import Marker, RobotIdentity, decode
from physai.deploy_jetson.update.slots.tree import MARKER_FILE
from physai.sdk.base.errors import PhysaiError

_TICKS = 5
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CrashFacts:
    """State that must be as before or as after a command."""

    active: str | None
    """SHA-256 of the active bundle."""
    floor: int


@dataclass(frozen=True)
class RecordedCommand:
    """A command, its operations, and the state before and after it."""

    name: str
    first: int
    last: int
    """Number of operations when it returned."""
    before: CrashFacts
    after: CrashFacts


@dataclass
class CommandHistory:
    """A recorded sequence of commands on one disk."""

    recording: OperationLog
    steps: list[RecordedCommand]


@dataclass(frozen=True)
class PowerCut:
    """A power cut, and the states permitted after it."""

    step: str
    operation: int
    before: CrashFacts
    after: CrashFacts
    depth: int = 0
    """0 for a cut during the command, 1 for a second one during recovery."""


@dataclass(frozen=True)
class BadState:
    """A power cut after which a check fails."""

    step: str
    operation: int
    depth: int
    reason: str


@dataclass
class CrashResult:
    """Result of the replay."""

    operations: int = 0
    images: int = 0
    """Disk images checked, including duplicates."""
    states: int = 0
    """Different disk images."""
    nested_states: int = 0
    """Disk images left by a second cut during recovery."""
    sampled: int = 0
    """Moments at which the possible images were only sampled; 0 if the replay was exhaustive."""
    bad: list[BadState] = field(default_factory=list[BadState])


AgentCommand = tuple[str, Callable[[UpdateAgent], Any]]


def _install(data: bytes, **options: Any) -> Callable[[UpdateAgent], Any]:
    return lambda agent: agent.install(data, **options)


def _activate(agent: UpdateAgent) -> Any:
    return agent.activate()


def _commit(agent: UpdateAgent) -> Any:
    return agent.commit("healthy")


def _rollback(agent: UpdateAgent) -> Any:
    return agent.rollback("unhealthy")


def commands(workshop: SampleSigners) -> list[AgentCommand]:
    """A typical sequence: the first version fails, the second is committed, some are replaced, some fail."""
    versions = {number: workshop.bundle(number) for number in range(1, 7)}
    unsafe = workshop.published(sample_policy(seed=7), version=7)
    return [
        ("install 1", _install(versions[1])),
        ("activate 1", _activate),
        ("roll back 1", _rollback),
        ("install 2", _install(versions[2])),
        ("activate 2", _activate),
        ("commit 2", _commit),
        ("install 3", _install(versions[3])),
        ("activate 3", _activate),
        ("commit 3", _commit),
        ("install 4", _install(versions[4])),
        ("install 5 over 4", _install(versions[5])),
        ("activate 5", _activate),
        ("roll back 5", _rollback),
        ("gc", lambda agent: agent.gc(idle=True)),
        ("install 6", _install(versions[6])),
        ("activate 6", _activate),
        ("commit 6", _commit),
        ("install 7 without verdict", _install(unsafe, unsafe_no_verdict=True)),
        ("activate 7", _activate),
        ("roll back 7", _rollback),
        ("gc after 7", lambda agent: agent.gc()),
    ]


class CrashBench:
    """Records a sequence of commands and replays it with power cuts."""

    def __init__(self, folder: Path, *, seed: int = 0, workshop: SampleSigners | None = None) -> None:
        """Generates bundles.

        Args:
            folder: working folder, preferably in memory.
            seed: seed for sampling where the images cannot be enumerated.
            workshop: keys to sign with.
        """
        self._folder = folder
        self._chance = random.Random(seed)
        self._workshop = workshop or SampleSigners(created=_START)
        self._next = self._workshop.bundle(1000)
        self._next_marker = self._learn_marker()
        self._seen: set[tuple[bytes, CrashFacts, CrashFacts]] = set()
        self._keys: set[bytes] = set()
        self._started: set[str] = set()
        self._judged: dict[bytes, tuple[CrashFacts | None, str]] = {}

    def record(
        self, story: list[AgentCommand] | None = None, *, ignores: Ignores = lambda kind, path: False
    ) -> CommandHistory:
        """Runs commands on a new robot and records their operations.

        Args:
            story: the commands; None for `commands`.
            ignores: selects syncs to omit from the record.
        """
        root = self._folder / "recorded"
        self._agent(root, None, "boot-1").setup(RobotIdentity(robot=ROBOT), self._workshop.signed())
        fs = RecordingFileSystem(root, ignores=ignores)
        agent = self._agent(root, fs, "boot-1")
        steps: list[RecordedCommand] = []
        before = self._facts(agent)
        for name, command in story or commands(self._workshop):
            first = len(fs.recording.made)
            command(agent)
            after = self._facts(agent)
            steps.append(RecordedCommand(name, first, len(fs.recording.made), before, after))
            before = after
        shutil.rmtree(root)
        return CommandHistory(fs.recording, steps)

    def replay(
        self,
        story: CommandHistory,
        *,
        nested: bool = True,
        max_bad: int = 1 << 30,
        progress: Callable[[float], None] | None = None,
    ) -> CrashResult:
        """Simulates a power cut at every operation of a recording.

        Args:
            story: recording made by `record`.
            nested: whether to simulate a second cut during recovery.
            max_bad: number of failures after which to stop.
            progress: gets the share of the work that is done.
        """
        result = CrashResult(operations=len(story.recording.made))
        disk = story.recording.disk()
        for step in story.steps:
            for done in range(step.first, step.last + 1):
                if done > step.first:
                    story.recording.follow(disk, done - 1)
                before = step.before if done < step.last else step.after
                cut = PowerCut(step.name, done, before, step.after)
                result.sampled += disk.is_sampled()
                for image in disk.images(self._chance):
                    self._try(image, cut, result, nested=nested)
                    if len(result.bad) >= max_bad:
                        return result
                if progress is not None:
                    progress(done / max(1, result.operations))
        result.states = len(self._keys)
        return result

    def _try(self, image: Image, cut: PowerCut, result: CrashResult, *, nested: bool) -> None:
        result.images += 1
        key = image_key(image)
        if (key, cut.before, cut.after) in self._seen:
            return
        self._seen.add((key, cut.before, cut.after))
        self._keys.add(key)
        result.nested_states += cut.depth
        result.states = len(self._keys)
        root = self._folder / "cut"
        materialise(image, root)
        fs = RecordingFileSystem(root)
        reason = self._question(root, fs, cut)
        shutil.rmtree(root)
        if reason:
            result.bad.append(BadState(cut.step, cut.operation, cut.depth, reason))
        if not nested or cut.depth:
            return
        disk = fs.recording.disk()
        for index in range(len(fs.recording.made)):
            fs.recording.follow(disk, index)
            result.sampled += disk.is_sampled()
            for again in disk.images(self._chance):
                self._try(again, replace(cut, depth=1), result, nested=nested)

    def _question(self, root: Path, fs: RecordingFileSystem, cut: PowerCut) -> str:
        """Recovers; returns what is wrong afterwards, or an empty string."""
        try:
            self._agent(root, fs, "boot-2").recover()
        except (PhysaiError, OSError) as error:
            return f"recovery: {type(error).__name__}: {error}"
        key = image_key(image_of(root))
        if key not in self._judged:
            # Cached, because most images recover to one of a few states.
            self._judged[key] = self._judge(root)
        facts, reason = self._judged[key]
        if facts not in (cut.before, cut.after):
            return reason or f"recovered to {facts}, expected {cut.before} or {cut.after}"
        return reason

    def _judge(self, root: Path) -> tuple[CrashFacts | None, str]:
        """State of a disk after recovery, and what is wrong with it."""
        try:
            agent = self._agent(root, None, "boot-2")
            facts = self._facts(agent)
            again = agent.recover()
            if again.actions:
                return facts, f"a second recovery changed something: {again.actions}"
            return facts, self._carry_on(agent)
        except (PhysaiError, OSError) as error:
            return None, f"{type(error).__name__}: {error}"

    def _carry_on(self, agent: UpdateAgent) -> str:
        """Checks that a further bundle can be installed, activated and committed."""
        store = agent.store
        moment = agent.clock()
        if store.state().trial is not None:
            end = self._chance.choice((store.rollback, store.commit))
            end(now=moment, reason="another cut")
        marker = self._next_marker
        slot = store.idle()
        store.clear(slot)
        store.put(slot, BUNDLE_FILE, self._next)
        store.seal(slot, marker)
        store.activate(slot, now=moment, boot_id="boot-2")
        store.commit(now=moment, reason="healthy")
        ended = self._facts(agent)
        return "" if ended == CrashFacts(marker.bundle_sha256, marker.version) else f"after a further bundle: {ended}"

    def _facts(self, agent: UpdateAgent) -> CrashFacts:
        floor = agent.store.state().floor
        if agent.store.active() is None:
            return CrashFacts(None, floor)
        active = open_active(agent.root)
        if active.bundle.sha256 not in self._started:
            _start(active)
            self._started.add(active.bundle.sha256)
        return CrashFacts(active.bundle.sha256, floor)

    def _learn_marker(self) -> Marker:
        """The marker written by an installation of the further bundle."""
        root = self._folder / "marker"
        agent = self._agent(root, None, "boot-1")
        agent.setup(RobotIdentity(robot=ROBOT), self._workshop.signed())
        slot = agent.install(self._next).slot
        data = (root / agent.store.path(slot, MARKER_FILE)).read_bytes()
        shutil.rmtree(root)
        return decode(Marker, data, source=MARKER_FILE)

    def _agent(self, root: Path, fs: RecordingFileSystem | None, boot: str) -> UpdateAgent:
        return UpdateAgent(
            root=root,
            fs=fs,
            clock=self._clock,
            boot=lambda: boot,
            restart=lambda unit: "",
            backend="onnxruntime",
            ticks=_TICKS,
            tick_clock_ns=quick_clock,
            apart=False,
        )

    def _clock(self) -> datetime:
        return self._workshop.created + timedelta(days=1)


def _start(active: ActivePolicy) -> None:
    engine = active.start()
    outputs = engine.run({name: np.zeros((1, size), np.float32) for name, size in engine.header.inputs.items()})
    if not all(np.isfinite(values).all() for values in outputs.values()):
        raise PhysaiError("the outputs of the active policy are not finite")


def crash_states(
    *, seed: int = 0, nested: bool = True, folder: Path | None = None, progress: Callable[[float], None] | None = None
) -> CrashResult:
    """Records and replays all commands.

    Args:
        seed: seed for sampling.
        nested: whether to simulate power cuts during recovery, too.
        folder: working folder; None for /dev/shm if it exists.
        progress: gets the share of the work that is done.
    """
    base = folder or (Path("/dev/shm") if Path("/dev/shm").is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="physai-crash-", dir=base) as name:
        bench = CrashBench(Path(name), seed=seed)
        return bench.replay(bench.record(), nested=nested, progress=progress)
