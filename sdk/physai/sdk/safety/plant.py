"""Plausibility of a sequence of samples: frozen, jumping or contradictory sensors, and rest.

The velocity check is a leaky residual: the change of the measured position minus the integral of the measured velocity
(trapezoidal rule), with the time constant `WINDOW_S`. Both a position step and a dead velocity channel show in it. A
sample that jumps does not become the reference for the next one, so a spike costs one sample. Sensors that disagree for
longer than the maximum age of a sample have slipped and stay invalid until a reset. Non-finite samples are ignored;
after a silence of that length the check starts again.
"""

import math

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import UNLIMITED, Array, GuardLimits

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]


def every(values: Bools) -> Bools:
    """Return whether all values of a row are True, shape (n,)."""
    result: Bools = np.logical_and.reduce(values, axis=1)
    return result


WINDOW_S = 0.25
"""Time constant with which a difference between position and velocity is forgotten [s]."""

FROZEN_TRAVEL = 0.01
"""Change of a commanded position that a sensor must reflect [rad or m]: thousands of encoder increments."""

FROZEN_EFFORT_SHARE = 0.1
"""Share of the effort limit above which an effort command counts as a command to move."""


class FrozenWatch:
    """Detects frozen sensors: new stamps with bit-equal values while the robot is commanded to move."""

    def __init__(self, samples: int, limits: GuardLimits, num_worlds: int) -> None:
        """Create the detector; `samples` consecutive bit-equal samples are frozen."""
        self._samples, self._limits = samples, limits
        self._values = np.full((num_worlds, 2 * len(limits.speed)), math.nan)
        self._bytes = b""
        self._command_then = np.zeros((num_worlds, len(limits.joints)))
        self._equal, self._travelled = np.zeros((2, num_worlds), bool)
        self._moved, self._pushed = np.zeros((2, num_worlds), np.int64)
        self._counts = False
        self.frozen = np.zeros(num_worlds, bool)

    def reset(self, rows: Bools) -> None:
        """Discard the samples of these worlds."""
        self._values[rows] = math.nan
        if rows.any():
            self._bytes = b""
        for array in (self._equal, self._travelled, self._moved, self._pushed, self.frozen):
            array[rows] = 0

    def commanded(self, rows: Bools, command: Array) -> None:
        """Take these commands, shape (n, A), as the ones from which travel counts in these worlds."""
        self._command_then[rows] = command[rows]
        self._travelled[rows] = False
        self._moved[rows] = self._pushed[rows] = 0

    def read(self, fresh: Bools, values: Array, command: Array) -> None:
        """Process positions and velocities, shape (n, 2·J), and the command sent last, shape (n, A)."""
        # Fast path of one robot with no equal samples yet: comparing bytes takes a tenth of the time.
        if len(values) == 1 and not self._counts:
            data = values.tobytes()
            if data != self._bytes:
                if fresh[0]:
                    self._bytes = data
                return
            self._values[...] = values
        self._count(fresh, values, command)
        self._counts = bool(self._equal.any())
        if not self._counts:
            self._bytes = self._values.tobytes()

    def _count(self, fresh: Bools, values: Array, command: Array) -> None:
        limits = self._limits
        equal = every(values.view(np.int64) == self._values.view(np.int64))
        self._values[fresh] = values[fresh]
        begins = fresh & ~(equal & self._equal)
        self._command_then[begins] = command[begins]
        travels = (limits.holds_position & ~(np.abs(command - self._command_then) <= FROZEN_TRAVEL)).any(axis=1)
        travelled = equal & (self._travelled | travels)
        pushed = (~limits.holds_position & ~(np.abs(command) <= FROZEN_EFFORT_SHARE * limits.hard_upper)).any(axis=1)
        self._equal[fresh], self._travelled[fresh] = equal[fresh], travelled[fresh]
        for count, happens in ((self._moved, travelled), (self._pushed, equal & pushed)):
            count[fresh] = np.where(happens, count + 1, 0)[fresh]
        self.frozen[...] = (self._moved >= self._samples) | (self._pushed >= self._samples)


