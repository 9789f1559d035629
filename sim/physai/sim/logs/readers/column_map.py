"""The column map: which column of a recording is which quantity of which joint, in YAML.

    robot: double_pendulum            # whose joints these are, for messages; optional
    time: {column: t, unit: ms}       # or just the column's name, in seconds
    command_kind: joint_effort        # or joint_pos, joint_vel
    joints:
      joint1:
        joint_pos: {column: q1, unit: deg, sign: -1, offset: 0.1}
        joint_vel: dq1
        joint_effort: tau1
        command: u1

A value is sign · scale · unit's factor · column + offset, the offset in SI units. `joint_vel`, `joint_effort` and
`command` may be left out; a joint without a command is not driven.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from physai.sdk.base.yaml_file import read_yaml
from physai.sdk.contract.robot import MAX_JOINTS, Finite, Frozen, Name, Positive
from physai.sim.logs.readers.table import MAX_COLUMNS
from physai.sim.logs.robot_log import CommandKind, LogError

MAX_MAP_BYTES = 1 << 18
"""Largest column map that is read."""

ONLY_JOINT = "*"
"""Stands for the one joint of a robot that has no other."""

ColumnName = Annotated[str, Field(min_length=1, max_length=256)]


class Column(Frozen):
    """One column and how its numbers become SI units. A plain name in YAML is a column in SI units."""

    column: ColumnName
    """Name of the column in the file; columns of joined files carry their prefix."""
    unit: Annotated[str, Field(max_length=16)] | None = None
    """Unit the column is in, SI if left out."""
    scale: Finite = 1.0
    """Factor, for what has no unit of its own: counts, gear ratios."""
    sign: Literal[-1, 1] = 1
    """-1 where the file counts the other way round."""
    offset: Finite = 0.0
    """Added last, in SI units."""
    wrap: Annotated[int, Field(ge=2, le=2**32)] | None = None
    """Values of a signed integer that was stored unsigned are taken modulo this: 65536 for 16 bits."""
    period: Positive | None = None
    """The column starts anew after this much, as a single-turn encoder does: 360 for degrees. Turns are counted."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"column": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.scale == 0.0:
            raise ValueError(f"column {self.column}: scale 0 would make every value the same")
        if self.wrap is not None and self.period is not None:
            raise ValueError(f"column {self.column}: give wrap (stored integers) or period (turns), not both")
        return self


class JointColumns(Frozen):
    """The columns of one joint."""

    joint_pos: Column
    joint_vel: Column | None = None
    joint_effort: Column | None = None
    command: Column | None = None


class JoinedFile(Frozen):
    """A second file of the same recording."""

    file: Annotated[str, Field(pattern=r"^[^/\\]{1,128}$")]
    """Its name; it lies beside the first."""
    prefix: Annotated[str, Field(min_length=1, max_length=64)]
    """Put before the names of its columns."""
    by: Literal["row", "hold"] = "hold"
    """`row`: its rows belong to the first file's one by one. `hold`: what it last said at or before a time."""


class CommandTopic(Frozen):
    """A topic whose messages do not name their joints."""

    topic: ColumnName
    joints: Annotated[tuple[Name, ...], Field(max_length=MAX_JOINTS)] = ()
    """Joints in the order of the message's numbers, as the controller was configured."""


class RosTopics(Frozen):
    """Which topics of a bag to read."""

    joint_states: ColumnName | None = None
    command: CommandTopic | None = None
    clock: Literal["header", "log"] | None = None
    """`header`: the messages' own stamps; `log`: when they were recorded. By default the stamps, if all have one."""


class MapMatch(Frozen):
    """What a recording must look like for a shipped map to be taken without asking."""

    file: Annotated[str, Field(min_length=1, max_length=128)] = "*"
    """Pattern of the file's name."""
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=MAX_COLUMNS)]
    """Columns it must have, joined files left out."""


class ColumnMap(Frozen):
    """A whole column map."""

    format: Literal[1] = 1
    robot: Name | None = None
    """Robot the recording is of, where it is one of physai's own."""
    match: MapMatch | None = None
    records: ColumnName | None = None
    """Name of the list of records in a JSON file."""
    time: Column | None = None
    """Not needed where the format itself has times (bags) or says where they are (LeRobot)."""
    joins: Annotated[tuple[JoinedFile, ...], Field(max_length=16)] = ()
    ros: RosTopics | None = None
    joints: Annotated[dict[Name | Literal["*"], JointColumns], Field(max_length=MAX_JOINTS)] = Field(
        default_factory=dict[str, JointColumns]
    )
    command_kind: CommandKind | None = None
    enabled: ColumnName | None = None
    """Column that is 0 while commands have no effect; the longest stretch without 0 is kept."""
    channels: Annotated[dict[Name, Column], Field(max_length=MAX_COLUMNS)] = Field(default_factory=dict[str, Column])
    """Further columns, checked for defects but not part of the log."""
    notes: Annotated[dict[Name, ColumnName | Finite], Field(max_length=256)] = Field(
        default_factory=dict[str, str | float]
    )
    """Constants of the recording: a number, or the name of a constant in the file."""


def load_column_map(path: Path) -> ColumnMap:
    """The column map in a YAML file.

    Raises:
        LogError: it is missing, too large, no YAML, or says something that a column map cannot.
    """
    document = read_yaml(path, what="a column map", max_bytes=MAX_MAP_BYTES, error=LogError, words_are_text=True)
    try:
        text = json.dumps(document)
    except (ValueError, TypeError) as error:
        raise LogError(f"{path}: not a column map: {error}") from None
    try:
        return ColumnMap.model_validate_json(text)
    except ValidationError as error:
        raise LogError(f"{path}: {problems(error)}") from None


def problems(error: ValidationError) -> str:
    """The first problems that pydantic found, on one line."""
    lines: list[str] = []
    for detail in error.errors(include_url=False)[:3]:
        where = ".".join(str(part) for part in detail["loc"])
        message = "unknown entry" if detail["type"] == "extra_forbidden" else detail["msg"]
        lines.append(f"{where + ': ' if where else ''}{message.removeprefix('Value error, ')}")
    more = error.error_count() - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")
