"""One control period's numbers beside their bounds: what the guard looks at before it decides anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from physai.sdk.contract import PolicyContract
from physai.sdk.guard_limits import Array, GuardError, GuardLimits

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]

CLOCK_S = 1e-6
"""Resolution of time stamps [s], so that an age equal to its limit is not above it by a last digit."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong in each world, shape (num_worlds,) each. Limits are judged only where there is what to judge."""

    unmeasured: Bools
    """A measured position or velocity is not finite."""
    stale: Bools
    """The sample is too old, or from the future."""
    blind: Bools
    """Either of the two: nothing can be said of the joints."""
    not_finite: Bools
    """A command is not finite."""
    outdated: Bools
    """The command was computed too long ago."""
    late: Bools
    """The command missed its deadline."""
    missing: Bools
    """Any of these: there is no command to obey."""
    limited: Bools
    """A command outside position or effort limits."""
    jerked: Bools
    """A command that changes too fast."""
    outside: Bools
    """A joint measured outside its position range."""
    too_fast: Bools
    """A joint measured above its speed limit."""
    kept: Bools
    """There is a command and it keeps every limit."""


class Sample:
    """A row per world of everything that is compared, and the bounds of each column.

    Columns: age of the sample, age of the command, positions, velocities, commands, changes of the commands, efforts
    of servos. A number is allowed if lower <= number <= upper, which NaN is not.
    """

    def __init__(self, contract: PolicyContract, limits: GuardLimits, num_worlds: int) -> None:
        """Room for that many worlds."""
        self._limits = limits
        self._num_worlds = num_worlds
        timing = contract.timing
        joints, commands, servos = len(limits.speed), len(limits.joints), len(limits.servos)
        ends = np.cumsum([2, joints, joints, commands, commands, servos]).tolist()
        self._pos, self._vel, self._cmd, self._change, self._servo = (
            slice(start, end) for start, end in pairwise(ends)
        )
        self._groups = [0, 1, *ends[:4], *ends[4:5][:servos]]
        # A stamp may lie ahead by what two clocks differ, which is less than a period; a command cannot.
        youngest = [-timing.control_dt, -CLOCK_S]
        lower = [youngest, limits.position_lower, -limits.speed, limits.lower, -limits.rate, -limits.effort]
        oldest = [timing.max_observation_age_s + CLOCK_S, timing.control_dt + CLOCK_S]
        upper = [oldest, limits.position_upper, limits.speed, limits.upper, limits.rate, limits.effort]
        # One row, so that one world needs no broadcasting, which takes longer than the comparison.
        self._lower, self._upper = np.concatenate(lower)[None], np.concatenate(upper)[None]
        self._row = np.zeros((num_worlds, ends[-1]))
        # Looking for a zero byte takes a fiftieth of the time of `np.all` for the few numbers of one robot.
        self._verdicts = bytearray(2 * self._row.size)
        self._below, self._above = np.frombuffer(self._verdicts, bool).reshape(2, *self._row.shape)
        self._age, self._command_age = self._row[:, 0], self._row[:, 1]
        self._positions, self._changes, self._efforts = (
            self._row[:, part] for part in (self._pos, self._change, self._servo)
        )
        self.command: Array = self._row[:, self._cmd]
        """The policy's commands, shape (num_worlds, A); whatever came."""
        self.velocities: Array = self._row[:, self._vel]
        """Measured velocities of all joints, shape (num_worlds, J)."""
        self._outputs = [(name, self.command[:, part]) for name, part in limits.slices.items()]
        self._joints, self._servos = _span(limits.joints), _span(limits.servos)

    def read(self, now_s: float | Array, stamp_s: float | Array, joint_pos: Floats, joint_vel: Floats) -> None:
        """Takes a sample of the sensors; see `Guard.check`."""
        self._put_time(self._age, now_s - stamp_s, "now_s - sensor_stamp_s")
        _put(self._positions, joint_pos, "joint_pos")
        _put(self.velocities, joint_vel, "joint_vel")

    def read_command(self, targets: Mapping[str, Floats], age_s: float | Array) -> None:
        """Takes the policy's commands; see `Guard.check`."""
        self._put_time(self._command_age, age_s, "command_age_s")
        for name, row in self._outputs:
            if name not in targets:
                raise GuardError(f"no command {name!r} among {', '.join(targets) or 'none'}")
            _put(row, targets[name], name)

    def repeat(self, last: Array) -> None:
        """Takes the last command, shape (num_worlds, A), for want of a new one."""
        self._command_age[...] = 0.0
        self.command[...] = last

    def _put_time(self, column: Array, value: float | Array, label: str) -> None:
        if isinstance(value, np.ndarray) and value.shape != (self._num_worlds,):
            raise GuardError(f"{label} has shape {value.shape}, expected a number or ({self._num_worlds},)")
        column[...] = value

    @property
    def sound(self) -> Bools:
        """Whether positions are finite and of the right age, shape (num_worlds,)."""
        age = self._age
        recent = (age >= self._lower[0, 0]) & (age <= self._upper[0, 0])
        return recent & self._worst(np.isfinite(self._row))[2]

    @property
    def position(self) -> Array:
        """Measured positions of the commanded joints, shape (num_worlds, A)."""
        return self._positions[:, self._joints]

    @property
    def velocity(self) -> Array:
        """Measured velocities of the commanded joints, shape (num_worlds, A)."""
        return self.velocities[:, self._joints]

    def compare(self, last: Array) -> bool:
        """Whether every number in every world is allowed; `last` is the command before, shape (num_worlds, A)."""
        np.subtract(self.command, last, out=self._changes)
        if self._efforts.size:
            limits, servos = self._limits, self._servos
            lead = self.command[:, servos] - self.position[:, servos]
            np.subtract(limits.stiffness * lead, limits.damping * self.velocity[:, servos], out=self._efforts)
        np.less_equal(self._row, self._upper, out=self._below)
        np.greater_equal(self._row, self._lower, out=self._above)
        return 0 not in self._verdicts

    def judge(self, late: Bools) -> Findings:
        """Names what `compare` found; `late`: worlds whose command missed its deadline, shape (num_worlds,)."""
        age, command_age, position, speed, bounds, change, *effort = self._worst(self._below & self._above)
        _, _, position_finite, speed_finite, command_finite, *_ = self._worst(np.isfinite(self._row))
        unmeasured, stale = ~(position_finite & speed_finite), ~age
        not_finite, outdated = ~command_finite, ~command_age
        blind = unmeasured | stale
        missing = blind | late | not_finite | outdated
        limited = ~(bounds & effort[0] if effort else bounds) & ~missing
        jerked = ~(change | missing)
        return Findings(
            unmeasured=unmeasured,
            stale=stale,
            blind=blind,
            not_finite=not_finite,
            outdated=outdated,
            late=late,
            missing=missing,
            limited=limited,
            jerked=jerked,
            outside=~(position | blind),
            too_fast=~(speed | blind),
            kept=~(missing | limited | jerked),
        )

    def _worst(self, good: Bools) -> list[Bools]:
        """Whether all columns of a group are good, groups in the order of the class, shape (num_worlds,) each."""
        return list(np.logical_and.reduceat(good, self._groups, axis=1).T)


def _put(row: Array, values: Floats, label: str) -> None:
    if values.shape != row.shape:
        raise GuardError(f"{label} has shape {values.shape}, expected {row.shape}")
    row[...] = values


def _span(indices: npt.NDArray[np.intp]) -> slice | npt.NDArray[np.intp]:
    """The same indices as a slice where they are consecutive, which needs no copy."""
    first = int(indices[0]) if len(indices) else 0
    consecutive = np.array_equal(indices, np.arange(first, first + len(indices)))
    return slice(first, first + len(indices)) if consecutive else indices
