"""Read recordings in Parquet; of a LeRobot dataset, one episode at a time.

LeRobot (github.com/huggingface/lerobot) stores observation.state and action as lists, timestamp [s] from the start of
the episode, episode_index, and the names of the list elements in meta/info.json at the dataset's root.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np

from physai.sdk.base.files import open_plain, read_plain
from physai.twin.logs.readers.column_map import Column, ColumnMap, JointColumns, Reading
from physai.twin.logs.readers.table import (
    MAX_COLUMNS,
    MAX_FILE_BYTES,
    ORIGIN_COLUMN,
    ColumnStream,
    Table,
    digest,
    require_size,
    stated_origins,
)
from physai.twin.logs.robot_log import Array, LogError

SUFFIXES = (".parquet",)

EPISODE = "episode_index"
STATE = "observation.state"
ACTION = "action"
TIMESTAMP = "timestamp"

_IS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,63}")
"""Pattern of joint names, which excludes the indices of unnamed list elements."""

_MAX_INFO_BYTES = 8 << 20
_MAX_EPISODES = 100_000


def episodes_in(path: Path) -> tuple[int, ...]:
    """Return the episode numbers in a file, ascending; empty without the column `episode_index`.

    Raises:
        LogError: the file is missing, not Parquet, or has too many episodes.
    """
    file = _open(path)
    if EPISODE not in file.schema_arrow.names:
        return ()
    numbers = np.unique(_columns(path, file, [EPISODE]).column(EPISODE).to_numpy())
    if not len(numbers) <= _MAX_EPISODES:
        raise LogError(f"{path}: {len(numbers)} episodes, at most {_MAX_EPISODES} are read")
    return tuple(int(number) for number in numbers)


def read_parquet(path: Path, *, episode: int | None = None) -> Reading:
    """Read the numeric columns of a Parquet file; list elements are named `list.element`.

    Args:
        path: the file.
        episode: episode of the dataset; None for all rows.

    Raises:
        LogError: the file is missing, too large, not Parquet, has no such episode, or lists of unequal length.
    """
    file = _open(path)
    table = _numeric_part(path, file)
    if episode is not None:
        table = _only(path, table, episode)
    names = _element_names(path)
    columns: dict[str, Array] = {}
    for name in table.column_names:
        columns.update(_expand(path, name, table.column(name), names.get(name, ())))
        require_size(str(path), table.num_rows, len(columns))
    text = frozenset(name for name in file.schema_arrow.names if name not in table.column_names)
    stream = ColumnStream(name=path.name, columns=columns, text=text, origins=_origins(path, file))
    table = Table(str(path), (path,), digest([path]), (stream,))
    return Reading(table, _convention(columns))


def _origins(path: Path, file: Any) -> frozenset[str]:
    """Return the origins stated in the rows; an empty cell counts as unknown origin."""
    if ORIGIN_COLUMN not in file.schema_arrow.names:
        return frozenset()
    return stated_origins(_columns(path, file, [ORIGIN_COLUMN]).column(ORIGIN_COLUMN).unique().to_pylist())


def _convention(columns: Iterable[str]) -> ColumnMap | None:
    """Return a column map for a LeRobot dataset with named joints: measured states and position targets.

    Names end in .pos, .vel or .effort; positions may have no suffix.
    """
    known = set(columns)
    if TIMESTAMP not in known:
        return None
    joints: dict[str, JointColumns] = {}
    for column in sorted(known):
        name = column.removeprefix(f"{STATE}.")
        joint = name.removesuffix(".pos")
        if name == column or not _IS_NAME.fullmatch(joint) or joint.endswith((".vel", ".effort")):
            continue
        speed, effort, target = f"{STATE}.{joint}.vel", f"{STATE}.{joint}.effort", f"{ACTION}.{name}"
        joints[joint] = JointColumns(
            joint_pos=Column(column=column),
            joint_vel=Column(column=speed) if speed in known else None,
            joint_effort=Column(column=effort) if effort in known else None,
            command=Column(column=target) if target in known else None,
        )
    if not joints:
        return None
    return ColumnMap(time=Column(column=TIMESTAMP), joints=joints, command_kind="joint_pos")


def _open(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if not path.stat().st_size <= MAX_FILE_BYTES:
            raise LogError(f"{path}: {path.stat().st_size} bytes, at most {MAX_FILE_BYTES} are read")
        open_plain(path).close()  # rejects a pipe, on which Arrow would block
        file = parquet.ParquetFile(path)
        list(file.schema_arrow.names)  # decodes the names, which may not be UTF-8
        return file
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or str(error).splitlines()[0]}") from error
    except (pa.ArrowException, ValueError) as error:
        raise LogError(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from error


def _numeric_part(path: Path, file: Any) -> Any:
    """Read the columns of numbers, booleans and lists of numbers."""
    schema: Any = file.schema_arrow
    chosen = [field.name for field in schema if is_numeric(_element_type(field.type) or field.type)]
    if not chosen:
        raise LogError(f"{path}: no numeric column, only {', '.join(schema.names[:20])}")
    return _columns(path, file, chosen)


def _columns(path: Path, file: Any, names: list[str]) -> Any:
    import pyarrow as pa

    # The sizes stated in the file are checked before anything is decompressed.
    require_size(str(path), file.metadata.num_rows, len(names))
    try:
        return file.read(columns=names, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise LogError(f"{path}: damaged Parquet file: {str(error).splitlines()[0]}") from error


def _element_type(kind: Any) -> Any:
    """Return the type of a list's elements; None for other types."""
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return kind.value_type if is_list else None


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type holds numbers or booleans."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _only(path: Path, table: Any, episode: int) -> Any:
    import pyarrow.compute as pc

    if EPISODE not in table.column_names:
        raise LogError(f"{path}: no column {EPISODE!r}, so there is no episode {episode}")
    part = table.filter(pc.equal(table.column(EPISODE), episode))
    if part.num_rows == 0:
        known = np.unique(table.column(EPISODE).to_numpy())
        raise LogError(f"{path}: no episode {episode}; it contains {known[0]} to {known[-1]}")
    return part


