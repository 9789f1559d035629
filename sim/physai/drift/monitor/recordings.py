"""Recordings that a monitor judges: read, proven to be of the twin's robot, counted once, and in the order of time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from physai.drift.errors import DriftError
from physai.sdk.evidence.verdict import VERDICT_FILE, load_verdict
from physai.sim.robots import Robot
from physai.twin.calibration.replay.replay import require_logs_of
from physai.twin.logs import LogError, RobotLog
from physai.twin.logs.checks.reading import require_readable
from physai.twin.logs.comparison.overlap import overlapping
from physai.twin.logs.reader import all_episodes, log_names, read_raw
from physai.twin.model.twin import Twin

CLOCK_FROM_S = 1e9
"""Times from here on are seconds since 1970; lesser ones begin with the recording."""
SAME_SHARE = 0.02
"""Share of common samples from which two recordings are the same one."""


@dataclass(frozen=True, kw_only=True)
class DatedLog:
    """A recording, and when it was begun."""

    log: RobotLog
    start_s: float | None
    """Seconds since 1970; None if the recording does not say."""


def read_recordings(
    recordings: Sequence[str | Path] | Sequence[RobotLog], robot: Robot, twin: Twin, columns: Path | None
) -> tuple[tuple[DatedLog, ...], tuple[RobotLog, ...]]:
    """Return the recordings in the order of their clocks, else as given, and those that the twin's file names.

    The latter, of its calibration, cannot contradict the twin: they show what it lacks without any drift. The twin's
    hash covers their digests, so nobody can make a drift look usual with recordings of his choice.

    Raises:
        LogError: a recording cannot be read, or is of another robot.
        DriftError: recordings are copies of each other, overlap in time, or all are of the calibration.
    """
    given = [_dated(one, robot, columns) for one in _sources(recordings)]
    names = log_names([one.log.source for one in given])
    given = [replace(one, log=replace(one.log, name=name)) for one, name in zip(given, names, strict=True)]
    require_logs_of(robot, [one.log for one in given])
    for one in given:
        _require_unit(one.log, twin)
    _require_once([one.log for one in given])
    own = {log.sha256 for log in (*twin.logs.train, *twin.logs.held_out)}
    later = [one for one in given if one.log.sha256 not in own]
    if not later:
        raise DriftError(f"the twin was calibrated on all {len(given)} recordings; give others, recorded since")
    return _ordered(later), tuple(one.log for one in given if one.log.sha256 in own)


def judged_twin(verdict: str | Path, twin: Twin) -> Path:
    """Return the file of a verdict that rests on a twin.

    Raises:
        DriftError: it rests on another twin.
        VerdictError: it cannot be read.
    """
    file = Path(verdict) / VERDICT_FILE if Path(verdict).is_dir() else Path(verdict)
    stated = load_verdict(file).twin_hash
    if stated != twin.hash:
        raise DriftError(
            f"{file}: the verdict rests on the twin {stated[:12]}…, and this one is {twin.hash[:12]}…; give the twin "
            "that it was judged in"
        )
    return file


def _sources(recordings: Sequence[str | Path] | Sequence[RobotLog]) -> list[str | RobotLog]:
    found: list[str | RobotLog] = []
    for one in [recordings] if isinstance(recordings, str | Path) else recordings:
        found += [one] if isinstance(one, RobotLog) else all_episodes([one])
    if not found:
        raise LogError("no recordings given; name at least one file")
    return found


def _dated(one: str | RobotLog, robot: Robot, columns: Path | None) -> DatedLog:
    if isinstance(one, RobotLog):
        return DatedLog(log=one, start_s=None)
    raw = read_raw(one, robot.spec, column_map=columns)
    require_readable(raw)
    start_s = raw.start_s if raw.start_s >= CLOCK_FROM_S else _begun(Path(one.split("#")[0]))
    return DatedLog(log=raw.log(), start_s=start_s if start_s >= CLOCK_FROM_S else None)


def _begun(file: Path) -> float:
    """Return when an MCAP file was begun, by its summary [s since 1970]; 0 if that does not say."""
    if file.suffix.lower() != ".mcap" or not file.is_file():
        return 0.0
    from mcap.exceptions import McapError
    from mcap.reader import make_reader

    try:
        with file.open("rb") as stream:
            summary = make_reader(stream).get_summary()
    except (McapError, OSError, ValueError):
        return 0.0
    statistics = None if summary is None else summary.statistics
    return 0.0 if statistics is None else 1e-9 * statistics.message_start_time


def _require_unit(log: RobotLog, twin: Twin) -> None:
    """Raise DriftError for a recording that states another unit than the twin's recordings."""
    stated, expected = log.origin.robot, twin.origin.robot
    if stated is None or expected is None or stated == expected:
        return
    # A model's name says less than a unit's, and does not contradict it.
    if ("/" in stated and "/" in expected) or stated.split("/")[0] != expected.split("/")[0]:
        raise DriftError(
            f"log {log.name} is of robot {stated}, and the twin of {expected}: a drift is one of the same robot; give "
            f"recordings of {expected}, or the twin of {stated}"
        )


def _require_once(logs: Sequence[RobotLog]) -> None:
    seen: dict[str, str] = {}
    for log in logs:
        if log.sha256 in seen:
            raise DriftError(f"{log.source}: the same recording as {seen[log.sha256]}; give each once")
        seen[log.sha256] = log.source
    for one, other, share in overlapping(logs):
        if share > SAME_SHARE:
            raise DriftError(
                f"{logs[other].source}: {share:.0%} of its samples are those of {logs[one].source}; give each once"
            )


def _ordered(given: Sequence[DatedLog]) -> tuple[DatedLog, ...]:
    """Sort by the recordings' clocks; those without one stay as given."""
    dated = [(one.start_s, one) for one in given if one.start_s is not None]
    if len(dated) < len(given):
        return tuple(given)
    dated.sort(key=lambda pair: pair[0])
    for (begun_s, first), (next_s, second) in pairwise(dated):
        end_s = begun_s + first.log.duration_s
        if next_s < end_s:
            raise DriftError(
                f"{second.log.source} begins {end_s - next_s:.1f} s before the end of {first.log.source}: a robot "
                "makes one recording at a time; give recordings of one robot by one clock"
            )
    return tuple(one for _, one in dated)
