"""Read recordings in JSON: a list of records, an object with such a list and constants, or JSON lines."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.twin.logs.readers.table import (
    MAX_COLUMNS,
    ORIGIN_COLUMN,
    ColumnStream,
    Table,
    digest,
    read_bytes,
    require_size,
    stated_origins,
)
from physai.twin.logs.robot_log import Array, LogError

SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")

_MAX_JSON_BYTES = 128 << 20
"""Lower than for other formats: parsed JSON takes about ten times the memory of its text."""
_MAX_DEPTH = 4


def read_json(path: Path, *, records: str | None = None) -> Table:
    """Read the records of a JSON file as columns; nested values are named `outer.inner`, list elements `outer.0`.

    Args:
        path: the file.
        records: name of the list of records in the top object; not needed if there is only one.

    Raises:
        LogError: the file is missing, too large or not JSON, or does not contain exactly one list of records.
    """
    content = read_bytes(path)
    if not len(content) <= _MAX_JSON_BYTES:
        raise LogError(f"{path}: {len(content)} bytes of JSON, at most {_MAX_JSON_BYTES} are read; use CSV or Parquet")
    top = _parse(path, content)
    rows, constants = _records(path, top, records)
    columns, text = _columns(path, rows)
    stream = ColumnStream(name=path.name, columns=columns, text=text, origins=_origins(top, rows, text))
    return Table(str(path), (path,), digest([path]), (stream,), constants)


def _origins(top: Any, rows: list[Any], text: frozenset[str]) -> frozenset[str]:
    """Return the origins stated in the records or the top object."""
    values = [row.get(ORIGIN_COLUMN) for row in rows] if ORIGIN_COLUMN in text else []
    if isinstance(top, dict) and ORIGIN_COLUMN in top:
        values.append(cast("dict[str, Any]", top)[ORIGIN_COLUMN])
    return stated_origins(values)


def _parse(path: Path, content: bytes) -> Any:
    try:
        if path.name.lower().removesuffix(".gz").endswith(".jsonl"):
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: not JSON: {error}") from error


def _records(path: Path, top: Any, name: str | None) -> tuple[list[Any], dict[str, float]]:
    """Return the list of records and the constants next to it."""
    if isinstance(top, list):
        return cast("list[Any]", top), {}
    if not isinstance(top, dict):
        raise LogError(f"{path}: contains {type(top).__name__}, expected a list of records or an object with one")
    content = cast("dict[str, Any]", top)
    lists = [key for key, value in content.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
    if name is None:
        if len(lists) != 1:
            raise LogError(
                f"{path}: {len(lists)} lists of records ({', '.join(lists) or 'none'}), expected one; "
                "name it in the column map as `records:`"
            )
        name = lists[0]
    if name not in content or not isinstance(content[name], list):
        raise LogError(f"{path}: no list named {name!r}, only {', '.join(content)}")
    numbers = {
        key: _to_float(path, f"constant {key}", value)
        for key, value in content.items()
        if isinstance(value, int | float)
    }
    return content[name], numbers


def _to_float(path: Path, where: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:  # JSON integers have any size
        raise LogError(f"{path}: {where} is out of range") from error


def _columns(path: Path, rows: list[Any]) -> tuple[dict[str, Array], frozenset[str]]:
    """Return one array per name, with NaN for records without a value."""
    require_size(str(path), len(rows), 1)
    columns: dict[str, Array] = {}
    text: set[str] = set()
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise LogError(f"{path}: record {i} is {type(row).__name__}, expected an object")
        for name, value in _leaves(cast("dict[str, Any]", row), "", 0):
            if isinstance(value, str):
                text.add(name)
                continue
            if name not in columns:
                require_size(str(path), len(rows), len(columns) + 1)
                columns[name] = np.full(len(rows), np.nan)
            columns[name][i] = np.nan if value is None else _to_float(path, f"record {i}: {name}", value)
    if not columns:
        raise LogError(f"{path}: its {len(rows)} records contain no numbers")
    return columns, frozenset(text - columns.keys())


def _leaves(value: Mapping[str, Any] | list[Any], prefix: str, depth: int) -> list[tuple[str, Any]]:
    """Return names and values of all leaves of a record."""
    items = value.items() if isinstance(value, Mapping) else ((str(i), part) for i, part in enumerate(value))
    leaves: list[tuple[str, Any]] = []
    for key, part in items:
        if isinstance(part, Mapping | list) and depth < _MAX_DEPTH:
            leaves += _leaves(cast("Mapping[str, Any] | list[Any]", part), f"{prefix}{key}.", depth + 1)
        elif part is None or isinstance(part, int | float | str):
            leaves.append((f"{prefix}{key}", part))
        if len(leaves) > MAX_COLUMNS:
            break
    return leaves
