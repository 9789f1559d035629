"""Measurements and commands of one control period, and their bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.safety_envelope import SensorRange
from physai.sdk.safety.limits import UNLIMITED, Array, GuardError, GuardLimits
from physai.sdk.safety.plant import Bools, ConsistencyWatch, Floats, FrozenWatch, every
from physai.sdk.safety.trajectory import braking_distance

CLOCK_S = 1e-6
"""Resolution of time stamps [s], so that an age equal to its limit is not above it by a last digit."""

_JOINT_FIELDS = ("joint_pos", "joint_vel")


@dataclass(frozen=True, slots=True)
class SampleFindings:
    """Faults of each world, shape (num_worlds,) each. Limits are checked only where values are available."""

    unmeasured: Bools
    """A measured position or velocity is not finite."""
    stale: Bools
    """The sample is too old, or from the future."""
    implausible: Bools
    """A sensor value is outside the contract's ranges."""
    contradicts: Bools
    """A position jumps, or disagrees with the velocities."""
    frozen: Bools
    """The sensor values have stopped changing."""
    blind: Bools
    """Any of these: the state of the joints is unknown."""
    not_finite: Bools
    """A command is not finite."""
    outdated: Bools
    """The command was computed too long ago."""
    late: Bools
    """The command missed its deadline."""
    missing: Bools
    """Any of these: there is no usable command."""
    limited: Bools
    """A command outside position or effort limits, or one that cannot stop before them."""
    jerked: Bools
    """A command that changes too fast."""
    outside: Bools
    """A joint measured outside its position range."""
    too_fast: Bools
    """A joint measured above its speed limit."""
    lagging: Bools
    """A joint too far from its commanded position."""
    kept: Bools
    """There is a command and it keeps every limit."""
    excess: Array
    """Greatest amount by which the command exceeds a limit [rad, m, N·m or N], 0 where it keeps them all."""


class BoundedColumns:
    """Groups of values side by side, one row per world, each with a lower and an upper bound."""

    def __init__(self, num_worlds: int, lower: Sequence[Array], upper: Sequence[Array]) -> None:
        """One group per pair of bounds."""
        ends = np.cumsum([0, *(len(bound) for bound in lower)]).tolist()
        self._parts = [slice(start, end) for start, end in pairwise(ends)]
        # One row, so that one world needs no broadcasting, which takes longer than the comparison.
        self._lower, self._upper = np.concatenate(lower)[None], np.concatenate(upper)[None]
        self.row: Array = np.zeros((num_worlds, ends[-1]))
        self.views: list[Array] = [self.row[:, part] for part in self._parts]
        # Searching for a zero byte takes 1/50 of the time of `np.all` for the few values of one robot.
        self._verdicts = bytearray(2 * self.row.size)
        self._below, self._above = np.frombuffer(self._verdicts, bool).reshape(2, *self.row.shape)

    def compare(self) -> bool:
        """Whether every number in every world is allowed."""
        np.less_equal(self.row, self._upper, out=self._below)
        np.greater_equal(self.row, self._lower, out=self._above)
        return 0 not in self._verdicts

    def good(self) -> list[Bools]:
        """Whether all numbers of each group are, shape (num_worlds,) each; after `compare`."""
        good = self._below & self._above
        return [every(good[:, part]) for part in self._parts]

    def finite(self) -> list[Bools]:
        """Whether all numbers of each group are finite, shape (num_worlds,) each."""
        finite = np.isfinite(self.row)
        return [every(finite[:, part]) for part in self._parts]

    def excess(self, group: int) -> Array:
        """Greatest amount by which a number of a group is not allowed, 0 if all are, shape (num_worlds,)."""
        part = self._parts[group]
        row = self.row[:, part]
        over = np.maximum(row - self._upper[:, part], self._lower[:, part] - row)
        return np.nan_to_num(over, nan=np.inf, posinf=np.inf).max(axis=1, initial=0.0)