class ConsistencyWatch:
    """Compares the change of positions with the velocities; the caller compares the columns with their bounds."""

    def __init__(self, contract: PolicyContract, limits: GuardLimits, step: Array, residual: Array) -> None:
        """Create the check, without samples.

        Args:
            contract: names the sensors.
            limits: of the contract.
            step: view into which the unexplained step of each joint is written, shape (n, J).
            residual: view into which the leaky sum of them is written, shape (n, J).
        """
        self._step, self._residual = step, residual
        self._measured = any(sensor.name == "joint_vel" for sensor in contract.robot.sensors)
        # Without a velocity sensor a step is what the joint cannot have moved in the time.
        self._free = np.where(limits.mismatch < UNLIMITED, np.minimum(limits.speed, 1e6), 0.0)
        self._continuous = np.array([joint.kind == "continuous" for joint in contract.robot.joints])
        self._turns = bool(self._continuous.any())
        self._gap_s = contract.timing.max_observation_age_s + contract.timing.control_dt
        self._position, self._velocity, self._kept, self._room, self._mean = _rows(5, step.shape)
        self._stamp_s: Array = np.full(len(step), -math.inf)
        self._seen_s: Array = self._stamp_s.copy()
        self._lost = np.zeros(len(step), bool)

    def reset(self, rows: Bools) -> None:
        """Discard the samples of these worlds."""
        self._stamp_s[rows] = self._seen_s[rows] = -math.inf
        self._lost[rows] = False
        self._step[rows] = self._residual[rows] = 0.0

    def begin_again(self, rows: Bools) -> None:
        """Discard the samples of these worlds where they disagreed for too long."""
        lost = rows & self._lost
        if lost.any():
            self.reset(lost)

    def read(self, fresh: Bools, stamp_s: Array, position: Array, velocity: Array) -> None:
        """Write the columns of a sample; those of worlds without a new stamp are unchanged."""
        if len(stamp_s) == 1:
            # Not by `_seen_s`, which a sample that is not finite leaves unchanged.
            if fresh[0]:
                self._read_one(float(stamp_s[0]), position, velocity)
            return
        gap, elapsed = stamp_s - self._seen_s, stamp_s - self._stamp_s
        known = (gap <= self._gap_s) & (gap > 0.0) & (elapsed < math.inf)
        step, residual = self._differences(np.where(known, elapsed, 0.0)[:, None], position, velocity)
        begins, lost, rows = ~known[:, None], self._lost[:, None], fresh[:, None]
        for column, values in ((self._step, step), (self._residual, residual)):
            np.copyto(column, np.where(lost, math.inf, np.where(begins, 0.0, values)), where=rows)

    def _read_one(self, stamp_s: float, position: Array, velocity: Array) -> None:
        """The same for one world, in a quarter of the time."""
        gap, elapsed = stamp_s - self._seen_s.item(), stamp_s - self._stamp_s.item()
        if self._lost[0]:
            self._step[...] = self._residual[...] = math.inf
        # After a gap, or a clock adjustment, there is no reference: the check starts again.
        elif not (0.0 < gap <= self._gap_s and elapsed < math.inf):
            self._step[...] = self._residual[...] = 0.0
        else:
            self._step[...], self._residual[...] = self._differences(elapsed, position, velocity)

    def _differences(self, elapsed: Array | float, position: Array, velocity: Array) -> tuple[Array, Array]:
        """Return the unexplained steps since the previous sample, and their leaky sum."""
        step = np.subtract(position, self._position, out=self._room)
        if self._turns and not np.vdot(step, step) <= math.pi**2:
            short = np.remainder(step + math.pi, 2.0 * math.pi) - math.pi
            np.copyto(step, short, where=self._continuous & (np.abs(step) > math.pi))
        if not self._measured:
            allowed = self._free * elapsed
            step -= np.minimum(np.maximum(step, -allowed), allowed)
            return step, step
        mean = np.add(velocity, self._velocity, out=self._mean)
        mean *= 0.5 * elapsed
        step -= mean
        kept = 1.0 - elapsed / WINDOW_S
        mean = np.multiply(
            self._kept, np.maximum(kept, 0.0) if isinstance(kept, np.ndarray) else max(kept, 0.0), out=mean
        )
        mean += step
        return step, mean

    def accept(self, rows: Bools, stamp_s: Array, position: Array, velocity: Array) -> None:
        """Use these samples as the reference for the next ones."""
        if 0 not in rows.tobytes():
            self._position[...], self._velocity[...] = position, velocity
            self._stamp_s[...] = self._seen_s[...] = stamp_s
            self._kept[...] = self._residual
            return
        self._position[rows], self._velocity[rows] = position[rows], velocity[rows]
        self._stamp_s[rows] = self._seen_s[rows] = stamp_s[rows]
        self._kept[rows] = self._residual[rows]

    def refuse(self, rows: Bools, stamp_s: Array) -> None:
        """Record samples whose columns exceed their bounds."""
        self._seen_s[rows] = stamp_s[rows]
        self._lost |= rows & (stamp_s - self._stamp_s > self._gap_s)


def _rows(count: int, shape: tuple[int, ...]) -> list[Array]:
    return [np.zeros(shape) for _ in range(count)]


class RestWatch:
    """Detects rest from velocities and positions: no joint has moved away from where its rest began.

    A sample may be read in several periods until a newer one arrives, with the same result each time.
    """

    def __init__(self, contract: PolicyContract, limits: GuardLimits, num_worlds: int) -> None:
        """Create the detector, with no joint at rest."""
        self._limits = limits
        self._continuous = np.array([joint.kind == "continuous" for joint in contract.robot.joints])
        self._anchor = np.zeros((num_worlds, len(limits.speed)))
        self._stamp_s: Array = np.full(num_worlds, -math.inf)
        self._rested, self._rests = np.zeros((2, num_worlds), bool)
        self.repeated = np.zeros(num_worlds, bool)
        """Whether the sample was read before, and proves nothing again, shape (n,)."""

    def reset(self, rows: Bools) -> None:
        """Discard the samples of these worlds."""
        self._rested[rows] = self._rests[rows] = False
        self._stamp_s[rows] = -math.inf

    def read(self, stamp_s: Array, position: Array, velocity: Array, valid: Bools) -> Bools:
        """Whether each world rests, shape (n,); call it once in each period."""
        slow = valid & every(np.abs(velocity) <= self._limits.still)
        # If the clock was set back, or samples arrive out of order, the rest period starts again.
        lasts = self._rested & (stamp_s >= self._stamp_s)
        stays = lasts & every(np.abs(self._travel(position)) <= self._limits.still_travel)
        begins = slow & ~stays
        self.repeated = stamp_s == self._stamp_s
        self._rests = slow & stays & (self._rests | ~self.repeated)
        self._anchor[begins] = position[begins]
        self._rested = slow
        self._stamp_s[...] = stamp_s
        return self._rests

    def _travel(self, position: Array) -> Array:
        """Return the distance from where the rest began; for continuous joints the shorter way round."""
        travel = position - self._anchor
        return np.where(self._continuous, np.remainder(travel + math.pi, 2.0 * math.pi) - math.pi, travel)
