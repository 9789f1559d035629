"""The zip file a bundle is: one accepted sequence of bytes for given members, whatever a zip file may otherwise be.

Members are stored, not compressed, in a fixed order, with fixed times and permissions. The reader trusts no zip
library: from name, checksum and size of each entry it computes what both of its headers must be, byte for byte, and
compares. What that leaves no room for: extra fields, comments, gaps, trailing bytes, duplicate or unknown names, paths,
links, compression, encryption, ZIP64, and two headers that tell different tales. Every member's CRC-32 is checked, so
that no single flipped bit goes unnoticed even where no signature covers it. Source of the layout: PKWARE APPNOTE.TXT
6.3.10, sections 4.3.7, 4.3.12 and 4.3.16.
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
from physai.sdk.base.files import open_plain

MANIFEST_FILE = "manifest.json"
SAFETY_FILE = "safety.json"
VERDICT_FILE = "verdict.dsse"
SIGNATURE_FOLDER = "signatures/"

POLICY_FILES = (POLICY_FILE, "policy.int8.onnx", "policy.fp16.onnx", "policy.fp8.onnx")
"""The float32 graph, and what was made of it for targets that compute in less."""

MAX_MANIFEST_BYTES = 1 << 18
MAX_GOLDEN_BYTES = 64 << 20
MAX_ENVELOPE_BYTES = 1 << 20
"""Greatest size of a signed verdict; one of ten gates takes some 30 kB."""
MAX_SIGNATURE_BYTES = 1 << 12

MAX_BUNDLE_BYTES = 512 << 20
"""Greatest size of a bundle; the verifier holds it in memory once."""

MAX_SIGNATURES = 16
"""Most signatures of a role: more keys than a team has."""

_LIMITS = {
    MANIFEST_FILE: MAX_MANIFEST_BYTES,
    CONTRACT_FILE: MAX_CONTRACT_BYTES,
    **dict.fromkeys(POLICY_FILES, MAX_POLICY_BYTES),
    GOLDEN_FILE: MAX_GOLDEN_BYTES,
    SAFETY_FILE: MAX_CONTRACT_BYTES,
    VERDICT_FILE: MAX_ENVELOPE_BYTES,
}
"""Greatest size of each member that is no signature, in the order of the file."""

MAX_MEMBERS = len(_LIMITS) + MAX_SIGNATURES

_ORDER = {name: position for position, name in enumerate(_LIMITS)}
_SIGNATURE = re.compile(r"signatures/publisher-[0-9a-f]{64}\.json")

LATER_MEMBERS = (VERDICT_FILE, SIGNATURE_FOLDER)
"""Beginnings of the names that a manifest does not list, because they are made after it, and sign it."""

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")

_MADE_BY_UNIX, _VERSION_NEEDED = 3 << 8 | 20, 10
_DATE = 1 << 5 | 1
"""1980-01-01, the first day a zip file knows; the time beside it is 0."""
_REGULAR_FILE = 0o100644 << 16


class BundleError(PhysaiError):
    """A bundle is damaged, not in its one form, or contradicts itself."""


class Members(Mapping[str, bytes]):
    """The members of an archive by name, in file order, without a copy of its bytes."""

    def __init__(self, data: memoryview, ranges: Mapping[str, tuple[int, int]]) -> None:
        self.data = data
        """The whole archive."""
        self._ranges = ranges
        self._digests: dict[str, str] = {}

    def view(self, name: str) -> memoryview:
        """The member's bytes, not copied; KeyError without such a member."""
        start, stop = self._ranges[name]
        return self.data[start:stop]

    def size(self, name: str) -> int:
        """Number of bytes of the member."""
        start, stop = self._ranges[name]
        return stop - start

    def sha256(self, name: str) -> str:
        """SHA-256 of the member, 64 lower-case hexadecimal digits; computed once."""
        if name not in self._digests:
            self._digests[name] = sha256(self.view(name)).hexdigest()
        return self._digests[name]

    def __getitem__(self, name: str) -> bytes:
        """A copy of the member."""
        return bytes(self.view(name))

    def __contains__(self, name: object) -> bool:
        """Whether there is such a member; makes no copy to find out."""
        return name in self._ranges

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)