class SensorColumns:
    """Measurements of a period, and whether they are valid."""

    def __init__(self, contract: PolicyContract, limits: GuardLimits, num_worlds: int) -> None:
        """Create the columns, without a sample."""
        ranges = _needed_ranges(contract)
        low = np.array([-UNLIMITED if x is None else x for one in ranges for x in one.lower])
        high = np.array([UNLIMITED if x is None else x for one in ranges for x in one.upper])
        columns = BoundedColumns(
            num_worlds,
            [limits.position_lower, -limits.speed, -limits.mismatch, -limits.mismatch, low],
            [limits.position_upper, limits.speed, limits.mismatch, limits.mismatch, high],
        )
        self._columns = columns
        self.positions, self.velocities, step, residual, extra = columns.views
        starts = np.cumsum([0, *(len(one.lower) for one in ranges)]).tolist()
        self._ranges = [(one.name, extra[:, a:b]) for one, (a, b) in zip(ranges, pairwise(starts), strict=True)]
        self._both = columns.row[:, : 2 * len(limits.speed)]
        self._consistency: ConsistencyWatch | None = None
        if (limits.mismatch < UNLIMITED).any():
            self._consistency = ConsistencyWatch(contract, limits, step, residual)
        self._frozen: FrozenWatch | None = None
        if contract.safety.frozen_samples is not None:
            self._frozen = FrozenWatch(contract.safety.frozen_samples, limits, num_worlds)
        self._watched = self._consistency is not None or self._frozen is not None
        self._step = step
        self.contradiction: tuple[int, float] | None = None
        """Joint whose position last changed by more than its velocity explains, and by how much more [rad or m], of the
        first world; None before the first."""
        self._seen_s = np.full(num_worlds, -np.inf)
        self._all, self._none = np.ones(num_worlds, bool), np.zeros(num_worlds, bool)
        self.calm = False
        """Whether every world's sample is valid and shows every joint within its limits."""
        self.valid: Bools = self._none
        """Whether the sample is valid, its age not considered, shape (num_worlds,)."""

    def reset(self, rows: Bools) -> None:
        """Discard earlier samples of these worlds."""
        self._seen_s[rows] = -np.inf
        for watch in (self._consistency, self._frozen):
            if watch is not None:
                watch.reset(rows)

    def begin_again(self, rows: Bools) -> None:
        """Accept a new stream in these worlds, if the one so far has jumped and stays rejected."""
        if self._consistency is not None:
            self._consistency.begin_again(rows)

    def commanded(self, rows: Bools, command: Array) -> None:
        """Record commands, shape (num_worlds, A), that say where these robots are instead of moving them."""
        if self._frozen is not None:
            self._frozen.commanded(rows, command)

    def read(
        self, stamp_s: Array, joint_pos: Floats, joint_vel: Floats, sensors: Mapping[str, Floats], last: Array
    ) -> None:
        """Store a sample; see `Guard.observe`. `last` is the command sent last, shape (num_worlds, A)."""
        _put(self.positions, joint_pos, "joint_pos")
        _put(self.velocities, joint_vel, "joint_vel")
        for name, view in self._ranges:
            if name in ("joint_pos", "joint_vel"):
                view[...] = self.positions if name == "joint_pos" else self.velocities
            elif name in sensors:
                _put(view, sensors[name], name)
            else:
                raise GuardError(f"the contract bounds the sensor {name!r}, which is not among {', '.join(sensors)}")
        if self._watched:
            self._watch(stamp_s, last)
            return
        self.calm = self._columns.compare()
        self.valid = self._all if self.calm else self._valid()

    def _watch(self, stamp_s: Array, last: Array) -> None:
        """Compare the sample with its bounds and with earlier samples."""
        fresh = stamp_s != self._seen_s
        self._seen_s[...] = stamp_s
        if self._frozen is not None:
            self._frozen.read(fresh, self._both, last)
        if self._consistency is not None:
            self._consistency.read(fresh, stamp_s, self.positions, self.velocities)
        self.calm = self._columns.compare() and not (self._frozen is not None and self._frozen.frozen.any())
        self.valid = self._all if self.calm else self._valid()
        if self._consistency is None:
            return
        if self.calm:
            self._consistency.accept(fresh, stamp_s, self.positions, self.velocities)
            return
        finite, agrees = self.finite(), self._agrees()
        if finite[0] and not agrees[0]:
            joint = int(np.abs(self._step[0]).argmax())
            if np.isfinite(self._step[0, joint]):
                self.contradiction = joint, float(self._step[0, joint])
        self._consistency.accept(fresh & agrees, stamp_s, self.positions, self.velocities)
        self._consistency.refuse(fresh & finite & ~agrees, stamp_s)

    def _valid(self) -> Bools:
        *_, ranges = self._columns.good()
        return self._agrees() & ranges & ~self.frozen

    def _agrees(self) -> Bools:
        """Whether positions and velocities are finite and consistent with each other, shape (num_worlds,)."""
        _, _, step, residual, _ = self._columns.good()
        return self.finite() & step & residual

    @property
    def frozen(self) -> Bools:
        """Whether the sensor values have stopped changing, shape (num_worlds,)."""
        return self._none if self._frozen is None else self._frozen.frozen

    def good(self) -> list[Bools]:
        """See `BoundedColumns.good`."""
        return self._columns.good()

    def finite(self) -> Bools:
        """Whether positions and velocities are finite, shape (num_worlds,)."""
        return every(np.isfinite(self._both))


