"""Read recordings in CSV, plain or gzipped."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from physai.twin.logs.findings import note
from physai.twin.logs.readers.parquet_file import float64, is_numeric
from physai.twin.logs.readers.table import (
    MAX_COLUMNS,
    ORIGIN_COLUMN,
    ColumnStream,
    Join,
    Table,
    digest,
    read_bytes,
    require_size,
    stated_origins,
)
from physai.twin.logs.robot_log import Array, LogError

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")

_SEPARATORS = (",", ";", "\t", "|")
_MAX_HEADER = 1 << 20


def read_csv(path: Path) -> Table:
    """Read a CSV file with a header line.

    Raises:
        LogError: the file is missing, too large, not text, ragged, has no header, or a duplicate name in it.
    """
    stream = read_csv_stream(path)
    return Table(str(path), (path,), digest([path]), (stream,), findings=stream.findings)


def read_csv_stream(path: Path, *, prefix: str = "", join: Join = "row") -> ColumnStream:
    """Read a CSV file as a stream, with a prefix for its column names."""
    import pyarrow as pa
    from pyarrow import csv

    content = read_bytes(path)
    header, separator = _header(path, content)
    comma = _decimal_comma(content, separator)
    options = csv.ConvertOptions(
        null_values=["", "NA", "null", "None"], strings_can_be_null=True, decimal_point="," if comma else "."
    )
    try:
        table: Any = csv.read_csv(
            pa.py_buffer(content),
            parse_options=csv.ParseOptions(delimiter=separator),
            read_options=csv.ReadOptions(column_names=header, skip_rows=1, use_threads=False),
            convert_options=options,
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0][:300].removeprefix("CSV parse error: ")
        raise LogError(
            f"{path}: not a table of {len(header)} columns: {reason}{_comma_advice(content, header, separator)}"
        ) from error
    require_size(str(path), table.num_rows, table.num_columns)
    columns = {prefix + name: _numbers(table.column(i)) for i, name in enumerate(header)}
    return ColumnStream(
        name=path.name,
        columns={name: values for name, values in columns.items() if values is not None},
        join=join,
        text=frozenset(name for name, values in columns.items() if values is None),
        origins=_origins(table, header),
        findings=(note("numbers have a decimal comma"),) if comma else (),
    )


def _decimal_comma(content: bytes, separator: str) -> bool:
    """Whether the first row has numbers as 0,5 between other separators than commas."""
    row = content[:_MAX_HEADER].split(b"\n", 2)[1:2]
    return separator != "," and bool(row) and b"." not in row[0] and re.search(rb"\d,\d", row[0]) is not None


def _comma_advice(content: bytes, header: list[str], separator: str) -> str:
    """Return advice if commas separate both columns and decimals: the first row has more commas than the header."""
    row = content[:_MAX_HEADER].split(b"\n", 2)[1:2]
    if separator != "," or not row or b"." in row[0] or not row[0].count(b",") >= len(header):
        return ""
    return (
        "; its numbers seem to have decimal commas, which cannot be told from the commas between columns: export it "
        "with semicolons between the columns, or with decimal points"
    )


def _origins(table: Any, header: list[str]) -> frozenset[str]:
    """Return the origins stated in the rows; an empty cell counts as unknown origin."""
    if ORIGIN_COLUMN not in header:
        return frozenset()
    return stated_origins(table.column(header.index(ORIGIN_COLUMN)).unique().to_pylist())


def _header(path: Path, content: bytes) -> tuple[list[str], str]:
    """Return the names in the first line and their separator."""
    if not content.strip():
        raise LogError(f"{path}: the file is empty")
    line, _, rest = content[:_MAX_HEADER].partition(b"\n")
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError as error:
        raise LogError(f"{path}: not text: {error}") from error
    if not rest and len(content) >= _MAX_HEADER:
        raise LogError(f"{path}: the first line has more than {_MAX_HEADER} bytes; a header line names the columns")
    # Counted in the header only: the rows may contain decimal commas.
    separator = max(_SEPARATORS, key=text.count)
    names = [name.strip().strip('"').strip() for name in text.removeprefix("#").split(separator)]
    if not len(names) <= MAX_COLUMNS:
        raise LogError(f"{path}: {len(names)} columns, at most {MAX_COLUMNS} are read")
    if all(_is_number(name) for name in names):
        raise LogError(f"{path}: the first line contains numbers ({text[:60]}); add a header line with column names")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or "" in names:
        raise LogError(
            f"{path}: the header has two columns {repeated[0]!r}"
            if repeated and repeated[0]
            else f"{path}: column {names.index('') + 1} of the header has no name"
        )
    return names, separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(column: Any) -> Array | None:
    """Return the column as float64 with NaN for empty cells; None if it is not numeric."""
    import pyarrow as pa

    # A column of empty cells only has no type of its own.
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    return float64(column) if is_numeric(column.type) else None
