"""One recording of a robot: commands and measurements in SI units and the robot's joint order."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.origin import Origin

Array = NDArray[np.float64]

CommandKind = Literal["joint_pos", "joint_vel", "joint_effort"]
"""Quantity that a command sets: position [rad or m], speed [rad/s or m/s] or effort [N·m or N]."""


class LogError(PhysaiError):
    """A recording is missing, unreadable, incomplete or inconsistent."""


@dataclass(frozen=True)
class BasePose:
    """Measured pose of a floating base: n samples."""

    position: Array
    """Origin of the base in the world [m], shape (n, 3)."""
    quat: Array
    """Orientation of the base in the world, unit quaternion wxyz, shape (n, 4)."""
    lin_vel: Array | None = None
    """Velocity of the origin in the world [m/s], shape (n, 3); None if not measured."""
    ang_vel: Array | None = None
    """Angular velocity in the base's frame [rad/s], shape (n, 3); None if not measured."""

    def series(self) -> tuple[tuple[str, Array], ...]:
        """Return name and values, shape (n, 3) or (n, 4), of all measured series."""
        named = (
            ("base_pos", self.position),
            ("base_quat", self.quat),
            ("base_lin_vel", self.lin_vel),
            ("base_ang_vel", self.ang_vel),
        )
        return tuple((name, values) for name, values in named if values is not None)

    def rows(self, chosen: NDArray[np.int64]) -> "BasePose":
        """Return the samples with these indices."""
        return replace(
            self,
            position=self.position[chosen],
            quat=self.quat[chosen],
            lin_vel=None if self.lin_vel is None else self.lin_vel[chosen],
            ang_vel=None if self.ang_vel is None else self.ang_vel[chosen],
        )


QUAT_TOLERANCE = 1e-3
"""Maximum deviation of a quaternion's length from 1."""


@dataclass(frozen=True, eq=False)
class RobotLog:
    """One recording: n samples, J joints.

    Raises:
        LogError: shapes disagree, a value is not finite, or time is not strictly ascending from 0.
    """

    name: str
    """Short, unique among the logs of one call."""
    joint_names: tuple[str, ...]
    """The robot's joints in its order."""
    time: Array
    """Time of each sample [s], shape (n,), strictly ascending from 0."""
    joint_pos: Array
    """Measured position [rad or m], shape (n, J)."""
    joint_vel: Array | None
    """Measured speed [rad/s or m/s], shape (n, J); None if not measured."""
    joint_effort: Array | None
    """Measured effort [N·m or N], shape (n, J); None if not measured."""
    command: Array
    """Most recent command at each sample, in the unit of `command_kind`, shape (n, J); 0 for joints not driven."""
    command_kind: CommandKind
    source: str
    """Path of the recording as given."""
    sha256: str
    """Digest of the file; of the concatenated digests if the recording has several files."""
    origin: Origin = field(default_factory=Origin)
    """Origin stated in the file."""
    notes: dict[str, float] = field(default_factory=dict[str, float])
    """Constants of the recording such as a servo gain."""
    driven: tuple[bool, ...] = ()
    """Whether each joint has a motor that was commanded; empty if all have."""
    duty_gain: float | None = None
    """Share of its full effort that the only servo applied per position error, from its recorded duty cycle [1/rad or
    1/m]; None if not recorded."""
    base: BasePose | None = None
    """Pose of the floating base; None if not measured."""

    def __post_init__(self) -> None:
        """Reject data that would otherwise lead to a wrong fit."""
        shape = (len(self.time), len(self.joint_names))
        if self.time.ndim != 1 or len(self.time) < 2:
            raise LogError(f"log {self.name}: time has shape {self.time.shape}; at least 2 samples are needed")
        for label, values in self.series():
            if values.shape != shape:
                raise LogError(f"log {self.name}: {label} has shape {values.shape}, expected {shape}")
            if not np.isfinite(values).all():
                raise LogError(
                    f"log {self.name}: {label} has {int((~np.isfinite(values)).sum())} values that are not finite"
                )
        if self.base is not None:
            self._require_poses(self.base)
        if not (np.isfinite(self.time).all() and self.time[0] == 0.0 and (np.diff(self.time) > 0.0).all()):
            raise LogError(f"log {self.name}: time must be finite, start at 0 and be strictly ascending")

    def _require_poses(self, base: BasePose) -> None:
        for label, values in base.series():
            shape = (len(self.time), 4 if label == "base_quat" else 3)
            if values.shape != shape:
                raise LogError(f"log {self.name}: {label} has shape {values.shape}, expected {shape}")
            if not np.isfinite(values).all():
                raise LogError(f"log {self.name}: {label} has values that are not finite")
        worst = float(np.abs(np.linalg.norm(base.quat, axis=1) - 1.0).max())
        if not worst <= QUAT_TOLERANCE:
            raise LogError(f"log {self.name}: a quaternion's length differs from 1 by {worst:.3g}; normalise them")

    @property
    def positions(self) -> Array:
        """Everything measured that is a position: pose of the base, then joints, shape (n, J) or (n, 7 + J)."""
        if self.base is None:
            return self.joint_pos
        return np.hstack([self.base.position, self.base.quat, self.joint_pos])

    def series(self) -> tuple[tuple[str, Array], ...]:
        """Return name and values, shape (n, J), of all measured and commanded series."""
        measured = (("joint_pos", self.joint_pos), ("joint_vel", self.joint_vel), ("joint_effort", self.joint_effort))
        return tuple((name, values) for name, values in (*measured, ("command", self.command)) if values is not None)

    @property
    def duration_s(self) -> float:
        """Duration from the first to the last sample [s]."""
        return float(self.time[-1])
