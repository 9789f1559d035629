"""The INACTIVE state of a runtime: waits until the robot is ready and an operator requests activation."""

import re
import time

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue, Levels, RequestTicket
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.loop_result import LoopEnd
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.stop.keeper import StopKeeper
from physai.deploy_jetson.runtime.stop.rest import StandstillWatch
from physai.deploy_jetson.runtime.system.reporter import Reporter
from physai.deploy_jetson.runtime.watchdog.client import Watchdog
from physai.sdk.base.errors import PhysaiError
from physai.sdk.safety import ANSWERS, RequestAnswer
from physai.sdk.transport.protocol import Exclusive, SupportsReset, Transport

_PERIOD_S = 0.05
# Longest pause of this process for which a pending request to activate stays valid [s].
_SUSPENDED_S = 5.0
# Shortest and longest period at which the same reason for waiting is repeated [s]: it doubles, or a robot that is off
# for days fills the log.
_REPEAT_S, _MAX_REPEAT_S = 2.0, 600.0
# Least time that a run of limited duration waits for its robot [s].
_PATIENCE_S = 30.0
# Time the lease of a robot that cannot be driven is kept [s].
_RELEASE_S = 2.0


_DIGITS = re.compile(r"[\d.]+")


def _awake_ns() -> int:
    # CLOCK_MONOTONIC stands still while the whole computer is suspended.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class StandbyError(PhysaiError):
    """A run of limited duration did not get its robot."""


