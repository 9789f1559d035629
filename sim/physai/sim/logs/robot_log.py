"""One recording of a robot: what was commanded and what was measured, in SI units and the robot's joint order."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.origin import Origin

Array = NDArray[np.float64]

CommandKind = Literal["joint_pos", "joint_vel", "joint_effort"]
"""What a command asks of a joint: a position [rad or m], a speed [rad/s or m/s] or an effort [N·m or N]."""


class LogError(PhysaiError):
    """A recording is missing, unreadable, incomplete or not what it claims to be."""


@dataclass(frozen=True)
class RobotLog:
    """One recording; n samples, J joints.

    Raises:
        LogError: shapes disagree, a value is not finite, or time is not strictly ascending from 0.
    """

    name: str
    """Short, unique among the logs of one call."""
    joint_names: tuple[str, ...]
    """The robot's joints, in the robot's order."""
    time: Array
    """Time of each sample [s], shape (n,), strictly ascending, 0 first."""
    joint_pos: Array
    """Measured position [rad or m], shape (n, J)."""
    joint_vel: Array | None
    """Measured speed [rad/s or m/s], shape (n, J); None where the robot measures none."""
    joint_effort: Array | None
    """Measured effort [N·m or N], shape (n, J); None where the robot measures none."""
    command: Array
    """What was sent by then, in the unit of `command_kind`, shape (n, J); 0 for joints that are not driven."""
    command_kind: CommandKind
    """What the command asks for."""
    source: str
    """Path of the recording, as given."""
    sha256: str
    """Of the file's bytes as they lie there; of the concatenated digests where a recording has several files."""
    origin: Origin = field(default_factory=Origin)
    """Where it was recorded, as the file itself says."""
    notes: dict[str, float] = field(default_factory=dict[str, float])
    """Constants of the recording such as a servo gain."""

    def __post_init__(self) -> None:
        """Refuses what would otherwise surface as a wrong fit."""
        shape = (len(self.time), len(self.joint_names))
        if self.time.ndim != 1 or len(self.time) < 2:
            raise LogError(f"log {self.name}: time has shape {self.time.shape}; a recording has at least two samples")
        for label in ("joint_pos", "joint_vel", "joint_effort", "command"):
            values: Array | None = getattr(self, label)
            if values is None:
                continue
            if values.shape != shape:
                raise LogError(f"log {self.name}: {label} has shape {values.shape}, expected {shape}")
            if not np.isfinite(values).all():
                raise LogError(f"log {self.name}: {label} is not finite in {int((~np.isfinite(values)).sum())} places")
        if not (np.isfinite(self.time).all() and self.time[0] == 0.0 and (np.diff(self.time) > 0.0).all()):
            raise LogError(f"log {self.name}: time must be finite, start at 0 and ascend strictly")

    @property
    def duration_s(self) -> float:
        """From the first sample to the last [s]."""
        return float(self.time[-1])
