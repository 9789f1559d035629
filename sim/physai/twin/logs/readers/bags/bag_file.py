"""Read recordings in MCAP files and ROS 2 bags.

Measurements come from /joint_states or the only topic of sensor_msgs/JointState, commands from the only other topic of
std_msgs/Float64MultiArray, trajectory_msgs/JointTrajectory or sensor_msgs/JointState. Otherwise the column map selects
the topics (`ros:`). A bag without joint states is of a free body: its pose is the only topic of
geometry_msgs/PoseStamped or nav_msgs/Odometry, or that of `ros: {base: TOPIC}`. Recordings of `physai play --record`
have this format, too.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from physai.sdk.evidence.recording_channels import JOINTS_TOPIC, TARGET_TOPIC
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.readers.bags.bag_clock import clock_findings
from physai.twin.logs.readers.bags.bag_messages import bag_files
from physai.twin.logs.readers.bags.bag_topics import POSE_AXES, POSE_KINDS, Bag, TopicSeries, read_topics
from physai.twin.logs.readers.column_map import (
    BaseColumns,
    Column,
    ColumnMap,
    CommandTopic,
    JointColumns,
    Reading,
    RosTopics,
)
from physai.twin.logs.readers.table import ColumnStream, Table, digest, require_size
from physai.twin.logs.robot_log import CommandKind, LogError

SUFFIXES = (".mcap", ".db3")

_COMMAND_FIELDS: dict[str, CommandKind] = {
    "position": "joint_pos",
    "velocity": "joint_vel",
    "effort": "joint_effort",
    "positions": "joint_pos",
    "velocities": "joint_vel",
}
"""Message fields of commands and their kinds; the effort of a trajectory point is only a feed-forward term."""


def episodes_in_bag(path: Path) -> tuple[int, ...]:
    """Return the numbers of the episodes that physai recorded in a bag; empty if there are fewer than two."""
    starts = read_topics(path).episode_starts_ns
    return tuple(range(len(starts))) if len(starts) > 1 else ()


def read_bag(path: Path, column_map: ColumnMap | None = None, *, episode: int | None = None) -> Reading:
    """Read measured and commanded joints of a bag.

    Args:
        path: an MCAP file, an SQLite file of a bag, or a bag folder.
        column_map: selects the topics if they are ambiguous.
        episode: episode of a physai recording; None for all of it.

    Raises:
        LogError: the bag is unreadable, has no such episode, or its topics are ambiguous.
    """
    topics = (column_map and column_map.ros) or RosTopics()
    bag = read_topics(path)
    free = _is_free_body(bag, topics)
    measured = [_pose(path, bag, topics.base)] if free else _measured(path, bag, topics.joint_states)
    command = [] if free else _command(path, bag, measured[0].topic, topics.command)
    used = [*measured, *command]
    clock = topics.clock or ("header" if all(series.has_stamps for series in used) else "log")
    findings = (
        *(finding for series in used for finding in series.findings),
        *clock_findings(used, clock, chosen=topics.clock is not None),
        *(_other_kind(series, column_map) for series in command if _is_other_kind(series, column_map)),
    )
    for series in used:
        if clock == "header" and not series.has_stamps:
            raise LogError(f"{path}: topic {series.topic} has messages without a stamp; use `clock: log`")
    # Subtracted as integers: a time since 1970 in float64 seconds is only exact to 0.2 µs.
    origin = min(int(series.times(clock)[0]) for series in used)
    streams = tuple(_stream(series, clock, origin) for series in used)
    if episode is not None:
        streams = _cut(path, streams, bag, episode, origin, clock)
    require_size(f"{path}: topic {streams[0].name}", streams[0].rows, len(streams[0].columns))
    streams = tuple(replace(stream, origins=bag.origins) for stream in streams)
    files = bag_files(path)
    table = Table(str(path), files, digest(files), streams, findings=findings)
    if column_map is not None and (column_map.joints or column_map.base):
        return Reading(table, None)
    return Reading(
        table, _pose_columns(measured[0].topic) if free else _convention(path, measured, command, topics.command)
    )


def _is_free_body(bag: Bag, topics: RosTopics) -> bool:
    """Whether a bag has poses and no joint states."""
    kinds = {series.kind for series in bag.series}
    return topics.base is not None or ("JointState" not in kinds and bool(kinds.intersection(POSE_KINDS)))


def _pose(path: Path, bag: Bag, wanted: str | None) -> TopicSeries:
    """Return the series with the poses of a free body."""
    if any(series.kind == "JointState" for series in bag.series):
        # Held poses are up to a period old at the times of the joints, which would look like motion.
        raise LogError(
            f"{path}: poses and joint states of one bag are not read together, as they have different times; write "
            "both to one table with common times"
        )
    poses = {series.topic: series for series in bag.series if series.kind in POSE_KINDS}
    topic = wanted or (next(iter(poses)) if len(poses) == 1 else None)
    if topic is None:
        raise LogError(f"{path}: {_choose('pose', sorted(poses))}\n  ros: {{base: TOPIC}}")
    if topic not in poses:
        raise LogError(f"{path}: no poses on topic {topic}, only on {', '.join(sorted(poses)) or 'none'}")
    return poses[topic]


def _pose_columns(topic: str) -> ColumnMap:
    x, y, z, *quat = (Column(column=f"{topic}.pose.{axis}") for axis in POSE_AXES)
    w, i, j, k = quat
    return ColumnMap(base=BaseColumns(position=(x, y, z), quat=(w, i, j, k)))


def _measured(path: Path, bag: Bag, wanted: str | None) -> list[TopicSeries]:
    """Return the series with measured positions, largest first."""
    states = [s for s in bag.series if s.kind == "JointState" and "position" in s.fields]
    names = sorted({series.topic for series in states})
    if not names:
        known = ", ".join(sorted({f"{s.topic} ({s.kind})" for s in bag.series})) or "none of a known type"
        raise LogError(f"{path}: no topic of sensor_msgs/JointState with positions; topics: {known}")
    topic = wanted or (JOINTS_TOPIC if JOINTS_TOPIC in names else names[0] if len(names) == 1 else None)
    if topic is None:
        raise LogError(f"{path}: {_choose('joint states', names)}\n  ros: {{joint_states: TOPIC}}")
    if topic not in names:
        raise LogError(f"{path}: no joint states on topic {topic}, only on {', '.join(names)}")
    return sorted((s for s in states if s.topic == topic), key=lambda s: -len(s.log_ns) * len(s.joints))


def _command(path: Path, bag: Bag, measured: str, wanted: CommandTopic | None) -> list[TopicSeries]:
    """Return the series with commands."""
    others = [s for s in bag.series if s.topic != measured and s.fields and s.kind not in POSE_KINDS]
    names = sorted({series.topic for series in others})
    if wanted is None and names and all(name.startswith(TARGET_TOPIC) for name in names):
        return others
    if wanted is None and len(names) != 1:
        reason = _choose("commands", names) if names else "no command topic besides the joint states"
        example = "TOPIC" if names else "/commands"
        raise LogError(
            f"{path}: {reason}; record one, or name it in the column map:\n"
            f"  ros: {{command: {{topic: {example}, joints: [in, the, controller's, order]}}}}"
        )
    topic = wanted.topic if wanted is not None else names[0]
    if topic not in names:
        raise LogError(f"{path}: no commands on topic {topic}, only on {', '.join(names) or 'none'}")
    return [series for series in others if series.topic == topic]


_KINDS_BY_NAME: dict[str, CommandKind] = {
    "position": "joint_pos",
    "velocity": "joint_vel",
    "effort": "joint_effort",
    "torque": "joint_effort",
}
"""What ros2_control's controllers, which publish numbers without names, have in their own names."""


