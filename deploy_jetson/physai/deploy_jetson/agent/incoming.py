"""Uploads: members of bundles by SHA-256, so that only what the robot lacks has to be sent.

Whoever sends a bundle asks which of its members are missing, puts each into `incoming/SHA256` (an unfinished one may
have any other name), and names all members by hash in a recipe. The robot puts the bundle together, which gives the
very bytes that were packed. Nothing here is trusted: every byte is hashed when it is used, and the whole is verified
when it is installed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, cast

from physai.deploy_jetson.slots.errors import InstallError, SlotError
from physai.deploy_jetson.slots.filesystem import empty_folder
from physai.deploy_jetson.slots.layout import BUNDLE_FILE, INCOMING
from physai.deploy_jetson.slots.records import SLOTS
from physai.deploy_jetson.slots.store import SlotStore
from physai.sdk.bundle.archive import MAX_BUNDLE_BYTES, BundleError, Members, read_archive, write_archive

MAX_MEMBERS = 64
_SHA256 = re.compile(r"[0-9a-f]{64}")


def missing(store: SlotStore, digests: Iterable[str]) -> list[str]:
    """Those of the members, by SHA-256, that neither a slot nor the uploads hold; damaged uploads are removed.

    Raises:
        InstallError: something is no SHA-256, or there are too many.
        OSError: a damaged upload cannot be removed.
    """
    wanted = list(dict.fromkeys(digests))
    _check(wanted)
    installed = _installed(store)
    absent = [digest for digest in wanted if digest not in installed]
    return [digest for digest in absent if not _is_uploaded(store, digest)]


def assemble(store: SlotStore, recipe: Mapping[str, str]) -> bytes:
    """The bundle whose members have these hashes.

    Args:
        store: the robot's slots and uploads.
        recipe: SHA-256 of every member by name, signatures included.

    Raises:
        InstallError: a member is neither installed nor uploaded, or its upload is damaged.
        BundleError: the members make no bundle.
    """
    _check(list(recipe.values()))
    installed = _installed(store)
    members: dict[str, bytes | memoryview] = {}
    for name, digest in recipe.items():
        found = installed.get(digest)
        data = _upload(store, digest) if found is None else found[0].view(found[1])
        if data is None:
            raise InstallError(
                f"member {name} ({digest[:12]}) was not uploaded, or its upload is damaged: send it again"
            )
        members[name] = data
    return write_archive(members)


def parse_recipe(data: bytes) -> dict[str, str]:
    """The recipe in a JSON object of SHA-256 by member name.

    Raises:
        InstallError: it is none.
    """
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InstallError(f"the recipe is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InstallError("the recipe is no JSON object of SHA-256 by member name")
    recipe = cast("dict[str, Any]", document)
    for name, digest in recipe.items():
        if not isinstance(digest, str):
            raise InstallError(f"the recipe gives no SHA-256 for {name[:80]!r}")
    return recipe


def clear_incoming(store: SlotStore) -> int:
    """Removes all uploads and returns the bytes that become free."""
    return empty_folder(store.fs, INCOMING)


def _check(digests: list[str]) -> None:
    if not len(digests) <= MAX_MEMBERS:
        raise InstallError(f"{len(digests)} members, a bundle has at most {MAX_MEMBERS}")
    for digest in digests:
        if not _SHA256.fullmatch(digest):
            raise InstallError(f"{digest[:80]!r} is no SHA-256 in 64 lower-case hexadecimal digits")


def _installed(store: SlotStore) -> dict[str, tuple[Members, str]]:
    """Where each member of the installed bundles lies, by SHA-256."""
    found: dict[str, tuple[Members, str]] = {}
    for slot in SLOTS:
        try:
            members = read_archive(store.read(slot, BUNDLE_FILE))
        except (SlotError, BundleError):
            continue
        found.update({members.sha256(name): (members, name) for name in members})
    return found


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
