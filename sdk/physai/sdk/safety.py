"""The guard between a policy and its joints: the very same code in the twin and on the robot.

It comes after everything else, its own fallback included, and looks first whether numbers are numbers: NaN passes
`np.clip`, `min`, `max` and `x > limit`, so every comparison asks for what is allowed, never for what is not.

States, by what is true of the machine; they only rise until `reset`:

- RUN: the policy's commands reach the joints, inside the contract's limits. Where one is missing the last one is
  repeated, at most `max_reused_commands` control periods on end.
- HOLD: position-commanded joints keep their last command. Effort-commanded joints are braked by -d·v, which the
  command approaches no faster than the contract's rate.
- DAMP: position-commanded joints follow their own measured position, which leaves their servo's damping alone.
  Effort-commanded joints get -d·v at once. Without sound measurements: last position, effort 0.
- ESTOP: as DAMP. Whoever runs the guard takes the power away. The stop is believed (`GuardResult.stopped`) only when
  every joint has been measured at rest for a while, never because it was asked for.

What raises the state: commands missing for too long (HOLD, later DAMP); a joint measured outside its range or above
its speed (DAMP); DAMP without effect, a stop asked for, or a position command that would rest on no measurement at
all (ESTOP).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

from physai.sdk.contract import PolicyContract
from physai.sdk.guard_limits import UNLIMITED, Array, GuardError, guard_limits
from physai.sdk.guard_sample import Bools, Findings, Floats, Sample

Flags = npt.NDArray[np.uint32]

HOLD_S = 0.5
"""Longest time in HOLD without a fresh command [s]: whoever computes them is gone, and legs cannot stand blind."""

EFFECT_S = 1.0
"""Time DAMP has to bring joints below their speed limit, or sensors back, before it is an emergency [s]."""

TOLERATED_SAMPLES = 2
"""Samples on end outside a position range or above a speed that do not yet brake: a spike is no motion."""

STILL_S = 0.25
"""Time for which every joint must be measured at rest before a stop is believed [s]: longer than a pendulum lingers
at its turning point."""

CONFIRM_S = 2.0
"""Time after which an emergency stop that was not read back is reported [s]."""


class GuardState(IntEnum):
    """How far the guard has taken over; see the module."""

    RUN = 0
    HOLD = 1
    DAMP = 2
    ESTOP = 3


class Reason(IntFlag):
    """What is wrong, one bit each."""

    SENSOR_NOT_FINITE = 1
    """A measured position or velocity is NaN or infinite."""
    SENSOR_STALE = 2
    """The sample is older than max_observation_age_s by its own stamp, or from the future."""
    COMMAND_NOT_FINITE = 4
    """A command is NaN or infinite."""
    COMMAND_STALE = 8
    """The command was computed more than a control period ago."""
    DEADLINE_MISSED = 16
    """There is no command of this control period in time."""
    COMMAND_LIMIT = 32
    """A command outside the limits on position or effort."""
    COMMAND_RATE = 64
    """A command that changes faster than the contract lets it: effort per period (jerk), position per period."""
    JOINT_POSITION = 128
    """A joint measured outside its range by more than the margin."""
    JOINT_VELOCITY = 256
    """A joint measured above its speed limit."""
    STOP_REQUESTED = 512
    """An emergency stop was asked for."""
    STOP_NOT_CONFIRMED = 1024
    """An emergency stop has not brought the joints to rest in time."""
    NO_REFERENCE = 2048
    """A position had to be commanded before any was measured."""


_FOUND = np.array(
    [
        Reason.SENSOR_NOT_FINITE,
        Reason.SENSOR_STALE,
        Reason.COMMAND_NOT_FINITE,
        Reason.COMMAND_STALE,
        Reason.DEADLINE_MISSED,
        Reason.COMMAND_LIMIT,
        Reason.COMMAND_RATE,
        Reason.JOINT_POSITION,
        Reason.JOINT_VELOCITY,
        Reason.NO_REFERENCE,
    ],
    np.uint32,
)
"""Flags in the order in which `Guard` collects what it found."""

# As numpy compares them, because looking up a member of an enumeration takes longer than the comparison.
_RUN, _HOLD, _DAMP, _ESTOP = (np.uint8(state) for state in GuardState)
_STOP_REQUESTED, _STOP_NOT_CONFIRMED = np.uint32(Reason.STOP_REQUESTED), np.uint32(Reason.STOP_NOT_CONFIRMED)


@dataclass(slots=True)
class GuardResult:
    """What one control period's check decided; the arrays are the caller's to keep, not to write to.

    Not frozen, which would cost a robot's loop a microsecond in every period.
    """

    targets: dict[str, Array]
    """Joint commands by output name, finite and inside the limits, shape (num_worlds, joints of the term)."""
    state: npt.NDArray[np.uint8]
    """GuardState of each world, shape (num_worlds,)."""
    intervened: Bools
    """Whether the policy's command was replaced, limited or missing, shape (num_worlds,)."""
    reasons: Flags
    """Reason flags of this control period, shape (num_worlds,). A measurement outside its limits is flagged from the
    first sample on, whether or not the guard intervenes yet."""
    causes: Flags
    """Reason flags of the control periods in which the state rose, shape (num_worlds,); 0 in RUN."""
    stopped: Bools
    """Whether an emergency stop has been read back: every joint measured at rest, shape (num_worlds,)."""