def signature_file(key_id: str) -> str:
    """Name of the member that holds a publisher's signature."""
    return f"{SIGNATURE_FOLDER}publisher-{key_id}.json"


def is_later(name: str) -> bool:
    """Whether a member is made after the manifest, which therefore does not list it."""
    return name.startswith(LATER_MEMBERS)


def archive_parts(members: Mapping[str, bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The archive piece by piece: a file can be put together again from its members, byte for byte.

    Raises:
        BundleError: a name, a size or the whole is not one a bundle may have.
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
    """The archive of the members, in their one order; the same members give the same bytes.

    Raises:
        BundleError: as `archive_parts`.
    """
    return b"".join(archive_parts(members))


def read_archive(data: bytes | memoryview) -> Members:
    """The members of an archive that `write_archive` could have written.

    Raises:
        BundleError: it could not have; says where it differs.
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
            raise BundleError(f"member {name}: its headers are not in the one form a bundle has")
        if zlib.crc32(view[start : start + size]) != checksum:
            raise BundleError(f"member {name} is damaged: its checksum differs")
        ranges[name] = (start, start + size)
        position, entry_start = start + size, entry_start + len(entry)
    if position != directory_start or entry_start != len(view) - _END.size:
        raise BundleError("bytes between the members, or in the directory, that belong to no member")
    return Members(view, ranges)


def read_file(path: Path) -> bytes:
    """The bytes of a bundle's file, of which there are not too many.

    Raises:
        BundleError: it cannot be read, or is too large.
    """
    try:
        with open_plain(path) as file:
            size = fstat(file.fileno()).st_size
            if not size <= MAX_BUNDLE_BYTES:
                raise BundleError(f"{path}: {size} bytes, a bundle has at most {MAX_BUNDLE_BYTES}")
            return file.read(size + 1)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None


def _read_end(view: memoryview) -> tuple[int, int]:
    """Number of members and start of the central directory, from the last 22 bytes."""
    if not len(view) <= MAX_BUNDLE_BYTES:
        raise BundleError(f"{len(view)} bytes, a bundle has at most {MAX_BUNDLE_BYTES}")
    start = len(view) - _END.size
    if start < 0:
        raise BundleError(f"{len(view)} bytes are no bundle: not even the end of a zip file")
    _, _, _, _, count, size, offset, _ = _END.unpack_from(view, start)
    if bytes(view[start:]) != _end(count, size, offset):
        raise BundleError("the file does not end as a bundle does: cut off, followed by something, or no bundle at all")
    if not count <= MAX_MEMBERS or offset + size != start:
        raise BundleError(f"a directory of {count} members and {size} bytes does not fit the file")
    return count, offset


def _read_entry(view: memoryview, start: int, position: int) -> tuple[str, int, int]:
    """Name, checksum and size that the directory's entry at `start` tells; the caller checks the rest of it."""
    if not start + _CENTRAL.size <= len(view) - _END.size:
        raise BundleError("the directory is cut off")
    fields = _CENTRAL.unpack_from(view, start)
    checksum, size, name_size = fields[7], fields[9], fields[10]
    raw = bytes(view[start + _CENTRAL.size : start + _CENTRAL.size + min(name_size, 128)])
    # Latin-1 decodes anything; the name is looked up next, so that nothing strange survives.
    name = raw.decode("latin-1")
    _check_size(name, size)
    return name, checksum, size


def _position(name: str) -> tuple[int, str]:
    """What the members are sorted by; BundleError for a name that no bundle has."""
    if name in _ORDER:
        return _ORDER[name], ""
    if _SIGNATURE.fullmatch(name):
        return len(_ORDER), name
    raise BundleError(f"{name[:128]!r} is no member of a bundle; it has {', '.join(_ORDER)} and {SIGNATURE_FOLDER}…")


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
