"""The owner's files of a robot: identity, trust file, health limits and requirements on verdicts.

If they belong to another account than the one that runs the robot, only that account can change them.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from physai.deploy_jetson.update.slots.filesystem import FileSystem, PosixFileSystem, replace_files
from physai.deploy_jetson.update.slots.layout import IDENTITY_FILE, MAX_RECORD_BYTES, config_folder
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity, decode, encode
from physai.sdk.evidence.origin import model_of
from physai.sdk.evidence.requirements import MAX_SETTINGS_BYTES, Requirements
from physai.sdk.signing.trust_file import MAX_TRUST_BYTES, TRUST_FILE, SignedTrust
from physai.sdk.signing.trust_store import TrustError, TrustStore

LIMITS_FILE = "limits"
# A file of Python's standard library: its modules are imported when they are needed.
STANDARD_LIBRARY = os.__file__
SETTINGS_FILE = "settings.json"


class RobotConfig:
    """The owner's files of one slot tree."""

    def __init__(self, fs: FileSystem, folder: Path | None = None) -> None:
        """Initialises the reader.

        Args:
            fs: file system of the folder.
            folder: path of the folder, for messages.
        """
        self._fs = fs
        self._prefix = "" if folder is None else f"{folder}/"

    def identity(self) -> RobotIdentity:
        """The robot's identity.

        Raises:
            SlotError: the robot is not set up, or the file is damaged.
        """
        return decode(RobotIdentity, self._read(IDENTITY_FILE, MAX_RECORD_BYTES), source=IDENTITY_FILE)

    def exists(self) -> bool:
        """Whether the robot is set up."""
        return self._fs.kind(IDENTITY_FILE) is not None

    def limits(self) -> HealthLimits:
        """Health limits for a trial; the defaults if there is no file.

        Raises:
            SlotError: the file is damaged.
        """
        if self._fs.kind(LIMITS_FILE) is None:
            return HealthLimits()
        return decode(HealthLimits, self._read(LIMITS_FILE, MAX_RECORD_BYTES), source=LIMITS_FILE)

    def trust(self) -> TrustStore:
        """The trust store; empty if there is no trust file.

        Raises:
            TrustError: the file is damaged, or not signed by its owners.
            SlotError: the file cannot be read.
        """
        if self._fs.kind(TRUST_FILE) is None:
            return TrustStore()
        return SignedTrust.parse(self._read(TRUST_FILE, MAX_TRUST_BYTES), source=TRUST_FILE).check()

    def requirements(self) -> Requirements:
        """Requirements on verdicts; the defaults if there is no file.

        Raises:
            RequirementsError: the file is damaged.
            SlotError: the file cannot be read.
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
        """Replaces the files; keeps those given as None and every limit that is not set.

        Raises:
            TrustError: the trust file may not replace the current one, see `SignedTrust.check_after`.
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

    def _kept_identity(self, new: RobotIdentity) -> RobotIdentity:
        try:
            known = self.identity()
        except SlotError:
            return new
        # A stand-in stays a stand-in under any name: its measurements must never count as a robot's.
        new = new.model_copy(update={"stand_in": known.stand_in or new.stand_in})
        if model_of(known.robot) != model_of(new.robot):
            return new
        return new.model_copy(
            update={
                "joints": known.joints if new.joints is None else new.joints,
                "runtime_unit": known.runtime_unit if new.runtime_unit is None else new.runtime_unit,
            }
        )

    def _kept_limits(self, new: HealthLimits) -> HealthLimits:
        try:
            known = self.limits()
        except SlotError:
            return new
        return known.model_copy(update=new.model_dump(include=new.model_fields_set))

    def _require_successor(self, trust: SignedTrust) -> None:
        """Refuses an older trust file: it would trust revoked keys again."""
        if self._fs.kind(TRUST_FILE) is None:
            trust.check()
            return
        try:
            known = self.trust()
        except TrustError as error:
            raise TrustError(f"{error}; remove it if you are sure of the new file") from None
        trust.check_after(known)

    def _read(self, name: str, limit: int) -> bytes:
        try:
            return self._fs.read(name, limit=limit)
        except OSError as error:
            raise SlotError(
                f"{self._prefix}{name}: cannot be read: {error.strerror}; set the robot up with `physai robot setup`"
            ) from None


def open_config(root: Path, named: Path | None, fs: FileSystem) -> RobotConfig:
    """Opens the owner's files of a tree.

    Args:
        root: the tree.
        named: folder of the owner's files; None selects the default for that tree.
        fs: file system of the tree, used if the files are in the tree.
    """
    folder = config_folder(root, named)
    return RobotConfig(fs if folder == root else PosixFileSystem(folder, mode=0o644), folder)


def make_owned(folder: Path) -> None:
    """Creates the folder of the owner's files, readable by all, if it does not exist.

    Raises:
        SlotError: it cannot be created, or belongs to another account.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)
    except OSError as error:
        raise SlotError(
            f"{folder}: cannot be created: {error.strerror}; run as root, or choose another folder: --config-root"
        ) from None
    if not os.access(folder, os.W_OK, effective_ids=True):
        raise SlotError(
            f"{folder} belongs to user {folder.stat().st_uid}, but this is user {os.geteuid()}: only the owner can "
            "change the robot's identity and trust file; run `physai robot setup` as that user (sudo)"
        )


@contextmanager
def as_owner_of(folder: Path) -> Generator[None]:
    """Drops root's privileges to those of a folder's owner, inside the block.

    Raises:
        SlotError: that account cannot read this Python, which would fail in the middle of the block.
    """
    # New files then belong to that account, and its symbolic links cannot lead root to files of others.
    status = folder.stat()
    if os.geteuid() != 0 or status.st_uid == 0:
        yield
        return
    group = os.getegid()
    # Group first: without root's user id the group can no longer change.
    os.setegid(status.st_gid)
    os.seteuid(status.st_uid)
    try:
        if not os.access(STANDARD_LIBRARY, os.R_OK, effective_ids=True):
            raise SlotError(
                f"user {status.st_uid}, the owner of {folder}, may not read this Python ({STANDARD_LIBRARY}): install "
                "physai where that account may read it, such as /opt/physai, and run it from there"
            )
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