def _expand(path: Path, name: str, column: Any, names: Iterable[str]) -> list[tuple[str, Array]]:
    """Split a column of lists into one column per element; other columns are kept."""
    if _element_type(column.type) is None:
        return [(name, float64(column))]
    lengths = np.unique(column.combine_chunks().value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or not np.isfinite(lengths[0]) or not 0 < lengths[0] <= MAX_COLUMNS:
        raise LogError(
            f"{path}: the lists of column {name!r} have {lengths.tolist()[:5]} elements, expected equal lengths"
        )
    size = int(lengths[0])
    flat = float64(column.combine_chunks().flatten()).reshape(-1, size)
    given = tuple(names)
    labels = given if len(given) == size else tuple(str(i) for i in range(size))
    return [(f"{name}.{label}", flat[:, i]) for i, label in enumerate(labels)]


def float64(column: Any) -> Array:
    """Return a numeric Arrow column as an array, with NaN for empty cells."""
    import pyarrow as pa

    # safe=False allows integers beyond 2^53, which float64 rounds.
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _element_names(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the names of each list's elements from the dataset's meta/info.json; empty without one."""
    file = description_file(path)
    return {} if file is None else _names_from(file)


def description_file(path: Path) -> Path | None:
    """Return the meta/info.json of the LeRobot dataset that a file is of; None if there is none."""
    files = (folder / "meta" / "info.json" for folder in list(path.resolve().parents)[:5])
    return next((file for file in files if file.is_file()), None)


def _names_from(file: Path) -> dict[str, tuple[str, ...]]:
    try:
        info: Any = json.loads(read_plain(file, limit=_MAX_INFO_BYTES))
        features = cast("dict[str, Any]", info["features"])
        named = {key: _flat_names(feature.get("names")) for key, feature in features.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LogError(f"{file}: not the description of a LeRobot dataset: {error}") from error
    return {key: names for key, names in named.items() if len(set(names)) == len(names)}


def _flat_names(names: Any) -> tuple[str, ...]:
    """Flatten LeRobot's names: a list, or an object with one list under a key such as `motors`."""
    if isinstance(names, dict):
        lists = list(cast("dict[str, Any]", names).values())
        names = lists[0] if len(lists) == 1 else None
    if not isinstance(names, list):
        return ()
    return tuple(str(name) for name in cast("list[Any]", names))
