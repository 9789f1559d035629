"""What reading a file yields: its table, and what its format itself says of the columns."""

from dataclasses import dataclass

from physai.sim.logs.readers.column_map import ColumnMap
from physai.sim.logs.readers.table import Table


@dataclass(frozen=True)
class Reading:
    """A recording as it lies in its files."""

    table: Table
    convention: ColumnMap | None = None
    """Columns by the names that the format gives them; None for formats without any, such as CSV. It may name more
    joints than the robot has: a gripper, a mimic joint."""
