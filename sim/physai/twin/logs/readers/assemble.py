"""Convert the columns of a file to SI units in the robot's joint order."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import unknown_name
from physai.sdk.contract.robot import JointSpec, RobotSpec
from physai.twin.logs.findings import LogFinding, note
from physai.twin.logs.raw_log import RawColumn, RawLog, true_runs
from physai.twin.logs.readers.base_columns import base_pose
from physai.twin.logs.readers.column_map import ONLY_JOINT, Column, ColumnMap, JointColumns
from physai.twin.logs.readers.table import ColumnStream, Table, first_names
from physai.twin.logs.readers.units import Dimension, Quantity, dimension, unit_factor
from physai.twin.logs.robot_log import Array, CommandKind, LogError

Fetch = Callable[[str], Array]
"""Returns the column of that name, aligned with the rows of the measured stream."""

# Finite, because a JointSpec requires it, and beyond any effort, so that no check of limits can trigger.
_UNKNOWN_EFFORT = 1e9
"""Effort limit of a joint that is only known by name."""


def assemble(table: Table, column_map: ColumnMap, robot: RobotSpec | None, *, name: str, detected: bool) -> RawLog:
    """Convert a table to a recording in SI units and the robot's joint order.

    Args:
        table: contents of the file.
        column_map: assigns the columns.
        robot: defines the joints and their order; None to use the map's.
        name: name of the log.
        detected: whether the map was detected; joints that the robot does not have are then ignored.

    Raises:
        LogError: columns are missing or not numeric, units do not fit, or joints differ from the robot's.
    """
    joints = _joint_specs(table, column_map, robot)
    columns = _columns_by_joint(table, column_map, joints, detected=detected)
    fetch, time, start_s, left_out = _rows(table, column_map, columns)
    channels: list[RawColumn] = []

    def quantity(label: str, kind: Quantity, refs: Iterable[Column | None]) -> Array:
        values = np.zeros((len(time), len(joints)))
        for j, (joint, ref) in enumerate(zip(joints, refs, strict=True)):
            if ref is not None:
                expected = dimension(kind, prismatic=joint.kind == "prismatic")
                channel = _channel(table, f"{label} of {joint.name}", joint.name, expected, ref, fetch)
                values[:, j] = channel.values
                channels.append(channel)
        return values

    parts, missing = _without_empty(joints, [columns[joint.name] for joint in joints], fetch)
    base, poses = base_pose(
        table.source, column_map, robot, lambda label, ref, expected: _channel(table, label, "", expected, ref, fetch)
    )
    kind = _command_kind(table, column_map, joints, parts)
    speeds, efforts = _velocities(table, joints, parts), _efforts(table, joints, parts)
    log = RawLog(
        name=name,
        joints=joints,
        limits_known=robot is not None,
        time=time,
        start_s=start_s,
        joint_pos=quantity("joint_pos", "joint_pos", [part.joint_pos for part in parts]),
        joint_vel=quantity("joint_vel", "joint_vel", speeds) if speeds else None,
        joint_effort=quantity("joint_effort", "joint_effort", efforts) if efforts else None,
        command=quantity("command", kind, [part.command for part in parts]),
        command_kind=kind,
        driven=tuple(
            part.command is not None and joint.effort_limit > 0.0 for joint, part in zip(joints, parts, strict=True)
        ),
        base=base,
        channels=(*channels, *poses, *_further(table, column_map, fetch)),
        source=table.source,
        sha256=table.sha256,
        origin=table.origin,
        notes=_notes(table, column_map),
        findings=(*table.findings, *left_out, *missing),
    )
    return _enabled_only(log, column_map, fetch)


def _joint_specs(table: Table, column_map: ColumnMap, robot: RobotSpec | None) -> tuple[JointSpec, ...]:
    """Return the robot's joints, or joints with the map's names and no known limits."""
    if robot is not None:
        return robot.joints
    if not column_map.joints and column_map.base is None:
        raise LogError(f"{table.source}: the column map names neither joints nor a base")
    names = ["joint1" if name == ONLY_JOINT else name for name in column_map.joints]
    return tuple(JointSpec(name=name, kind="continuous", effort_limit=_UNKNOWN_EFFORT) for name in names)


def _columns_by_joint(
    table: Table, column_map: ColumnMap, joints: tuple[JointSpec, ...], *, detected: bool
) -> dict[str, JointColumns]:
    """Return the map's entries by the robot's joint names, in the robot's order."""
    names = [joint.name for joint in joints]
    chosen: dict[str, JointColumns] = {}
    for given, columns in column_map.joints.items():
        name = _joint_name(given, names)
        if name is None:
            # A detected map lists every joint in the file, such as a gripper that the robot's model leaves out.
            if detected and given != ONLY_JOINT:
                continue
            if given == ONLY_JOINT:
                raise LogError(
                    f"{table.source}: its column map is for a robot with one joint, this one has {len(names)}: "
                    f"{', '.join(names)}"
                )
            raise LogError(f"{table.source}: column map: {unknown_name('joint', given, names)}")
        chosen[name] = columns
    missing = [name for name in names if name not in chosen]
    if missing:
        known = ", ".join(column_map.joints)
        raise LogError(
            f"{table.source}: no columns for the robot's joint {', '.join(missing)}; the recording has {known}; "
            "map every joint, or use a robot without it"
        )
    return {name: chosen[name] for name in names}


