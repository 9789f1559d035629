"""Reads and writes robots in one zip file: every bound is checked while unpacking, nothing is written to disk."""

import io
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from physai.sdk.base.errors import ModelError
from physai.sdk.base.files import oserror_as, read_plain

MAX_FILES = 2000
"""Greatest number of entries, folders included."""
MAX_FILE_BYTES = 64 * 2**20
"""Greatest unpacked size of a file."""
MAX_TOTAL_BYTES = 128 * 2**20
"""Greatest unpacked size of all files together."""
MAX_RATIO = 200
"""Greatest unpacked size per packed size; robots' files reach 20, deflated zeros 1000."""
RATIO_FREE_BYTES = 2**20
"""Unpacked size up to which the ratio does not matter."""
MAX_NAME_CHARACTERS = 255
MAX_FOLDERS = 16
"""Greatest number of folders that a file lies in."""

MODEL_SUFFIXES = (".xml", ".mjcf", ".urdf")
ASSET_SUFFIXES = (".stl", ".obj", ".msh", ".png")
"""Suffixes of meshes and pictures that MuJoCo reads."""
_IGNORED_FOLDER = "__MACOSX"

_ENTRY = b"PK\x01\x02"
"""Signature of an entry in a zip's directory."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CHUNK = 2**16
_DATE = (1980, 1, 1, 0, 0, 0)


def read_zip(path: Path) -> bytes:
    """The bytes of a zip file.

    Raises:
        ModelError: it cannot be read, or is too large.
    """
    with oserror_as(ModelError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_TOTAL_BYTES)
    if len(data) > MAX_TOTAL_BYTES:
        raise ModelError(f"{path}: more than {MAX_TOTAL_BYTES} bytes, the maximum for a robot's zip")
    return data


def unpack(data: bytes) -> dict[str, bytes]:
    """Contents of a zip by path; folders and files that no robot needs are left out.

    Raises:
        ModelError: the zip is damaged or encrypted, exceeds a bound of this module, or has an entry that is no plain
            file, is there twice or leaves the archive.
    """
    # zipfile reads the whole directory at once, at several hundred bytes an entry.
    if data.count(_ENTRY) > MAX_FILES:
        raise ModelError(f"the zip has more than {MAX_FILES} entries; leave out what the robot does not need")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _files(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ModelError(f"the zip cannot be read: {error}; pack the folder again") from error


def _files(archive: zipfile.ZipFile) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    total = 0
    for entry in archive.infolist():
        # `filename` ends at the first NUL; `orig_filename` is what the archive says.
        check_name(entry.orig_filename.removesuffix("/"))
        # Systems that ignore case would overwrite one file with the other.
        key = entry.orig_filename.removesuffix("/").casefold()
        if key in seen:
            raise ModelError(f"{entry.orig_filename!r} is in the zip twice; keep one, and no names that differ in case")
        seen.add(key)
        _check_kind(entry)
        if entry.is_dir() or not _is_wanted(entry.orig_filename):
            continue
        files[entry.orig_filename] = _content(archive, entry, MAX_TOTAL_BYTES - total)
        total += len(files[entry.orig_filename])
    return files


def check_name(name: str) -> None:
    """Checks that a name is a plain relative path.

    Raises:
        ModelError: it is empty, too long, absolute, leaves its folder, or has characters that not every system allows.
    """
    shown = repr(name[:MAX_NAME_CHARACTERS])
    if len(name) > MAX_NAME_CHARACTERS:
        raise ModelError(f"the name {shown}… has more than {MAX_NAME_CHARACTERS} characters; shorten it")
    if any(unicodedata.category(character).startswith("C") or character in '\\:*?"<>|' for character in name):
        raise ModelError(f"the name {shown} has control or reserved characters; rename the file")
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ModelError(
            f"the name {shown} is no path inside the zip; pack the folder with relative names, without '..'"
        )
    if len(parts) > MAX_FOLDERS + 1:
        raise ModelError(f"the file {shown} lies in {len(parts) - 1} folders, at most {MAX_FOLDERS} are allowed")


def _check_kind(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ModelError(f"{name!r} is a link or device; pack the file itself (zip without -y)")
    if entry.flag_bits & 1:
        raise ModelError(f"{name!r} is encrypted; pack the folder without a password")
    if entry.compress_type not in _METHODS:
        raise ModelError(f"{name!r} has compression method {entry.compress_type}; use deflate, the default of zip")


def _is_wanted(name: str) -> bool:
    # Launch files, licences, source code and the like lie beside many robots.
    path = PurePosixPath(name)
    return path.parts[0] != _IGNORED_FOLDER and path.suffix.lower() in MODEL_SUFFIXES + ASSET_SUFFIXES


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int) -> bytes:
    """Unpacks one file, counting what comes out instead of believing the header."""
    name, content = entry.orig_filename, bytearray()
    with archive.open(entry) as stream:
        while chunk := stream.read(_CHUNK):
            content += chunk
            if len(content) > MAX_FILE_BYTES:
                raise ModelError(f"{name!r} unpacks to more than {MAX_FILE_BYTES} bytes, the limit of a file")
            if len(content) > left:
                raise ModelError(f"the zip unpacks to more than {MAX_TOTAL_BYTES} bytes; use smaller meshes")
            if len(content) > RATIO_FREE_BYTES and len(content) > MAX_RATIO * entry.compress_size:
                raise ModelError(f"{name!r} unpacks to more than {MAX_RATIO} times its packed size; pack real files")
    return bytes(content)


def pack(files: Mapping[str, bytes]) -> bytes:
    """The one zip of these files: sorted, without compression, times and permissions."""
    buffer = io.BytesIO()
    # Not deflated: other versions of zlib compress to other bytes.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def pack_model(model: Path) -> tuple[bytes, str]:
    """A zip of a model file and of what may belong to it, and the model's path in the zip.

    What may belong to it are the meshes and pictures below its folder and, for MJCF, other models; for a URDF whose
    meshes are named by package, those below the folder above.

    Raises:
        ModelError: a file cannot be read, or the folder holds too much.
    """
    try:
        text = model.read_bytes()
        urdf = model.suffix.lower() == ".urdf"
        folder = model.resolve().parent
        if urdf and b"package://" in text:
            folder = folder.parent
        suffixes = ASSET_SUFFIXES if urdf else MODEL_SUFFIXES + ASSET_SUFFIXES
        files = {model.resolve().relative_to(folder).as_posix(): text}
        total = len(text)
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.suffix.lower() not in suffixes or name in files or not path.is_file():
                continue
            total += path.stat().st_size
            if len(files) >= MAX_FILES or total > MAX_TOTAL_BYTES:
                raise ModelError(
                    f"{folder}: more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes of models and meshes; copy the "
                    "robot's to a folder of their own"
                )
            files[name] = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{error.filename or model}: cannot be read: {error.strerror}") from error
    return pack(files), next(iter(files))
