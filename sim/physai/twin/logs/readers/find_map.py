"""Select the column map of a recording: given explicitly, next to it, from its format, or shipped."""

from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from physai.twin.logs.readers.column_map import ColumnMap, Reading, load_column_map
from physai.twin.logs.readers.table import first_names
from physai.twin.logs.robot_log import LogError

_SHIPPED = Path(__file__).parent / "maps"
_SUFFIXES_BESIDE = (".columns.yaml", ".columns.yml")
_FOLDER_MAPS = ("columns.yaml", "columns.yml")


def map_beside(path: Path, explicit: Path | None) -> ColumnMap | None:
    """Return the explicit column map, or `<log>.columns.yaml` or `columns.yaml` next to the recording.

    `<log>` is the file's name with or without its extensions.
    """
    if explicit is not None:
        return load_column_map(explicit)
    found = map_file_beside(path)
    return None if found is None else load_column_map(found)


def map_file_beside(path: Path) -> Path | None:
    """Return the file next to a recording that `map_beside` reads; None if there is none."""
    stems = dict.fromkeys((path.name, path.name.removesuffix(".gz"), path.name.split(".")[0]))
    candidates = [path.parent / f"{stem}{suffix}" for stem in stems for suffix in _SUFFIXES_BESIDE]
    # A map of this recording precedes the one of its folder.
    candidates += [path.parent / name for name in _FOLDER_MAPS]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def maps_for(path: Path, beside: Path | None) -> list[ColumnMap]:
    """Return the maps that a recording may be read with: the one beside it, or shipped ones for its name."""
    if beside is not None:
        with suppress(LogError):
            return [load_column_map(beside)]
        return []
    name = path.name.lower()
    return [one for one in _shipped_maps().values() if one.match is not None and fnmatch(name, one.match.file)]


def complete_map(path: Path, reading: Reading, given: ColumnMap | None) -> tuple[ColumnMap, bool]:
    """Return the column map of a recording, and whether its joints were detected rather than given by the user.

    Raises:
        LogError: the columns cannot be assigned.
    """
    if given is not None and (given.joints or (given.base and reading.convention is None)):
        return given, False
    if reading.convention is not None:
        if given is None:
            return reading.convention, True
        # Settings given by the user override those of the format.
        written = given.model_dump(exclude_unset=True, exclude={"joints"})
        return reading.convention.model_copy(update={name: getattr(given, name) for name in written}), True
    if given is not None:
        raise LogError(f"{path}: neither the column map nor the file names joints or a base{_columns(reading)}")
    shipped = shipped_map(path, reading.table.columns)
    if shipped is None:
        raise LogError(
            f"{path}: cannot assign its columns; write {path.name.split('.')[0]}.columns.yaml next to it or "
            f"give a map with --columns:\n{_TEMPLATE}{_columns(reading)}{_nearly(path, reading.table.columns)}"
        )
    return shipped, True


def shipped_map(path: Path, columns: tuple[str, ...]) -> ColumnMap | None:
    """Return the shipped map that fits a recording's name and columns; of several, the one with most columns."""
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
    """Return a line on the columns that a nearly fitting shipped map misses; empty if there is none."""
    for name, column_map in _shipped_maps().items():
        if column_map.match is None or not fnmatch(path.name.lower(), column_map.match.file):
            continue
        missing = [column for column in column_map.match.columns if column not in columns]
        if len(missing) <= len(column_map.match.columns) / 2:
            return f"\n  the shipped map {name} would fit except for {', '.join(missing)}"
    return ""


@cache
def _shipped_maps() -> dict[str, ColumnMap]:
    return {path.stem: load_column_map(path) for path in sorted(_SHIPPED.glob("*.yaml"))}


_TEMPLATE = """  time: {column: t, unit: s}
  command_kind: joint_effort
  joints:
    joint1: {joint_pos: q1, joint_vel: dq1, joint_effort: tau1, command: u1}
"""


def _columns(reading: Reading) -> str:
    return f"\n  columns: {first_names(reading.table.columns, 40)}"
