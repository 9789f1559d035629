"""Recordings in formats that other packages read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.plugins import contributions, load_plugin
from physai.twin.logs.readers.table import ColumnStream, Table, digest, require_size
from physai.twin.logs.robot_log import Array, LogError

GROUP = "physai.log_readers"

LogReader = Callable[[Path], Mapping[str, Any]]
"""From a file to its columns by name, each a sequence of n numbers, NaN where there is none; one of them is the time.

The names of columns are found, mapped and checked as those of a CSV file."""


def contributed_suffixes() -> tuple[str, ...]:
    """Suffixes of files that other packages read: the names of the entry points."""
    return tuple(f".{name.lower()}" for name in contributions(GROUP))


def reads(path: Path) -> bool:
    """Whether another package reads files of this suffix."""
    return path.suffix.lower() in contributed_suffixes()


def read_contributed(path: Path) -> Table:
    """Read a file by the reader of its suffix.

    Raises:
        LogError: the reader fails, or returns something other than columns of numbers of one length.
        PluginError: the reader cannot be imported, or two packages have one.
    """
    name = next(name for name in contributions(GROUP) if f".{name.lower()}" == path.suffix.lower())
    reader: Any = load_plugin(GROUP, "log reader", name)
    try:
        read: object = reader(path)
        if not isinstance(read, Mapping):
            raise LogError(f"{path}: the reader {name!r} returns {type(read).__name__}, not columns by name")
        found = cast("Mapping[object, object]", read)
        columns = {str(key): _column(path, str(key), values) for key, values in found.items()}
    except PhysaiError:
        raise
    # A reader of another package may raise anything.
    except Exception as error:
        raise LogError(f"{path}: the reader {name!r} fails: {type(error).__name__}: {error}") from error
    lengths = sorted({len(values) for values in columns.values()})
    if len(lengths) != 1:
        raise LogError(f"{path}: the reader {name!r} returns columns of lengths {lengths}; give one length")
    require_size(str(path), lengths[0], len(columns))
    return Table(str(path), (path,), digest([path]), (ColumnStream(path.name, columns),))


def _column(path: Path, name: str, values: Any) -> Array:
    column = np.asarray(values, np.float64)
    if column.ndim != 1:
        raise LogError(f"{path}: column {name!r} has shape {column.shape}; give one number per sample")
    return column
