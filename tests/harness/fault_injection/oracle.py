"""Test oracle of a control loop: checks commands and answers, from the contract and the order of events.

Every command is finite and within the limits on position, velocity, acceleration, effort and effort rate, relative to
the last command sent; in a period without a command, the commanded positions are constant. In all states but RUN, and
in RUN without a command of the policy, positions brake and then stay, and efforts damp.

The next tick obeys a stop, hold or damp. Motion resumes only after a reset that was requested after the standstill was
published, and a start that was requested after the reset. Every accepted request is answered.

A robot whose samples broke off gets nothing until a start, which begins where its joints are measured then.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tests.harness.fault_injection.oracle_limits import ROUNDING, STILL_S, Bounds, bounds_of
from tests.harness.fault_injection.oracle_report import OracleReport

from physai.deploy_jetson.runtime.commands.queue import MAX_WAITING, Command, RequestTicket
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import ANSWERS, GuardState, RequestAnswer
from physai.sdk.transport.protocol import Array

MAX_REPORTED = 20
_EXACT = 1e-9

LEVELS = {
    Command.STOP: GuardState.PROTECTIVE_STOP,
    Command.HOLD: GuardState.HOLD,
    Command.DAMP: GuardState.DAMP,
    Command.DEACTIVATE: GuardState.HOLD,
    Command.SHUTDOWN: GuardState.HOLD,
}
"""Requests without an answer, and the minimum state that they lead to."""


@dataclass(frozen=True, slots=True)
class TickSeen:
    """Observation of one tick."""

    state: int
    read_back: int
    withheld: bool
    """Whether a fault forbids sending the policy's command."""
    can_send: bool
    """Whether the transport can send commands."""
    broken: bool = False
    """Whether the loop says that the samples broke off."""


@dataclass(slots=True)
class _Asked:
    """A request without an answer so far."""

    ticket: RequestTicket
    made: int
    ticks: int = 0


