"""A recording in SI units and the robot's joint order, not yet judged: it may hold NaN or a clock that runs back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from physai.sdk.contract.robot import JointSpec
from physai.sdk.evidence.origin import Origin
from physai.sim.logs.robot_log import Array, CommandKind, LogError, RobotLog


@dataclass(frozen=True)
class RawColumn:
    """One column as it lies in the file, for checks that its conversion would hide."""

    label: str
    """What it is: `joint_pos of joint1`, or the name of a further channel."""
    column: str
    """Its name in the file."""
    joint: str
    """Joint it belongs to, empty for a further channel."""
    raw: Array
    """As it lies in the file, shape (n,)."""
    values: Array
    """After the column map, shape (n,)."""
    wrap: int | None = None
    """Modulus that the column map took out."""
    period: float | None = None
    """Period whose turns the column map counted."""


@dataclass(frozen=True)
class RawLog:
    """One recording; n samples, J joints. Shapes agree, and that is all that is promised."""

    name: str
    joints: tuple[JointSpec, ...]
    """The robot's joints, in its order."""
    limits_known: bool
    """Whether `joints` are a robot's; if not, they were made from the column map and say nothing of limits."""
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
    """Which joints have a command."""
    channels: tuple[RawColumn, ...]
    """Every column that was read, as it lies in the file, and further ones."""
    source: str
    sha256: str
    notes: Mapping[str, float]
    origin: Origin
    """Where it was recorded, as the file itself says."""
    remarks: tuple[str, ...] = ()
    """What was left out of the recording, and why."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints, in order."""
        return tuple(joint.name for joint in self.joints)

    def series(self) -> tuple[tuple[str, Array], ...]:
        """Name and values, shape (n, J), of everything that is measured or commanded per joint."""
        named = (
            ("joint_pos", self.joint_pos),
            ("joint_vel", self.joint_vel),
            ("joint_effort", self.joint_effort),
            ("command", self.command),
        )
        return tuple((name, values) for name, values in named if values is not None)

    def rows(self, keep: Array) -> "RawLog":
        """The same recording with the rows where a mask of shape (n,) is true, its time from 0."""
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
            channels=tuple(replace(c, raw=c.raw[chosen], values=c.values[chosen]) for c in self.channels),
        )

    def log(self) -> RobotLog:
        """The recording as a RobotLog.

        Raises:
            LogError: a value is not finite, or time does not ascend strictly.
        """
        if len(self.time) < 2:
            raise LogError(f"{self.source}: {len(self.time)} samples; a recording has at least two")
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
        )
