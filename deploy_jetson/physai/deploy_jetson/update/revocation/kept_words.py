"""The word of validators as a robot keeps it: in two copies, and never replaced by an older one.

A robot keeps the newest status document of each name that it answers to: its model, and its unit. All of them count. A
document whose signers the trust file no longer supports is no fresh word, and any later one takes its place; what it
revokes stays revoked until then.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from physai.deploy_jetson.update.slots.filesystem import ROOT, FileSystem, PosixFileSystem, replace_files
from physai.deploy_jetson.update.slots.layout import MAX_RECORD_BYTES, seal, unseal
from physai.deploy_jetson.update.slots.lock import locked
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen, NonNegative
from physai.sdk.evidence.origin import RobotName, is_unit_of
from physai.sdk.signing.status.status_document import (
    MAX_STATUS_BYTES,
    NarrowedVerdict,
    StatusError,
    StatusPredicate,
    parse_status,
    read_status,
)
from physai.sdk.signing.trust_store import TrustStore
from physai.sdk.signing.verify import Verified

FOLDER = "revocations"
COPIES = (f"{FOLDER}/kept", f"{FOLDER}/kept.copy")

# Longest wait for another process that writes the records [s].
LOCK_S = 5.0

_FORMAT_VERSION = 1
_MAX_WORDS = 3


class RevocationError(PhysaiError):
    """A verdict was revoked, or it is unknown whether it was."""


class KeptWord(Frozen):
    """One accepted status document."""

    document: Annotated[str, Field(max_length=MAX_STATUS_BYTES)]
    robot: RobotName
    serial: Annotated[int, Field(ge=1, le=2**53 - 1)]
    age_s: NonNegative = 0.0
    """Time for which this robot has certainly been on since it accepted the document [s]."""

    def word(self) -> StatusPredicate:
        """The validator's word; raises StatusError if it is malformed."""
        return parse_status(self.document.encode())

    def is_signed(self, trust: TrustStore) -> bool:
        """Whether the trust file still supports its signatures."""
        try:
            read_status(self.document.encode(), trust)
        except StatusError:
            return False
        return True


