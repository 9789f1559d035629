"""Contents of an artefact: the names, sizes and hashes of its files."""

import hashlib
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.compute.objects.address import ArtefactError
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.process.software import Software
from physai.sdk.contract.robot import Frozen
from physai.sdk.evidence.verdict import Sha256, Utc

MANIFEST_FILE = "manifest.json"
OBJECTS_FOLDER = "objects"

MAX_FILES = 32_000
"""Maximum number of files and of folders in an artefact: below the objects that a JSON document may have."""

MAX_FILE_BYTES = 1 << 40
"""Maximum size of a file [B]."""

MAX_BYTES = 1 << 42
"""Maximum size of all files together [B]."""

_MAX_PATH = 1024


class FileEntry(Frozen):
    """One file."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
    """In bytes."""
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o644
    """Permissions, to which the umask of the reader applies."""


EntryPath = Annotated[str, Field(min_length=1, max_length=_MAX_PATH)]


class ArtefactManifest(Frozen):
    """The files of one artefact; it is written last, so an artefact with a manifest is complete."""

    format_version: Literal[1] = 1
    kind: Literal["file", "folder"]
    """A file's only entry is named after it."""
    files: Annotated[dict[EntryPath, FileEntry], Field(max_length=MAX_FILES)]
    """By path in the folder, with slashes."""
    folders: Annotated[tuple[EntryPath, ...], Field(max_length=MAX_FILES)] = ()
    """Folders in it, including empty ones."""
    created: Utc
    software: Software

    @model_validator(mode="after")
    def _paths_stay_inside(self) -> Self:
        for path in (*self.files, *self.folders):
            plain = PurePosixPath(path)
            # The path `.` has no parts.
            if plain.is_absolute() or str(plain) != path or {"..", "."} & {*plain.parts, path} or not _is_plain(path):
                raise ValueError(f"{path[:80]!r} is no path inside the artefact")
        if len(set(self.folders)) != len(self.folders) or set(self.folders) & self.files.keys():
            raise ValueError("a path occurs twice")
        known = set(self.folders)
        for path in (*self.files, *self.folders):
            parent = str(PurePosixPath(path).parent)
            if parent not in known and parent != ".":
                raise ValueError(f"{path[:80]!r} is in no folder of the artefact")
        if self.kind == "file" and (len(self.files) != 1 or self.folders):
            raise ValueError(f"a file has one entry, got {len(self.files)} and {len(self.folders)} folders")
        if not self.size <= MAX_BYTES:
            raise ValueError(f"{self.size} bytes, at most {MAX_BYTES} are allowed")
        return self

    @property
    def size(self) -> int:
        """Size of all files together [B]."""
        return sum(entry.size for entry in self.files.values())

    @property
    def content_sha256(self) -> str:
        """SHA-256 of paths and contents; times, modes and software do not count."""
        lines = [f"{path}\0{entry.sha256}\n" for path, entry in sorted(self.files.items())]
        lines += [f"{path}\0folder\n" for path in sorted(self.folders)]
        return hashlib.sha256("".join([self.kind, "\n", *lines]).encode()).hexdigest()


def _is_plain(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in path and all(character.isprintable() for character in path)


MANIFEST = DocumentKind(
    name="artefact's manifest",
    format_version=1,
    max_bytes=1 << 26,
    max_depth=4,
    error=ArtefactError,
)
