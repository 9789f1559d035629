"""A robot's twin on a clock: what it does between two samples, and what it does when nobody commands it."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from physai.sim.virtual_robot.robot_twin import RobotTwin, Vector

NANOSECONDS = 1_000_000_000
SILENT_PERIODS = 2
"""Control periods without a command after which the robot looks after itself."""
SLIP_PERIODS = 10
"""Periods by which this process may be late; beyond, the twin's clock is set back and the time counted as lost."""
MAX_EVENTS = 1000

EventKind = Literal["first command", "silence", "commands again", "fall"]


@dataclass(frozen=True)
class TwinEvent:
    """Something that happened, and when."""

    time_ns: int
    """CLOCK_REALTIME [ns]."""
    what: EventKind


@dataclass
class RuntimeTally:
    """What a stand-in has seen of the runtime that drives it."""

    periods: int = 0
    """Control periods so far."""
    commands: int = 0
    """Commands that were obeyed."""
    unsafe: int = 0
    """Commands that were not finite or outside the contract's safety envelope; not obeyed."""
    stale: int = 0
    """Commands computed longer ago than the contract lets a sample be old; not obeyed."""
    silences: int = 0
    """Times at which commands stayed away for more than two periods."""
    silent_periods: int = 0
    """Periods in which the robot looked after itself: positions held, efforts braking."""
    lost_s: float = 0.0
    """Time this process was too late for, and left out [s]: the machine was busy."""
    falls: int = 0
    judged: int = 0
    met: int = 0
    """Commands at whose end the goal was met, of those judged."""
    events: list[TwinEvent] = field(default_factory=list[TwinEvent])
    """The first of them, in their order."""

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


class PacedTwin:
    """Advances a twin to given times; takes commands, and brakes without them."""

    def __init__(self, twin: RobotTwin, *, seed: int, start_ns: int) -> None:
        """Starts the twin's clock.

        Args:
            twin: the robot, in its starting pose.
            seed: draws the jitter of its loop.
            start_ns: when that is, CLOCK_MONOTONIC [ns].
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
        self._heard_ns: int | None = None
        self._silent = False
        self.due_ns = start_ns
        """When the next sample is due, CLOCK_MONOTONIC [ns]."""
        self.stamp_ns = realtime(start_ns) - round(twin.age_s * NANOSECONDS)
        """When the present sample was measured, CLOCK_REALTIME [ns]."""
        self._schedule()

    def _schedule(self) -> None:
        late_ns = round(self.twin.jitter.draw(self._rng) * NANOSECONDS)
        nominal_ns = self._zero_ns + (self.tally.periods + 1) * self._period_ns
        # Two samples never lie closer than a physics step, however late the first one was.
        self.due_ns = max(nominal_ns + late_ns, self._zero_ns + (self._steps + 1) * self._step_ns)

    def take(self, targets: Mapping[str, Vector], stamp_ns: int, at_ns: int) -> None:
        """Takes a command that arrived at a time, CLOCK_MONOTONIC [ns]; the time before it passes first."""
        self._advance_to(min(at_ns, self.due_ns))
        if self._accepts(targets, realtime(at_ns) - stamp_ns):
            self._hear(targets, at_ns)

    def take_in_lockstep(self, targets: Mapping[str, Vector]) -> bool:
        """Takes a command and lets one control period pass under it; whether it was one that may be obeyed."""
        if not self._accepts(targets, 0):
            return False
        self._hear(targets, time.monotonic_ns())
        self.twin.advance(self._decimation)
        self._end_period()
        self.stand_still()
        return True

    def stand_still(self) -> None:
        """On a clock that does not run by itself: the present sample, measured now."""
        self.stamp_ns = time.time_ns() - round(self.twin.age_s * NANOSECONDS)

    def neglect(self) -> None:
        """In lock-step, where no time passes without a command: notes that none came."""
        self._miss()

    def pause(self) -> None:
        """Stops the twin's clock where it is; nothing but `take_paused`, `step`, `restart` and `resume` until then."""
        self._stands_ns = self._zero_ns + self._steps * self._step_ns

    def take_paused(self, targets: Mapping[str, Vector], stamp_ns: int) -> None:
        """Takes a command for the next step."""
        if self._accepts(targets, time.time_ns() - stamp_ns):
            self._hear(targets, self._stands_ns)

    def step(self) -> None:
        """Lets one control period pass, and measures."""
        self.twin.advance(self._decimation)
        self._steps += self._decimation
        self._stands_ns += self._period_ns
        self._end_period()
        self._look_after(self._stands_ns)
        self._schedule()
        self.stand_still()

    def resume(self, now_ns: int) -> None:
        """Lets the twin's clock go on, as if no time had passed meanwhile, CLOCK_MONOTONIC [ns]."""
        passed_ns = now_ns - self._stands_ns
        self._zero_ns += passed_ns
        self.due_ns += passed_ns
        if self._heard_ns is not None:
            self._heard_ns += passed_ns

    def restart(self, *, whole: bool) -> None:
        """Puts the robot into a starting pose, where it was never commanded.

        Args:
            whole: the very first one; else the next that is drawn.
        """
        self.twin.restart(whole=whole)
        self._heard_ns, self._silent = None, False
        self.stand_still()

    def _accepts(self, targets: Mapping[str, Vector], age_ns: int) -> bool:
        if not self.twin.allows(targets):
            self.tally.unsafe += 1
            return False
        if not age_ns <= self._oldest_ns:
            self.tally.stale += 1
            return False
        return True

    def _hear(self, targets: Mapping[str, Vector], at_ns: int) -> None:
        if self._heard_ns is None:
            self._tell("first command")
        elif self._silent:
            self._tell("commands again")
        self._heard_ns, self._silent = at_ns, False
        self.tally.commands += 1
        self.twin.command(targets)

    def tick(self, now_ns: int) -> None:
        """Lets time pass until the sample that is due, looks after the robot, and measures."""
        self._slip(now_ns)
        due_ns = self.due_ns
        self._advance_to(due_ns)
        self._end_period()
        self._look_after(due_ns)
        self.stamp_ns = realtime(self._zero_ns + self._steps * self._step_ns) - round(self.twin.age_s * NANOSECONDS)
        self._schedule()

    def _look_after(self, at_ns: int) -> None:
        """Brakes a robot that nobody commands at the end of a period."""
        if self._heard_ns is None:
            self.twin.brake()
        elif at_ns - self._heard_ns > SILENT_PERIODS * self._period_ns:
            self._miss()

    def _slip(self, now_ns: int) -> None:
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
            self._tell("fall")

    def _miss(self) -> None:
        """Holds positions and brakes efforts, until the next command."""
        if self._heard_ns is not None and not self._silent:
            self.tally.silences += 1
            self._silent = True
            self._tell("silence")
            self.twin.rest()
        if self._silent:
            self.tally.silent_periods += 1
        self.twin.brake()

    def _tell(self, what: EventKind) -> None:
        if len(self.tally.events) < MAX_EVENTS:
            self.tally.events.append(TwinEvent(time.time_ns(), what))


def realtime(monotonic_ns: int) -> int:
    """A time of CLOCK_MONOTONIC on CLOCK_REALTIME [ns], as the two lie now."""
    return monotonic_ns + time.time_ns() - time.monotonic_ns()
