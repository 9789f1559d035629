"""Writes artefacts to, and reads them from, object stores and folders.

    ADDRESS/objects/SHA256   content of the files
    ADDRESS/manifest.json    their names, sizes and hashes; written last

Objects are named by their content and never changed, and the manifest is replaced in one step, so a reader finds the
previous artefact or the new one, whenever the writer ends. What a reader gets is compared with the hashes.
"""

import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from physai.compute.objects.address import Address, ArtefactError, explained
from physai.compute.objects.manifest import (
    MANIFEST,
    MANIFEST_FILE,
    MAX_FILES,
    OBJECTS_FOLDER,
    ArtefactManifest,
    FileEntry,
)
from physai.sdk.base.files import open_plain, sync_folder
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.process.software import running_software
from physai.sdk.evidence.verdict import utc_text

CHUNK_BYTES = 1 << 22
"""Size of the parts in which a file is read and hashed [B]."""

Tell = Callable[[str], None]


def push(path: Path, address: Address, *, tell: Tell = lambda text: None) -> ArtefactManifest:
    """Write a file or a folder, replacing what an earlier call wrote there.

    Args:
        path: regular file, or folder of regular files.
        address: place of this artefact alone.
        tell: called with a line of progress per object.

    Raises:
        ArtefactError: it cannot be read, holds links or devices, changes meanwhile, or cannot be written.
    """
    try:
        manifest, sources = _inspected(path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtefactError(f"{error.filename or path}: cannot be read: {why}") from None
    store = address.filesystem()
    objects = {entry.sha256: (sources[name], entry) for name, entry in manifest.files.items()}
    with explained(address, "written"):
        if address.scheme == "file":
            store.makedirs(str(Path(address.path) / OBJECTS_FOLDER), exist_ok=True)
        for number, (digest, (source, entry)) in enumerate(objects.items()):
            _send(store, source, entry, address / OBJECTS_FOLDER / digest)
            tell(f"{number + 1} of {len(objects)} objects")
        _put(store, address / MANIFEST_FILE, [canonical_json(manifest)])
    return manifest


def show(address: Address) -> ArtefactManifest:
    """Return an artefact's manifest.

    Raises:
        ArtefactError: there is no artefact, or its manifest is malformed.
    """
    store, path = address.filesystem(), address / MANIFEST_FILE
    with explained(address, "read"):
        try:
            with _opened(store, path) as file:
                data: bytes = file.read(MANIFEST.max_bytes + 1)
        except FileNotFoundError as error:
            if "bucket" in str(error).lower():
                raise
            raise ArtefactError(f"{address}: no artefact is there; it has no {MANIFEST_FILE}") from None
    return MANIFEST.parse(ArtefactManifest, data, source=str(path))


def pull(
    address: Address, path: Path, *, content_sha256: str | None = None, tell: Tell = lambda text: None
) -> ArtefactManifest:
    """Read an artefact into a new file or folder, which appears when all of it was checked.

    Args:
        address: place of the artefact.
        path: where to write it; must not exist.
        content_sha256: `ArtefactManifest.content_sha256` that it must have; None for any.
        tell: called with a line of progress per file.

    Raises:
        ArtefactError: there is no artefact or another one, an object is missing or is not what the manifest says, or
            `path` exists or cannot be written.
    """
    if os.path.lexists(path):
        raise ArtefactError(f"{path} exists; remove it, or name another path")
    manifest, store = show(address), address.filesystem()
    if content_sha256 is not None and manifest.content_sha256 != content_sha256:
        raise ArtefactError(f"{address}: has the content {manifest.content_sha256}, expected {content_sha256[:80]}")
    new = path.absolute().with_name(f".{path.name}.{uuid.uuid4().hex}")
    with explained(address, "read"):
        try:
            new.mkdir(parents=True)
            for folder in sorted(manifest.folders):
                (new / folder).mkdir()
            for number, (name, entry) in enumerate(manifest.files.items()):
                _receive(store, address / OBJECTS_FOLDER / entry.sha256, entry, new / name)
                tell(f"{number + 1} of {len(manifest.files)} files")
            # A rename replaces an empty folder or a file that appeared meanwhile; it never merges.
            (new / next(iter(manifest.files)) if manifest.kind == "file" else new).rename(path)
            sync_folder(path.absolute().parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return manifest


def _inspected(path: Path) -> tuple[ArtefactManifest, dict[str, Path]]:
    """The manifest of what is to be written, and the file of each entry."""
    folders: list[str] = []
    sources: dict[str, Path] = {path.name: path}
    is_folder = stat.S_ISDIR(path.lstat().st_mode)
    if is_folder:
        sources = {}
        for found in _walk(path):
            name = found.relative_to(path).as_posix()
            if found.is_dir():
                folders.append(name)
            else:
                sources[name] = found
            if not len(sources) + len(folders) <= MAX_FILES:
                raise ArtefactError(f"{path}: more than {MAX_FILES} files and folders; pack them into fewer")
    record = {
        "kind": "folder" if is_folder else "file",
        "files": {name: _entry(source) for name, source in sources.items()},
        "folders": tuple(sorted(folders)),
        "created": utc_text(datetime.now(UTC)),
        "software": running_software(),
    }
    try:
        manifest = ArtefactManifest.model_validate(record)
    except ValidationError as error:
        raise MANIFEST.invalid(error, source=str(path)) from None
    # What a reader would refuse is not written.
    return MANIFEST.parse(ArtefactManifest, canonical_json(manifest), source=str(path)), sources


def _walk(folder: Path) -> Iterator[Path]:
    unread = [folder]
    while unread:
        with os.scandir(unread.pop()) as found:
            for entry in sorted(found, key=lambda entry: entry.name):
                path = Path(entry.path)
                if entry.is_symlink():
                    raise ArtefactError(f"{path} is a symbolic link, whose content may change; put a file in its place")
                if entry.is_dir():
                    unread.append(path)
                yield path


def _entry(path: Path) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    with open_plain(path) as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o777
        while part := file.read(CHUNK_BYTES):
            digest.update(part)
            size += len(part)
    return FileEntry(sha256=digest.hexdigest(), size=size, mode=mode)


def _send(store: Any, source: Path, entry: FileEntry, place: Address) -> None:
    digest = hashlib.sha256()

    def parts() -> Iterator[bytes]:
        with open_plain(source) as file:
            while part := file.read(CHUNK_BYTES):
                digest.update(part)
                yield part
        if (found := digest.hexdigest()) != entry.sha256:
            raise ArtefactError(f"{source} changed while it was read: SHA-256 {entry.sha256}, then {found}; try again")

    # In a folder, what only its owner may read, such as a key, stays so.
    _put(store, place, parts(), mode=0o666 if entry.mode & 0o077 else 0o600)


def _put(store: Any, place: Address, parts: Any, *, mode: int = 0o666) -> None:
    """Write an object as a whole or not at all; in a folder with these permissions, to which the umask applies."""
    if place.scheme != "file":
        file = store.open(place.path, "wb")
        try:
            for part in parts:
                file.write(part)
        except BaseException:
            # Closing would publish what was written so far.
            file.discard()
            file.closed = True
            raise
        file.close()
        return
    path = Path(place.path)
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, mode), "wb") as local:
            local.writelines(parts)
            local.flush()
            os.fsync(local.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _opened(store: Any, place: Address) -> Any:
    # In a folder that others write to, there may be a pipe, which would block.
    return open_plain(Path(place.path)) if place.scheme == "file" else store.open(place.path, "rb")


def _receive(store: Any, place: Address, entry: FileEntry, path: Path) -> None:
    """Write an object to a file, if it has the size and the hash of its entry."""
    digest, size = hashlib.sha256(), 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with _opened(store, place) as source, os.fdopen(os.open(path, flags, entry.mode), "wb") as file:
            while size <= entry.size and (part := source.read(CHUNK_BYTES)):
                digest.update(part)
                size += len(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        raise ArtefactError(f"{place}: missing, though the manifest names it; push the artefact again") from None
    if size != entry.size:
        more = "or more " if size > entry.size else ""
        raise ArtefactError(f"{place}: {size} bytes {more}instead of {entry.size}; push the artefact again")
    if (found := digest.hexdigest()) != entry.sha256:
        raise ArtefactError(f"{place}: SHA-256 {found}, the manifest says {entry.sha256}; push the artefact again")
