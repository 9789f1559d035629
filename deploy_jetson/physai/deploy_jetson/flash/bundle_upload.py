"""A bundle on its way to a robot."""

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from physai.deploy_jetson.flash.protocol import Member, Offer, is_number
from physai.sdk.bundle.archive import MANIFEST_FILE, BundleError, Members, read_archive, read_file


@dataclass(frozen=True)
class BundleUpload:
    """The members of a bundle, and the facts a robot asks for first; the robot itself verifies all of it."""

    members: Members
    version: int
    robot: str
    """Robot model of its contract."""
    task: str

    @classmethod
    def load(cls, path: Path) -> "BundleUpload":
        """The bundle in a file.

        Raises:
            BundleError: it cannot be read, or is damaged.
        """
        return cls.open(read_file(path), source=str(path))

    @classmethod
    def open(cls, data: bytes, *, source: str) -> "BundleUpload":
        """The bundle in its bytes.

        Raises:
            BundleError: it is damaged.
        """
        try:
            members = read_archive(data)
        except BundleError as error:
            raise BundleError(f"{source}: {error}") from None
        try:
            manifest: Any = json.loads(members[MANIFEST_FILE]) if MANIFEST_FILE in members else None
        except (ValueError, RecursionError):
            manifest = None
        facts = cast("dict[str, Any]", manifest) if isinstance(manifest, dict) else {}
        version, robot, task = facts.get("version"), facts.get("robot"), facts.get("task")
        if not is_number(version) or not isinstance(robot, str) or not isinstance(task, str):
            raise BundleError(f"{source}: its {MANIFEST_FILE} does not say version, robot and task")
        return cls(members, cast("int", version), robot, task)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        return sha256(self.members.data).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self.members.data)

    def offer(self, *, wait_s: float = 0.0) -> Offer:
        """What is said of it to a robot.

        Args:
            wait_s: how long the robot shall wait for other commands [s].
        """
        members = {name: Member(self.members.sha256(name), self.members.size(name)) for name in self.members}
        return Offer(self.sha256, self.version, self.robot, members, wait_s)

    def content(self, digest: str) -> memoryview:
        """The bytes of the member that has this SHA-256; KeyError without such a member."""
        return self.members.view({self.members.sha256(name): name for name in self.members}[digest])
