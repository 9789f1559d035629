"""Result of reading a file: its table and the column map implied by its format."""

from dataclasses import dataclass

from physai.sim.logs.readers.column_map import ColumnMap
from physai.sim.logs.readers.table import Table


@dataclass(frozen=True)
class Reading:
    """A recording as stored in its files."""

    table: Table
    convention: ColumnMap | None = None
    """Column map from the format's own names; None for formats without, such as CSV. It may name more joints than the
    robot has, for instance a gripper or a mimic joint."""
