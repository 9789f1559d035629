"""Finds which members of a bundle a robot already has, without heavy imports.

It reads a few fields of the records of `physai.deploy_jetson.update.slots` to decide what must be sent; only the agent
decides whether to install a bundle.
"""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, cast

from physai.deploy_jetson.update.flash.protocol import Offer
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem, exists, remove_tree
from physai.deploy_jetson.update.slots.layout import (
    BUNDLE_FILE,
    CURRENT,
    IDENTITY_FILE,
    INCOMING,
    MARKER_FILE,
    MAX_RECORD_BYTES,
    SLOTS_FOLDER,
    STATE_FILES,
    config_folder,
    unseal,
)
from physai.deploy_jetson.update.slots.slot_errors import InstallError, SlotError
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, BundleError, read_archive

PART_SUFFIX = ".part"
"""File name suffix of an incomplete upload."""

SLOT_NAMES = ("a", "b")

SPARE_BYTES = 4 << 20
"""Disk space needed in addition to uploads and bundle, for markers and state."""


class RemoteInventory:
    """Read-only view of a robot's tree for uploads."""

    def __init__(self, root: Path, config: Path | None = None) -> None:
        """Initialises the view.

        Args:
            root: the robot's tree.
            config: folder of the owner's files; None selects the default for that tree.
        """
        self._root = root
        self._fs = PosixFileSystem(root)
        self._config = config_folder(root, config)
        self._slots: dict[str, tuple[str, frozenset[str]] | None] = {}

    def robot(self) -> str:
        """Name of this robot.

        Raises:
            SlotError: the robot is not set up.
        """
        record = self._record(PosixFileSystem(self._config), IDENTITY_FILE)
        if record is None:
            raise SlotError(
                f"{self._config} has no robot identity; set the robot up with `physai robot setup`, or give its tree "
                "with --root"
            )
        return str(record.get("robot"))

    def active_bundle(self) -> str | None:
        """SHA-256 of the active bundle; None if there is none or it is damaged."""
        try:
            slot = Path(self._fs.target(CURRENT)).name
        except OSError:
            return None
        contents = self._slot(slot)
        return None if contents is None else contents[0]

    def trial(self) -> Mapping[str, Any] | None:
        """The current trial; None if there is none."""
        trial = self._state().get("trial")
        return cast("Mapping[str, Any]", trial) if isinstance(trial, dict) else None

    def check(self, offer: Offer) -> None:
        """Refuses an offer that the agent would refuse after the upload.

        Raises:
            SlotError: another version is on trial.
            InstallError: the bundle is for another robot, or too old.
        """
        robot = self.robot()
        if robot != offer.robot and not robot.startswith(f"{offer.robot}/"):
            raise InstallError(f"the bundle is for {offer.robot}, this robot is {robot}; nothing was sent")
        trial = self.trial()
        if trial is not None and trial.get("bundle_sha256") != offer.bundle:
            raise SlotError(
                f"version {trial.get('version')} is on trial on this robot; wait for the end of the trial, or end it "
                "there with `physai robot commit` or `physai robot rollback`"
            )
        floor = self._state().get("floor")
        if isinstance(floor, int) and not offer.version >= floor:
            raise InstallError(
                f"version {offer.version} is older than {floor}, which this robot has committed to; nothing was sent"
            )

    def needs(self, offer: Offer) -> dict[str, int]:
        """SHA-256 of the missing members, and how many bytes of each are already uploaded; removes damaged uploads.

        Raises:
            OSError: an upload cannot be removed.
        """
        held = frozenset[str]().union(*(slot[1] for name in SLOT_NAMES if (slot := self._slot(name)) is not None))
        absent: dict[str, int] = {}
        for digest, size in offer.sizes.items():
            if digest in held or self._is_uploaded(digest, size):
                continue
            absent[digest] = self._part_size(digest, size)
        return absent

    def require_space(self, offer: Offer, needs: Mapping[str, int]) -> None:
        """Checks that the disk has room for an upload.

        Raises:
            InstallError: there is too little space.
        """
        free = shutil.disk_usage(self._root).free
        missing = sum(offer.sizes[digest] - start for digest, start in needs.items())
        # The upload, and the assembled bundle in the slot.
        wanted = missing + offer.size + SPARE_BYTES
        if not free >= wanted:
            raise InstallError(
                f"{free >> 20} MiB free on the robot, {-(-wanted >> 20)} MiB needed; make room there: "
                "`physai robot gc --idle`"
            )

    def _is_uploaded(self, digest: str, size: int) -> bool:
        path = f"{INCOMING}/{digest}"
        if not exists(self._fs, path):
            return False
        with suppress(OSError), self._fs.open(path) as file:
            if os.fstat(file.fileno()).st_size == size and file_digest(file, "sha256").hexdigest() == digest:
                return True
        remove_tree(self._fs, path)
        return False

    def _part_size(self, digest: str, size: int) -> int:
        path = f"{INCOMING}/{digest}{PART_SUFFIX}"
        if self._fs.kind(path) == "file" and (part_size := self._fs.size(path)) <= size:
            return part_size
        remove_tree(self._fs, path)
        return 0

    def _slot(self, slot: str) -> tuple[str, frozenset[str]] | None:
        """SHA-256 of the bundle in a slot and of its members; None if the slot is empty or damaged. Cached."""
        if slot not in self._slots:
            self._slots[slot] = self._read_slot(f"{SLOTS_FOLDER}/{slot}")
        return self._slots[slot]

    def _read_slot(self, folder: str) -> tuple[str, frozenset[str]] | None:
        marker = self._record(self._fs, f"{folder}/{MARKER_FILE}")
        if marker is None:
            return None
        try:
            members = read_archive(self._fs.read(f"{folder}/{BUNDLE_FILE}", limit=MAX_BUNDLE_BYTES))
        except (BundleError, OSError):
            return None
        bundle = sha256(members.data).hexdigest()
        return (bundle, frozenset(map(members.sha256, members))) if bundle == marker.get("bundle_sha256") else None

    def _state(self) -> Mapping[str, Any]:
        """The newer intact copy of the state; empty if there is none."""
        copies = [record for name in STATE_FILES if (record := self._record(self._fs, name)) is not None]
        return max(copies, key=_generation) if copies else {}

    @staticmethod
    def _record(fs: PosixFileSystem, path: str) -> dict[str, Any] | None:
        """Fields of a record; None if it is missing or damaged."""
        try:
            document: Any = json.loads(unseal(fs.read(path, limit=MAX_RECORD_BYTES), source=path))
        except (OSError, SlotError, ValueError, RecursionError):
            return None
        return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def _generation(state: Mapping[str, Any]) -> int:
    generation = state.get("generation")
    return generation if isinstance(generation, int) else -1