class CommandColumns:
    """Commands of a period, and their effect on the joints."""

    def __init__(self, contract: PolicyContract, limits: GuardLimits, num_worlds: int) -> None:
        """Create the columns, without a command."""
        self._limits, self._num_worlds = limits, num_worlds
        timing, slack = contract.timing, limits.slack
        # Clock offsets of less than a period may put a sensor stamp in the future; commands use the local clock.
        self.youngest_s, self.oldest_s = -timing.control_dt, timing.max_observation_age_s + CLOCK_S
        rate, change = _plus(limits.rate, slack), _plus(limits.change, 2.0 * slack)
        self._bends = bool((limits.change < UNLIMITED).any())
        # Without a limit on changes no position to stop at is computed.
        stops = limits.holds_position & self._bends
        stop_lower = np.where(stops, limits.lower - slack, -UNLIMITED)
        stop_upper = np.where(stops, limits.upper + slack, UNLIMITED)
        low, high = limits.lower - slack, limits.upper + slack
        self._columns = BoundedColumns(
            num_worlds,
            [_one(self.youngest_s), _one(-CLOCK_S), low, -rate, -change, stop_lower, -limits.following, -limits.effort],
            [
                _one(self.oldest_s),
                _one(timing.control_dt + CLOCK_S),
                high,
                rate,
                change,
                stop_upper,
                limits.following,
                limits.effort,
            ],
        )
        age, command_age, self.command, self._rate, self._bend, self._stop, self._lag, self._efforts = (
            self._columns.views
        )
        self._age, self._command_age = age[:, 0], command_age[:, 0]
        self._outputs = [(name, self.command[:, part]) for name, part in limits.slices.items()]
        self._joints, self._servos = _span(limits.joints), _span(limits.servos)
        self._half_per_change = 0.5 / limits.change
        self._zero = np.zeros(num_worlds)
        self._follows = bool((limits.following < UNLIMITED).any())

    def read(self, targets: Mapping[str, Floats], age_s: float | Array) -> None:
        """Store the policy's commands; see `Guard.decide`."""
        self._put_time(self._command_age, age_s, "command_age_s")
        for name, row in self._outputs:
            if name not in targets:
                raise GuardError(f"no command {name!r} among {', '.join(targets) or 'none'}")
            _put(row, targets[name], name)

    def repeat(self, last: Array) -> None:
        """Store the last command, shape (num_worlds, A), if there is no new one."""
        self._command_age[...] = 0.0
        self.command[...] = last

    def read_age(self, age_s: float | Array) -> None:
        """Store the age of the sample [s]."""
        self._put_time(self._age, age_s, "now_s - sensor_stamp_s")

    def _put_time(self, column: Array, value: float | Array, label: str) -> None:
        if isinstance(value, np.ndarray) and value.shape != (self._num_worlds,):
            raise GuardError(f"{label} has shape {value.shape}, expected a number or ({self._num_worlds},)")
        column[...] = value

    @property
    def recent(self) -> Bools:
        """Whether the sample is of the right age, shape (num_worlds,)."""
        return (self._age >= self.youngest_s) & (self._age <= self.oldest_s)

    def compare(self, last: Array, step: Array, positions: Array, velocities: Array) -> bool:
        """Whether every number in every world is allowed.

        Args:
            last: the command sent last, shape (num_worlds, A).
            step: its change from the one before, shape (num_worlds, A).
            positions: measured, shape (num_worlds, J).
            velocities: measured, shape (num_worlds, J).
        """
        limits = self._limits
        np.subtract(self.command, last, out=self._rate)
        if self._bends:
            np.subtract(self._rate, step, out=self._bend)
            # v·|v| / 2a slightly exceeds the stopping distance; `judge` computes it exactly where this bound fails.
            ahead = np.multiply(np.abs(self._rate, out=self._stop), self._rate, out=self._stop)
            ahead *= self._half_per_change
            ahead += self.command
        if self._follows:
            np.subtract(last, positions[:, self._joints], out=self._lag)
        if self._efforts.size:
            servos, joints = self._servos, limits.joints[limits.servos]
            lead = self.command[:, servos] - positions[:, joints]
            np.subtract(limits.stiffness * lead, limits.damping * velocities[:, joints], out=self._efforts)
        return self._columns.compare()

    def judge(self, sensors: SensorColumns, late: Bools) -> SampleFindings:
        """Return the faults after `compare`; `late`: worlds whose command missed its deadline, shape (num_worlds,)."""
        if self._bends:
            np.add(self.command, braking_distance(self._rate, self._limits.change), out=self._stop)
            self._columns.compare()
        age, command_age, bounds, rate, bend, stop, lag, efforts = self._columns.good()
        finite = every(np.isfinite(self.command))
        position, speed, step, residual, ranges = sensors.good()
        measured, stale = sensors.finite(), ~age
        blind = ~sensors.valid | stale
        missing = blind | late | ~finite | ~command_age
        limited = ~(bounds & stop & efforts) & ~missing
        jerked = ~(rate & bend) & ~missing
        # A sample that is invalid for a reason other than its age flags that reason alone.
        return SampleFindings(
            unmeasured=~measured,
            stale=stale,
            implausible=~ranges & measured,
            contradicts=~(step & residual) & measured,
            frozen=sensors.frozen,
            blind=blind,
            not_finite=~finite,
            outdated=~command_age,
            late=late,
            missing=missing,
            limited=limited,
            jerked=jerked,
            outside=~(position | blind),
            too_fast=~(speed | blind),
            lagging=~(lag | blind),
            kept=~(missing | limited | jerked),
            excess=np.where(limited | jerked, self._excess(), 0.0) if (limited | jerked).any() else self._zero,
        )

    def _excess(self) -> Array:
        """Amount by which the command exceeds its bounds or its rate, slack included."""
        return np.maximum.reduce([self._columns.excess(group) for group in _COMMAND_GROUPS])


