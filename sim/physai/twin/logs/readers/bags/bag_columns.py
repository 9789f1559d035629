"""Joint states in column blocks of a bag, which are not trusted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from physai.sdk.base.formats.column_blocks import ColumnBlockError, decode_block
from physai.sdk.evidence.recording_channels import stamp
from physai.twin.logs.robot_log import LogError

_TIMES = ("log_ns", "delay_ns")
_FIELDS = ("position", "velocity", "effort")


def joint_states(path: Path, topic: str, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield time of recording [ns] and content of each joint state in a block of `COLUMNS_ENCODING`.

    Raises:
        LogError: the block is damaged, or is not one of joint states.
    """
    try:
        block = decode_block(data)
    except ColumnBlockError as error:
        raise LogError(f"{path}: topic {topic}: {error}") from error
    joints: dict[str, dict[str, list[float]]] = {}
    for name, values in block.columns.items():
        field, _, joint = name.partition(".")
        if field in _FIELDS:
            joints.setdefault(joint, {})[field] = values.tolist()
        elif name not in _TIMES:
            raise LogError(f"{path}: topic {topic}: column {name!r:.80} is no part of a joint state")
    times = [block.columns[name].tolist() for name in _TIMES if name in block.columns]
    if len(times) < len(_TIMES) or not all(isinstance(time, int) for row in times for time in row[:1]):
        raise LogError(f"{path}: topic {topic}: a block of joint states without whole {' and '.join(_TIMES)}")
    if not (block.rows and joints):
        # Neither counts as a value, so that a small file could hold them without end.
        raise LogError(f"{path}: topic {topic}: a block of {block.rows} joint states of {len(joints)} joints is empty")
    fields = [field for field in _FIELDS if any(field in parts for parts in joints.values())]
    for joint, parts in joints.items():
        if set(parts) != set(fields):
            raise LogError(f"{path}: topic {topic}: joint {joint!r:.80} has {sorted(parts)}, other joints {fields}")
    for row, (log_ns, delay_ns) in enumerate(zip(*times, strict=True)):
        values = {field: [parts[field][row] for parts in joints.values()] for field in fields}
        yield log_ns, {"header": {"stamp": stamp(log_ns + delay_ns, "nanosec")}, "name": list(joints), **values}