def _joint_name(given: str, names: list[str]) -> str | None:
    """Match a joint of the map to the robot's: exact name, the only joint (`*`), or a unique match ignoring case."""
    if given in names:
        return given
    if given == ONLY_JOINT:
        return names[0] if len(names) == 1 else None
    alike = [name for name in names if name.lower() == given.lower()]
    return alike[0] if len(alike) == 1 else None


def _used_columns(column_map: ColumnMap, joints: Iterable[JointColumns]) -> set[str]:
    """Return the names of all columns in use."""
    refs = [ref for part in joints for ref in (part.joint_pos, part.joint_vel, part.joint_effort, part.command) if ref]
    refs += [] if column_map.base is None else column_map.base.refs()
    used = {ref.column for ref in (*refs, *column_map.channels.values())}
    return used | ({column_map.enabled} if column_map.enabled else set())


def _rows(
    table: Table, column_map: ColumnMap, columns: Mapping[str, JointColumns]
) -> tuple[Fetch, Array, float, list[LogFinding]]:
    """Align all streams with the one that holds the positions.

    Returns:
        Accessor of aligned columns, time of the rows [s], the file's time of the first, and what is said of samples
        left out.
    """
    first_position = _first_position(table, column_map, columns)
    used = _used_columns(column_map, columns.values())
    measured = table.stream_of(first_position)
    if measured is None:
        raise _missing(table, first_position)
    time = _time(table, measured, column_map)
    left_out: list[LogFinding] = []
    rows: dict[int, npt.NDArray[np.int64]] = {}
    keep = np.ones(len(time), bool)
    for stream in table.streams:
        if stream is not measured and not used & stream.columns.keys():
            continue
        if stream is measured or stream.join == "row":
            _require_same_rows(table, measured, stream)
            rows[id(stream)] = np.arange(len(time))
        else:
            rows[id(stream)] = _last_before(table, stream, _time(table, stream, column_map), time)
            keep &= rows[id(stream)] >= 0
    if not keep.all():
        if keep.sum() < 2:
            reason = next((f": {one.message}; {one.advice}" for one in table.findings if one.severity == "defect"), "")
            raise LogError(
                f"{table.source}: no command overlaps the measurements of {measured.name}"
                + (reason or "; do they share one clock?")
            )
        left_out.append(note(f"left out {int((~keep).sum())} samples before the first command"))

    def fetch(column: str) -> Array:
        stream = table.stream_of(column)
        if stream is None:
            raise _missing(table, column)
        return stream.columns[column][rows[id(stream)]][keep]

    # NaN in the first time would turn all times into NaN; leave them for the checks to report.
    kept = time[keep]
    start_s = float(kept[0]) if len(kept) and np.isfinite(kept[0]) else 0.0
    return fetch, kept - start_s, start_s, left_out


def _first_position(table: Table, column_map: ColumnMap, columns: Mapping[str, JointColumns]) -> str:
    if columns:
        return next(iter(columns.values())).joint_pos.column
    if column_map.base is None:
        raise LogError(
            f"{table.source}: the column map has no base, and the robot is a free body without joints; add "
            "`base: {position: [x, y, z], quat: [qw, qx, qy, qz]}`"
        )
    return column_map.base.position[0].column


