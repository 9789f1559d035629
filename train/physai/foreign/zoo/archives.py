"""Downloads archives of public repositories and wheels, and unpacks chosen files of them; nothing in them is run.

Members are read one by one and written as new files, so that no link, device or path outside the folder can come of an
archive. All sizes are bounded while they are read.
"""

import gzip
import http.client
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from physai.foreign.errors import ForeignPolicyError

ARCHIVES_VARIABLE = "PHYSAI_GITHUB_ARCHIVES"
"""Environment variable with the address of a mirror of `GITHUB_ARCHIVES`."""
GITHUB_ARCHIVES = "https://codeload.github.com"
"""Address below which OWNER/NAME/tar.gz/COMMIT is the archive of a commit."""
MAX_DOWNLOAD_BYTES = 1 << 29
MAX_UNPACKED_BYTES = 1 << 30
"""Greatest size of an archive's members together, also of those that are not written."""
MAX_MEMBERS = 20000
MAX_READ_BYTES = 1 << 20
"""Greatest part of a tar file that is read at once; only forged headers ask for more."""
TIMEOUT_S = 60.0
PIP_TIMEOUT_S = 1800.0
_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class _Member:
    """An entry of an archive."""

    name: str
    size: int
    kind: str
    """`file`, `folder` or `other`."""
    open: Callable[[], IO[bytes] | None]


