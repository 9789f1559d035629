"""The control loop: ticks on absolute deadlines, and what happens between two of them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from physai.deploy_jetson.runtime.alarm import Alarm
from physai.deploy_jetson.runtime.orders import Mailbox, Order
from physai.deploy_jetson.runtime.realtime import undisturbed
from physai.deploy_jetson.runtime.reasons import Trouble, describe
from physai.deploy_jetson.runtime.swap import Loaded, Swapper
from physai.deploy_jetson.runtime.tick import Clocks, Tick
from physai.sdk.safety import STILL_S, GuardState, Reason

RAMP_S = 2.0
"""Time in which HOLD is to bring every joint to rest before the loop ends; if it does not, DAMP follows [s]."""

DAMP_S = 1.0
"""Time for which the loop then goes on to brake [s]."""

RATE_TICKS = 512
"""Ticks after which the robot's rate is judged."""

RATE_SHARE = 0.1
"""Share of them that may have found no newer sample: two clocks of one rate drift through each other now and then."""

CLOCK_STEP_NS = 20_000_000
"""Change of CLOCK_REALTIME against CLOCK_MONOTONIC that somebody has made, and no slow correction [ns]."""

_HOLD_REQUESTED, _DAMP_REQUESTED, _OPERATOR_SILENT, _SKIPPED = (
    int(flag)
    for flag in (
        Trouble.HOLD_REQUESTED,
        Trouble.DAMP_REQUESTED,
        Trouble.OPERATOR_SILENT,
        Trouble.PERIODS_SKIPPED,
    )
)


_MISPLACED = int(Reason.JOINT_POSITION)
_UNUSUAL = int(Trouble.FIELD_NOT_FINITE | Trouble.OUT_OF_RANGE)


class End(StrEnum):
    """Why a loop ended."""

    SHUTDOWN = "shutdown"
    DEACTIVATED = "deactivated"
    FINISHED = "finished"
    """Its time was over."""
    OTHER_CONTRACT = "other contract"
    """A policy was activated that this process cannot take over."""


@dataclass
class Counts:
    """What has happened since the loop began."""

    ticks: int = 0
    missed: int = 0
    skipped: int = 0
    """Control periods without a tick; these are missed, too."""
    interventions: int = 0
    rises: int = 0
    """Times the guard's state rose."""
    swaps: int = 0
    repeated: int = 0
    """Ticks for which no newer sample had come."""