def _time(table: Table, stream: ColumnStream, column_map: ColumnMap) -> Array:
    """Return the time of each row of a stream [s]."""
    if stream.time is not None:
        return stream.time
    if column_map.time is None:
        raise LogError(f"{table.source}: the column map does not define the time column; add `time: <column>`")
    ref = column_map.time
    name = ref.column
    if name not in stream.columns:
        # A joined file uses the first file's name for its time, with its own prefix.
        prefix = next((join.prefix for join in column_map.joins if f"{join.prefix}{name}" in stream.columns), "")
        name = prefix + name
    if name not in stream.columns:
        raise _missing(table, name)
    factor = unit_factor(ref.unit or "s", "time", where=f"{table.source}: column {name}")
    return stream.columns[name] * (factor * ref.scale)


def _require_same_rows(table: Table, measured: ColumnStream, other: ColumnStream) -> None:
    if other.rows != measured.rows:
        raise LogError(
            f"{table.source}: {measured.name} has {measured.rows} rows and {other.name} {other.rows}, so they cannot "
            "be joined row by row; use `by: hold`"
        )


def _last_before(table: Table, stream: ColumnStream, times: Array, when: Array) -> npt.NDArray[np.int64]:
    """Return the index of the stream's last row at or before each time; -1 if there is none."""
    if not bool((np.diff(times) >= 0.0).all()):
        raise LogError(f"{table.source}: the times of {stream.name} run backwards; do two nodes publish it?")
    # `right` includes a row at exactly that time.
    return np.searchsorted(times, when, side="right") - 1


def _missing(table: Table, column: str) -> LogError:
    if any(column in stream.text for stream in table.streams):
        return LogError(
            f"{table.source}: column {column!r} contains values that are not numbers, such as words or "
            "dates; write them as numbers, times in seconds (or another `unit:` of the column map)"
        )
    return LogError(
        f"{table.source}: no column {column!r}; its columns: {first_names(table.columns, 60)}; correct the "
        "column map, in which joint_vel and joint_effort may be left out"
    )


def _channel(table: Table, label: str, joint: str, expected: Dimension, ref: Column, fetch: Fetch) -> RawColumn:
    """Convert one column to SI units."""
    where = f"{table.source}: column {ref.column}"
    factor = 1.0 if ref.unit is None else unit_factor(ref.unit, expected, where=where)
    raw = fetch(ref.column)
    return RawColumn(label, ref.column, joint, raw, _converted(raw, ref, factor), ref.wrap, ref.period)


def _converted(raw: Array, ref: Column, factor: float) -> Array:
    """Return sign · scale · factor · column + offset, after unwrapping."""
    # The order is that of the sensor: the integer's sign, the encoder's turns, then units and offset.
    values = raw
    if ref.wrap is not None:
        values = np.where(values >= ref.wrap / 2, values - ref.wrap, values)
    if ref.period is not None:
        # NaN must not spread to the values after it.
        finite = np.isfinite(values)
        values = values.copy()
        values[finite] = np.unwrap(values[finite], period=ref.period)
    return ref.sign * ref.scale * factor * values + ref.offset


def _velocities(table: Table, joints: tuple[JointSpec, ...], parts: list[JointColumns]) -> list[Column | None]:
    """Return the velocity columns of all joints; empty if none is mapped."""
    refs = [part.joint_vel for part in parts]
    without = [joint.name for joint, ref in zip(joints, refs, strict=True) if ref is None]
    if without and len(without) < len(joints):
        raise LogError(f"{table.source}: no joint_vel for {', '.join(without)}; map it for every joint or for none")
    return [] if without else refs


def _efforts(table: Table, joints: tuple[JointSpec, ...], parts: list[JointColumns]) -> list[Column | None]:
    """Return the effort columns; empty if none is mapped. A joint without a command has no motor and needs none."""
    refs = [part.joint_effort for part in parts]
    if not any(refs):
        return []
    without = [joint.name for joint, part in zip(joints, parts, strict=True) if part.command and not part.joint_effort]
    if without:
        raise LogError(f"{table.source}: no joint_effort for {', '.join(without)}; map it for every driven joint")
    return refs


