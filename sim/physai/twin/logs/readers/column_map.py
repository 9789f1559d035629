"""Column map: a YAML file that assigns the columns of a recording to joints and quantities.

    robot: double_pendulum            # optional, for messages
    time: {column: t, unit: ms}       # or just the column's name, in seconds
    command_kind: joint_effort        # or joint_pos, joint_vel
    joints:
      joint1:
        joint_pos: {column: q1, unit: deg, sign: -1, offset: 0.1}
        joint_vel: dq1
        joint_effort: tau1
        command: u1

A recording of a robot with a floating base, or of a free body without joints, has a pose:

    base:
      position: [x, y, z]               # in the world [m], or {column: x, unit: mm}
      quat: [qw, qx, qy, qz]            # orientation in the world, wxyz
      lin_vel: [vx, vy, vz]             # optional, in the world [m/s]
      ang_vel: [wx, wy, wz]             # optional, in the base's frame [rad/s]

A value is sign · scale · unit's factor · column + offset, with the offset in SI units. `joint_vel`, `joint_effort` and
`command` are optional; a joint without a command is not driven.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.contract.robot import MAX_JOINTS, Finite, Frozen, Name, Positive
from physai.twin.logs.readers.table import MAX_COLUMNS, Table
from physai.twin.logs.robot_log import CommandKind, LogError

MAX_MAP_BYTES = 1 << 18
"""Maximum size of a column map."""

ONLY_JOINT = "*"
"""Matches the joint of a robot with a single joint."""

ColumnName = Annotated[str, Field(min_length=1, max_length=256)]


class Column(Frozen):
    """One column and its conversion to SI units. A plain name in YAML is a column in SI units."""

    column: ColumnName
    """Name of the column in the file, with the prefix of a joined file."""
    unit: Annotated[str, Field(max_length=16)] | None = None
    """Unit of the column; SI by default."""
    scale: Finite = 1.0
    """Factor for values without a unit, such as counts and gear ratios."""
    sign: Literal[-1, 1] = 1
    """-1 to reverse the direction."""
    offset: Finite = 0.0
    """Added last, in SI units."""
    wrap: Annotated[int, Field(ge=2, le=2**32)] | None = None
    """Modulus of signed integers stored as unsigned: 65536 for 16 bits."""
    period: Positive | None = None
    """Period at which the column wraps, as of a single-turn encoder: 360 for degrees. The values are unwrapped."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.scale == 0.0:
            raise ValueError(f"column {self.column}: scale must not be 0")
        if self.wrap is not None and self.period is not None:
            raise ValueError(f"column {self.column}: give wrap (stored integers) or period (turns), not both")
        return self


class JointColumns(Frozen):
    """The columns of one joint."""

    joint_pos: Column
    joint_vel: Column | None = None
    joint_effort: Column | None = None
    command: Column | None = None


Columns3 = tuple[Column, Column, Column]


class BaseColumns(Frozen):
    """The columns of a floating base's pose."""

    position: Columns3
    """x, y and z of the base's origin in the world."""
    quat: tuple[Column, Column, Column, Column]
    """Orientation of the base in the world: w, x, y and z of a unit quaternion."""
    lin_vel: Columns3 | None = None
    """Velocity of the base's origin in the world."""
    ang_vel: Columns3 | None = None
    """Angular velocity in the base's frame."""

    def refs(self) -> tuple[Column, ...]:
        """Return all columns."""
        return (*self.position, *self.quat, *(self.lin_vel or ()), *(self.ang_vel or ()))


class JoinedFile(Frozen):
    """Additional file of the same recording."""

    file: Annotated[str, Field(pattern=r"^[^/\\]{1,128}$")]
    """File name, in the folder of the first file. A `*` stands for what the `*` of `match.file` stood for."""
    prefix: Annotated[str, Field(min_length=1, max_length=64)]
    """Prefix of its column names."""
    by: Literal["row", "hold"] = "hold"
    """`row`: the files have matching rows. `hold`: use its last row at or before each time."""


class CommandTopic(Frozen):
    """A command topic whose messages do not name joints."""

    topic: ColumnName
    joints: Annotated[tuple[Name, ...], Field(max_length=MAX_JOINTS)] = ()
    """Joints in the order of the message's values, as configured in the controller."""


class RosTopics(Frozen):
    """Topics of a bag to read."""

    joint_states: ColumnName | None = None
    command: CommandTopic | None = None
    base: ColumnName | None = None
    """Topic of a free body's pose, in a bag without joint states."""
    clock: Literal["header", "log"] | None = None
    """`header`: the messages' stamps; `log`: the time of recording. Default: the stamps, if all messages have one."""


class MapMatch(Frozen):
    """Condition under which a shipped map is selected automatically."""

    file: Annotated[str, Field(min_length=1, max_length=128)] = "*"
    """Pattern of the file name."""
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=MAX_COLUMNS)]
    """Required columns of the first file."""


class ColumnMap(Frozen):
    """A complete column map."""

    format: Literal[1] = 1
    robot: Name | None = None
    """Name of the robot, if it is built in."""
    match: MapMatch | None = None
    records: ColumnName | None = None
    """Name of the list of records in a JSON file."""
    time: Column | None = None
    """Not needed for formats with time stamps (bags) or a fixed time column (LeRobot)."""
    joins: Annotated[tuple[JoinedFile, ...], Field(max_length=16)] = ()
    ros: RosTopics | None = None
    joints: Annotated[dict[Name | Literal["*"], JointColumns], Field(max_length=MAX_JOINTS)] = Field(
        default_factory=dict[str, JointColumns]
    )
    base: BaseColumns | None = None
    """Pose of a floating base."""
    command_kind: CommandKind | None = None
    enabled: ColumnName | None = None
    """Column that is 0 while commands have no effect; only the longest nonzero stretch is kept."""
    channels: Annotated[dict[Name, Column], Field(max_length=MAX_COLUMNS)] = Field(default_factory=dict[str, Column])
    """Extra columns that are checked but not part of the log."""
    notes: Annotated[dict[Name, ColumnName | Finite], Field(max_length=256)] = Field(
        default_factory=dict[str, str | float]
    )
    """Constants of the recording: a number, or the name of a constant in the file."""


@dataclass(frozen=True)
class Reading:
    """A recording as stored in its files."""

    table: Table
    convention: ColumnMap | None = None
    """Column map from the format's own names; None for formats without, such as CSV. It may name more joints than the
    robot has, for instance a gripper or a mimic joint."""


def load_column_map(path: Path) -> ColumnMap:
    """Load a column map from a YAML file.

    Raises:
        LogError: the file is missing, too large, not YAML, or not a valid column map.
    """
    document = read_yaml(path, what="a column map", max_bytes=MAX_MAP_BYTES, error=LogError, words_are_text=True)
    # Validated as JSON: from Python objects, a strict model refuses a list where it declares a tuple.
    try:
        text = json.dumps(document)
    except (ValueError, TypeError) as error:
        raise LogError(f"{path}: not a column map: {error}") from None
    try:
        return ColumnMap.model_validate_json(text)
    except ValidationError as error:
        raise LogError(f"{path}: {problems(error)}") from None


def problems(error: ValidationError) -> str:
    """Format the first validation errors on one line."""
    lines: list[str] = []
    for detail in error.errors(include_url=False)[:3]:
        where = ".".join(str(part) for part in detail["loc"])
        message = "unknown entry" if detail["type"] == "extra_forbidden" else detail["msg"]
        lines.append(f"{where + ': ' if where else ''}{message.removeprefix('Value error, ')}")
    more = error.error_count() - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")
