"""What a file reader hands on: named columns of numbers, as they lie in the file, and the bounds on all of it."""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from physai.sdk.base.files import read_plain
from physai.sdk.evidence.origin import Origin, OriginError, combine_origins
from physai.sim.logs.robot_log import Array, LogError

MAX_FILE_BYTES = 512 << 20
"""Largest file that is read, and the most one may have once decompressed."""
MAX_ROWS = 2_000_000
"""Most samples of a recording: more than an hour at 500 Hz."""
MAX_COLUMNS = 1024
"""Most columns of a recording."""
MAX_CELLS = 200_000_000
"""Most numbers of a recording, 1.6 GB of them."""

MAX_ORIGINS = 16
"""Most origins that one recording names."""

ORIGIN_COLUMN = "physai_origin"
"""Column of text that says in every row where a recording was made, `Origin.mark`: in a column it survives whatever
copies, cuts and converts tables."""

Join = Literal["row", "hold"]
"""How a stream meets the measured one: row by row, or by what was last sent at or before a measured time."""


@dataclass(frozen=True)
class ColumnStream:
    """Columns that share their rows: a CSV file, or one topic of a bag."""

    name: str
    """File or topic, for messages."""
    columns: Mapping[str, Array]
    """Numbers as they lie in the file, NaN where there is none, shape (n,) each."""
    time: Array | None = None
    """Time of each row [s] where the format itself says it; None where a column does."""
    join: Join = "row"
    """How it meets the stream that holds the measured positions."""
    text: frozenset[str] = frozenset()
    """Columns that hold something other than numbers."""
    origins: frozenset[str] = frozenset()
    """What the file says of where it was recorded: the values of its column ORIGIN_COLUMN, or its metadata."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return 0 if not self.columns else len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class Table:
    """One recording as its files hold it."""

    source: str
    """Path as given."""
    files: tuple[Path, ...]
    """The files it was read from."""
    sha256: str
    """Digest of the files, see `digest`."""
    streams: tuple[ColumnStream, ...]
    constants: Mapping[str, float] = field(default_factory=dict[str, float])
    """Numbers that hold for the whole recording."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns of all streams."""
        return tuple(name for stream in self.streams for name in stream.columns)

    @property
    def origin(self) -> Origin:
        """Where the recording was made, by what its files say; a file that says nothing is of unknown origin.

        Raises:
            LogError: a file says something that is no origin, or they name too many.
        """
        marks = sorted({mark for stream in self.streams for mark in stream.origins or ("unknown",)})
        if not len(marks) <= MAX_ORIGINS:
            # Left out, the least trustworthy might be among the rest.
            raise LogError(f"{self.source}: more than {MAX_ORIGINS} origins in {ORIGIN_COLUMN}; split the recording")
        try:
            return combine_origins(Origin.from_mark(mark, source=self.source) for mark in marks)
        except OriginError as error:
            raise LogError(str(error)) from None

    def stream_of(self, column: str) -> ColumnStream | None:
        """The stream that holds a column."""
        return next((stream for stream in self.streams if column in stream.columns), None)


def read_bytes(path: Path) -> bytes:
    """Content of a file, decompressed if its name ends in .gz.

    Raises:
        LogError: it is missing, unreadable, too large, or no gzip file although it is called so.
    """
    raw = _read_bounded(path)
    if path.suffix.lower() != ".gz":
        return raw
    try:
        return _decompress(path, raw)
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{path}: not a whole gzip file: {error}; copy or download it again") from error


def _read_bounded(path: Path) -> bytes:
    try:
        content = read_plain(path, limit=MAX_FILE_BYTES)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not len(content) <= MAX_FILE_BYTES:
        raise LogError(f"{path}: more than {MAX_FILE_BYTES} bytes, the most a recording may have; cut it into parts")
    return content


def _decompress(path: Path, raw: bytes) -> bytes:
    from io import BytesIO

    with gzip.GzipFile(fileobj=BytesIO(raw)) as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if not len(content) <= MAX_FILE_BYTES:
        raise LogError(f"{path}: more than {MAX_FILE_BYTES} bytes once decompressed, the most a recording may have")
    return content


def digest(files: Iterable[Path]) -> str:
    """SHA-256 of a file's bytes as they lie there; of several files, that of their concatenated binary digests."""
    digests = [hashlib.sha256(_read_bounded(path)) for path in files]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(part.digest() for part in digests)).hexdigest()


def require_size(source: str, rows: int, columns: int) -> None:
    """Refuses a recording without rows or columns, or with more than this reader takes.

    Raises:
        LogError: so it is.
    """
    if rows < 2:
        raise LogError(f"{source}: {rows} rows; a recording has at least two samples")
    if not (rows <= MAX_ROWS and columns <= MAX_COLUMNS and rows * columns <= MAX_CELLS):
        raise LogError(
            f"{source}: {rows} rows and {columns} columns; at most {MAX_ROWS} rows, {MAX_COLUMNS} columns and "
            f"{MAX_CELLS} numbers are read; cut the recording into parts"
        )


def as_numbers(values: Iterable[float | int | bool | None]) -> Array:
    """Numbers as float64, None as NaN."""
    return np.array([np.nan if value is None else value for value in values], np.float64)
