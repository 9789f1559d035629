"""Content-addressed uploads: bundle members by SHA-256, so that only missing members are sent.

The sender asks which members are missing, stores each as `incoming/SHA256` (an incomplete one under any other name) and
sends a recipe with the hashes of all members. The robot assembles the bundle, byte for byte as it was packed. Uploads
are not trusted: every byte is hashed when it is used, and the bundle is verified when it is installed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

from physai.deploy_jetson.update.slots.filesystem import empty_folder
from physai.deploy_jetson.update.slots.layout import BUNDLE_FILE, INCOMING
from physai.deploy_jetson.update.slots.slot_errors import InstallError, SlotError
from physai.deploy_jetson.update.slots.slot_records import SLOTS
from physai.deploy_jetson.update.slots.store import SlotStore
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, BundleError, Members, read_archive, write_archive

MAX_MEMBERS = 64
_SHA256 = re.compile(r"[0-9a-f]{64}")


def missing(store: SlotStore, digests: Iterable[str]) -> list[str]:
    """SHA-256 of the members that are neither installed nor uploaded; removes damaged uploads.

    Raises:
        InstallError: a digest is not a SHA-256, or there are too many.
        OSError: a damaged upload cannot be removed.
    """
    wanted = list(dict.fromkeys(digests))
    _check(wanted)
    installed = _installed(store)
    absent = [digest for digest in wanted if digest not in installed]
    return [digest for digest in absent if not _is_uploaded(store, digest)]


def assemble(store: SlotStore, recipe: Mapping[str, str]) -> bytes:
    """Assembles a bundle from installed and uploaded members.

    Args:
        store: the robot's slots and uploads.
        recipe: SHA-256 of every member by name, including signatures.

    Raises:
        InstallError: a member is neither installed nor uploaded, or its upload is damaged.
        BundleError: the members do not form a bundle.
    """
    _check(list(recipe.values()))
    installed = _installed(store)
    members: dict[str, bytes | memoryview] = {}
    for name, digest in recipe.items():
        source = installed.get(digest)
        data = _upload(store, digest) if source is None else source[0].view(source[1])
        if data is None:
            raise InstallError(
                f"member {name} ({digest[:12]}) was not uploaded, or its upload is damaged: send it again"
            )
        members[name] = data
    return write_archive(members)


def parse_recipe(data: bytes) -> dict[str, str]:
    """Parses a recipe, a JSON object of SHA-256 by member name.

    Raises:
        InstallError: the recipe is malformed.
    """
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InstallError(f"the recipe is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InstallError("the recipe is not a JSON object of SHA-256 by member name")
    recipe = cast("dict[str, Any]", document)
    for name, digest in recipe.items():
        if not isinstance(digest, str):
            raise InstallError(f"the recipe has no SHA-256 for {name[:80]!r}")
    return recipe


def clear_incoming(store: SlotStore) -> int:
    """Removes all uploads; returns the number of bytes freed."""
    return empty_folder(store.fs, INCOMING)


def _check(digests: list[str]) -> None:
    if not len(digests) <= MAX_MEMBERS:
        raise InstallError(f"{len(digests)} members, a bundle has at most {MAX_MEMBERS}")
    for digest in digests:
        if not _SHA256.fullmatch(digest):
            raise InstallError(f"{digest[:80]!r} is not a SHA-256 in 64 lower-case hexadecimal digits")


def _installed(store: SlotStore) -> dict[str, tuple[Members, str]]:
    """Archive and name of each member of the installed bundles, by SHA-256."""
    installed: dict[str, tuple[Members, str]] = {}
    for slot in SLOTS:
        try:
            members = read_archive(store.read(slot, BUNDLE_FILE))
        except (SlotError, BundleError):
            continue
        installed.update({members.sha256(name): (members, name) for name in members})
    return installed


def _is_uploaded(store: SlotStore, digest: str) -> bool:
    if store.fs.kind(f"{INCOMING}/{digest}") is None:
        return False
    if _upload(store, digest) is not None:
        return True
    store.fs.remove(f"{INCOMING}/{digest}")
    return False


def _upload(store: SlotStore, digest: str) -> bytes | None:
    try:
        data = store.fs.read(f"{INCOMING}/{digest}", limit=MAX_BUNDLE_BYTES)
    except OSError:
        return None
    return data if sha256(data).hexdigest() == digest else None
