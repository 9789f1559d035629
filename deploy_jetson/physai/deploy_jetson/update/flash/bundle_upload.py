"""A bundle to be uploaded to a robot."""

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from physai.deploy_jetson.update.flash.protocol import Offer, OfferedMember, is_number
from physai.sdk.base.file_names import POLICY_FILE
from physai.sdk.bundle.archive import MANIFEST_FILE, BundleError, Members, read_archive, read_file


@dataclass(frozen=True)
class BundleUpload:
    """Members of a bundle and the fields of its offer; the robot verifies everything."""

    members: Members
    version: int
    robot: str
    """Robot model of its contract."""
    task: str

    @classmethod
    def load(cls, path: Path) -> "BundleUpload":
        """Loads a bundle file.

        Raises:
            BundleError: the file cannot be read or is damaged.
        """
        return cls.open(read_file(path), source=str(path))

    @classmethod
    def open(cls, data: bytes, *, source: str) -> "BundleUpload":
        """Opens a bundle given as bytes.

        Raises:
            BundleError: the bundle is damaged.
        """
        try:
            members = read_archive(data)
        except BundleError as error:
            raise BundleError(f"{source}: {error}") from None
        try:
            manifest: Any = json.loads(members[MANIFEST_FILE]) if MANIFEST_FILE in members else None
        except (ValueError, RecursionError):
            manifest = None
        fields = cast("dict[str, Any]", manifest) if isinstance(manifest, dict) else {}
        version, robot, task = fields.get("version"), fields.get("robot"), fields.get("task")
        if not is_number(version) or not isinstance(robot, str) or not isinstance(task, str):
            raise BundleError(f"{source}: its {MANIFEST_FILE} lacks version, robot or task")
        return cls(members, cast("int", version), robot, task)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        return sha256(self.members.data).hexdigest()

    @property
    def policy_sha256(self) -> str | None:
        """SHA-256 of the float32 policy; None for a bundle without one, which every robot refuses."""
        return self.members.sha256(POLICY_FILE) if POLICY_FILE in self.members else None

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self.members.data)

    def offer(self, *, wait_s: float = 0.0) -> Offer:
        """The offer sent to a robot.

        Args:
            wait_s: how long the robot waits for other commands [s].
        """
        members = {name: OfferedMember(self.members.sha256(name), self.members.size(name)) for name in self.members}
        return Offer(self.sha256, self.version, self.robot, members, wait_s)

    def content(self, digest: str) -> memoryview:
        """The member with this SHA-256; raises KeyError if there is none."""
        return self.members.view({self.members.sha256(name): name for name in self.members}[digest])