class CommandOracle:
    """Oracle of one loop."""

    def __init__(self, contract: PolicyContract) -> None:
        """Derives the limits from the contract."""
        self.bounds: Bounds = bounds_of(contract)
        self.verdict = OracleReport()
        self.period = 0
        self.state = int(GuardState.STANDSTILL)
        self.last: Array | None = None
        """Last command sent; None before the first one of an activation."""
        self.step: Array = np.zeros(len(self.bounds.joints))
        """Change of the last command from the previous one."""
        self._broken = False
        timing = contract.timing
        # Twice the age: the newest sample gets too old, and is missing for that long then.
        self._most_unmeasured = 2 * math.ceil(timing.max_observation_age_s / timing.control_dt) + 4
        self._unmeasured = 0
        self._measures_speed = any(sensor.name == "joint_vel" for sensor in contract.robot.sensors)
        self._clock = 0
        self._position: Array = np.zeros(len(contract.robot.joints))
        self._velocity: Array = np.zeros_like(self._position)
        self._first: list[Array] = []
        self._sent: Array | None = None
        self._active = False
        self._new: list[tuple[Command, int]] = []
        self._due = 0
        self._waiting: list[_Asked] = []
        self._begin()

    # Events

    def activated(self) -> None:
        """The loop starts, for an activation requested after all previous requests."""
        self._active, self.last, self._first, self._new = True, None, [], []
        self.step[:] = 0.0
        self.state = int(GuardState.STANDSTILL)
        self._begin()

    def _begin(self) -> None:
        self._stage_reset, self._auto = True, True
        self._reset_made, self._shown_made = self._clock, self._clock
        self._published: int | None = None
        self._retried = self._samples = 0
        self._rested: deque[Array] = deque(maxlen=self.bounds.rest_periods)
        self._unsafe_since: int | None = None
        self._leaves = self._broken = False
        self._unmeasured = 0

    def requested(self, command: Command, ticket: RequestTicket | None) -> None:
        """A request was accepted."""
        self._clock += 1
        if ticket is not None:
            self._waiting.append(_Asked(ticket, self._clock))
            return
        self.verdict.stops += command in (Command.STOP, Command.HOLD, Command.DAMP)
        self._new.append((command, self.period))

    def begins(self, *, skipped: bool) -> None:
        """A period begins, `skipped` if periods without a tick precede it; earlier requests take effect."""
        self.period += 1
        self._samples = 0
        if skipped:
            self.step[:] = 0.0
        new, self._new = self._new, []
        self._due = 0
        for command, made in new:
            if command in (Command.DEACTIVATE, Command.SHUTDOWN):
                # The loop is already ending: another such request changes nothing.
                if self._leaves:
                    continue
                self._leaves = True
            self._due = max(self._due, LEVELS[command])
            self._stopped()
            if self._unsafe_since is None:
                self._unsafe_since = made

    def hears(self, fields: Mapping[str, Array]) -> None:
        """The loop receives a sample."""
        self._samples += 1
        self._retried += self._samples > 1
        self._position = np.array(fields["joint_pos"])
        if np.isfinite(self._position).all():
            self._unmeasured = 0
        if self._measures_speed:
            self._velocity = np.array(fields["joint_vel"])
        if self.last is None:
            self._first.append(self._position)

    def sends(self, targets: Mapping[str, Array]) -> None:
        """The loop sends a command."""
        if not self._active:
            self.accuse(f"a command is sent while the loop is not active: {targets}")
        if self._sent is not None:
            self.accuse("a second command in one period")
        self._sent = self.bounds.row(targets)

    def ends(self, tick: TickSeen) -> Array | None:
        """A tick has ended; checks it and returns the command sent in it."""
        self._clock += 1
        before, self.state = self.state, tick.state
        self._hear_answers()
        self._judge_state(before, tick)
        sent, self._sent = self._sent, None
        if sent is not None and self._broken and tick.state == GuardState.RUN:
            # The robot may be elsewhere than it was commanded last.
            self.last, self._first, self._broken = None, [self._position], False
            self.step[:] = 0.0
        if sent is None:
            self.step[:] = 0.0
        else:
            self._judge_command(sent, before, tick)
        self._watch_stream(sent is not None, tick)
        self._watch_rest(tick)
        self._time_stops(sent is not None, tick)
        return sent

    def deactivated(self) -> None:
        """The loop has ended."""
        self._active = False
        self._hear_answers()
        for request in self._waiting:
            self.accuse(f"the loop ended, and {request.ticket.command} has no answer")
        self._waiting.clear()

    def accuse(self, text: str) -> None:
        """Records a violation."""
        self.verdict.violations += 1
        if len(self.verdict.broken) < MAX_REPORTED:
            self.verdict.broken.append(f"period {self.period}, {GuardState(self.state).name}: {text}")

    def _watch_stream(self, sent: bool, tick: TickSeen) -> None:
        """Checks that a robot that is not measured any more gets no command once it was braked."""
        self._unmeasured += 1
        if sent and tick.state != GuardState.RUN:
            if self._broken or tick.broken:
                self.accuse("a command for a robot whose samples broke off, without a start")
            servo = self.bounds.servo
            if servo.all() and self._unmeasured > self._most_unmeasured and not self.step[servo].any():
                self.accuse(f"a command for a robot that was not measured for {self._unmeasured} periods")
        if tick.broken and tick.state == GuardState.RUN:
            self.accuse("the samples are said to have broken off in RUN")
        self._broken = tick.broken

    # Requests and states

    def _stopped(self) -> None:
        """Forbids motion until a reset and a start."""
        self._stage_reset = self._auto = False
        self._shown_made: int | None = None
        self._rested.clear()
        self._retried = 0

    def _hear_answers(self) -> None:
        self._down = self._up = False
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            ticket, asked.ticks = asked.ticket, asked.ticks + 1
            if not ticket.answered:
                self._waiting.append(asked)
                if asked.ticks > MAX_WAITING + 2:
                    self.accuse(f"{ticket.command} has waited {asked.ticks} ticks for its answer")
                continue
            if not ticket.text:
                self.accuse(f"{ticket.command} was answered with nothing")
            self.verdict.refused += not ticket.obeyed
            if ticket.text == ANSWERS[RequestAnswer.OBEYED] and ticket.command is Command.RESET:
                self._obey_reset(asked.made)
            elif ticket.text == ANSWERS[RequestAnswer.OBEYED] and ticket.command is Command.START:
                self._obey_start(asked.made)

    def _obey_reset(self, made: int) -> None:
        self._down = True
        self.verdict.resets += 1
        if self._shown_made is None or made <= self._shown_made:
            self.accuse("a reset was obeyed that was requested before the standstill was shown")
        self._stage_reset, self._reset_made = True, self._clock

    def _obey_start(self, made: int) -> None:
        self._up = True
        self.verdict.starts += 1
        if not self._stage_reset or made <= self._reset_made:
            self.accuse("a start was obeyed that was requested before the reset was obeyed")

    def _judge_state(self, before: int, tick: TickSeen) -> None:
        state = tick.state
        if state < self._due:
            self.accuse(f"{GuardState(self._due).name} was requested before this period")
        if state == GuardState.STANDSTILL and before > state and not self._down:
            self.accuse(f"{GuardState(before).name} was left without a reset")
        if state == GuardState.RUN and before != GuardState.RUN:
            if not (self._stage_reset and before == GuardState.STANDSTILL):
                self.accuse(f"{GuardState(before).name} led to motion without a reset")
            if not (self._up or self._auto):
                self.accuse("motion without a start")
            self._auto = False
        if GuardState.STANDSTILL < state < before:
            self.accuse(f"the state fell from {GuardState(before).name}")
        if state > max(before, GuardState.STANDSTILL):
            self._stopped()

    def _watch_rest(self, tick: TickSeen) -> None:
        """Checks a published standstill against the samples since the last stop."""
        bounds = self.bounds
        slow = not self._measures_speed or bool((np.abs(self._velocity) <= bounds.rest_speed).all())
        if slow and tick.state != GuardState.RUN and not self.step[bounds.servo].any():
            self._rested.append(self._position)
        else:
            self._rested.clear()
        known, self._published = self._published, tick.read_back
        if tick.state > GuardState.STANDSTILL and known not in (None, tick.read_back):
            # A retried tick uses a sample twice, and a request may have been seen a period earlier.
            needed, seen = bounds.rest_periods - 1 - self._retried, np.array(self._rested)
            if len(seen) < needed:
                self.accuse(f"a standstill is shown after {len(seen)} periods of rest")
            elif not (np.ptp(seen[-needed:], axis=0) <= 2.0 * STILL_S * bounds.rest_speed + _EXACT).all():
                self.accuse(f"a standstill is shown while the joints go from {seen[-needed]} to {seen[-1]}")
            self._shown_made = self._clock

    def _time_stops(self, sent: bool, tick: TickSeen) -> None:
        if self._unsafe_since is None:
            return
        if self.last is None or tick.broken:
            # There is no command that could continue.
            self._unsafe_since = None
        elif not tick.can_send:
            self._unsafe_since += 1
        elif sent and tick.state > GuardState.STANDSTILL:
            periods = self.period - self._unsafe_since
            self.verdict.periods_to_safe = max(self.verdict.periods_to_safe, periods)
            self._unsafe_since = None

    # Commands

    def _judge_command(self, row: Array, before: int, tick: TickSeen) -> None:
        bounds, verdict = self.bounds, self.verdict
        verdict.commands += 1
        if not np.isfinite(row).all():
            self.accuse(f"{row} is not finite")
            return
        low, high = bounds.hard_lower - ROUNDING, bounds.hard_upper + ROUNDING
        if not ((row >= low) & (row <= high)).all():
            self.accuse(f"{row} is outside [{bounds.hard_lower}, {bounds.hard_upper}]")
        if self.last is None:
            self._judge_first(row)
            self.last = row
            return
        step = row - self.last
        free = before == GuardState.RUN == tick.state and not tick.withheld
        self._judge_positions(row, step, free=free)
        self._judge_efforts(row, step, before, tick, free=free)
        verdict.changed += bool(step.any())
        self.last, self.step = row, step

    def _judge_first(self, row: Array) -> None:
        """Checks that the first command starts at a measured position; efforts without a sample must be 0."""
        bounds, servo = self.bounds, self.bounds.servo
        if not servo.any() and not row.any():
            return
        for position in self._first:
            start = np.minimum(np.maximum(position[bounds.joints], bounds.lower), bounds.upper)
            if (np.abs(row - start)[servo] <= ROUNDING).all():
                return
        self.accuse(f"the first command {row} is not where the joints were measured: {self._first[-1:]}")

    def _judge_positions(self, row: Array, step: Array, *, free: bool) -> None:
        bounds, servo = self.bounds, self.bounds.servo
        last = row - step
        if not (np.abs(step) <= bounds.speed + ROUNDING)[servo].all():
            self.accuse(f"{row} after {last}: steps above {bounds.speed}")
        if not (np.abs(step - self.step) <= bounds.change + 2.0 * ROUNDING)[servo].all():
            self.accuse(f"{row} after {last}: step {step} after {self.step}, at most {bounds.change} more are allowed")
        end = last + bounds.stopping(step)
        if not ((end >= bounds.lower - 2.0 * ROUNDING) & (end <= bounds.upper + 2.0 * ROUNDING))[servo].all():
            self.accuse(f"{row} after {last} cannot stop before [{bounds.lower}, {bounds.upper}], but at {end}")
        if free:
            self._judge_weak(row, step)
        elif not (np.abs(step - bounds.braked(self.step)) <= _EXACT)[servo].all():
            self.accuse(f"{row} after {last}: step {step} after {self.step} does not brake")

    def _judge_weak(self, row: Array, step: Array) -> None:
        """Checks that a target demands no more effort than the envelope allows, or returns there at the limits."""
        bounds, weak = self.bounds, self.bounds.weak
        if not (weak.any() and np.isfinite(self._position).all() and np.isfinite(self._velocity).all()):
            return
        position, velocity = self._position[bounds.joints], self._velocity[bounds.joints]
        with np.errstate(all="ignore"):
            centre = position + bounds.servo_damping * velocity / bounds.stiffness
            reach = bounds.effort / bounds.stiffness + ROUNDING
        least = np.maximum(self.step - bounds.change, -bounds.speed) + ROUNDING
        most = np.minimum(self.step + bounds.change, bounds.speed) - ROUNDING
        # At a position bound, or while braking, the step cannot be chosen freely.
        edge = (row <= bounds.lower + 10 * ROUNDING) | (row >= bounds.upper - 10 * ROUNDING)
        braking = np.abs(step - bounds.braked(self.step)) <= _EXACT
        high, low = (row > centre + reach) & (step > least), (row < centre - reach) & (step < most)
        if (weak & (high | low) & ~edge & ~braking).any():
            self.accuse(f"{row} at {position} and {velocity} asks a servo for more than {bounds.effort}")

    def _judge_efforts(self, row: Array, step: Array, before: int, tick: TickSeen, *, free: bool) -> None:
        bounds, effort = self.bounds, ~self.bounds.servo
        if not effort.any():
            return
        last = row - step
        if free:
            inside = (row >= bounds.lower - ROUNDING) & (row <= bounds.upper + ROUNDING)
            if not (inside & (np.abs(step) <= bounds.rate + ROUNDING))[effort].all():
                self.accuse(f"effort {row} after {last} exceeds [{bounds.lower}, {bounds.upper}] or {bounds.rate}")
            return
        if before == GuardState.RUN == tick.state:
            if step[effort].any():
                self.accuse(f"effort {row} after {last} without a command of the policy")
            return
        if not self._measures_speed and bounds.damping[effort].any():
            return
        damped = np.nan_to_num(-bounds.damping * self._velocity[bounds.joints], nan=0.0)
        rate = np.full_like(row, np.inf) if tick.state >= GuardState.DAMP else bounds.rate
        wrong = effort.copy()
        for wanted in (np.clip(damped, bounds.hard_lower, bounds.hard_upper), np.zeros_like(row)):
            goal = np.clip(wanted, last - rate, last + rate)
            wrong &= ~(np.abs(row - goal) <= ROUNDING)
        if wrong.any():
            self.accuse(f"effort {row} after {last} is neither damping nor 0, velocities are {self._velocity}")
