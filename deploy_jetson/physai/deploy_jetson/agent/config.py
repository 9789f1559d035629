"""Who a robot is, whom it believes, and what a version on trial must show: files beside the slots."""

from physai.deploy_jetson.slots.errors import SlotError
from physai.deploy_jetson.slots.filesystem import FileSystem, replace_files
from physai.deploy_jetson.slots.layout import IDENTITY_FILE, MAX_RECORD_BYTES
from physai.deploy_jetson.slots.records import HealthLimits, RobotIdentity, decode, encode
from physai.sdk.trust_store import MAX_TRUST_BYTES, TRUST_FILE, TrustStore

LIMITS_FILE = "limits"


class RobotConfig:
    """The configuration of one slot tree."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def identity(self) -> RobotIdentity:
        """Who this robot is.

        Raises:
            SlotError: it was never said, or the file is damaged.
        """
        return decode(RobotIdentity, self._read(IDENTITY_FILE, MAX_RECORD_BYTES), source=IDENTITY_FILE)

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
            TrustError: the file is damaged.
            SlotError: it cannot be read.
        """
        if self._fs.kind(TRUST_FILE) is None:
            return TrustStore()
        return TrustStore.parse(self._read(TRUST_FILE, MAX_TRUST_BYTES), source=TRUST_FILE)

    def save(self, identity: RobotIdentity, trust: TrustStore | None, limits: HealthLimits | None) -> None:
        """Replaces the files; what is None stays as it is."""
        files = {IDENTITY_FILE: encode(identity)}
        if limits is not None:
            files[LIMITS_FILE] = encode(limits)
        if trust is not None:
            files[TRUST_FILE] = trust.model_dump_json(indent=2).encode() + b"\n"
        replace_files(self._fs, files)

    def _read(self, name: str, limit: int) -> bytes:
        try:
            return self._fs.read(name, limit=limit)
        except OSError as error:
            raise SlotError(
                f"{name}: cannot be read: {error.strerror}; `physai robot setup` makes a robot's tree"
            ) from None