class Guard:
    """Checks and limits the joint commands of many worlds at once; one row of every array is one world.

    Rows never meet: n worlds in one guard are n guards of one world, bit for bit.
    """

    def __init__(self, contract: PolicyContract, num_worlds: int = 1) -> None:
        """A guard in RUN.

        Args:
            contract: gives every limit.
            num_worlds: robots it guards; one on a robot.

        Raises:
            GuardError: no worlds, or the contract leaves a joint no command.
        """
        if num_worlds < 1:
            raise GuardError(f"a guard needs at least one world, got {num_worlds}")
        self.limits = guard_limits(contract)
        self.num_worlds = num_worlds
        self._sample = Sample(contract, self.limits, num_worlds)
        self._reused = contract.safety.max_reused_commands
        self._hold, self._effect, self._still, self._confirm = (
            math.ceil(duration / contract.timing.control_dt) for duration in (HOLD_S, EFFECT_S, STILL_S, CONFIRM_S)
        )
        self._last = np.zeros((num_worlds, len(self.limits.joints)))
        self._state = np.zeros(num_worlds, np.uint8)
        self._causes = np.zeros(num_worlds, np.uint32)
        self._unreferenced = np.zeros(num_worlds, bool)
        # Control periods on end: command missing, joint out of limits, DAMP without effect, at rest, in ESTOP.
        self._missed, self._violated, self._vain, self._rested, self._stopping = np.zeros((5, num_worlds), np.int64)
        self._no = np.zeros(num_worlds, bool)
        self._run = np.zeros(num_worlds, np.uint8)
        self._nothing = np.zeros(num_worlds, np.uint32)
        for constant in (self._no, self._run, self._nothing):
            constant.flags.writeable = False
        self.reset()

    def reset(self, mask: Bools | None = None) -> None:
        """Returns the masked worlds (all if None) to RUN: when an episode begins, or an operator lets it run again.

        The next command starts from effort 0 and from the measured position.

        Raises:
            GuardError: the mask has another shape than (num_worlds,).
        """
        rows = np.ones(self.num_worlds, bool) if mask is None else np.asarray(mask, bool)
        if rows.shape != (self.num_worlds,):
            raise GuardError(f"reset mask has shape {rows.shape}, expected ({self.num_worlds},)")
        self._last[rows] = self.limits.rest
        self._unreferenced[rows] = self.limits.holds_position.any()
        for ticks in (self._missed, self._violated, self._vain, self._rested, self._stopping):
            ticks[rows] = 0
        self._state[rows] = _RUN
        self._causes[rows] = 0
        self._settle()

    def check(
        self,
        *,
        now_s: float | Array,
        sensor_stamp_s: float | Array,
        joint_pos: Floats,
        joint_vel: Floats,
        targets: Mapping[str, Floats] | None,
        command_age_s: float | Array = 0.0,
        deadline_missed: bool | Bools = False,
        stop: bool | Bools = False,
    ) -> GuardResult:
        """Decides what goes to the joints in this control period; call it once in each.

        Args:
            now_s: time at which the command goes out [s], one for all worlds or shape (num_worlds,).
            sensor_stamp_s: when the sample that the command rests on was taken, by the sensor's own stamp on the same
                clock [s]; never the time at which it arrived. One for all, or shape (num_worlds,).
            joint_pos: positions of that sample, robot's joint order [rad or m], shape (num_worlds, joints).
            joint_vel: its velocities, shape (num_worlds, joints).
            targets: the policy's commands by output name, shape (num_worlds, joints of the term); None if there are
                none in any world, which is a missed deadline.
            command_age_s: time since they were computed [s]; older than a control period counts as missing.
            deadline_missed: whether they came too late; one for all, or shape (num_worlds,).
            stop: whether an emergency stop is asked for, likewise.

        Raises:
            GuardError: a vector of another shape than the contract's, or an output that is missing.
        """
        with np.errstate(all="ignore"):
            self._sample.read(now_s, sensor_stamp_s, joint_pos, joint_vel)
            return self._check(targets, command_age_s, deadline_missed, stop)

    def _check(
        self,
        targets: Mapping[str, Floats] | None,
        command_age_s: float | Array,
        deadline_missed: bool | Bools,
        stop: bool | Bools,
    ) -> GuardResult:
        """Decides on the sample that was read; numpy's floating-point warnings are off."""
        sample = self._sample
        late = self._flags(targets is None or deadline_missed, "deadline_missed")
        halt = self._flags(stop, "stop")
        if targets is None:
            sample.repeat(self._last)
        else:
            sample.read_command(targets, command_age_s)
        if self._starting:
            self._start()
        if sample.compare(self._last) and self._calm and late is None and halt is None:
            self._last[...] = sample.command
            return self._result(self._last.copy())
        return self._decide(sample.judge(self._no if late is None else late), halt)

    def _flags(self, value: bool | Bools, label: str) -> Bools | None:
        """None where no world is flagged, else shape (num_worlds,)."""
        if isinstance(value, np.ndarray):
            if value.shape != (self.num_worlds,):
                raise GuardError(f"{label} has shape {value.shape}, expected ({self.num_worlds},)")
            return value if value.any() else None
        return np.ones(self.num_worlds, bool) if value else None

    def _start(self) -> None:
        """Commands of worlds that have had none start where the joints are measured, as the graph's do."""
        limits, sound = self.limits, self._sample.sound
        first = self._unreferenced & sound
        measured = np.clip(self._sample.position, limits.lower, limits.upper)
        self._last[first] = np.where(limits.holds_position, measured, self._last)[first]
        self._unreferenced &= ~sound
        self._starting = bool(self._unreferenced.any())

    def _settle(self) -> None:
        """Notes whether every world is in RUN with nothing to remember, so that a sound sample needs no more work."""
        self._starting = bool(self._unreferenced.any())
        self._calm = not (self._state.any() or self._missed.any() or self._violated.any())

    def _result(self, commands: Array) -> GuardResult:
        """The policy's own commands in every world."""
        return GuardResult(self._by_output(commands), self._run, self._no, self._nothing, self._nothing, self._no)

    def _by_output(self, commands: Array) -> dict[str, Array]:
        return {name: commands[:, part] for name, part in self.limits.slices.items()}

    def _decide(self, found: Findings, halt: Bools | None) -> GuardResult:
        """Raises states, then commands what they ask for, inside the limits."""
        before = self._state.copy()
        reasons = self._reasons(found)
        stopped = self._advance(found, halt, reasons)
        run = self._state == _RUN
        commands = self._limit(self._wanted(found, run), found, run)
        # A command that keeps every limit goes out as it is, not as `last + (command - last)`.
        obeyed = run & found.kept
        commands = np.where(obeyed[:, None], self._sample.command, commands)
        self._last[...] = commands
        self._causes |= np.where(self._state > before, reasons, np.uint32(0))
        self._settle()
        return GuardResult(
            self._by_output(commands), self._state.copy(), ~obeyed, reasons, self._causes.copy(), stopped
        )

    def _reasons(self, found: Findings) -> Flags:
        # Against the guard's own command the policy's, which no longer counts, proves nothing.
        heard = self._state == _RUN
        wrong = (
            found.unmeasured,
            found.stale,
            found.not_finite,
            found.outdated,
            found.late,
            found.limited & heard,
            found.jerked & heard,
            found.outside,
            found.too_fast,
            self._unreferenced,
        )
        return _FOUND @ np.array(wrong)

    def _advance(self, found: Findings, halt: Bools | None, reasons: Flags) -> Bools:
        """Counts what is wrong and raises states; returns where a stop has been read back."""
        state = self._state
        _count(self._missed, found.missing)
        # A blind sample neither shows a violation nor ends one.
        _count(self._violated, found.outside | found.too_fast, keep=found.blind)
        _raise(state, _HOLD, self._missed > self._reused)
        _raise(state, _DAMP, (self._missed > self._reused + self._hold) | (self._violated > TOLERATED_SAMPLES))
        if self._starting:
            _raise(state, _ESTOP, self._unreferenced)
            self._unreferenced[:] = False
        if halt is not None:
            reasons[halt] |= _STOP_REQUESTED
            _raise(state, _ESTOP, halt)
        damping = state >= _DAMP
        if not damping.any():
            return self._no
        _count(self._vain, damping & (found.blind | found.too_fast))
        _raise(state, _ESTOP, self._vain > self._effect)
        emergency = state == _ESTOP
        slow = (np.abs(self._sample.velocities) <= self.limits.still).all(axis=1)
        _count(self._rested, emergency & slow & ~found.blind)
        _count(self._stopping, emergency)
        stopped = self._rested >= self._still
        reasons[~stopped & (self._stopping > self._confirm)] |= _STOP_NOT_CONFIRMED
        return stopped

    def _wanted(self, found: Findings, run: Bools) -> Array:
        """What the state asks for, before limits: the policy's command, the last one, or the fallback."""
        limits, sample = self.limits, self._sample
        follow = (self._state >= _DAMP) & ~found.blind
        hold = np.where(follow[:, None], sample.position, self._last)
        brake = np.where(found.blind[:, None], 0.0, -limits.brake * sample.velocity)
        fallback = np.where(limits.holds_position, hold, brake)
        own = np.where(found.missing[:, None], self._last, sample.command)
        return np.where(run[:, None], own, fallback)

    def _limit(self, commands: Array, found: Findings, run: Bools) -> Array:
        """Rate, then servo effort, then position and effort bounds, of whatever is commanded.

        The rate does not delay braking effort in DAMP: it takes energy out, and must come at once.
        """
        limits = self.limits
        at_once = (self._state >= _DAMP)[:, None] & ~limits.holds_position
        rate = np.where(at_once, UNLIMITED, limits.rate)
        commands = _between(commands, self._last - rate, self._last + rate)
        if len(limits.servos):
            commands[:, limits.servos] = self._within_servo_effort(commands[:, limits.servos], found.blind)
        lower = np.where(run[:, None], limits.lower, limits.hard_lower)
        upper = np.where(run[:, None], limits.upper, limits.hard_upper)
        return _between(commands, lower, upper)

    def _within_servo_effort(self, target: Array, blind: Bools) -> Array:
        """Targets at which kp (target - q) - kd v stays inside the envelope; unchanged where nothing is measured."""
        limits, sample = self.limits, self._sample
        velocity = sample.velocity[:, limits.servos]
        centre = sample.position[:, limits.servos] + limits.damping * velocity / limits.stiffness
        reach = limits.effort / limits.stiffness
        return np.where(blind[:, None], target, _between(target, centre - reach, centre + reach))


def _between(values: Array, lower: Array, upper: Array) -> Array:
    """`np.clip` without its overhead, which is several times the work for a few joints."""
    return np.minimum(np.maximum(values, lower), upper)


def _count(ticks: npt.NDArray[np.int64], happens: Bools, *, keep: Bools | None = None) -> None:
    """Control periods on end in which it happens; counts stand still where `keep`."""
    np.add(ticks, 1, out=ticks, where=happens)
    np.copyto(ticks, 0, where=~happens if keep is None else ~(happens | keep))


def _raise(state: npt.NDArray[np.uint8], least: np.uint8, where: Bools) -> None:
    """States are at least `least` where asked: never lowered."""
    np.maximum(state, least, out=state, where=where)
