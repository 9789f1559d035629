"""Topics and JSON schemas of simulation recordings, and limits for readers.

Those shared with robot recordings are in `physai.sdk.evidence.recording_channels`. Poses use Foxglove's PoseInFrame
schema (docs.foxglove.dev/docs/sdk/schemas) for 3D tools. `log_time` is simulated time in nanoseconds; consecutive
episodes are one control period apart.
"""

from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.recording_channels import INTEGER, NUMBER, NUMBERS, TEXT, TIME, Schema, record

FORMAT_VERSION = "1"
"""Incremented on changes that are incompatible with older readers."""

METADATA = "physai.recording"
"""Metadata record with format, contract, fingerprint and origin."""

STATE_TOPIC = "/physai/state"
REWARD_TOPIC = "/physai/reward"
EPISODE_TOPIC = "/physai/episode"
POSE_TOPIC = "/poses/"

MAX_RECORDING_BYTES = 512 << 20
MAX_CHUNK_BYTES = 64 << 20
"""Greatest decompressed size of a chunk."""
MAX_TOTAL_BYTES = 8 << 30
"""Greatest decompressed size of all chunks."""
MAX_EPISODES = 1_000_000
MAX_METADATA_CHARS = 2 << 20


class RecordingError(PhysaiError):
    """A recording cannot be written, or is damaged, cut off or of another format."""


POSE: Schema = (
    "foxglove.PoseInFrame",
    record(
        timestamp=TIME,
        frame_id=TEXT,
        pose=record(
            position=record(x=NUMBER, y=NUMBER, z=NUMBER),
            orientation=record(x=NUMBER, y=NUMBER, z=NUMBER, w=NUMBER),
        ),
    ),
)
STATE: Schema = ("physai.State", record(timestamp=TIME, qpos=NUMBERS, qvel=NUMBERS))
REWARD: Schema = ("physai.Reward", record(timestamp=TIME, reward={"type": ["number", "null"]}))
_EVENT: dict[str, Any] = {
    "timestamp": TIME,
    "event": {"enum": ["start", "judged", "end"]},
    "episode": INTEGER,
    "seed": TEXT,
}
EPISODE: Schema = ("physai.Episode", record(**_EVENT))
"""`judged` adds `succeeded` and `metrics`; `end` adds the fields of `physai.sim.playback.player.EpisodeOutcome`."""
