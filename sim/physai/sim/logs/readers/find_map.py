"""Which column map a recording is read with: the one named, one beside it, its format's own, or one shipped."""

from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from physai.sim.logs.readers.column_map import ColumnMap, load_column_map
from physai.sim.logs.readers.reading import Reading
from physai.sim.logs.robot_log import LogError

_SHIPPED = Path(__file__).parent / "maps"
_SUFFIXES_BESIDE = (".columns.yaml", ".columns.yml")
_FOLDER_MAPS = ("columns.yaml", "columns.yml")


def map_beside(path: Path, explicit: Path | None) -> ColumnMap | None:
    """The column map that was named or, if none was, `<log>.columns.yaml` or `columns.yaml` beside the recording.

    `<log>` is the file's name with or without its endings.
    """
    if explicit is not None:
        return load_column_map(explicit)
    stems = dict.fromkeys((path.name, path.name.removesuffix(".gz"), path.name.split(".")[0]))
    candidates = [path.parent / f"{stem}{suffix}" for stem in stems for suffix in _SUFFIXES_BESIDE]
    candidates += [path.parent / name for name in _FOLDER_MAPS]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    return None if found is None else load_column_map(found)


def complete_map(path: Path, reading: Reading, given: ColumnMap | None) -> tuple[ColumnMap, bool]:
    """The map to read a recording with, and whether its joints were found rather than written by the user.

    Raises:
        LogError: nothing says which column is which.
    """
    if given is not None and given.joints:
        return given, False
    if reading.convention is not None:
        if given is None:
            return reading.convention, True
        # What the user wrote goes before what the format says.
        written = given.model_dump(exclude_unset=True, exclude={"joints"})
        return reading.convention.model_copy(update={name: getattr(given, name) for name in written}), True
    if given is not None:
        raise LogError(f"{path}: its column map names no joints, and the file does not either{_columns(reading)}")
    shipped = shipped_map(path, reading.table.columns)
    if shipped is None:
        raise LogError(
            f"{path}: nothing says which column is which; write {path.name.split('.')[0]}.columns.yaml beside it or "
            f"name a map with --columns:\n{_TEMPLATE}{_columns(reading)}{_nearly(path, reading.table.columns)}"
        )
    return shipped, True


def shipped_map(path: Path, columns: tuple[str, ...]) -> ColumnMap | None:
    """The shipped map that fits a recording's name and columns; the one that names most of them, if several do."""
    known = set(columns)
    fitting = [
        column_map
        for column_map in _shipped_maps().values()
        if column_map.match is not None
        and fnmatch(path.name.lower(), column_map.match.file)
        and known >= set(column_map.match.columns)
    ]
    return max(fitting, key=lambda m: len(m.match.columns) if m.match else 0, default=None)


def _nearly(path: Path, columns: tuple[str, ...]) -> str:
    """What a shipped map misses that most of the columns fit, on a line of its own; empty where none does."""
    for name, column_map in _shipped_maps().items():
        if column_map.match is None or not fnmatch(path.name.lower(), column_map.match.file):
            continue
        missing = [column for column in column_map.match.columns if column not in columns]
        if len(missing) <= len(column_map.match.columns) / 2:
            return f"\n  the shipped map {name} would fit but for {', '.join(missing)}"
    return ""


@cache
def _shipped_maps() -> dict[str, ColumnMap]:
    """Shipped maps by name."""
    return {path.stem: load_column_map(path) for path in sorted(_SHIPPED.glob("*.yaml"))}


_TEMPLATE = """  time: {column: t, unit: s}
  command_kind: joint_effort
  joints:
    joint1: {joint_pos: q1, joint_vel: dq1, joint_effort: tau1, command: u1}
"""


def _columns(reading: Reading) -> str:
    return "\n  columns: " + ", ".join(_first(reading, 40))


def _first(reading: Reading, count: int) -> Iterator[str]:
    columns = reading.table.columns
    yield from columns[:count]
    if len(columns) > count:
        yield f"and {len(columns) - count} more"