class KeptRecord(Frozen):
    """All words that a robot keeps."""

    format_version: Literal[1] = _FORMAT_VERSION
    generation: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Write counter; of the two copies the one with the higher value is current."""
    words: Annotated[tuple[KeptWord, ...], Field(max_length=_MAX_WORDS)] = ()

    def parsed(self) -> tuple[StatusPredicate, ...]:
        """Return what the words say."""
        return tuple(kept.word() for kept in self.words)


def revocation_of(words: Iterable[StatusPredicate], *sha256s: str) -> str:
    """Return why the verdict on a bundle is revoked, empty if it is not.

    Args:
        words: all of them count.
        sha256s: SHA-256 of the bundle's file and of its manifest.
    """
    entries = (one for word in words for one in word.revoked if one.bundle in sha256s)
    return next((f"since {one.since}: {one.reason}" for one in entries), "")


def narrowing_of(words: Iterable[StatusPredicate], *sha256s: str) -> tuple[NarrowedVerdict, ...]:
    """Return the entries that narrow the verdict on a bundle; all of them apply. See `revocation_of`."""
    return tuple(one for word in words for one in word.narrowed if one.bundle in sha256s)


def accept(record: KeptRecord, data: bytes, trust: TrustStore, robot: str) -> KeptRecord | None:
    """Verify a status document; return the record with it, None if it says nothing new.

    Args:
        record: words that the robot keeps.
        data: the document.
        trust: the robot's trust store.
        robot: name of the robot, a model or one unit of it.

    Raises:
        StatusError: it is malformed, not signed as required, for another robot, or older than the one that is kept.
    """
    word = read_status(data, trust, robot=robot)
    fresh = KeptWord(document=data.removesuffix(b"\n").decode("ascii"), robot=word.robot, serial=word.serial)
    # A robot that was renamed keeps no words of its former names, which no validator would renew.
    others = tuple(one for one in record.words if one.robot != word.robot and is_unit_of(robot, one.robot))
    before = next((one for one in record.words if one.robot == word.robot), None)
    if before is not None and before.is_signed(trust):
        if word.serial < before.serial:
            raise StatusError(
                f"the status document has serial {word.serial}, this robot keeps {before.serial} for {word.robot}: an "
                "older word never replaces a newer one"
            )
        if word.serial == before.serial:
            if word == before.word():
                return None
            raise StatusError(
                f"two status documents for {word.robot} have the serial {word.serial} and say different things; the "
                "first one stays: the validator has to sign the next serial, and to ask who signed twice"
            )
    return KeptRecord(generation=record.generation, words=(*others, fresh))


class KeptWords:
    """The words of one robot on its disk."""

    def __init__(self, root: Path, fs: FileSystem | None = None) -> None:
        """Open without reading.

        Args:
            root: the robot's tree.
            fs: file system of the tree; None for the real one.
        """
        self._root, self._fs = root, fs or PosixFileSystem(root)

    def load(self) -> KeptRecord:
        """Read the newer of the two copies that is intact; an empty record if there never was one.

        Raises:
            RevocationError: both are damaged.
        """
        records: list[KeptRecord] = []
        problems: list[str] = []
        for name in COPIES:
            try:
                text = unseal(self._fs.read(name, limit=MAX_RECORD_BYTES), source=name)
                records.append(_KIND.parse(KeptRecord, text, source=name))
            except FileNotFoundError:
                continue
            except (OSError, SlotError) as error:
                problems.append(f"{name}: {error}")
        if problems and not records:
            raise RevocationError(
                f"it is unknown which verdicts were revoked ({'; '.join(problems)}): give the validator's newest "
                "document again, with `physai robot revocations --statement FILE`"
            )
        return max(records, key=lambda record: record.generation, default=KeptRecord())

    def save(self, record: KeptRecord, trust: TrustStore, robot: str) -> KeptRecord:
        """Write the newest words of a record and of the disk durably; return them.

        Raises:
            SlotError: another process writes for too long.
            OSError: writing failed; the old or the new record is on the disk.
        """
        if self._fs.kind(FOLDER) is None:
            with suppress(FileExistsError):
                self._fs.make_folder(FOLDER)
            self._fs.sync_folder(ROOT)
        with locked(self._root / FOLDER, "keep a status document", wait_s=LOCK_S):
            try:
                disk = self.load()
            except RevocationError:
                disk = KeptRecord()
            merged = merge_records(disk, record, trust, robot)
            if merged.words != disk.words:
                data = seal(canonical_json(merged))
                replace_files(self._fs, dict.fromkeys(COPIES, data))
            return merged


def merge_records(disk: KeptRecord, record: KeptRecord, trust: TrustStore, robot: str) -> KeptRecord:
    """Return the newest signed word of each name of this robot; of the same word the one with the greater age."""
    best: dict[str, KeptWord] = {}
    for one in (*disk.words, *record.words):
        rival = best.get(one.robot)
        if not is_unit_of(robot, one.robot):
            continue
        if rival is None or _rank(one, trust) > _rank(rival, trust):
            best[one.robot] = one
    generation = max(disk.generation, record.generation) + 1
    return KeptRecord(generation=generation, words=tuple(best[name] for name in sorted(best)))


def _rank(word: KeptWord, trust: TrustStore) -> tuple[bool, int, float]:
    return word.is_signed(trust), word.serial, word.age_s


def require_standing(verified: Verified, root: Path, fs: FileSystem | None = None) -> Verified:
    """Return a verified bundle whose verdict is not revoked here.

    Raises:
        RevocationError: the verdict was revoked, or both copies of the robot's record are damaged.
    """
    bundle = verified.bundle
    why = revocation_of(KeptWords(root, fs).load().parsed(), bundle.sha256, bundle.id)
    if why:
        raise RevocationError(f"the verdict on version {bundle.manifest.version} is revoked {why}")
    return verified


def accept_and_keep(
    root: Path, data: bytes, *, trust: TrustStore, robot: str, fs: FileSystem | None = None
) -> KeptRecord:
    """Verify a status document for this robot and keep it durably; return all words that are kept then.

    Raises:
        StatusError: it is refused; see `accept`.
        SlotError: the robot is not set up, or another process writes for too long.
        OSError: writing failed.
    """
    kept = KeptWords(root, fs)
    try:
        before = kept.load()
    except RevocationError:
        before = KeptRecord()
    after = accept(before, data, trust, robot)
    return before if after is None else kept.save(after, trust, robot)


_KIND = DocumentKind(
    name="record of status documents",
    format_version=_FORMAT_VERSION,
    max_bytes=MAX_RECORD_BYTES,
    max_depth=4,
    error=SlotError,
)
