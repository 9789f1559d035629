"""Detect the format of a recording and read it."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.parameters.arguments import several
from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs.checks.reading import require_readable
from physai.twin.logs.comparison.overlap import overlapping
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.readers import csv_file, json_file, parquet_file
from physai.twin.logs.readers.assemble import assemble
from physai.twin.logs.readers.bags import bag_file
from physai.twin.logs.readers.column_map import ColumnMap, Reading, problems
from physai.twin.logs.readers.contributed import contributed_suffixes, read_contributed, reads
from physai.twin.logs.readers.find_map import complete_map, map_beside, map_file_beside, maps_for
from physai.twin.logs.readers.table import Table, digest
from physai.twin.logs.robot_log import LogError, RobotLog

MAX_LOGS = 10_000
"""Maximum number of recordings per call."""
SAME_SHARE = 0.5
"""Recordings that have more of their samples in common count as one."""

_SUFFIXES = (*csv_file.SUFFIXES, *json_file.SUFFIXES, *parquet_file.SUFFIXES, *bag_file.SUFFIXES)

_EPISODE = re.compile(r"(?P<file>.+)#(?P<number>[0-9]{1,9})")


def read_log(path: str | Path, robot: RobotSpec, *, column_map: Path | None = None) -> RobotLog:
    """Read one recording, in SI units and the robot's joint order.

    Args:
        path: a CSV, JSON, Parquet or MCAP file (CSV and JSON also gzipped), or a ROS 2 bag folder. `FILE#3` is
            episode 3 of a file with several.
        robot: robot whose joints the recording must have, matched by name.
        column_map: YAML file that assigns the columns (see `physai.twin.logs.readers.column_map`). The default is a map
            next to the recording (`<log>.columns.yaml`, `columns.yaml`), then the format's own names, then a shipped
            map that fits the columns.

    Raises:
        LogError: the recording is unreadable, or contains NaN, time that is not ascending, or wrong units.
    """
    raw = read_raw(path, robot, column_map=column_map)
    require_readable(raw)
    return raw.log()


def read_logs(
    paths: Iterable[str | Path], robot: RobotSpec, *, column_map: Path | None = None, unfit: list[str] | None = None
) -> tuple[RobotLog, ...]:
    """Read several recordings in the given order, with unique names; each episode of a file is a recording.

    Args:
        paths: the recordings.
        robot: the robot that they are of.
        column_map: map for all of them; None for the one beside each, or a shipped one.
        unfit: if given, recordings with a defect are left out and their messages added to this list.

    Raises:
        LogError: as `read_log`, or a recording is given twice.
    """
    logs: list[RobotLog] = []
    for path in all_episodes(paths):
        try:
            logs.append(read_log(path, robot, column_map=column_map))
        except LogError as error:
            if unfit is None:
                raise
            unfit.append(str(error))
    names = log_names([log.source for log in logs])
    seen: dict[str, str] = {}
    for log in logs:
        # The digest also finds a copy under another name, which would count twice in every average.
        if log.sha256 in seen:
            raise LogError(f"{log.source}: the same recording as {seen[log.sha256]}; give each once")
        seen[log.sha256] = log.source
    for one, other, share in overlapping(logs):
        if share > SAME_SHARE:
            raise LogError(
                f"{logs[other].source}: {share:.0%} of its samples are those of {logs[one].source}; give each once"
            )
    return tuple(replace(log, name=name) for log, name in zip(logs, names, strict=True))


def read_raw(path: str | Path, robot: RobotSpec | None, *, column_map: Path | None = None) -> RawLog:
    """Read one recording without checks; without a robot its joints are those of the column map.

    Raises:
        LogError: the recording is unreadable.
    """
    source = str(path)
    file, episode = _existing(source)
    given = map_beside(file, column_map)
    reading = _read(file, given, int(episode) if episode else None)
    table = replace(reading.table, source=source)
    if episode:
        # Episodes of one file are recordings of their own: one may be fitted and another held out.
        table = replace(table, sha256=sha256_hex(f"{table.sha256}#{int(episode)}".encode()))
    reading = replace(reading, table=table)
    complete, detected = complete_map(file, reading, given)
    table = _joined(file, reading.table, complete)
    return assemble(table, complete, robot, name=log_names([source])[0], detected=detected)


def robot_of(path: str | Path, *, column_map: Path | None = None) -> str | None:
    """Return the robot named in a recording's column map, if any.

    Raises:
        LogError: the recording is unreadable.
    """
    file, _ = _existing(str(path))
    given = map_beside(file, column_map)
    if given is not None and given.robot is not None:
        return given.robot
    return complete_map(file, _read(file, given, None), given)[0].robot


def all_episodes(paths: Iterable[str | Path]) -> tuple[str, ...]:
    """Replace each path of a file with several episodes by one `FILE#number` per episode.

    Raises:
        LogError: a file is missing or unreadable, or there are no or too many recordings.
    """
    expanded: list[str] = []
    for path in several(paths):
        text = str(path)
        file = Path(_split(text)[0])
        episodes: tuple[int, ...] = ()
        if not _split(text)[1] and file.is_file():
            if _ends(file, parquet_file.SUFFIXES):
                episodes = parquet_file.episodes_in(file)
            elif _ends(file, bag_file.SUFFIXES):
                episodes = bag_file.episodes_in_bag(file)
        expanded += [f"{text}#{number}" for number in episodes] if len(episodes) > 1 else [text]
        if not len(expanded) <= MAX_LOGS:
            raise LogError(f"{path}: more than {MAX_LOGS} recordings in total")
    if not expanded:
        raise LogError("no recordings given; name at least one file")
    return tuple(expanded)


def log_names(sources: list[str]) -> list[str]:
    """Return short unique names: the shortest distinct ends of the paths.

    Generic file names (`trajectory.csv.gz`) are replaced by their folder's name.
    """
    files = [_split(source)[0] for source in sources]
    paths = [Path(file).absolute().parts for file in files]
    ends = [f"#{number}" if (number := _split(source)[1]) else "" for source in sources]
    depth = [2 if _stem(parts[-1]) in _COMMON_STEMS and len(parts) > 2 else 1 for parts in paths]

    def name(i: int) -> str:
        parts = [*paths[i][-depth[i] : -1], _stem(paths[i][-1])]
        if len(parts) > 1 and parts[-1] in _COMMON_STEMS:
            parts.pop()
        return "/".join(parts)[-120:] + ends[i]

    # Each pass prepends one folder to the names that are not unique yet.
    for _ in range(max((len(parts) for parts in paths), default=0)):
        names = [name(i) for i in range(len(sources))]
        repeated = [i for i in range(len(sources)) if names.count(names[i]) > 1 and depth[i] < len(paths[i]) - 1]
        if not repeated:
            break
        for i in repeated:
            depth[i] += 1
    return [name(i) for i in range(len(sources))]


_COMMON_STEMS = frozenset({"trajectory", "data", "data_measured", "log", "recording", "measurements"})


def _stem(name: str) -> str:
    """Return a file name without its extensions."""
    known = (*_SUFFIXES, *contributed_suffixes())
    ending = max((suffix for suffix in known if name.lower().endswith(suffix)), key=len, default="")
    return name[: len(name) - len(ending)] or name


def _split(path: str) -> tuple[str, str]:
    """Split `FILE#3` into file and episode number; an existing file of the full name takes precedence."""
    match = _EPISODE.fullmatch(path)
    if match is None or Path(path).exists():
        return path, ""
    return match["file"], match["number"]


def _existing(path: str) -> tuple[Path, str]:
    """Split as `_split`; raise LogError if there is no such file."""
    name, episode = _split(path)
    if not Path(name).exists():
        raise LogError(f"{name}: no such file")
    return Path(name), episode


def _ends(path: Path, suffixes: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(suffixes)


def _read(path: Path, column_map: ColumnMap | None, episode: int | None) -> Reading:
    try:
        return _read_by_extension(path, column_map, episode)
    except ValidationError as error:
        raise LogError(f"{path}: the names in the file do not form a column map: {problems(error)}") from None


def _read_by_extension(path: Path, column_map: ColumnMap | None, episode: int | None) -> Reading:
    if path.is_dir() or _ends(path, bag_file.SUFFIXES):
        return bag_file.read_bag(path, column_map, episode=episode)
    if _ends(path, parquet_file.SUFFIXES):
        return _read_parquet(path, episode)
    if episode is not None:
        raise LogError(f"{path}#{episode}: only Parquet and MCAP files can contain several episodes")
    if _ends(path, csv_file.SUFFIXES):
        return Reading(csv_file.read_csv(path))
    if _ends(path, json_file.SUFFIXES):
        return Reading(json_file.read_json(path, records=column_map.records if column_map else None))
    if reads(path):
        return Reading(read_contributed(path))
    hint = "; convert a ROS 1 bag with rosbags-convert" if path.suffix == ".bag" else ""
    known = ", ".join((*_SUFFIXES, *contributed_suffixes()))
    raise LogError(f"{path}: unknown format; a recording ends in {known}, or is a ROS 2 bag folder{hint}")


def _read_parquet(path: Path, episode: int | None) -> Reading:
    episodes = parquet_file.episodes_in(path)
    if episode is None and len(episodes) > 1:
        raise LogError(
            f"{path}: contains {len(episodes)} episodes, {episodes[0]} to {episodes[-1]}; "
            f"choose one, for instance {path}#{episodes[0]}"
        )
    return parquet_file.read_parquet(path, episode=episode)


def read_with(path: Path) -> Iterator[Path]:
    """Yield the files beside or above a recording that are read with it: column map, joined files, description."""
    if not (_ends(path, _SUFFIXES) or reads(path)):
        return
    beside = map_file_beside(path)
    if beside is not None:
        yield beside
    if _ends(path, parquet_file.SUFFIXES) and (description := parquet_file.description_file(path)) is not None:
        yield description
    if _ends(path, csv_file.SUFFIXES):
        for column_map in maps_for(path, beside):
            # A map that does not fit the name is refused when the recording is read.
            with suppress(LogError):
                yield from (
                    file for join in column_map.joins if (file := _other(path, column_map, join.file)).is_file()
                )


def _other(path: Path, column_map: ColumnMap, file: str) -> Path:
    return _plain_or_gzipped(path.parent / _named_alike(path, column_map, file))


def _joined(path: Path, table: Table, column_map: ColumnMap) -> Table:
    """Add the files that the column map joins to the table."""
    if not column_map.joins:
        return table
    streams, files = list(table.streams), list(table.files)
    for join in column_map.joins:
        other = _other(path, column_map, join.file)
        if not _ends(other, csv_file.SUFFIXES):
            raise LogError(f"{path}: its column map joins {join.file}; only CSV files can be joined")
        streams.append(csv_file.read_csv_stream(other, prefix=join.prefix, join=join.by))
        files.append(other)
    return replace(table, streams=tuple(streams), files=tuple(files), sha256=digest(files))


def _named_alike(path: Path, column_map: ColumnMap, file: str) -> str:
    """Return the name of a joined file, its `*` replaced by what the recording's name has in that place."""
    before, star, after = (column_map.match.file if column_map.match else "").partition("*")
    if not (star and "*" in file):
        return file
    # A recording may be given a map by hand that its name does not match.
    if not (path.name.lower().startswith(before) and path.name.lower().endswith(after)):
        raise LogError(f"{path}: its column map joins {file}, and is for recordings named {before}*{after}")
    return file.replace("*", path.name[len(before) : len(path.name) - len(after)], 1)


def _plain_or_gzipped(path: Path) -> Path:
    """Return the file or, if it is missing, its gzipped or unpacked variant."""
    other = path.with_name(path.name[:-3] if path.name.endswith(".gz") else f"{path.name}.gz")
    return other if other.is_file() and not path.is_file() else path
