"""Reads recordings in JSON: a list of records, one object with such a list and constants beside it, or JSON lines."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.sim.logs.readers.table import (
    MAX_COLUMNS,
    MAX_ORIGINS,
    ORIGIN_COLUMN,
    ColumnStream,
    Table,
    digest,
    read_bytes,
    require_size,
)
from physai.sim.logs.robot_log import Array, LogError

SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")

_MAX_JSON_BYTES = 128 << 20
"""Python objects take some ten times the room of their text."""
_MAX_DEPTH = 4


def read_json(path: Path, *, records: str | None = None) -> Table:
    """The records of a JSON file as columns; what lies deeper is named `outer.inner`, elements of lists `outer.0`.

    Args:
        path: of the file.
        records: name of the list of records in the top object; not needed where there is but one.

    Raises:
        LogError: it is missing, too large, no JSON, or holds no list of records, or several.
    """
    content = read_bytes(path)
    if not len(content) <= _MAX_JSON_BYTES:
        raise LogError(
            f"{path}: {len(content)} bytes of JSON, at most {_MAX_JSON_BYTES} are read; write CSV or Parquet"
        )
    top = _parse(path, content)
    rows, constants = _records(path, top, records)
    columns, text = _columns(path, rows)
    stream = ColumnStream(name=path.name, columns=columns, text=text, origins=_origins(top, rows, text))
    return Table(str(path), (path,), digest([path]), (stream,), constants)


def _origins(top: Any, rows: list[Any], text: frozenset[str]) -> frozenset[str]:
    """What the records, or the object around them, say of where they were recorded."""
    found = {str(row.get(ORIGIN_COLUMN) or "unknown") for row in rows} if ORIGIN_COLUMN in text else set[str]()
    if isinstance(top, dict) and ORIGIN_COLUMN in top:
        found.add(str(cast("dict[str, Any]", top)[ORIGIN_COLUMN]))
    return frozenset(sorted(found)[: MAX_ORIGINS + 1])


def _parse(path: Path, content: bytes) -> Any:
    try:
        if path.name.lower().removesuffix(".gz").endswith(".jsonl"):
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise LogError(f"{path}: not JSON: {error}") from error


def _records(path: Path, top: Any, name: str | None) -> tuple[list[Any], dict[str, float]]:
    """The list of records and the numbers beside it."""
    if isinstance(top, list):
        return cast("list[Any]", top), {}
    if not isinstance(top, dict):
        raise LogError(f"{path}: holds {type(top).__name__}, expected a list of records or an object with one")
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
        key: _finite_size(path, f"constant {key}", value)
        for key, value in content.items()
        if isinstance(value, int | float)
    }
    return content[name], numbers


def _finite_size(path: Path, where: str, value: float) -> float:
    """The number as a float; JSON has integers of any size."""
    try:
        return float(value)
    except OverflowError as error:
        raise LogError(f"{path}: {where} is out of range") from error


def _columns(path: Path, rows: list[Any]) -> tuple[dict[str, Array], frozenset[str]]:
    """One array per name that occurs, NaN where a record lacks it."""
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
            columns[name][i] = np.nan if value is None else _finite_size(path, f"record {i}: {name}", value)
    if not columns:
        raise LogError(f"{path}: its {len(rows)} records hold no number")
    return columns, frozenset(text - columns.keys())


def _leaves(value: Mapping[str, Any] | list[Any], prefix: str, depth: int) -> list[tuple[str, Any]]:
    """Names and values of everything in a record that is no object or list itself."""
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
