"""Collect a bag's messages into series, one per topic and set of joints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from physai.twin.logs.findings import LogFinding, note
from physai.twin.logs.readers.bags.bag_messages import BagMessage, Kind, bag_messages
from physai.twin.logs.readers.table import MAX_COLUMNS
from physai.twin.logs.robot_log import Array, LogError

Times = npt.NDArray[np.int64]

Groups = dict[tuple[str, tuple[str, ...]], "TopicSeries"]
"""Series by topic and joint names."""

STATE_FIELDS = ("position", "velocity", "effort")
POINT_FIELDS = ("positions", "velocities", "effort")
POSE_KINDS = ("PoseStamped", "Odometry")
POSE_AXES = ("x", "y", "z", "qw", "qx", "qy", "qz")
"""Elements of a pose, in the place of joints."""

FEW = 0.01
"""Share of messages that may lack a field and are left out for it."""

_NANOSECONDS = 1_000_000_000

_MAX_TIME_NS = 1 << 62
"""The year 2116."""


@dataclass
class TopicSeries:
    """Messages of one topic with the same set of joints."""

    topic: str
    kind: Kind
    joints: tuple[str, ...]
    """Joint names, or indices for messages without names."""
    log_ns: list[int] = field(default_factory=list[int])
    stamp_ns: list[int] = field(default_factory=list[int])
    """Time stamp in the header; 0 without one."""
    sent_ns: list[int] = field(default_factory=list[int])
    """Offset after which a row takes effect [ns]: the time_from_start of a trajectory point."""
    rows: dict[str, list[Array | None]] = field(default_factory=dict[str, "list[Array | None]"])
    """One row per message in the order of `joints`, by field; None, or nothing after the last, where it is not set."""
    findings: list[LogFinding] = field(default_factory=list[LogFinding])
    """Messages or fields that are left out."""

    @property
    def has_stamps(self) -> bool:
        """Whether every message has a time stamp."""
        return all(stamp > 0 for stamp in self.stamp_ns)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that are set in every message."""
        return tuple(name for name in self.rows if self.unset(name) == 0)

    def unset(self, name: str) -> int:
        """Number of messages in which a field is not set."""
        return len(self.log_ns) - sum(row is not None for row in self.rows[name])

    def column(self, name: str, joint: int) -> Array:
        """Values of one joint in a field that is set in every message, shape (n,)."""
        return np.array([row[joint] for row in self.rows[name] if row is not None])

    def settle(self) -> None:
        """Leave out messages that lack a field that nearly all have, and say which fields are not used."""
        count = len(self.log_ns)
        few = {name for name in self.rows if 0 < self.unset(name) <= FEW * count}
        lack = [i for i in range(count) if any(_row(self.rows[name], i) is None for name in few)]
        if lack:
            self.findings.append(
                note(f"left out {len(lack)} of {count} messages on {self.topic} without {' or '.join(sorted(few))}")
            )
            keep = sorted(set(range(count)) - set(lack))
            self.log_ns, self.stamp_ns, self.sent_ns = (
                [times[i] for i in keep] for times in (self.log_ns, self.stamp_ns, self.sent_ns)
            )
            self.rows = {name: [_row(rows, i) for i in keep] for name, rows in self.rows.items()}
        for name in self.rows:
            if missing := self.unset(name):
                self.findings.append(
                    LogFinding(
                        severity="warning",
                        check="rows",
                        message=(
                            f"{missing} of {len(self.log_ns)} messages on {self.topic} have no {name}: it is not used"
                        ),
                        advice="publish it with every message, or record the publisher that does on its own topic",
                    )
                )

    def times(self, clock: str) -> Times:
        """Return the time of each row [ns], by the messages' stamps (`header`) or the time of recording (`log`)."""
        base = self.stamp_ns if clock == "header" else self.log_ns
        times = [start + later for start, later in zip(base, self.sent_ns, strict=True)]
        if not all(0 <= time < _MAX_TIME_NS for time in times):
            raise LogError(
                f"topic {self.topic}: invalid time {max(times, key=abs)} ns; the file is damaged, or use `clock: log`"
            )
        return np.array(times, np.int64)


@dataclass(frozen=True)
class Bag:
    """All series of a bag and the starts of its episodes, if recorded."""

    series: tuple[TopicSeries, ...]
    episode_starts_ns: tuple[int, ...]
    origins: frozenset[str] = frozenset()
    """Origin marks in the metadata."""


def read_topics(path: Path) -> Bag:
    """Read the series in a bag.

    Raises:
        LogError: the bag is unreadable, or a message is inconsistent.
    """
    groups: Groups = {}
    starts: list[int] = []
    origins: set[str] = set()
    for message in bag_messages(path):
        if message.kind == "episode":
            if message.content.get("event") == "start":
                starts.append(message.log_ns)
        elif message.kind == "origin":
            origins.add(str(message.content))
        elif message.kind == "JointTrajectory":
            _add_trajectory(path, groups, message)
        elif message.kind in POSE_KINDS:
            _add_pose(path, groups, message)
        else:
            _add(path, groups, message)
        if not sum(len(series.joints) for series in groups.values()) <= MAX_COLUMNS:
            raise LogError(f"{path}: more than {MAX_COLUMNS} joints in all topics")
    for series in groups.values():
        series.settle()
    return Bag(tuple(groups.values()), tuple(starts), frozenset(origins))


