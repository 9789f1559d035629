"""Names and JSON schemas of a recording's channels, and the limits a reader keeps.

A recording is an MCAP file (mcap.dev/spec) of JSON messages. Joint states and commands have the fields of ROS's
sensor_msgs/JointState, poses those of Foxglove's PoseInFrame (docs.foxglove.dev/docs/sdk/schemas), so that plotting
and 3D tools know them. `log_time` counts nanoseconds of simulated time; between two episodes lies one control period.
"""

from typing import Any

from physai.sdk.errors import PhysaiError

FORMAT_VERSION = "1"
"""Changes when an older reader could misunderstand a newer file."""

METADATA = "physai.recording"
"""Metadata record with format, contract, fingerprint and origin."""

STATE_TOPIC = "/physai/state"
REWARD_TOPIC = "/physai/reward"
EPISODE_TOPIC = "/physai/episode"
JOINTS_TOPIC = "/joint_states"
COMMAND_TOPIC = "/commands/"
SENSOR_TOPIC = "/sensors/"
TARGET_TOPIC = "/targets/"
POSE_TOPIC = "/poses/"

MAX_RECORDING_BYTES = 512 << 20
MAX_CHUNK_BYTES = 64 << 20
"""Greatest size of a chunk once decompressed."""
MAX_TOTAL_BYTES = 8 << 30
"""Greatest size of all chunks once decompressed."""
MAX_EPISODES = 1_000_000
MAX_METADATA_CHARS = 2 << 20

NANOSECONDS = 1_000_000_000


class RecordingError(PhysaiError):
    """A recording cannot be written, or is damaged, cut off or of another format."""


def _record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_NUMBER: dict[str, Any] = {"type": "number"}
_TEXT: dict[str, Any] = {"type": "string"}
_INTEGER: dict[str, Any] = {"type": "integer"}
_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": ["number", "null"]}}
_TIME = _record(sec=_INTEGER, nsec=_INTEGER)
_HEADER = _record(stamp=_record(sec=_INTEGER, nanosec=_INTEGER), frame_id=_TEXT)

JOINT_STATE = (
    "sensor_msgs/JointState",
    _record(
        header=_HEADER,
        name={"type": "array", "items": _TEXT},
        position=_NUMBERS,
        velocity=_NUMBERS,
        effort=_NUMBERS,
    ),
)
POSE = (
    "foxglove.PoseInFrame",
    _record(
        timestamp=_TIME,
        frame_id=_TEXT,
        pose=_record(
            position=_record(x=_NUMBER, y=_NUMBER, z=_NUMBER),
            orientation=_record(x=_NUMBER, y=_NUMBER, z=_NUMBER, w=_NUMBER),
        ),
    ),
)
VECTOR = ("physai.Vector", _record(timestamp=_TIME, unit=_TEXT, frame_id=_TEXT, value=_NUMBERS))
STATE = ("physai.State", _record(timestamp=_TIME, qpos=_NUMBERS, qvel=_NUMBERS))
REWARD = ("physai.Reward", _record(timestamp=_TIME, reward={"type": ["number", "null"]}))
EPISODE = (
    "physai.Episode",
    {
        "type": "object",
        "properties": {
            "timestamp": _TIME,
            "event": {"enum": ["start", "judged", "end"]},
            "episode": _INTEGER,
            "seed": _TEXT,
        },
        "required": ["timestamp", "event", "episode", "seed"],
    },
)
"""`judged` adds `succeeded` and `metrics`; `end` adds the fields of `physai.sim.play.Outcome`."""


def stamp(nanoseconds: int, fraction: str = "nsec") -> dict[str, int]:
    """A time as seconds and nanoseconds; ROS calls the latter `nanosec`."""
    return {"sec": nanoseconds // NANOSECONDS, fraction: nanoseconds % NANOSECONDS}