class Loop:
    """Drives an ACTIVE robot; one thread."""

    def __init__(
        self,
        tick: Tick,
        loaded: Loaded,
        mailbox: Mailbox,
        *,
        period_ns: int,
        say: Callable[[str], None],
        swapper: Swapper | None = None,
        heartbeat_s: float | None = None,
        alarm: Alarm | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Ties the parts together.

        Args:
            tick: does one.
            loaded: the policy in it.
            mailbox: what operators ask for.
            period_ns: of the contract [ns].
            say: gets what an operator should know; must not wait.
            swapper: has newly activated policies; None to run this one only.
            heartbeat_s: longest silence of the operator before HOLD [s]; None where nobody has to watch.
            alarm: what waits.
            clocks: what time it is.
        """
        self.counts = Counts()
        self.loaded = loaded
        self.why = ""
        """Why the state last rose, in words."""
        self.taken_over = False
        """Whether it rose without being asked to, and nobody has reset it."""
        self._tick, self._mailbox, self._swapper, self._say = tick, mailbox, swapper, say
        self.period_ns = period_ns
        self._heartbeat_ns = None if heartbeat_s is None else round(heartbeat_s * 1e9)
        self._clocks = clocks or Clocks()
        self._alarm = alarm or Alarm(clock_ns=self._clocks.now_ns, rehearse=self._rehearse, period_ns=period_ns)
        self._number = 0
        self._offset_ns = 0
        self._state = 0
        self._asked = False
        self._trouble = 0
        self._still = 0
        self._still_needed = max(1, round(STILL_S * 1e9 / period_ns))
        self._end: End | None = None
        self._leave_by_ns = 0
        self._ended = False

    def run(self, seconds: float | None = None) -> End:
        """Ticks until something ends it; the robot is then as safe as it can be, and nothing more is sent.

        Args:
            seconds: how long; None for until it is told.
        """
        self._mailbox.driving = True
        try:
            self._begin()
            return self._tick_on(seconds)
        finally:
            self._mailbox.driving = False

    def _tick_on(self, seconds: float | None) -> End:
        tick, alarm, period, counts = self._tick, self._alarm, self.period_ns, self.counts
        number = self._number
        last = None if seconds is None else number + round(seconds * 1e9 / period)
        with undisturbed(), np.errstate(all="ignore"):
            due = self._clocks.now_ns() + period
            while not self._ended:
                late = alarm.wait(due) - due
                if late >= period:
                    skipped = late // period
                    due += skipped * period
                    number += skipped
                    self._skip(skipped)
                tick.run(number, due, self._trouble, stop=self._mailbox.stop)
                self._trouble = 0
                counts.ticks += 1
                counts.missed += tick.missed
                counts.repeated += not tick.fresh
                counts.interventions += tick.intervened
                self.loaded.health.tick(
                    tick.ended_ns, missed=tick.missed, intervened=tick.intervened and not self._asked
                )
                if last is not None and number >= last:
                    self._leave(End.FINISHED)
                self._attend()
                due += period
                number += 1
        self._number = number
        return self._end or End.SHUTDOWN

    def stand_by(self) -> bool:
        """To be called now and then while nothing is driven; False once another process has to drive.

        Takes over what was activated meanwhile.
        """
        self.loaded.health.beat(self._clocks.now_ns())
        if self._swapper is not None:
            self._swap(self._swapper)
        return self._end is not End.OTHER_CONTRACT

    def _rehearse(self) -> None:
        self._tick.rehearse()
        self.loaded.health.rehearse()

    def _begin(self) -> None:
        self._offset_ns = self._clock_offset_ns()
        self._tick.reset()
        self._state, self._asked, self._trouble, self._still = 0, False, 0, 0
        self._end, self._ended, self.why, self.taken_over = None, False, "", False

    def _skip(self, periods: int) -> None:
        """Lets the guard and the counters know of periods in which there was no tick."""
        self._tick.guard.skip(periods)
        self.counts.skipped += periods
        self.counts.missed += periods
        self.loaded.health.skip(self._clocks.now_ns(), periods)
        self._trouble |= _SKIPPED

    def _attend(self) -> None:
        """Everything that is not part of a tick, and rarely there."""
        tick, mailbox = self._tick, self._mailbox
        if tick.state > self._state:
            self._rise()
        if mailbox.orders:
            self._obey(mailbox.orders.popleft())
        if self._swapper is not None:
            self._swap(self._swapper)
        if self._heartbeat_ns is not None and tick.state == GuardState.RUN:
            silence = tick.ended_ns - mailbox.heartbeat_ns
            if silence > self._heartbeat_ns:
                self._press(GuardState.HOLD, _OPERATOR_SILENT)
        if self._end is not None:
            self._depart()
        if self.counts.ticks == RATE_TICKS and not self.counts.repeated <= RATE_SHARE * RATE_TICKS:
            rate_hz = 1e9 / self.period_ns
            heard_hz = rate_hz * (1.0 - self.counts.repeated / RATE_TICKS)
            self._say(f"warning: new samples come at about {heard_hz:.0f} Hz, the policy acts at {rate_hz:.0f} Hz")

    def _rise(self) -> None:
        tick = self._tick
        self._state = tick.state
        self.counts.rises += 1
        details = [tick.error]
        if tick.reasons & Reason.SENSOR_STALE:
            details.append(self._age())
        if tick.reasons & _UNUSUAL:
            details.append(tick.senses.complaint())
        if tick.reasons & _MISPLACED:
            details.append(tick.guard.misplaced(tick.senses.joint_pos))
        self.why = "; ".join((describe(tick.reasons), *(detail for detail in details if detail)))
        text = f"{GuardState(tick.state).name}: {self.why}"
        if not tick.reasons & (_HOLD_REQUESTED | _DAMP_REQUESTED):
            self.taken_over = True
            self.loaded.health.fault(tick.ended_ns, text)
        self._say(text)

    def _age(self) -> str:
        """How old the sample is, and whether the clock by which that is known was set."""
        text = f"the sample is {self._tick.age_ns * 1e-9:.3g} s old by its own stamp"
        step_ns = self._clock_offset_ns() - self._offset_ns
        if abs(step_ns) <= CLOCK_STEP_NS:
            return text
        return f"{text}, and this machine's clock was set by {step_ns * 1e-9:+.3g} s"

    def _clock_offset_ns(self) -> int:
        return self._clocks.wall_ns() - self._clocks.now_ns()

    def _press(self, state: GuardState, trouble: int) -> None:
        """Raises the state with the next tick."""
        self._tick.guard.press(state)
        self._trouble |= trouble

    def _obey(self, order: Order) -> None:
        if order is Order.HOLD:
            self._asked = True
            self._press(GuardState.HOLD, _HOLD_REQUESTED)
        elif order is Order.DAMP:
            self._asked = True
            self._press(GuardState.DAMP, _DAMP_REQUESTED)
        elif order is Order.RESET:
            self._reset()
        elif order is Order.DEACTIVATE:
            self._leave(End.DEACTIVATED)
        elif order is Order.SHUTDOWN:
            self._leave(End.SHUTDOWN)

    def _reset(self) -> None:
        if self._end is not None:
            self._say("not reset: the policy is about to end")
            return
        self._mailbox.stop = False
        self._tick.reset()
        self._state, self._asked, self._trouble = 0, False, 0
        self.why, self.taken_over = "", False
        self._say("RUN: reset by the operator")

    def _swap(self, swapper: Swapper) -> None:
        if swapper.other is not None and self._end is None:
            self._say(f"version {swapper.other.version} keeps another contract; the robot stops for it")
            self._leave(End.OTHER_CONTRACT)
        elif swapper.ready is not None:
            self.loaded = swapper.change(self.loaded)
            self._tick.change(self.loaded.policy, self.loaded.candidate.ranges)
            self.counts.swaps += 1
            self._say(f"version {self.loaded.candidate.version} has taken over")

    def _leave(self, end: End) -> None:
        """Begins to bring the robot to a safe state."""
        if self._end is None:
            self._end = end
            self._asked = True
            self._leave_by_ns = self._tick.ended_ns + round(RAMP_S * 1e9)
            self._press(GuardState.HOLD, _HOLD_REQUESTED)

    def _depart(self) -> None:
        """Ends the loop once every joint rests; brakes where HOLD does not bring them to rest."""
        tick = self._tick
        self._still = self._still + 1 if tick.state >= GuardState.HOLD and tick.guard.resting else 0
        if self._still >= self._still_needed:
            self._ended = True
        elif tick.ended_ns > self._leave_by_ns + round(DAMP_S * 1e9):
            self._ended = True
            self._say("the joints did not come to rest; nothing more is sent")
        elif tick.ended_ns > self._leave_by_ns and tick.state < GuardState.DAMP:
            self._press(GuardState.DAMP, _DAMP_REQUESTED)