def repository_files(repository: str, commit: str, wanted: set[str], folder: Path, work: Path) -> None:
    """Write files of a commit of a repository on GitHub.

    Args:
        repository: OWNER/NAME.
        commit: its 40 digits.
        wanted: files and folders in the repository.
        folder: folder to write to.
        work: folder for the archive.

    Raises:
        ForeignPolicyError: the archive cannot be had, is damaged or too large, or lacks a file.
    """
    base = os.environ.get(ARCHIVES_VARIABLE, "").strip().rstrip("/") or GITHUB_ARCHIVES
    if not re.fullmatch(r"https?://[!-~]+", base):
        raise ForeignPolicyError(f"{ARCHIVES_VARIABLE} is {base!r}, expected an address such as {GITHUB_ARCHIVES}")
    url = f"{base}/{repository}/tar.gz/{commit}"
    archive = work / "archive.tar.gz"
    _download(url, archive)
    with _unpacking(url), _Unpacked(archive, "rb") as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:
        # All is in one folder, NAME-COMMIT.
        _write(_tar_members(tar), wanted, folder, url, above=1)
        # Its checksum is behind what tarfile reads.
        if not any(not unpacked.read(_CHUNK) for _ in range(MAX_UNPACKED_BYTES // _CHUNK)):
            raise ForeignPolicyError(f"{url}: more than {MAX_UNPACKED_BYTES} bytes unpacked")
    _require(wanted, folder, url)
    archive.unlink()


def wheel_files(package: str, version: str, wanted: set[str], folder: Path, work: Path) -> None:
    """Write files of a wheel that this interpreter's pip downloads and does not install.

    Args:
        package: name of the package.
        version: its version.
        wanted: files and folders in the wheel.
        folder: folder to write to.
        work: folder for the wheel.

    Raises:
        ForeignPolicyError: the wheel cannot be had, is damaged or too large, or lacks a file.
    """
    pinned = f"{package}=={version}"
    # Wheels alone: pip would run the build of a source distribution.
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--dest", str(work)]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, pinned]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ForeignPolicyError(f"pip could not download {pinned}: {error}") from error
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = " ".join(done.stderr.split())[-300:] or "it wrote no wheel"
        raise ForeignPolicyError(
            f"pip could not download {pinned}: {said}; name an index in PIP_INDEX_URL, or a folder with the wheel in "
            "PIP_FIND_LINKS, or fetch the policy on a computer with a network and copy its folder"
        )
    if wheels[0].stat().st_size > MAX_DOWNLOAD_BYTES:
        raise ForeignPolicyError(f"{wheels[0].name}: more than {MAX_DOWNLOAD_BYTES} bytes")
    with _unpacking(wheels[0].name), zipfile.ZipFile(wheels[0]) as wheel:
        _write(_wheel_members(wheel), wanted, folder, wheels[0].name)
    _require(wanted, folder, wheels[0].name)
    wheels[0].unlink()


class _SameSchemeRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        """Follow a redirection, unless it leads from https to http or elsewhere."""
        if urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            raise ForeignPolicyError(f"{req.full_url}: leads to {newurl[:200]}, which is not encrypted alike")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str, path: Path) -> None:
    size, broke_off = 0, f"{url}: the download broke off; try again"
    try:
        with build_opener(_SameSchemeRedirects).open(url, timeout=TIMEOUT_S) as answer, path.open("xb") as file:
            while chunk := answer.read(_CHUNK):
                size += len(chunk)
                if size > MAX_DOWNLOAD_BYTES:
                    raise ForeignPolicyError(f"{url}: more than {MAX_DOWNLOAD_BYTES} bytes")
                file.write(chunk)
            # http.client does not miss the end of an answer that states its length.
            if answer.length:
                raise ForeignPolicyError(broke_off)
    except http.client.IncompleteRead as error:
        raise ForeignPolicyError(broke_off) from error
    except HTTPError as error:
        raise ForeignPolicyError(f"{url}: HTTP {error.code} {error.reason}; is the repository still public?") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", None) or error
        raise ForeignPolicyError(
            f"{url} cannot be fetched: {getattr(cause, 'strerror', None) or cause}; set {ARCHIVES_VARIABLE} to a "
            "mirror, or fetch the policy on a computer with a network and copy its folder"
        ) from error


class _Unpacked(gzip.GzipFile):
    """Content of a gzip file, for tarfile, which reads the names in headers at once, however long they are."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MAX_READ_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


@contextmanager
def _unpacking(source: str) -> Generator[None]:
    """Convert the errors of damaged archives and of a disk that takes no more."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError, ValueError) as error:
        raise ForeignPolicyError(f"{source}: the archive is damaged or broke off: {error}; try again") from error
    except (NotImplementedError, RuntimeError) as error:
        raise ForeignPolicyError(f"{source}: the archive cannot be unpacked: {error}") from error
    except OSError as error:
        raise ForeignPolicyError(f"{source}: cannot be unpacked: {error.strerror or error}") from error


def _tar_members(tar: tarfile.TarFile) -> Iterator[_Member]:
    for one in tar:
        kind = "file" if one.isreg() and not one.issparse() else "folder" if one.isdir() else "other"
        yield _Member(name=one.name, size=one.size, kind=kind, open=partial(tar.extractfile, one))


def _wheel_members(wheel: zipfile.ZipFile) -> Iterator[_Member]:
    for one in wheel.infolist():
        mode = stat.S_IFMT(one.external_attr >> 16)
        kind = "folder" if one.is_dir() else "file" if mode in (0, stat.S_IFREG) else "other"
        name = one.filename.removesuffix("/")
        yield _Member(name=name, size=one.file_size, kind=kind, open=partial(wheel.open, one))


def _write(members: Iterator[_Member], wanted: set[str], folder: Path, source: str, *, above: int = 0) -> None:
    """Write the wanted members below the folder, without the first `above` parts of their names."""
    total = 0
    for number, member in enumerate(members):
        total += member.size
        if number >= MAX_MEMBERS or member.size < 0 or total > MAX_UNPACKED_BYTES:
            raise ForeignPolicyError(
                f"{source}: more than {MAX_MEMBERS} members or {MAX_UNPACKED_BYTES} bytes unpacked"
            )
        parts = member.name.split("/")
        if {"", ".", ".."} & set(parts):
            raise ForeignPolicyError(f"{source}: {member.name[:200]!r} is outside its folder; nothing is kept of it")
        parts = parts[above:]
        if member.kind == "folder" or not any("/".join(parts[:n]) in wanted for n in range(1, len(parts) + 1)):
            continue
        if member.kind != "file":
            raise ForeignPolicyError(f"{source}: {member.name[:200]!r} is a link or a device, expected a file")
        _copy(member, folder.joinpath(*parts))


def _require(wanted: set[str], folder: Path, source: str) -> None:
    lacking = sorted(one for one in wanted if not (folder / one).exists())
    if lacking:
        raise ForeignPolicyError(f"{source}: has no {', '.join(lacking)}")


def _copy(member: _Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content: Any = member.open()
    # Both libraries read as many bytes as the header says, or raise an error.
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file, _CHUNK)
