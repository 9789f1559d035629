"""Files by the SHA-256 of their content, below the service's data folder."""

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
from pathlib import Path
from typing import IO

from physai.sdk.base.files import sync_folder
from physai.sdk.base.formats.canonical import sha256_hex
from physai.service.problems import ProblemError

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 2**20
_UPLOAD = "upload-"
UNFINISHED_S = 3600.0
"""A file that nobody has written to for this long is not finished any more [s]."""
ROOM_BYTES = 2**16
"""What the disk has to take, to count as usable."""


def require_room(folder: Path) -> None:
    """Checks that the disk of a folder takes what is written.

    Raises:
        OSError: it is full, or cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        if file.write(bytes(ROOM_BYTES)) != ROOM_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


class BlobStore:
    """Content-addressed files; a name is a hash, never a path that a client chose."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """The file with this content.

        Raises:
            ProblemError: the hash is malformed, or no file has it.
            OSError: the folder itself is not there.
        """
        if not _SHA256.fullmatch(sha256):
            raise ProblemError(422, "invalid", f"{sha256[:80]!r} is no SHA-256; send 64 lower-case hexadecimal digits")
        path = self._folder / sha256[:2] / sha256
        if not path.is_file():
            self.require_present()
            raise ProblemError(404, "unknown-content", f"no file has SHA-256 {sha256}; upload it to /v1/blobs first")
        return path

    def present(self) -> bool:
        """Whether the folder is there; it is not while its volume is unmounted."""
        return self._incoming.is_dir()

    def require_present(self) -> None:
        """Checks that the folder is there.

        Raises:
            OSError: it is not.
        """
        if not self.present():
            raise OSError(errno.ESTALE, "the data folder is away", str(self._folder))

    def require_room(self) -> None:
        """See the function `require_room`."""
        require_room(self._incoming)

    def put(self, data: bytes) -> str:
        """Stores bytes durably; returns their hash."""
        with self._new_file() as file:
            file.write(data)
        return self.adopt(Path(file.name), sha256_hex(data))

    def put_file(self, path: Path) -> tuple[str, int]:
        """Copies a file into the store; returns its hash and size."""
        digest, size = hashlib.sha256(), 0
        with path.open("rb") as source, self._new_file() as file:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                size += file.write(chunk)
        return self.adopt(Path(file.name), digest.hexdigest()), size

    async def put_stream(self, stream: AsyncIterable[bytes], *, limit: int) -> tuple[str, int]:
        """Stores an upload; returns its hash and size.

        Raises:
            ProblemError: it is larger than `limit`.
        """
        digest = hashlib.sha256()
        path, size = await self._receive(stream, limit, digest.update)
        return self.adopt(path, digest.hexdigest()), size

    @contextlib.asynccontextmanager
    async def received(self, stream: AsyncIterable[bytes], *, limit: int) -> AsyncGenerator[Path]:
        """An upload that is kept as long as the block lasts; see `put_stream` for the errors."""
        path, _ = await self._receive(stream, limit, lambda _: None)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    async def _receive(
        self, stream: AsyncIterable[bytes], limit: int, heard: Callable[[bytes], None]
    ) -> tuple[Path, int]:
        size = 0
        with self._new_file(_UPLOAD) as file:
            async for chunk in stream:
                size += len(chunk)
                if size > limit:
                    raise ProblemError(413, "too-large", f"the upload exceeds {limit} bytes, the limit of a file")
                heard(chunk)
                file.write(chunk)
        return Path(file.name), size

    @contextlib.contextmanager
    def _new_file(self, prefix: str = "put-") -> Generator[IO[bytes]]:
        """A file that is durable at the end of the block; removed if the block fails."""
        with tempfile.NamedTemporaryFile(dir=self._incoming, prefix=prefix, delete=False) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def clear_incoming(self, *, uploads: bool) -> None:
        """Deletes files that a killed process left unfinished.

        Args:
            uploads: all uploads, which no service receives now; else only what is too old to be still received.
        """
        for path in self._incoming.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if (uploads and path.name.startswith(_UPLOAD)) or time.time() - path.stat().st_mtime > UNFINISHED_S:
                    path.unlink()

    def partial(self, name: str) -> Path:
        """A file that is uploaded in parts; its folder is made if it is missing."""
        folder = self._folder / "partial"
        self.require_present()
        folder.mkdir(exist_ok=True)
        return folder / name

    def adopt(self, file: Path, sha256: str) -> str:
        """Takes a durable file of the store's disk over under its hash, which the caller has computed."""
        target = self._folder / sha256[:2] / sha256
        target.parent.mkdir(exist_ok=True)
        file.chmod(0o444)
        file.replace(target)
        sync_folder(target.parent)
        return sha256
