"""Message information that rclpy provides."""

from dataclasses import dataclass

ONLY_PUBLISHER = 1
"""Handle under which every message of a topic comes in: rclpy does not tell who sent it."""


@dataclass(frozen=True, slots=True)
class Info:
    """What rclpy knows of one message."""

    source_timestamp: int
    """When it was published, CLOCK_REALTIME of the sender [ns]."""
    valid_data: bool = True
    publication_handle: int = ONLY_PUBLISHER