_COMMAND_GROUPS = (2, 3, 4, 5, 7)
"""Groups of `CommandColumns` that are commands: bounds, rate, change of rate, stopping position, servo effort."""


def _one(value: float) -> Array:
    return np.array([value])


def _plus(limits: Array, slack: Array) -> Array:
    """Widen limits by the rounding tolerance; UNLIMITED stays UNLIMITED."""
    return np.where(limits < UNLIMITED, limits + slack, UNLIMITED)


def _needed_ranges(contract: PolicyContract) -> list[SensorRange]:
    """Ranges of the sensors that the policy or the guard reads."""
    read = {*graph_interface(contract).sensors, "joint_pos", "joint_vel"}
    return [one for one in contract.safety.sensor_ranges or () if one.name in read]


def _put(row: Array, values: Floats, label: str) -> None:
    if values.shape != row.shape:
        raise GuardError(f"{label} has shape {values.shape}, expected {row.shape}")
    row[...] = values


def _span(indices: npt.NDArray[np.intp]) -> slice | npt.NDArray[np.intp]:
    """Return consecutive indices as a slice, which indexes without a copy."""
    first = int(indices[0]) if len(indices) else 0
    consecutive = np.array_equal(indices, np.arange(first, first + len(indices)))
    return slice(first, first + len(indices)) if consecutive else indices
