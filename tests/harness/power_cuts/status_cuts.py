"""Simulates power cuts at every file system operation while a robot keeps status documents, with every loss of data
that POSIX permits.

For every disk image that a cut can leave: the robot knows the word before or the word after, and the word after once
the command has returned; the older "all well" is refused; the next word is kept.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.power_cuts.disk import image_key, materialise
from tests.harness.power_cuts.recorder import Ignores, RecordingFileSystem

from physai.deploy_jetson.update.agent.config import RobotConfig
from physai.deploy_jetson.update.revocation.kept_words import COPIES, FOLDER, KeptWords, accept, accept_and_keep
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.base.errors import PhysaiError
from physai.sdk.signing.status.status_document import RevokedVerdict, StatusError, StatusPredicate, sign_status

START = datetime(2026, 1, 1, tzinfo=UTC)


def signed_word(
    workshop: SampleSigners, serial: int, *revoked: str, robot: str = ROBOT, issued: datetime = START
) -> bytes:
    """A status document that revokes these bundles."""
    moment = f"{issued + timedelta(seconds=min(serial, 10**6)):%Y-%m-%dT%H:%M:%SZ}"
    entries = tuple(RevokedVerdict(bundle=one, reason=f"word {serial}", since=moment) for one in revoked)
    predicate = StatusPredicate(robot=robot, serial=serial, issued=moment, revoked=entries)
    return sign_status([workshop.validator], predicate)


@dataclass
class StatusCuts:
    """Result of the replay."""

    operations: int = 0
    cuts: int = 0
    """Moments and images, each different one once."""
    bad: list[str] = field(default_factory=list[str])


def status_cuts(
    folder: Path,
    *,
    words: int = 4,
    ignores: Ignores = lambda kind, path: False,
    on_image: Callable[[Path], None] = lambda root: None,
) -> StatusCuts:
    """Keep several words one after another, and cut the power at every operation.

    Args:
        folder: working folder, preferably in memory.
        words: number of words.
        ignores: selects syncs to omit from the record, to test that the replay detects them.
        on_image: called with each disk before it is judged.
    """
    workshop, chance, result = SampleSigners(created=START), random.Random(0), StatusCuts()
    root = folder / "recorded"
    root.mkdir()
    RobotConfig(PosixFileSystem(root)).save(RobotIdentity(robot=ROBOT), workshop.signed(), None)
    documents = [signed_word(workshop, serial, f"{serial:064x}") for serial in range(1, words + 2)]
    all_well = signed_word(workshop, 0 + 1)
    fs = RecordingFileSystem(root, ignores=ignores)
    config, ends = RobotConfig(fs), [0]
    for document in documents[:-1]:
        accept_and_keep(root, document, trust=config.trust(), robot=ROBOT, fs=fs)
        ends.append(len(fs.recording.made))
    shutil.rmtree(root)
    disk, seen = fs.recording.disk(), set[tuple[int, int, bytes]]()
    result.operations = ends[-1]
    for serial in range(1, words + 1):
        for done in range(ends[serial - 1], ends[serial] + 1):
            if done > ends[serial - 1]:
                fs.recording.follow(disk, done - 1)
            allowed = (serial,) if done == ends[serial] else (serial - 1, serial)
            for image in disk.images(chance):
                key = serial, done, image_key(image)
                if key in seen:
                    continue
                seen.add(key)
                cut = folder / "cut"
                materialise(image, cut)
                on_image(cut)
                problem = _judge(cut, allowed, all_well, documents[serial], workshop)
                result.bad += [f"word {serial}, operation {done}: {problem}"] if problem else []
                shutil.rmtree(cut)
    result.cuts = len(seen)
    return result


def _judge(root: Path, allowed: tuple[int, ...], all_well: bytes, after: bytes, workshop: SampleSigners) -> str:
    """What is wrong with a disk; empty if nothing."""
    config = RobotConfig(PosixFileSystem(root))
    try:
        record = KeptWords(root).load()
        serial = max((one.serial for one in record.words), default=0)
        if serial not in allowed:
            return f"the serial is {serial}, expected {allowed}"
        if serial:
            try:
                accept(record, all_well, workshop.trust, ROBOT)
                return "an older word was accepted"
            except StatusError:
                pass
        kept = accept_and_keep(root, after, trust=config.trust(), robot=ROBOT)
        if KeptWords(root).load() != kept or not all((root / name).is_file() for name in COPIES):
            return "the next word was not kept"
    except (PhysaiError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return (
        "" if sorted(path.name for path in (root / FOLDER).iterdir()) == ["kept", "kept.copy", "lock"] else "leftovers"
    )
