"""Names and JSON schemas of a twin's recording, and the limits a reader keeps.

Those that a robot's recordings have, too, are in `physai.sdk.evidence.recording_channels`. Poses have the fields of
Foxglove's
PoseInFrame (docs.foxglove.dev/docs/sdk/schemas), so that 3D tools know them. `log_time` counts nanoseconds of simulated
time; between two episodes lies one control period.
"""

from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.recording_channels import INTEGER, NUMBER, NUMBERS, TEXT, TIME, Schema, record

FORMAT_VERSION = "1"
"""Changes when an older reader could misunderstand a newer file."""

METADATA = "physai.recording"
"""Metadata record with format, contract, fingerprint and origin."""

STATE_TOPIC = "/physai/state"
REWARD_TOPIC = "/physai/reward"
EPISODE_TOPIC = "/physai/episode"
POSE_TOPIC = "/poses/"

MAX_RECORDING_BYTES = 512 << 20
MAX_CHUNK_BYTES = 64 << 20
"""Greatest size of a chunk once decompressed."""
MAX_TOTAL_BYTES = 8 << 30
"""Greatest size of all chunks once decompressed."""
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