def _kind_by_name(topic: str) -> CommandKind | None:
    """Return what a topic's name says of its commands; None if it says nothing, or two things."""
    found: set[CommandKind] = {kind for word, kind in _KINDS_BY_NAME.items() if word in topic.lower()}
    return found.pop() if len(found) == 1 else None


def _is_other_kind(series: TopicSeries, column_map: ColumnMap | None) -> bool:
    given, named = column_map and column_map.command_kind, _kind_by_name(series.topic)
    return series.kind == "Float64MultiArray" and None not in (given, named) and given != named


def _other_kind(series: TopicSeries, column_map: ColumnMap | None) -> LogFinding:
    return LogFinding(
        severity="warning",
        check="command",
        message=(
            f"the column map takes the commands on {series.topic} as {column_map and column_map.command_kind}, its "
            f"name says {_kind_by_name(series.topic)}"
        ),
        advice="write what the controller takes as `command_kind`",
    )


def _choose(what: str, names: list[str]) -> str:
    return f"{len(names)} topics may contain the {what} ({', '.join(names)}); select one in the column map"


def _stream(series: TopicSeries, clock: str, origin: int) -> ColumnStream:
    """Convert a series to columns `<topic>.<field>.<joint>`."""
    columns = {
        f"{series.topic}.{name}.{joint}": series.column(name, i)
        for name in series.fields
        for i, joint in enumerate(series.joints)
    }
    return ColumnStream(
        name=series.topic,
        columns=columns,
        time=np.asarray((series.times(clock) - origin) * 1e-9, np.float64),
        join="hold",
    )