def _without_empty(
    joints: tuple[JointSpec, ...], parts: list[JointColumns], fetch: Fetch
) -> tuple[list[JointColumns], list[LogFinding]]:
    """Leave out speeds and efforts without a single number: drivers publish NaN where nothing is measured.

    A speed is of use only if all joints have it, an effort if all driven ones do.
    """
    findings: list[LogFinding] = []
    for label in ("joint_vel", "joint_effort"):
        refs: list[Column | None] = [getattr(part, label) for part in parts]
        empty = [ref is not None and bool(np.isnan(fetch(ref.column)).all()) for ref in refs]
        if not any(empty):
            continue
        needed = [
            lost and (label == "joint_vel" or part.command is not None) for lost, part in zip(empty, parts, strict=True)
        ]
        drop = [True] * len(parts) if any(needed) else empty
        parts = [part.model_copy(update={label: None}) if out else part for part, out in zip(parts, drop, strict=True)]
        names = [joint.name for joint, lost in zip(joints, empty, strict=True) if lost]
        which = "" if len(names) == sum(ref is not None for ref in refs) else f" of {', '.join(names)}"
        others = "; that of the other joints is of no use without it" if which and any(needed) else ""
        findings.append(note(f"{label}{which} has no number in any sample: taken as not measured{others}"))
    return parts, findings


def _command_kind(
    table: Table, column_map: ColumnMap, joints: tuple[JointSpec, ...], parts: list[JointColumns]
) -> CommandKind:
    if not any(part.command is not None for part in parts):
        # A thrown object and a pendulum without a motor have no commands, and measured efforts can replace them.
        for joint, part in zip(joints, parts, strict=True):
            if joint.effort_limit > 0.0 and part.joint_effort is None:
                raise LogError(
                    f"{table.source}: no joint has a command column; a replay needs the commands, or the measured "
                    f"efforts of all driven joints, and {joint.name} has none; if {joint.name} is passive, import the "
                    "robot without a motor there: physai robots import FILE --drive JOINT,…"
                )
        return column_map.command_kind or "joint_effort"
    if column_map.command_kind is None:
        raise LogError(
            f"{table.source}: the column map does not define the kind of its commands; add `command_kind: joint_pos`, "
            "joint_vel or joint_effort"
        )
    return column_map.command_kind


def _further(table: Table, column_map: ColumnMap, fetch: Fetch) -> list[RawColumn]:
    """Return the extra channels, which are checked but not part of the log."""
    channels: list[RawColumn] = []
    for name, ref in column_map.channels.items():
        if ref.unit is not None:
            raise LogError(f"{table.source}: channel {name} must not have a unit; use `scale`")
        raw = fetch(ref.column)
        channels.append(RawColumn(name, ref.column, "", raw, _converted(raw, ref, 1.0), ref.wrap, ref.period))
    return channels


def _notes(table: Table, column_map: ColumnMap) -> dict[str, float]:
    notes: dict[str, float] = {}
    for name, value in column_map.notes.items():
        if isinstance(value, str):
            if value not in table.constants:
                known = ", ".join(table.constants) or "none"
                raise LogError(f"{table.source}: note {name}: no constant {value!r} in the file; constants: {known}")
            value = table.constants[value]
        notes[name] = float(value)
    return notes


def _enabled_only(log: RawLog, column_map: ColumnMap, fetch: Fetch) -> RawLog:
    """Keep only the longest stretch in which commands have an effect."""
    if column_map.enabled is None:
        return log
    enabled = fetch(column_map.enabled) != 0.0
    if enabled.all():
        return log
    stretches = true_runs(enabled)
    if not stretches:
        raise LogError(f"{log.source}: column {column_map.enabled!r} is 0 throughout: no command ever had an effect")
    # Only one stretch, as a replay across a pause would start from a motion that the commands do not explain.
    start, stop = max(stretches, key=lambda stretch: stretch[1] - stretch[0])
    keep = np.zeros(len(enabled), bool)
    keep[start:stop] = True
    left = f"left out {int((~keep).sum())} samples: commands have an effect only where {column_map.enabled} is not 0"
    return replace(log.rows(keep), findings=(*log.findings, note(left)))