class Standby:
    """Answers requests and watches the robot while nothing is sent to it."""

    def __init__(
        self,
        loop: Loop,
        tick: Tick,
        transport: Transport,
        commands: CommandQueue,
        reporter: Reporter,
        *,
        heartbeat_s: float | None,
        watchdog: Watchdog | None,
        keeper: StopKeeper,
        standstill: StandstillWatch,
        seconds: float | None = None,
    ) -> None:
        """Initialize without waiting.

        Args:
            loop: the loop that will drive.
            tick: the tick of that loop.
            transport: of the robot, open.
            commands: the operator's requests.
            reporter: receives messages for the operator.
            heartbeat_s: longest silence of the operator [s]; None if no operator has to watch.
            watchdog: must be ready before the robot is driven; None to run without one.
            keeper: knows stops that were not reset.
            standstill: confirms stops.
            seconds: duration of a run that drives at once [s], which then does not wait for ever.
        """
        self.waiting_for = ""
        """What prevents driving the robot; empty if nothing."""
        self.wanted: Levels | None = None
        """Levels of the pending request to activate; None without one."""
        # When this process was last awake, when the robot could last be driven, and what was said last.
        self._awake_ns, self._clear_ns = _awake_ns(), time.monotonic_ns()
        self._shown, self._shown_ns, self._repeat_s = "", 0, _REPEAT_S
        self._loop, self._tick, self._transport, self._commands = loop, tick, transport, commands
        self._reporter, self._heartbeat_s, self._watchdog = reporter, heartbeat_s, watchdog
        self._keeper, self._standstill, self._seconds = keeper, standstill, seconds
        self._exclusive = transport if isinstance(transport, Exclusive) else None

    def wait(self, wanted: Levels | None) -> LoopEnd | Levels:
        """Wait until the robot is ready and activation is requested.

        Args:
            wanted: levels of the pending request to activate; None without one.

        Returns:
            The levels of the granted request, or why the runtime ends instead.

        Raises:
            StandbyError: a run of limited duration has waited for too long.
        """
        self.wanted = wanted
        self._awake_ns = _awake_ns()
        begun_ns = self._clear_ns = time.monotonic_ns()
        while True:
            self._transport.wait(_PERIOD_S)
            result = self.look()
            if result is not None:
                return result
            stopped = self._stopped()
            request = f"a reset of {stopped}" if stopped else "the request to activate"
            waited_s = (time.monotonic_ns() - begun_ns) * 1e-9
            if self._seconds is not None and waited_s > max(self._seconds, _PATIENCE_S):
                missing = self.waiting_for or request
                raise StandbyError(f"nothing was driven: waited {waited_s:.0f} s for {missing}")
            self._report(f"waiting for {self.waiting_for or request}")

    def look(self) -> LoopEnd | Levels | None:
        """Look once; return what `wait` returns, None to go on waiting."""
        commands = self._commands
        before_ns, self._awake_ns = self._awake_ns, _awake_ns()
        # A robot that moves when a suspended machine wakes up is a surprise.
        if self.wanted is not None and self._awake_ns - before_ns > _SUSPENDED_S * 1e9:
            self._reporter.report(
                "not activated: this process or computer was suspended meanwhile; send `activate` again"
            )
            self.wanted = None
        if commands.shutdown:
            return LoopEnd.SHUTDOWN
        if not self._loop.stand_by():
            return LoopEnd.OTHER_CONTRACT
        self._standstill.look()
        while (ticket := commands.take()) is not None:
            self.wanted = self._answer(ticket, self.wanted)
        if self.wanted != commands.levels or commands.stopped or self._keeper.elsewhere:
            # A stop, hold, damp or deactivate was requested after it, or the robot was stopped by another runtime.
            self.wanted = None
        now_ns, obstacle = time.monotonic_ns(), self._obstacle()
        self._clear_ns = self._clear_ns if obstacle else now_ns
        if self._exclusive is not None:
            # A lease that this runtime cannot use would keep others from the robot.
            if self.wanted is None or now_ns - self._clear_ns > _RELEASE_S * 1e9:
                self._exclusive.release()
            elif not obstacle:
                # Last: a robot is claimed only once everything else is ready.
                obstacle = self._exclusive.claim()
        # After the claim: until then another runtime may move the robot, which is what is waited for.
        obstacle = obstacle or self._motion()
        if self.wanted is not None and not obstacle and self._keeper.look():
            # A stop of the last moment.
            self.wanted = None
        self.waiting_for = obstacle
        return None if obstacle else self.wanted

    def _report(self, text: str) -> None:
        """Say what is waited for: at once if it changed, then at ever longer intervals while a request waits."""
        now_ns = time.monotonic_ns()
        # Seconds and values change all the time.
        reason = _DIGITS.sub("", text)
        if reason != self._shown:
            self._repeat_s = _REPEAT_S if self._shown else 0.0
        again = self.wanted is not None or reason != self._shown
        if again and now_ns - self._shown_ns > self._repeat_s * 1e9:
            self._reporter.report(text)
            self._repeat_s = _REPEAT_S if reason != self._shown else min(2.0 * self._repeat_s, _MAX_REPEAT_S)
            self._shown, self._shown_ns = reason, now_ns

    def _answer(self, ticket: RequestTicket, wanted: Levels | None) -> Levels | None:
        """Answer a request while inactive; return the levels of the pending activation, if any."""
        commands = self._commands
        if ticket.levels != commands.levels:
            ticket.answer(ANSWERS[RequestAnswer.SUPERSEDED])
        elif ticket.command is Command.RESET:
            self._reset(ticket)
        elif ticket.command is Command.START:
            ticket.answer("refused: nothing is driven; `activate` begins to drive")
        elif stopped := self._stopped():
            ticket.answer(f"refused: reset {stopped} first")
        elif commands.barred:
            ticket.answer(f"refused: {commands.barred}")
        elif self._keeper.unprepared:
            ticket.answer(f"refused: nothing is driven while no stop can be recorded ({self._keeper.unprepared})")
        else:
            # Not for a request that repeats the one before.
            if wanted != ticket.levels:
                self._forget_problems()
            ticket.answer("accepted: activates as soon as the robot can be driven", obeyed=True)
            return ticket.levels
        return wanted

    def _stopped(self) -> str:
        """Describe the stop that waits for a reset; empty if there is none."""
        return self._keeper.elsewhere or (self._keeper.inherited or "the stop" if self._commands.stopped else "")

    def _reset(self, ticket: RequestTicket) -> None:
        """Lift a stop, if the robot was measured at rest when that was requested."""
        commands, keeper = self._commands, self._keeper
        begin = "nothing is driven, `activate` begins to drive"
        if not self._stopped():
            ticket.answer(f"there is no stop to reset; {begin}")
        elif refusal := keeper.irresettable():
            ticket.answer(f"refused: {refusal}")
        elif not self._standstill.confirms(ticket.read_back):
            missing = self._standstill.missing() or "the request, which came too early: ask again"
            ticket.answer(f"{ANSWERS[RequestAnswer.NOT_READ_BACK]} (it waits for {missing})")
        else:
            # In this order: the other way round the keeper could lift a record that was made after this reset.
            keeper.lift()
            commands.acknowledged = ticket.levels[0]
            self._loop.stop_why = ""
            ticket.answer(f"the stop is reset; {begin}", obeyed=True)

    def _forget_problems(self) -> None:
        """Discard problems from before this activation."""
        if isinstance(self._transport, SupportsReset):
            self._transport.forget()
        self._reporter.forget()

    def _obstacle(self) -> str:
        """Return what prevents driving the robot; empty if nothing."""
        if self._commands.barred:
            return f"a policy that may run ({self._commands.barred})"
        if self._keeper.unprepared:
            return f"a place for the record of a stop ({self._keeper.unprepared})"
        missing = self._transport.missing()
        if missing:
            return ", ".join(f"{name} (for {seconds:.0f} s)" for name, seconds in missing)
        overdue = self._overdue_heartbeat()
        if overdue:
            return f"the operator, who {overdue}"
        return self._tick.obstacle() or ("" if self._watchdog is None else self._watchdog.obstacle())

    def _motion(self) -> str:
        """Describe the motion of a robot that is to be driven; empty if it is at rest."""
        # Until the activation is requested, a robot may be moved by hand. After it, the guard would see the robot move
        # in STANDSTILL and hold it until a reset; a free pole swings for minutes, but is slow enough twice a period.
        moving = "" if self.wanted is None else self._tick.moving()
        return f"the robot to be at rest ({moving.removeprefix(': ')})" if moving else ""

    def _overdue_heartbeat(self) -> str:
        """Describe the operator's last heartbeat, if it is overdue; empty if not."""
        heartbeat_ns = self._commands.heartbeat_ns
        silence_s = (time.monotonic_ns() - heartbeat_ns) * 1e-9
        if self._heartbeat_s is None or silence_s <= self._heartbeat_s:
            return ""
        return f"was last heard {silence_s:.1f} s ago" if heartbeat_ns else "was never heard"
