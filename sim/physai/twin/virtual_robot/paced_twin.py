"""A robot twin driven by a clock: advances between samples, executes commands and brakes when they time out."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from physai.twin.virtual_robot.robot_twin import RobotTwin, Vector

NANOSECONDS = 1_000_000_000
SILENT_PERIODS = 2
"""Control periods without a command after which commands time out and the robot holds and brakes."""
SLIP_PERIODS = 10
"""Periods this process may lag behind before the twin skips the lag and counts it as lost time."""
MAX_EVENTS = 1000

EventKind = Literal["first command", "silence", "commands again", "fall"]


@dataclass(frozen=True)
class TwinEvent:
    """A timestamped event."""

    time_ns: int
    """CLOCK_REALTIME [ns]."""
    what: EventKind


@dataclass
class RuntimeTally:
    """Statistics of the runtime that drives a virtual robot."""

    periods: int = 0
    """Control periods so far."""
    commands: int = 0
    """Commands executed."""
    unsafe: int = 0
    """Commands rejected because they were not finite or outside the contract's safety envelope."""
    stale: int = 0
    """Commands rejected because they were older than the contract's maximum observation age."""
    silences: int = 0
    """Command timeouts: gaps of more than SILENT_PERIODS periods."""
    silent_periods: int = 0
    """Periods spent in a timeout, holding positions and braking efforts."""
    lost_s: float = 0.0
    """Time skipped because this process fell behind [s]."""
    falls: int = 0
    judged: int = 0
    met: int = 0
    """How many of the `judged` operator commands ended with the goal met."""
    events: list[TwinEvent] = field(default_factory=list[TwinEvent])
    """The first MAX_EVENTS events, in order."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class PacedTwin:
    """Advances a twin to given times; executes commands and brakes without them."""

    def __init__(self, twin: RobotTwin, *, seed: int, start_ns: int) -> None:
        """Starts the twin's clock.

        Args:
            twin: the robot, in its starting pose.
            seed: seed of the loop jitter.
            start_ns: start time, CLOCK_MONOTONIC [ns].
        """
        self.twin = twin
        self.tally = RuntimeTally()
        timing = twin.contract.timing
        self._decimation = timing.decimation
        self._step_ns = round(timing.physics_dt * NANOSECONDS)
        self._period_ns = self._step_ns * timing.decimation
        self._oldest_ns = round(timing.max_observation_age_s * NANOSECONDS)
        self._rng = np.random.default_rng(seed)
        self._zero_ns = start_ns
        self._steps = 0
        self._commanded_ns: int | None = None
        self._silent = False
        self.due_ns = start_ns
        """When the next sample is due, CLOCK_MONOTONIC [ns]."""
        self.stamp_ns = realtime(start_ns) - round(twin.age_s * NANOSECONDS)
        """When the current sample was measured, CLOCK_REALTIME [ns]."""
        self._schedule()

    def _schedule(self) -> None:
        # Relative to the nominal grid, not to the last sample: delays do not accumulate.
        late_ns = round(self.twin.jitter.draw(self._rng) * NANOSECONDS)
        nominal_ns = self._zero_ns + (self.tally.periods + 1) * self._period_ns
        # Consecutive samples are at least one physics step apart, whatever the jitter.
        self.due_ns = max(nominal_ns + late_ns, self._zero_ns + (self._steps + 1) * self._step_ns)

    def take(self, targets: Mapping[str, Vector], stamp_ns: int, at_ns: int) -> None:
        """Advances to `at_ns`, CLOCK_MONOTONIC [ns], when a command arrived, and applies the command."""
        # Never beyond the due sample, which would otherwise be measured too late.
        self._advance_to(min(at_ns, self.due_ns))
        if self._accepts(targets, realtime(at_ns) - stamp_ns):
            self._command(targets, at_ns)

    def take_in_lockstep(self, targets: Mapping[str, Vector]) -> bool:
        """Applies a command and advances by one control period; returns whether the command was accepted."""
        if not self._accepts(targets, 0):
            return False
        self._command(targets, time.monotonic_ns())
        self.twin.advance(self._decimation)
        self._end_period()
        self.stand_still()
        return True

    def stand_still(self) -> None:
        """Stamps the current sample as measured now, while the simulation clock is stopped."""
        self.stamp_ns = time.time_ns() - round(self.twin.age_s * NANOSECONDS)

    def neglect(self) -> None:
        """Records a command timeout in lockstep mode, where time advances with commands only."""
        self._time_out()

    def pause(self) -> None:
        """Stops the clock; until `resume`, call only `take_paused`, `step` and `restart`."""
        self._paused_ns = self._zero_ns + self._steps * self._step_ns

    def take_paused(self, targets: Mapping[str, Vector], stamp_ns: int) -> None:
        """Applies a command at the next `step`."""
        if self._accepts(targets, time.time_ns() - stamp_ns):
            self._command(targets, self._paused_ns)

    def step(self) -> None:
        """Advances by one control period and measures, while paused."""
        self.twin.advance(self._decimation)
        self._steps += self._decimation
        self._paused_ns += self._period_ns
        self._end_period()
        self._brake_if_uncommanded(self._paused_ns)
        self._schedule()
        self.stand_still()

    def resume(self, now_ns: int) -> None:
        """Restarts the clock at `now_ns`, CLOCK_MONOTONIC [ns], without catching up with the pause."""
        passed_ns = now_ns - self._paused_ns
        self._zero_ns += passed_ns
        # Every stored time moves with the clock, so a pause counts neither as lag nor as silence.
        self.due_ns += passed_ns
        if self._commanded_ns is not None:
            self._commanded_ns += passed_ns

    def restart(self, *, whole: bool) -> None:
        """Resets the robot to a starting pose, waiting for its first command.

        Args:
            whole: use the very first starting pose; otherwise draw the next one.
        """
        self.twin.restart(whole=whole)
        self._commanded_ns, self._silent = None, False
        self.stand_still()

    def _accepts(self, targets: Mapping[str, Vector], age_ns: int) -> bool:
        if not self.twin.allows(targets):
            self.tally.unsafe += 1
            return False
        if not age_ns <= self._oldest_ns:
            self.tally.stale += 1
            return False
        return True

    def _command(self, targets: Mapping[str, Vector], at_ns: int) -> None:
        if self._commanded_ns is None:
            self._record_event("first command")
        elif self._silent:
            self._record_event("commands again")
        self._commanded_ns, self._silent = at_ns, False
        self.tally.commands += 1
        self.twin.command(targets)

    def tick(self, now_ns: int) -> None:
        """Advances to the sample that is due and measures it; brakes if commands have timed out."""
        self._skip_lag(now_ns)
        due_ns = self.due_ns
        self._advance_to(due_ns)
        self._end_period()
        self._brake_if_uncommanded(due_ns)
        self.stamp_ns = realtime(self._zero_ns + self._steps * self._step_ns) - round(self.twin.age_s * NANOSECONDS)
        self._schedule()

    def _brake_if_uncommanded(self, at_ns: int) -> None:
        if self._commanded_ns is None:
            self.twin.brake()
        elif at_ns - self._commanded_ns > SILENT_PERIODS * self._period_ns:
            self._time_out()

    def _skip_lag(self, now_ns: int) -> None:
        late_ns = now_ns - self.due_ns
        if late_ns > SLIP_PERIODS * self._period_ns:
            self.tally.lost_s += late_ns / NANOSECONDS
            self._zero_ns += late_ns
            self.due_ns = now_ns

    def _advance_to(self, at_ns: int) -> None:
        steps = (at_ns - self._zero_ns) // self._step_ns - self._steps
        if steps > 0:
            self.twin.advance(steps)
            self._steps += steps

    def _end_period(self) -> None:
        self.twin.end_period()
        tally, twin = self.tally, self.twin
        tally.periods += 1
        tally.judged, tally.met = twin.judged, twin.met
        if twin.falls > tally.falls:
            tally.falls = twin.falls
            self._record_event("fall")

    def _time_out(self) -> None:
        """Holds positions and brakes efforts until the next command."""
        if self._commanded_ns is not None and not self._silent:
            self.tally.silences += 1
            self._silent = True
            self._record_event("silence")
            self.twin.rest()
        if self._silent:
            self.tally.silent_periods += 1
        self.twin.brake()

    def _record_event(self, what: EventKind) -> None:
        if len(self.tally.events) < MAX_EVENTS:
            self.tally.events.append(TwinEvent(time.time_ns(), what))


def realtime(monotonic_ns: int) -> int:
    """Converts CLOCK_MONOTONIC to CLOCK_REALTIME [ns] by their current offset."""
    return monotonic_ns + time.time_ns() - time.monotonic_ns()
