"""The owner's files: who a robot is, whom it believes, and what a version on trial must show.

Where they belong to another account than the one that runs the robot, only that account can change them.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.filesystem import FileSystem, PosixFileSystem, replace_files
from physai.deploy_jetson.slots.layout import IDENTITY_FILE, MAX_RECORD_BYTES, config_folder
from physai.deploy_jetson.slots.records import HealthLimits, RobotIdentity, decode, encode
from physai.sdk.evidence.origin import model_of
from physai.sdk.evidence.requirements import MAX_SETTINGS_BYTES, Requirements
from physai.sdk.signing.trust_file import MAX_TRUST_BYTES, TRUST_FILE, SignedTrust
from physai.sdk.signing.trust_store import TrustError, TrustStore

LIMITS_FILE = "limits"
SETTINGS_FILE = "settings.json"


class RobotConfig:
    """The owner's files of one slot tree."""

    def __init__(self, fs: FileSystem, folder: Path | None = None) -> None:
        """Prepares to read.

        Args:
            fs: the files.
            folder: where they lie, for messages.
        """
        self._fs = fs
        self._where = "" if folder is None else f"{folder}/"

    def identity(self) -> RobotIdentity:
        """Who this robot is.

        Raises:
            SlotError: it was never said, or the file is damaged.
        """
        return decode(RobotIdentity, self._read(IDENTITY_FILE, MAX_RECORD_BYTES), source=IDENTITY_FILE)

    def exists(self) -> bool:
        """Whether anybody has said who this robot is."""
        return self._fs.kind(IDENTITY_FILE) is not None

    def limits(self) -> HealthLimits:
        """What a version on trial must show; the defaults, where nothing else was said.

        Raises:
            SlotError: the file is damaged.
        """
        if self._fs.kind(LIMITS_FILE) is None:
            return HealthLimits()
        return decode(HealthLimits, self._read(LIMITS_FILE, MAX_RECORD_BYTES), source=LIMITS_FILE)

    def trust(self) -> TrustStore:
        """Whom this robot believes; nobody, where there is no trust file.

        Raises:
            TrustError: the file is damaged, or not signed by its owners.
            SlotError: it cannot be read.
        """
        if self._fs.kind(TRUST_FILE) is None:
            return TrustStore()
        return SignedTrust.parse(self._read(TRUST_FILE, MAX_TRUST_BYTES), source=TRUST_FILE).check()

    def requirements(self) -> Requirements:
        """What this robot asks of a verdict; the defaults, where nothing else was said.

        Raises:
            RequirementsError: the file is damaged.
            SlotError: it cannot be read.
        """
        if self._fs.kind(SETTINGS_FILE) is None:
            return Requirements()
        return Requirements.parse(self._read(SETTINGS_FILE, MAX_SETTINGS_BYTES), source=SETTINGS_FILE)

    def save(
        self,
        identity: RobotIdentity,
        trust: SignedTrust | None,
        limits: HealthLimits | None,
        requirements: Requirements | None = None,
    ) -> None:
        """Replaces the files. What is not said stays as it is: None, and a limit that was not set.

        Joints and unit stay with a robot of the same model only; a stand-in remains one, under any name.

        Raises:
            TrustError: the trust file may not take the place of the one that is there, see `SignedTrust.check_after`.
        """
        files = {IDENTITY_FILE: encode(self._kept_identity(identity))}
        if limits is not None:
            files[LIMITS_FILE] = encode(self._kept_limits(limits))
        if trust is not None:
            self._require_successor(trust)
            files[TRUST_FILE] = trust.encode()
        if requirements is not None:
            files[SETTINGS_FILE] = requirements.encode()
        replace_files(self._fs, files)

    def _kept_identity(self, said: RobotIdentity) -> RobotIdentity:
        try:
            known = self.identity()
        except SlotError:
            return said
        said = said.model_copy(update={"stand_in": known.stand_in or said.stand_in})
        if model_of(known.robot) != model_of(said.robot):
            return said
        return said.model_copy(
            update={
                "joints": known.joints if said.joints is None else said.joints,
                "runtime_unit": known.runtime_unit if said.runtime_unit is None else said.runtime_unit,
            }
        )

    def _kept_limits(self, said: HealthLimits) -> HealthLimits:
        try:
            known = self.limits()
        except SlotError:
            return said
        return known.model_copy(update=said.model_dump(include=said.model_fields_set))

    def _require_successor(self, trust: SignedTrust) -> None:
        """Refuses an older trust file, by mistake or not: who stole a key would be believed again."""
        if self._fs.kind(TRUST_FILE) is None:
            trust.check()
            return
        try:
            known = self.trust()
        except TrustError as error:
            raise TrustError(f"{error}; remove it, if you are sure of the file that takes its place") from None
        trust.check_after(known)

    def _read(self, name: str, limit: int) -> bytes:
        try:
            return self._fs.read(name, limit=limit)
        except OSError as error:
            raise SlotError(
                f"{self._where}{name}: cannot be read: {error.strerror}; `physai robot setup` says who a robot is"
            ) from None


def open_config(root: Path, named: Path | None, fs: FileSystem) -> RobotConfig:
    """The owner's files of a tree.

    Args:
        root: the tree.
        named: their folder; None for the usual one of that tree.
        fs: the files of the tree, among which they may be.
    """
    folder = config_folder(root, named)
    return RobotConfig(fs if folder == root else PosixFileSystem(folder, mode=0o644), folder)


def make_owned(folder: Path) -> None:
    """Makes the folder of the owner's files, which others may read and not change, unless it is there.

    Raises:
        SlotError: it cannot be made, or it is another account's.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)
    except OSError as error:
        raise SlotError(f"{folder}: cannot be made: {error.strerror}; run as root, or name another: --config") from None
    if not os.access(folder, os.W_OK, effective_ids=True):
        raise SlotError(
            f"{folder} is user {folder.stat().st_uid}'s, and this is user {os.geteuid()}: who this robot is "
            "and whom it believes is for that account to say; run `physai robot setup` as it (sudo)"
        )


@contextmanager
def as_owner_of(folder: Path) -> Generator[None]:
    """Root acts as the account that a folder belongs to, so that what it makes there is that account's, and no link
    that account has put there leads it elsewhere.
    """
    facts = folder.stat()
    if os.geteuid() != 0 or facts.st_uid == 0:
        yield
        return
    group = os.getegid()
    os.setegid(facts.st_gid)
    os.seteuid(facts.st_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
