"""Output of the file readers: named numeric columns, unconverted, with limits on their size."""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Literal

from physai.sdk.base.files import read_plain
from physai.sdk.evidence.origin import Origin, OriginError, combine_origins
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.robot_log import Array, LogError

MAX_FILE_BYTES = 512 << 20
"""Maximum size of a file, also when decompressed."""
MAX_ROWS = 2_000_000
"""Maximum number of samples: more than an hour at 500 Hz."""
MAX_COLUMNS = 1024
MAX_CELLS = 200_000_000
"""Maximum number of values, 1.6 GB as float64."""

MAX_ORIGINS = 16
"""Maximum number of distinct origins in a recording."""

# A column and not metadata: it survives copying, cutting and conversion.
ORIGIN_COLUMN = "physai_origin"
"""Text column with `Origin.mark` in every row."""

Join = Literal["row", "hold"]
"""How a stream is aligned with the measured one: row by row, or by its last row at or before each time (hold)."""


@dataclass(frozen=True)
class ColumnStream:
    """Columns that share their rows: a CSV file, or one topic of a bag."""

    name: str
    """File or topic, for messages."""
    columns: Mapping[str, Array]
    """Values in the file, NaN if missing, shape (n,) each."""
    time: Array | None = None
    """Time of each row [s] if defined by the format; None if a column holds it."""
    join: Join = "row"
    """Alignment with the stream of the measured positions."""
    text: frozenset[str] = frozenset()
    """Columns that are not numeric."""
    origins: frozenset[str] = frozenset()
    """Origins stated in the file: values of ORIGIN_COLUMN, or metadata."""
    findings: tuple[LogFinding, ...] = ()
    """What the reader of the format saw in the file."""

    @property
    def rows(self) -> int:
        return 0 if not self.columns else len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class Table:
    """One recording as stored in its files."""

    source: str
    """Path as given."""
    files: tuple[Path, ...]
    sha256: str
    """Digest of the files, see `digest`."""
    streams: tuple[ColumnStream, ...]
    constants: Mapping[str, float] = field(default_factory=dict[str, float])
    """Constants of the whole recording."""
    findings: tuple[LogFinding, ...] = ()
    """What the reader of the format saw in the file."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns of all streams."""
        return tuple(name for stream in self.streams for name in stream.columns)

    @property
    def origin(self) -> Origin:
        """Combined origin of the recording; a file that states none is of unknown origin.

        Raises:
            LogError: a file states an invalid origin, or there are too many.
        """
        marks = sorted({mark for stream in self.streams for mark in stream.origins or ("unknown",)})
        if not len(marks) <= MAX_ORIGINS:
            # Not truncated: the least trustworthy origin might be among the rest.
            raise LogError(f"{self.source}: more than {MAX_ORIGINS} origins in {ORIGIN_COLUMN}; split the recording")
        try:
            return combine_origins(Origin.from_mark(mark, source=self.source) for mark in marks)
        except OriginError as error:
            raise LogError(str(error)) from None

    def stream_of(self, column: str) -> ColumnStream | None:
        """Return the stream with a column."""
        return next((stream for stream in self.streams if column in stream.columns), None)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends in .gz.

    Raises:
        LogError: the file is missing, unreadable, too large, or not valid gzip despite its name.
    """
    raw = read_bounded(path)
    if path.suffix.lower() != ".gz":
        return raw
    try:
        # One byte more than allowed, so that a larger file is noticed without decompressing all of it.
        content = gzip.GzipFile(fileobj=BytesIO(raw)).read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{path}: not a complete gzip file: {error}; copy or download it again") from error
    if not len(content) <= MAX_FILE_BYTES:
        raise LogError(f"{path}: more than {MAX_FILE_BYTES} bytes when decompressed, the maximum for a recording")
    return content


def read_bounded(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        LogError: the file is missing, unreadable or too large.
    """
    try:
        content = read_plain(path, limit=MAX_FILE_BYTES)
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not len(content) <= MAX_FILE_BYTES:
        raise LogError(f"{path}: more than {MAX_FILE_BYTES} bytes, the maximum for a recording; split it")
    return content


def digest(files: Iterable[Path]) -> str:
    """Return the SHA-256 of a file; for several files, of their concatenated binary digests."""
    digests = [hashlib.sha256(read_bounded(path)) for path in files]
    if len(digests) == 1:
        return digests[0].hexdigest()
    return hashlib.sha256(b"".join(part.digest() for part in digests)).hexdigest()


def require_size(source: str, rows: int, columns: int) -> None:
    """Require a recording's size to be within the limits.

    Raises:
        LogError: there are too few or too many rows, columns or values.
    """
    if rows < 2:
        raise LogError(f"{source}: {rows} rows, at least 2 are needed")
    if not (rows <= MAX_ROWS and columns <= MAX_COLUMNS and rows * columns <= MAX_CELLS):
        raise LogError(
            f"{source}: {rows} rows and {columns} columns; at most {MAX_ROWS} rows, {MAX_COLUMNS} columns and "
            f"{MAX_CELLS} numbers are read; split the recording"
        )


def stated_origins(values: Iterable[object]) -> frozenset[str]:
    """Return the origins in a column; an empty cell counts as unknown origin."""
    # One more than allowed, so that `Table.origin` notices.
    return frozenset(sorted({str(value or "unknown") for value in values})[: MAX_ORIGINS + 1])


def first_names(names: Sequence[str], count: int) -> str:
    """Return the first names as a list in words."""
    more = [f"and {len(names) - count} more"] if len(names) > count else []
    return ", ".join([*names[:count], *more])
