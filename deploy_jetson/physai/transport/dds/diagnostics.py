"""The runtime's state for ROS 2 tools: `diagnostic_msgs/msg/DiagnosticArray` on `/diagnostics`."""

from collections.abc import Mapping
from enum import IntEnum

from physai.transport.dds.codec.cdr import encode
from physai.transport.stamps import NANOSECONDS

DIAGNOSTICS = "/diagnostics"
DIAGNOSTIC_KIND = "diagnostic_msgs/msg/DiagnosticArray"


class Level(IntEnum):
    """Levels of diagnostic_msgs/msg/DiagnosticStatus."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


def diagnostic_array(robot: str, level: Level, message: str, values: Mapping[str, str], stamp_ns: int) -> bytearray:
    """Encode a status of the runtime; see `DdsTransport.diagnose`."""
    seconds, nanoseconds = divmod(stamp_ns, NANOSECONDS)
    status = {
        # A byte in ROS, not an enumeration.
        "level": int(level),
        "name": "physai: runtime",
        "message": message,
        "hardware_id": robot,
        "values": [{"key": key, "value": value} for key, value in values.items()],
    }
    header = {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": ""}
    return encode(DIAGNOSTIC_KIND, {"header": header, "status": [status]})[0]
