"""Message information that rclpy provides."""

from dataclasses import dataclass

# Publication handle of all messages of a topic: rclpy does not provide the sender.
ONLY_PUBLISHER = 1


@dataclass(frozen=True, slots=True)
class Info:
    """Message information, with the attributes of Cyclone DDS's sample info."""

    source_timestamp: int
    """Time of publication, CLOCK_REALTIME of the sender [ns]."""
    valid_data: bool = True
    publication_handle: int = ONLY_PUBLISHER
