"""Canonical zip archive of a bundle: given members have exactly one valid encoding.

Members are stored uncompressed, in a fixed order, with fixed times and permissions. The reader uses no zip library:
from name, checksum and size of each entry it computes both headers and compares them byte for byte. This rules out
extra fields, comments, gaps, trailing bytes, duplicate or unknown names, paths, links, compression, encryption, ZIP64
and local headers that contradict the central directory.

Layout: PKWARE APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
"""

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from hashlib import sha256
from os import fstat
from pathlib import Path

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.file_names import CONTRACT_FILE, GOLDEN_FILE, MAX_CONTRACT_BYTES, MAX_POLICY_BYTES, POLICY_FILE
from physai.sdk.base.files import open_plain, oserror_as

MANIFEST_FILE = "manifest.json"
SAFETY_FILE = "safety.json"
MODEL_CARD_FILE = "MODEL_CARD.md"
VERDICT_FILE = "verdict.dsse"
SIGNATURE_FOLDER = "signatures/"

POLICY_FILES = (POLICY_FILE, "policy.int8.onnx", "policy.fp16.onnx", "policy.fp8.onnx")
"""The float32 graph first, then its reduced-precision variants."""

MAX_MANIFEST_BYTES = 1 << 18
MAX_GOLDEN_BYTES = 64 << 20
MAX_CARD_BYTES = 1 << 20
MAX_ENVELOPE_BYTES = 1 << 20
"""Maximum size of a signed verdict; one with ten gates takes about 30 kB."""
MAX_SIGNATURE_BYTES = 1 << 12

MAX_BUNDLE_BYTES = 512 << 20
"""Maximum size of a bundle; the verifier holds one copy in memory."""

MAX_SIGNATURES = 16
"""Maximum number of signatures per role."""

_LIMITS = {
    MANIFEST_FILE: MAX_MANIFEST_BYTES,
    CONTRACT_FILE: MAX_CONTRACT_BYTES,
    **dict.fromkeys(POLICY_FILES, MAX_POLICY_BYTES),
    GOLDEN_FILE: MAX_GOLDEN_BYTES,
    SAFETY_FILE: MAX_CONTRACT_BYTES,
    MODEL_CARD_FILE: MAX_CARD_BYTES,
    VERDICT_FILE: MAX_ENVELOPE_BYTES,
}
"""Maximum size of each member other than signatures, in file order."""

MAX_MEMBERS = len(_LIMITS) + MAX_SIGNATURES

_ORDER = {name: position for position, name in enumerate(_LIMITS)}
_SIGNATURE = re.compile(r"signatures/publisher-[0-9a-f]{64}\.json")

LATER_MEMBERS = (VERDICT_FILE, SIGNATURE_FOLDER)
"""Name prefixes of members that the manifest does not list: they are created after it and sign it."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")

_MADE_BY_UNIX, _VERSION_NEEDED = 3 << 8 | 20, 10
# 1980-01-01, the earliest date that a zip file can express; the time field is 0.
_DATE = 1 << 5 | 1
_REGULAR_FILE = 0o100644 << 16


class BundleError(PhysaiError):
    """A bundle is damaged, not in canonical form, or inconsistent."""


class Members(Mapping[str, bytes]):
    """Zero-copy view of an archive's members by name, in file order."""

    def __init__(self, data: memoryview, ranges: Mapping[str, tuple[int, int]]) -> None:
        self.data = data
        """The whole archive."""
        self._ranges = ranges
        self._digests: dict[str, str] = {}

    def view(self, name: str) -> memoryview:
        """The member's bytes without a copy; raises KeyError if there is no such member."""
        start, stop = self._ranges[name]
        return self.data[start:stop]

    def size(self, name: str) -> int:
        """Number of bytes of the member."""
        start, stop = self._ranges[name]
        return stop - start

    def sha256(self, name: str) -> str:
        """SHA-256 of the member, 64 lower-case hexadecimal digits; cached."""
        if name not in self._digests:
            self._digests[name] = sha256(self.view(name)).hexdigest()
        return self._digests[name]

    def __getitem__(self, name: str) -> bytes:
        """A copy of the member."""
        return bytes(self.view(name))

    def __contains__(self, name: object) -> bool:
        # Mapping's default calls __getitem__, which copies the member.
        return name in self._ranges

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)


def signature_file(key_id: str) -> str:
    """Name of the member that holds a publisher's signature."""
    return f"{SIGNATURE_FOLDER}publisher-{key_id}.json"


def is_later(name: str) -> bool:
    """Whether a member is created after the manifest and therefore not listed in it."""
    return name.startswith(LATER_MEMBERS)