def _add(path: Path, groups: Groups, message: BagMessage) -> None:
    content = message.content
    if message.kind == "Float64MultiArray":
        data = _floats(path, message, _get(content, "data"))
        joints, parts = tuple(str(i) for i in range(len(data))), {"data": data}
        stamp, order = 0, np.arange(len(data))
    else:
        names = [str(name) for name in _get(content, "name")]
        # Publishers may list the same joints in any order, so columns are sorted by name.
        order = np.argsort(names)
        joints = tuple(sorted(names))
        parts = {part: _floats(path, message, _get(content, part)) for part in STATE_FIELDS}
        stamp = _stamp_ns(content)
    series = groups.setdefault((message.topic, joints), TopicSeries(message.topic, message.kind, joints))
    series.log_ns.append(message.log_ns)
    series.stamp_ns.append(stamp)
    series.sent_ns.append(0)
    for name, values in parts.items():
        _add_row(path, series, name, values, order)


def _add_pose(path: Path, groups: Groups, message: BagMessage) -> None:
    pose = _get(message.content, "pose")
    # The pose of an odometry comes with a covariance.
    pose = _get(pose, "pose") if message.kind == "Odometry" else pose
    position, orientation = _get(pose, "position"), _get(pose, "orientation")
    parts = [*(_number(position, axis) for axis in "xyz"), *(_number(orientation, axis) for axis in "wxyz")]
    values = _floats(path, message, parts)
    series = groups.setdefault((message.topic, POSE_AXES), TopicSeries(message.topic, message.kind, POSE_AXES))
    series.log_ns.append(message.log_ns)
    series.stamp_ns.append(_stamp_ns(message.content))
    series.sent_ns.append(0)
    _add_row(path, series, "pose", values, np.arange(len(POSE_AXES)))


def _number(content: Any, name: str) -> Any:
    """Return a number of a decoded message; None if a JSON message omits it."""
    if isinstance(content, Mapping):
        return cast("Mapping[str, Any]", content).get(name)
    return getattr(content, name, None)


def _add_trajectory(path: Path, groups: Groups, message: BagMessage) -> None:
    """Add the points of a trajectory; a single point takes effect immediately, several at their times."""
    names = [str(name) for name in _get(message.content, "joint_names")]
    order = np.argsort(names)
    joints = tuple(sorted(names))
    series = groups.setdefault((message.topic, joints), TopicSeries(message.topic, message.kind, joints))
    now = message.log_ns
    # A new trajectory replaces the pending points of the last one.
    while series.log_ns and series.log_ns[-1] + series.sent_ns[-1] > now:
        for rows in series.rows.values():
            del rows[len(series.log_ns) - 1 :]
        for values in (series.log_ns, series.stamp_ns, series.sent_ns):
            del values[-1:]
    points: Sequence[Any] = _get(message.content, "points")
    for point in points:
        delay = 0 if len(points) == 1 else _duration_ns(_get(point, "time_from_start"))
        series.log_ns.append(now)
        series.stamp_ns.append(_stamp_ns(message.content))
        series.sent_ns.append(delay)
        for name in POINT_FIELDS:
            _add_row(path, series, name, _floats(path, message, _get(point, name)), order)


def _add_row(path: Path, series: TopicSeries, name: str, values: Array, order: npt.NDArray[np.int64]) -> None:
    """Append one row in the order of the sorted names."""
    if len(values) == 0:
        return  # ROS leaves fields empty that are not measured or commanded
    if len(values) != len(series.joints):
        raise LogError(
            f"{path}: topic {series.topic}: a {series.kind} with {len(series.joints)} names and {len(values)} numbers "
            f"in {name}"
        )
    rows = series.rows.setdefault(name, [])
    rows += [None] * (len(series.log_ns) - 1 - len(rows))
    rows.append(values[order])


def _row(rows: Sequence[Array | None], number: int) -> Array | None:
    return rows[number] if number < len(rows) else None


def _get(content: Any, name: str) -> Any:
    """Return a field of a decoded message; empty if a JSON message omits it."""
    if isinstance(content, Mapping):
        return cast("Mapping[str, Any]", content).get(name) or []
    return getattr(content, name)


def _floats(path: Path, message: BagMessage, values: Any) -> Array:
    if isinstance(values, np.ndarray):
        return np.asarray(values, np.float64)
    try:
        # A JSON message may contain null for a missing number.
        return np.array([np.nan if value is None else value for value in values], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise LogError(f"{path}: topic {message.topic}: {message.kind} with values that are not numbers") from error


def _stamp_ns(content: Any) -> int:
    header = _get(content, "header")
    return _duration_ns(_get(header, "stamp")) if header else 0


def _duration_ns(value: Any) -> int:
    """Convert a ROS time or duration to nanoseconds; JSON may name the fraction `nsec`."""
    if not value:
        return 0
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return int(parts.get("sec") or 0) * _NANOSECONDS + int(parts.get("nanosec") or parts.get("nsec") or 0)
    return int(value.sec) * _NANOSECONDS + int(value.nanosec)
