"""Every power cut: replays install, activate, commit, rollback and gc up to every operation, loses whatever may be
lost, recovers, and asks whether the robot still has exactly one good policy.

For every disk that a cut can leave (`physai.deploy_jetson.bench.power_cuts.disk`), after recovery:

- the active policy is wholly the old or wholly the new one, its signatures and verdict hold, and it starts;
- policy and floor are both as before the command, or both as after it; the floor never falls;
- once a command has returned, what it did stays done;
- recovering again changes nothing, and a further bundle can be installed, activated and committed.

Recovery is interrupted in the same way, at every one of its own operations.
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

from physai.deploy_jetson.agent.active import ActivePolicy, open_active
from physai.deploy_jetson.agent.agent import UpdateAgent
from physai.deploy_jetson.agent.incoming import BUNDLE_FILE
from physai.deploy_jetson.bench.fixtures.sample import ROBOT, SampleSigners, quick_clock, sample_policy
from physai.deploy_jetson.bench.power_cuts.disk import Image, image_key, image_of, materialise
from physai.deploy_jetson.bench.power_cuts.recorder import Ignores, OperationLog, RecordingFileSystem
from physai.deploy_jetson.slots.records import Marker, RobotIdentity, decode
from physai.deploy_jetson.slots.tree import MARKER_FILE
from physai.sdk.base.errors import PhysaiError

_TICKS = 5
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CrashFacts:
    """What must be as before or as after a command."""

    active: str | None
    """SHA-256 of the bundle that is active."""
    floor: int


@dataclass(frozen=True)
class RecordedCommand:
    """A command, the operations it did, and what was true before and after it."""

    name: str
    first: int
    last: int
    """Number of operations done when it returned."""
    before: CrashFacts
    after: CrashFacts


@dataclass
class CommandHistory:
    """Commands one after the other on one disk, recorded."""

    recording: OperationLog
    steps: list[RecordedCommand]


@dataclass(frozen=True)
class PowerCut:
    """When the power goes, and what may be true afterwards."""

    step: str
    operation: int
    before: CrashFacts
    after: CrashFacts
    depth: int = 0
    """0 for a cut within the command, 1 for a second one while the robot recovers from the first."""


@dataclass(frozen=True)
class BadState:
    """A power cut the robot does not survive."""

    step: str
    operation: int
    depth: int
    reason: str


@dataclass
class CrashResult:
    """What the replay found."""

    operations: int = 0
    images: int = 0
    """Disks that were looked at, the same one several times."""
    states: int = 0
    """Different disks; of each, recovery and all questions."""
    nested_states: int = 0
    """Of these, left by a second cut during recovery."""
    sampled: int = 0
    """Moments with more disks than were looked at; 0 says that the replay was exhaustive."""
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
    """A robot's life: the first policy fails, the second stays, some are replaced, some fail."""
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
    """Records a story and replays it."""

    def __init__(self, folder: Path, *, seed: int = 0, workshop: SampleSigners | None = None) -> None:
        """Prepares.

        Args:
            folder: for the files of one state after the other; on a RAM disk, where there is one.
            seed: of what is sampled where it cannot be enumerated.
            workshop: who signs the bundles.
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
        """Runs commands on a fresh robot and writes down what they do.

        Args:
            story: the commands; None for all there are.
            ignores: syncs that are left out.
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
        """Cuts the power at every operation of a story.

        Args:
            story: from `record`.
            nested: whether to cut it once more while the robot recovers.
            max_bad: how many bad states to find before giving up.
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
        """What is wrong after recovery; empty if nothing is."""
        try:
            self._agent(root, fs, "boot-2").recover()
        except (PhysaiError, OSError) as error:
            return f"recovery: {type(error).__name__}: {error}"
        key = image_key(image_of(root))
        if key not in self._judged:
            # Most disks recover to one of few; what holds of those holds for all.
            self._judged[key] = self._judge(root)
        facts, reason = self._judged[key]
        if facts not in (cut.before, cut.after):
            return reason or f"recovered to {facts}, expected {cut.before} or {cut.after}"
        return reason

    def _judge(self, root: Path) -> tuple[CrashFacts | None, str]:
        """What is true of a disk after recovery, and what is wrong with it."""
        try:
            agent = self._agent(root, None, "boot-2")
            facts = self._facts(agent)
            again = agent.recover()
            if again.actions:
                return facts, f"recovering once more did something: {again.actions}"
            return facts, self._carry_on(agent)
        except (PhysaiError, OSError) as error:
            return None, f"{type(error).__name__}: {error}"

    def _carry_on(self, agent: UpdateAgent) -> str:
        """Installs, activates and commits a further bundle, as a robot must be able to after any accident."""
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
        """The marker that an installation of the further bundle writes."""
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
    answers = engine.run({name: np.zeros((1, size), np.float32) for name, size in engine.header.inputs.items()})
    if not all(np.isfinite(values).all() for values in answers.values()):
        raise PhysaiError("the active policy answers with numbers that are not finite")


def crash_states(
    *, seed: int = 0, nested: bool = True, folder: Path | None = None, progress: Callable[[float], None] | None = None
) -> CrashResult:
    """Replays the whole story.

    Args:
        seed: of what is sampled.
        nested: whether to cut the power during recovery, too.
        folder: where to work; None for a RAM disk where there is one.
        progress: gets the share of the work that is done.
    """
    base = folder or (Path("/dev/shm") if Path("/dev/shm").is_dir() else None)
    with tempfile.TemporaryDirectory(prefix="physai-crash-", dir=base) as name:
        bench = CrashBench(Path(name), seed=seed)
        return bench.replay(bench.record(), nested=nested, progress=progress)
