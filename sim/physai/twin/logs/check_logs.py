"""Check whether recordings are usable for a calibration."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import several
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sdk.contract.robot import RobotSpec
    from physai.sim.robots import Robot
    from physai.twin.logs.comparison.still_zero import ZeroShift
    from physai.twin.logs.quality import QualityReport
    from physai.twin.logs.raw_log import RawLog


@dataclass(frozen=True, kw_only=True)
class LogsCheck:
    """Reports on recordings."""

    reports: dict[str, QualityReport]
    """Report of each recording that could be read, by its source."""
    unreadable: dict[str, str]
    """Error of each one that could not."""
    pictures: dict[str, str]
    """Plots that were written, by source."""
    limits_checked: bool
    """Whether the robot's limits were known from the caller."""
    zeros: tuple[ZeroShift, ...] = ()
    """Joints' positions at rest relative to their commands, against earlier recordings."""

    @property
    def usable(self) -> bool:
        """Whether all recordings are usable for a calibration."""
        return not self.unreadable and all(report.usable for report in self.reports.values())


def check_logs(
    files: Sequence[str | Path],
    *,
    model: Annotated[str | Path | None, Option(old=("--robot",), metavar="FILE")] | Robot = None,
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    picture: Annotated[Path | str | None, Option(metavar="PNG")] = None,
    against: Annotated[Sequence[str | Path], Option(flags=("--earlier",), metavar="RECORDING")] = (),
    progress: Callable[[float], None] = lambda share: None,
) -> LogsCheck:
    """Check recordings: clock, units, wrapped and clipped channels, spikes, motion, command-to-effort lag, noise.

    Args:
        files: recordings: CSV, JSON (both also gzipped), Parquet, MCAP, or the folder of a ROS 2 bag; FILE#3 is episode
            3 of a file.
        model: robot with joints and limits. None for the column map's.
        columns: column map for all recordings.
        picture: plot the recordings; several files get the recording's name as suffix.
        against: earlier recordings of the robot: joints whose position commands and positions at rest differ otherwise
            than there are named, as their encoders' zeros have moved.
        progress: called with the share that is done.

    Returns:
        A report on each recording.

    Raises:
        UnknownNameError: there is no such robot.
        ModelError: the robot's file is unusable.
        PhysaiError: the column map is missing, or the picture cannot be written.
    """
    from physai.twin.logs.quality import check_raw
    from physai.twin.logs.reader import all_episodes, log_names, read_raw, robot_of

    column_map = None if columns is None else Path(columns)
    if column_map is not None and not column_map.is_file():
        raise PhysaiError(f"{column_map}: no such column map")
    target = None if picture is None else _picture_path(Path(picture))
    fixed = None if not model else _robot(model)
    sources: list[str] = []
    unreadable: dict[str, str] = {}
    for file in several(files):
        try:
            sources += all_episodes([file])
        except PhysaiError as error:
            unreadable[str(file)] = str(error)
    reports: dict[str, QualityReport] = {}
    for number, source in enumerate(sources, start=1):
        try:
            named = None if fixed is not None else robot_of(source, column_map=column_map)
            robot = fixed if named is None else _robot(named)
            reports[source] = check_raw(read_raw(source, robot, column_map=column_map))
        except PhysaiError as error:
            unreadable[source] = str(error)
        progress(number / len(sources))
    # Names depend on all recordings, so they are known only after the last.
    for source, name in zip(reports, log_names(list(reports)) if reports else [], strict=True):
        reports[source] = replace(reports[source], log=replace(reports[source].log, name=name))
    return LogsCheck(
        reports=reports,
        unreadable=unreadable,
        pictures={} if target is None else _draw(reports, target),
        limits_checked=fixed is not None,
        zeros=_zeros([report.log for report in reports.values()], several(against), model, column_map),
    )


def _zeros(
    later: Sequence[RawLog], earlier: Sequence[str | Path], model: str | Path | Robot | None, column_map: Path | None
) -> tuple[ZeroShift, ...]:
    """Shifts of zeros against earlier recordings; none without any."""
    from physai.sim.robots import load_robot
    from physai.twin.logs.comparison.still_zero import zero_shifts
    from physai.twin.logs.reader import all_episodes, read_raw, robot_of

    if not earlier or not later:
        return ()
    before: list[RawLog] = []
    named: str | Path | Robot | None = model
    for source in all_episodes(earlier):
        named = named or robot_of(source, column_map=column_map)
        before.append(read_raw(source, None if named is None else _robot(named), column_map=column_map))
    robot = load_robot(named) if isinstance(named, str | Path) else named
    return zero_shifts(later, before, robot)


def _robot(model: str | Path | Robot) -> RobotSpec:
    from physai.sim.robots import load_robot

    return (load_robot(model) if isinstance(model, str | Path) else model).spec


def _picture_path(path: Path) -> Path:
    """The path, if a picture can be written there; checked before any slow work."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise PhysaiError(f"{path}: the file name must end in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise PhysaiError(f"{path}: folder {path.parent} does not exist")
    return path


def _draw(reports: dict[str, QualityReport], path: Path) -> dict[str, str]:
    """Plots each recording; returns the picture's path by recording."""
    from physai.twin.logs.picture import draw

    drawn: dict[str, str] = {}
    for source, report in reports.items():
        name = re.sub(r"[^A-Za-z0-9_.\-]+", "-", report.log.name)
        target = path if len(reports) == 1 else path.with_name(f"{path.stem}-{name}{path.suffix}")
        draw(report, target)
        drawn[source] = str(target)
    return drawn