def archive_parts(members: Mapping[str, bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The archive in pieces, so that it can be written without a second copy in memory.

    Raises:
        BundleError: a name is not allowed, or a member or the archive is too large.
    """
    if not len(members) <= MAX_MEMBERS:
        raise BundleError(f"{len(members)} members, a bundle has at most {MAX_MEMBERS}: remove signatures")
    directory: list[bytes] = []
    offset = 0
    for name in sorted(members, key=_position):
        data = members[name]
        size = len(data)
        _check_size(name, size)
        checksum = zlib.crc32(data)
        header = _local(name, checksum, size)
        yield header
        yield data
        directory.append(_central(name, checksum, size, offset))
        offset += len(header) + size
    central = b"".join(directory)
    end = _end(len(directory), len(central), offset)
    if not offset + len(central) + len(end) <= MAX_BUNDLE_BYTES:
        raise BundleError(f"the members make more than the {MAX_BUNDLE_BYTES} bytes a bundle may have")
    yield central
    yield end


def write_archive(members: Mapping[str, bytes | memoryview]) -> bytes:
    """The archive of the members; equal members give equal bytes.

    Raises:
        BundleError: as for `archive_parts`.
    """
    return b"".join(archive_parts(members))


def read_archive(data: bytes | memoryview) -> Members:
    """Parses an archive in the form that `write_archive` writes.

    Raises:
        BundleError: the archive is not in that form.
    """
    view = memoryview(data).toreadonly()
    count, directory_start = _read_end(view)
    position, entry_start = 0, directory_start
    ranges: dict[str, tuple[int, int]] = {}
    last = (-1, "")
    for _ in range(count):
        name, checksum, size = _read_entry(view, entry_start, position)
        if not last < _position(name):
            raise BundleError(f"member {name} occurs twice, or out of order")
        last = _position(name)
        header, entry = _local(name, checksum, size), _central(name, checksum, size, position)
        start = position + len(header)
        if not start + size <= directory_start:
            raise BundleError(f"member {name} of {size} bytes reaches past the end of the members")
        if bytes(view[position:start]) != header or bytes(view[entry_start : entry_start + len(entry)]) != entry:
            raise BundleError(f"member {name}: its headers are not in canonical form")
        # Signatures and the verdict are not in the manifest: without the CRC a flipped bit in them could go unnoticed.
        if zlib.crc32(view[start : start + size]) != checksum:
            raise BundleError(f"member {name} is damaged: its checksum differs")
        ranges[name] = (start, start + size)
        position, entry_start = start + size, entry_start + len(entry)
    if position != directory_start or entry_start != len(view) - _END.size:
        raise BundleError("bytes between the members, or in the directory, that belong to no member")
    return Members(view, ranges)


def read_file(path: Path) -> bytes:
    """Reads a bundle file.

    Raises:
        BundleError: the file cannot be read or is too large.
    """
    with oserror_as(BundleError, f"{path}: cannot be read"), open_plain(path) as file:
        size = fstat(file.fileno()).st_size
        if not size <= MAX_BUNDLE_BYTES:
            raise BundleError(f"{path}: {size} bytes, a bundle has at most {MAX_BUNDLE_BYTES}")
        return file.read(size + 1)


def _read_end(view: memoryview) -> tuple[int, int]:
    """Number of members and start of the central directory, from the last 22 bytes."""
    if not len(view) <= MAX_BUNDLE_BYTES:
        raise BundleError(f"{len(view)} bytes, a bundle has at most {MAX_BUNDLE_BYTES}")
    start = len(view) - _END.size
    if start < 0:
        raise BundleError(f"{len(view)} bytes are not a bundle: too short for the end record of a zip file")
    _, _, _, _, count, size, offset, _ = _END.unpack_from(view, start)
    if bytes(view[start:]) != _end(count, size, offset):
        raise BundleError("the file does not end like a bundle: truncated, followed by other data, or not a bundle")
    if not count <= MAX_MEMBERS or offset + size != start:
        raise BundleError(f"a directory of {count} members and {size} bytes does not fit the file")
    return count, offset


def _read_entry(view: memoryview, start: int, position: int) -> tuple[str, int, int]:
    """Name, checksum and size in the directory entry at `start`; the caller checks the other fields."""
    if not start + _CENTRAL.size <= len(view) - _END.size:
        raise BundleError("the directory is truncated")
    fields = _CENTRAL.unpack_from(view, start)
    checksum, size, name_size = fields[7], fields[9], fields[10]
    raw = bytes(view[start + _CENTRAL.size : start + _CENTRAL.size + min(name_size, 128)])
    # Latin-1 decodes any bytes; _check_size then rejects every name that a bundle cannot contain.
    name = raw.decode("latin-1")
    _check_size(name, size)
    return name, checksum, size


def _position(name: str) -> tuple[int, str]:
    """Sort key of a member; raises BundleError for an unknown name."""
    if name in _ORDER:
        return _ORDER[name], ""
    if _SIGNATURE.fullmatch(name):
        return len(_ORDER), name
    raise BundleError(
        f"{name[:128]!r} is not a valid member name; a bundle has {', '.join(_ORDER)} and {SIGNATURE_FOLDER}…"
    )


def _check_size(name: str, size: int) -> None:
    _position(name)
    limit = _LIMITS.get(name, MAX_SIGNATURE_BYTES)
    if not size <= limit:
        raise BundleError(f"member {name} has {size} bytes, at most {limit} are allowed")


def _local(name: str, checksum: int, size: int) -> bytes:
    """Local file header (APPNOTE 4.3.7)."""
    raw = name.encode("ascii")
    return _LOCAL.pack(b"PK\3\4", _VERSION_NEEDED, 0, 0, 0, _DATE, checksum, size, size, len(raw), 0) + raw


def _central(name: str, checksum: int, size: int, offset: int) -> bytes:
    """Entry of the central directory (APPNOTE 4.3.12)."""
    raw = name.encode("ascii")
    facts = (checksum, size, size, len(raw), 0, 0, 0, 0, _REGULAR_FILE, offset)
    return _CENTRAL.pack(b"PK\1\2", _MADE_BY_UNIX, _VERSION_NEEDED, 0, 0, 0, _DATE, *facts) + raw


def _end(count: int, size: int, offset: int) -> bytes:
    """End of central directory (APPNOTE 4.3.16), without a comment."""
    return _END.pack(b"PK\5\6", 0, 0, count, count, size, offset, 0)
