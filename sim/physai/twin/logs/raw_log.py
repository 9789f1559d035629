"""Unchecked recording in SI units and the robot's joint order; it may contain NaN or time that runs backwards."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from physai.sdk.contract.robot import JointSpec
from physai.sdk.evidence.origin import Origin
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.robot_log import Array, BasePose, CommandKind, LogError, RobotLog
from physai.twin.logs.signals.duty import duty_gain


@dataclass(frozen=True)
class RawColumn:
    """One column before and after conversion, for checks of the raw values."""

    label: str
    """`joint_pos of joint1`, or the name of an extra channel."""
    column: str
    """Name in the file."""
    joint: str
    """Joint of the column, empty for an extra channel."""
    raw: Array
    """Values in the file, shape (n,)."""
    values: Array
    """Values after the column map, shape (n,)."""
    wrap: int | None = None
    """Integer modulus removed by the column map."""
    period: float | None = None
    """Period unwrapped by the column map."""

    @property
    def series(self) -> str:
        """Series of the joint (`joint_pos`), or the name of an extra channel."""
        return self.label.split(" of ")[0]


@dataclass(frozen=True)
class RawLog:
    """One recording: n samples, J joints. Only the shapes are guaranteed to agree."""

    name: str
    joints: tuple[JointSpec, ...]
    """The robot's joints in its order."""
    limits_known: bool
    """False if `joints` come from the column map, which knows no limits."""
    time: Array
    """[s], shape (n,)."""
    joint_pos: Array
    """[rad or m], shape (n, J)."""
    joint_vel: Array | None
    """[rad/s or m/s], shape (n, J)."""
    joint_effort: Array | None
    """[N·m or N], shape (n, J)."""
    command: Array
    """Shape (n, J), 0 for joints that are not driven."""
    command_kind: CommandKind
    driven: tuple[bool, ...]
    """Whether each joint has a motor and a command."""
    channels: tuple[RawColumn, ...]
    """Every column used, followed by the extra channels."""
    source: str
    sha256: str
    notes: Mapping[str, float]
    origin: Origin
    """Origin stated in the file."""
    findings: tuple[LogFinding, ...] = ()
    """What the reader left out, assumed or saw in the file."""
    base: BasePose | None = None
    """Pose of the floating base, whose quaternions may have any length."""
    start_s: float = 0.0
    """Time of the first sample by the file's own clock [s]; 0 if that starts with the recording."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        return tuple(joint.name for joint in self.joints)

    def series(self) -> tuple[tuple[str, Array], ...]:
        """Return name and values, shape (n, J), of all measured and commanded series."""
        measured = (("joint_pos", self.joint_pos), ("joint_vel", self.joint_vel), ("joint_effort", self.joint_effort))
        return tuple((name, values) for name, values in (*measured, ("command", self.command)) if values is not None)

    def rows(self, keep: Array) -> "RawLog":
        """Return the rows where the mask, shape (n,), is true, with time starting at 0."""
        chosen = np.flatnonzero(keep)
        time = self.time[chosen]

        def part(values: Array | None) -> Array | None:
            return None if values is None else values[chosen]

        return replace(
            self,
            time=time - time[0] if len(time) else time,
            joint_pos=self.joint_pos[chosen],
            joint_vel=part(self.joint_vel),
            joint_effort=part(self.joint_effort),
            command=self.command[chosen],
            base=None if self.base is None else self.base.rows(chosen),
            channels=tuple(replace(c, raw=c.raw[chosen], values=c.values[chosen]) for c in self.channels),
        )

    def log(self) -> RobotLog:
        """Convert to a RobotLog.

        Raises:
            LogError: a value is not finite, or time is not strictly ascending.
        """
        if len(self.time) < 2:
            raise LogError(f"{self.source}: {len(self.time)} samples, at least 2 are needed")
        return RobotLog(
            name=self.name,
            joint_names=self.joint_names,
            time=self.time - self.time[0],
            joint_pos=self.joint_pos,
            joint_vel=self.joint_vel,
            joint_effort=self.joint_effort,
            command=self.command,
            command_kind=self.command_kind,
            source=self.source,
            sha256=self.sha256,
            origin=self.origin,
            notes=dict(self.notes),
            driven=self.driven,
            duty_gain=self._duty_gain(),
            base=None if self.base is None else unit_quaternions(self.base),
        )

    def _duty_gain(self) -> float | None:
        duty = next((channel for channel in self.channels if channel.label == "duty" and not channel.joint), None)
        if duty is None or len(self.joints) != 1 or self.command_kind != "joint_pos":
            return None
        return duty_gain(self.command[:, 0] - self.joint_pos[:, 0], duty.values)


def unit_quaternions(base: BasePose) -> BasePose:
    """Return poses with quaternions of length 1 and of the sign that is closer to the sample before."""
    length = np.linalg.norm(base.quat, axis=1, keepdims=True)
    quat = base.quat / np.where(length > 0.0, length, 1.0)
    # q and -q are the same orientation; smoothing and interpolation need neighbours of one sign.
    flips = np.concatenate([[1.0], np.where((quat[1:] * quat[:-1]).sum(axis=1) < 0.0, -1.0, 1.0)])
    return replace(base, quat=quat * np.cumprod(flips)[:, None])


def true_runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the stretches in which a mask, shape (n,), is true, as half-open index ranges."""
    # The padding gives a stretch at either end of the recording an edge, too.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