def _cut(
    path: Path, streams: tuple[ColumnStream, ...], bag: Bag, episode: int, origin: int, clock: str
) -> tuple[ColumnStream, ...]:
    """Return the rows of one episode."""
    starts = bag.episode_starts_ns
    if not 0 <= episode < len(starts):
        raise LogError(f"{path}: no episode {episode}; it contains {len(starts)}, counted from 0")
    # The nanosecond of tolerance below covers the rounding of these differences.
    first = (starts[episode] - origin) * 1e-9
    last = (starts[episode + 1] - origin) * 1e-9 if episode + 1 < len(starts) else np.inf
    parts: list[ColumnStream] = []
    for stream in streams:
        if stream.time is None:
            continue
        inside = (stream.time >= first - 1e-9) & (stream.time < last - 1e-9)
        columns = {name: values[inside] for name, values in stream.columns.items()}
        parts.append(replace(stream, columns=columns, time=stream.time[inside]))
    return tuple(parts)


def _convention(
    path: Path, measured: list[TopicSeries], command: list[TopicSeries], wanted: CommandTopic | None
) -> ColumnMap:
    """Return a column map with the joint names of the messages."""
    commanded, kind = _commanded(path, command, wanted)
    joints: dict[str, JointColumns] = {}
    for series in measured:
        for joint in series.joints:
            if joint in joints:
                raise LogError(
                    f"{path}: topic {series.topic} has joint {joint} in messages with different sets of joints: two "
                    "nodes publish it; record them on separate topics"
                )
            start = f"{series.topic}."
            joints[joint] = JointColumns(
                joint_pos=Column(column=f"{start}position.{joint}"),
                joint_vel=Column(column=f"{start}velocity.{joint}") if "velocity" in series.fields else None,
                joint_effort=Column(column=f"{start}effort.{joint}") if "effort" in series.fields else None,
                command=Column(column=commanded[joint]) if joint in commanded else None,
            )
    return ColumnMap(joints=joints, command_kind=kind)


def _commanded(
    path: Path, command: list[TopicSeries], wanted: CommandTopic | None
) -> tuple[dict[str, str], CommandKind | None]:
    """Return the column of each joint's command, and the kind of command if the messages define it."""
    columns: dict[str, str] = {}
    kinds: set[CommandKind] = set()
    for series in command:
        if series.kind == "Float64MultiArray":
            names = wanted.joints if wanted is not None else ()
            if len(names) != len(series.joints):
                raise LogError(
                    f"{path}: topic {series.topic} has {len(series.joints)} numbers without names, the column map "
                    f"names {len(names)} joints; write them in the order the controller was given:\n"
                    f"  command_kind: {_kind_by_name(series.topic) or 'joint_pos, joint_vel or joint_effort'}\n"
                    f"  ros: {{command: {{topic: {series.topic}, joints: [first, second]}}}}"
                )
            columns |= {joint: f"{series.topic}.data.{i}" for i, joint in enumerate(names)}
            continue
        fields = [name for name in series.fields if name in _COMMAND_FIELDS]
        if series.kind == "JointTrajectory" and "positions" in fields:
            # A trajectory's velocities accompany its positions.
            fields = ["positions"]
        if len(fields) != 1:
            raise LogError(
                f"{path}: the commands on {series.topic} set {', '.join(fields) or 'no field'}, so their kind is "
                "ambiguous; name each joint's command column in the column map"
            )
        kinds.add(_COMMAND_FIELDS[fields[0]])
        columns |= {joint: f"{series.topic}.{fields[0]}.{joint}" for joint in series.joints}
    return columns, kinds.pop() if len(kinds) == 1 else None
