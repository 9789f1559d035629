"""The control loop: runs ticks on absolute deadlines and handles requests between them."""

from collections.abc import Callable

import numpy as np

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue, Levels, RequestTicket
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy, PolicySwapper
from physai.deploy_jetson.runtime.loop.clocks import Clocks
from physai.deploy_jetson.runtime.loop.loop_result import Counts, LoopEnd
from physai.deploy_jetson.runtime.loop.rise_cause import cause
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.system.realtime import undisturbed
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.deploy_jetson.runtime.watchdog.client import Watchdog
from physai.deploy_jetson.ticks.reasons import RuntimeFault, blames_policy
from physai.sdk.safety import ANSWERS, NO_REQUEST, NOTHING, GuardState, Reason, Request, RequestAnswer

# Time HOLD gets to bring every joint to rest before the loop ends; DAMP follows if it fails [s].
RAMP_S = 2.0

# Time DAMP then gets before the loop ends regardless [s].
DAMP_S = 1.0

# Ticks after which the sample rate is checked.
RATE_TICKS = 512

# Tolerated share of ticks without a new sample: two clocks of the same rate drift past each other occasionally.
RATE_SHARE = 0.1

# Change of CLOCK_REALTIME against CLOCK_MONOTONIC that counts as a step rather than slewing [ns].
CLOCK_STEP_NS = 20_000_000

# Shortest suspend of the computer that counts [ns]: the two clocks that show it are not read at once.
SLEPT_NS = 500_000_000

_ALREADY_ACTIVE = "active already; `reset` and `start` bring a stopped policy back"

# Longest time an activation waits for the robot to be at rest and ready before it gives up the start [s].
START_S = 2.0

# Plain integers: operators of `IntFlag` are too slow for a tick.
_HOLD_REQUESTED, _DAMP_REQUESTED = int(RuntimeFault.HOLD_REQUESTED), int(RuntimeFault.DAMP_REQUESTED)
_OPERATOR_SILENT, _SKIPPED = int(RuntimeFault.OPERATOR_SILENT), int(RuntimeFault.PERIODS_SKIPPED)
_WATCHDOG, _GUARD_FAILED = int(RuntimeFault.WATCHDOG), int(RuntimeFault.GUARD_FAILED)


class Loop:
    """Drives an ACTIVE robot; not thread-safe."""

    def __init__(
        self,
        tick: Tick,
        loaded: LoadedPolicy,
        commands: CommandQueue,
        *,
        period_ns: int,
        say: Callable[[str], None],
        swapper: PolicySwapper | None = None,
        heartbeat_s: float | None = None,
        alarm: DeadlineTimer | None = None,
        clocks: Clocks | None = None,
        watchdog: Watchdog | None = None,
        progress: Callable[[int], None] = lambda now_ns: None,
    ) -> None:
        """Initialize without driving.

        Args:
            tick: runs one control period.
            loaded: the policy that `tick` runs.
            commands: the operator's requests.
            period_ns: control period of the contract [ns].
            say: reports a message to the operator; must not block.
            swapper: supplies newly activated policies; None disables hot swap.
            heartbeat_s: longest silence of the operator before HOLD [s]; None if no operator has to watch.
            alarm: waits for deadlines; None for the default.
            clocks: sources of time; None for the system's.
            watchdog: commands the robot when the loop stops; None to run without one.
            progress: called after each tick, and regularly while inactive.
        """
        self._progress = progress
        self.judge: Callable[[], None] = lambda: None
        """Called before each tick, and regularly while inactive; may put requests that end the policy."""
        self.revoked: Callable[[LoadedPolicy], bool] = lambda loaded: False
        """Whether a policy that waits to take over has lost its verdict."""
        self._watchdog = watchdog
        self.counts = Counts()
        self.loaded = loaded
        self.why = ""
        """Why the guard's state last rose."""
        self.drove = False
        """Whether the policy drove when the loop began to end."""
        self.stop_why = ""
        """Why the newest protective stop was made; empty after its reset."""
        self.taken_over = False
        """Whether the guard intervened without a request and was not reset since."""
        self._tick, self._commands, self._swapper, self._say = tick, commands, swapper, say
        self.period_ns = period_ns
        self._heartbeat_ns = None if heartbeat_s is None else round(heartbeat_s * 1e9)
        self._clocks = clocks or Clocks()
        self._alarm = alarm or DeadlineTimer(clock_ns=self._clocks.now_ns, warm_up=self._warm_up, period_ns=period_ns)
        self._number = 0
        self._offset_ns = self._asleep_ns = 0
        self._state = int(GuardState.STANDSTILL)
        self._levels = commands.levels
        self._least, self._reasons, self._skipped = int(GuardState.RUN), 0, 0
        self._ticket: RequestTicket | None = None
        self._starting = False
        # Policy that cannot take over where the robot is.
        self._waits: LoadedPolicy | None = None
        self._start_by_ns = 0
        self._end: LoopEnd | None = None
        self._leave_by_ns = 0
        self._ended = False

    def run(self, seconds: float | None = None, *, levels: Levels | None = None) -> LoopEnd:
        """Run ticks until a request or a fault ends the loop; nothing is sent after that.

        Args:
            seconds: duration [s]; None to run until requested to end.
            levels: `CommandQueue.levels` at the time the activation was requested, so that no later stop is missed;
                None for the current ones.
        """
        self._levels = self._commands.levels if levels is None else levels
        self._begin()
        try:
            return self._tick_on(seconds)
        finally:
            self._commands.refuse_all("refused: the policy has ended")

    def _tick_on(self, seconds: float | None) -> LoopEnd:
        tick, alarm, period, counts, commands = self._tick, self._alarm, self.period_ns, self.counts, self._commands
        number = self._number
        last = None if seconds is None else number + round(seconds * 1e9 / period)
        # Numbers that are not finite are handled where they occur; numpy's warnings about them would only take time.
        with undisturbed(), np.errstate(all="ignore"):
            # On absolute deadlines, so that the rate does not drift.
            due = self._clocks.now_ns() + period
            while not self._ended:
                late, slept = alarm.wait(due) - due, self._slept_ns()
                if late >= period or slept:
                    # Whole periods have passed, as after a suspend. They are skipped, because old decisions are of no
                    # use.
                    skipped = late // period
                    due += skipped * period
                    skipped += slept // period
                    number += skipped
                    self._skip(skipped)
                why = tick.lost()
                if why:
                    # Send nothing, not even a safe command: another runtime commands the robot.
                    self._say(f"nothing is sent any more: {why}; `activate` asks for the robot again")
                    self._end = LoopEnd.LEASE_LOST
                    break
                if self._watchdog is not None:
                    self._regain(self._watchdog)
                # As late as possible: no tick begins with a policy after its verdict was revoked.
                self.judge()
                request = self._request()
                tick.run(number, due, self._trouble, request)
                self._trouble = 0
                commands.read_back = tick.read_back
                counts.ticks += 1
                counts.missed += tick.missed
                counts.repeated += not tick.fresh
                counts.interventions += tick.intervened
                self._count()
                # From this thread only: systemd's watchdog must notice when the loop itself hangs.
                self._progress(tick.ended_ns)
                if last is not None and number >= last:
                    self._leave(LoopEnd.FINISHED)
                self._attend(request)
                due += period
                number += 1
        self._number = number
        if self._watchdog is not None:
            # Skipped after an exception, so that the watchdog brings the robot to rest.
            self._watchdog.end()
        return self._end or LoopEnd.SHUTDOWN

    def _slept_ns(self) -> int:
        """Return for how long the computer was suspended since the last call [ns]; 0 if it was not."""
        asleep_ns = self._clocks.asleep_ns()
        slept_ns, self._asleep_ns = asleep_ns - self._asleep_ns, asleep_ns
        return slept_ns if slept_ns >= SLEPT_NS else 0

    def _regain(self, watchdog: Watchdog) -> None:
        """Continue from the watchdog's last command in HOLD, if it took over."""
        resumed = watchdog.taken_over()
        if resumed is not None:
            self._tick.guard.resume_from(*resumed)
            self._press(GuardState.HOLD, _WATCHDOG)

    def _count(self) -> None:
        """Update the health counters; only ticks driven by the policy count."""
        tick, health = self._tick, self.loaded.health
        if tick.state == GuardState.RUN:
            health.tick(tick.ended_ns, missed=tick.missed, intervened=tick.intervened)
        else:
            health.beat(tick.ended_ns)

    def _request(self) -> Request:
        """Return the request to the supervisor for this period."""
        commands = self._commands
        if (
            commands.levels == self._levels
            and not (self._least or self._skipped or self._starting or self._end)
            and not (len(commands) or commands.shutdown)
        ):
            return NO_REQUEST
        before, self._levels = self._levels, commands.levels
        stop, hold, damp, deactivate = (new != old for new, old in zip(self._levels, before, strict=True))
        if commands.shutdown or deactivate:
            self._leave(LoopEnd.SHUTDOWN if commands.shutdown else LoopEnd.DEACTIVATED)
        if damp:
            self._press(GuardState.DAMP, _DAMP_REQUESTED)
        if hold:
            self._press(GuardState.HOLD, _HOLD_REQUESTED)
        if self._end is not None and (hold or damp or deactivate):
            # An update that ends the policy then leaves the next one to wait for `activate`.
            self.drove = False
        reset, start = self._next_ticket()
        least, reasons, skipped = self._least, self._reasons, self._skipped
        self._least, self._reasons, self._skipped = int(GuardState.RUN), 0, 0
        return Request(stop=stop, least=least, reset=reset, start=start, skipped=skipped, reasons=reasons)

    def _next_ticket(self) -> tuple[int, int]:
        """Return the `reset` and `start` numbers of the next ticket; see `Request`."""
        commands = self._commands
        self._ticket = ticket = commands.take()
        if ticket is None:
            return NOTHING, self._tick.read_back if self._starting else NOTHING
        refusal = self._refusal(ticket)
        if refusal or ticket.command is Command.ACTIVATE:
            self._ticket = None
            ticket.answer(refusal or _ALREADY_ACTIVE, obeyed=not refusal)
            return NOTHING, NOTHING
        if ticket.command is Command.RESET:
            return ticket.read_back, NOTHING
        return NOTHING, ticket.read_back

    def _refusal(self, ticket: RequestTicket) -> str:
        """Return why a ticket is refused without asking the supervisor; empty if it is not."""
        # A stop, hold, damp or deactivate came after the request, so its sender did not know of it.
        if ticket.levels != self._levels:
            return ANSWERS[RequestAnswer.SUPERSEDED]
        if self._end is not None:
            return f"refused: the policy is about to end ({self._end.value})"
        if ticket.command is Command.START and self._commands.barred:
            return f"refused: {self._commands.barred}"
        if ticket.command is Command.START and self._silent():
            return "refused: the operator's heartbeat is missing"
        if ticket.command is Command.START and (why := self._tick.outside_start()):
            return f"refused: {why}"
        return ""

    def _answer(self, request: Request) -> None:
        """Report the answer to a reset or start request."""
        tick, ticket = self._tick, self._ticket
        self._ticket = None
        if tick.reset_answer == RequestAnswer.OBEYED:
            # The operator has seen why the robot stopped, so the run counts as undisturbed again.
            self._state, self.why, self.taken_over = int(GuardState.STANDSTILL), "", False
            if ticket is not None:
                self._commands.acknowledged = ticket.levels[0]
                self.stop_why = ""
            self._say("STANDSTILL: reset by the operator; `start` lets the policy move the robot")
        if tick.start_answer == RequestAnswer.OBEYED:
            self._state, self._starting = int(GuardState.RUN), False
            self._say("RUN: started" if ticket is None else "RUN: started by the operator")
        elif self._starting:
            # A ticket takes the place of the activation's own start, which was not tried in this period.
            self._keep_starting(tick.start_answer if ticket is None else RequestAnswer.NONE)
        if ticket is not None:
            answer = tick.reset_answer if ticket.command is Command.RESET else tick.start_answer
            obeyed = answer in (RequestAnswer.OBEYED, RequestAnswer.ALREADY)
            ticket.answer(ANSWERS[RequestAnswer(answer)] if answer else "refused: the guard failed", obeyed=obeyed)

    def _keep_starting(self, answer: int) -> None:
        """Retry the start of an activation until the robot rests, for at most `START_S`, never after a stop."""
        waits = answer in (RequestAnswer.NONE, RequestAnswer.NOT_AT_REST, RequestAnswer.NOT_READY)
        if self._tick.state == GuardState.STANDSTILL and waits and self._tick.ended_ns < self._start_by_ns:
            return
        self._starting = False
        if self._end is None and self._tick.state == GuardState.STANDSTILL:
            self._say(f"warning: not started: {ANSWERS[RequestAnswer(answer)]}; `start` tries again")

    @property
    def seen(self) -> Levels:
        """`CommandQueue.levels` at the last tick."""
        return self._levels

    def stand_by(self) -> bool:
        """Report progress and swap in a newly activated policy; call regularly while inactive.

        Returns:
            False once a policy of a different contract is active, which needs a new process.
        """
        self.loaded.health.beat(self._clocks.now_ns())
        self._progress(self._clocks.now_ns())
        if self._swapper is not None:
            self._swap(self._swapper)
        self.judge()
        return self._end is not LoopEnd.OTHER_CONTRACT

    def _warm_up(self) -> None:
        self._tick.warm_up()
        self.loaded.health.warm_up()

    def _begin(self) -> None:
        self._offset_ns, self._asleep_ns = self._clock_offset_ns(), self._clocks.asleep_ns()
        self._tick.activate()
        self._state, self._trouble = int(GuardState.STANDSTILL), 0
        self._least, self._reasons, self._skipped = int(GuardState.RUN), 0, 0
        self._end, self._ended, self.why, self.taken_over = None, False, "", False
        self._commands.read_back = self._tick.read_back
        self._starting = True
        self._start_by_ns = self._clocks.now_ns() + round(START_S * 1e9)
        if self._watchdog is not None:
            self._watchdog.begin()

    def _skip(self, periods: int) -> None:
        """Account for control periods without a tick."""
        # Nothing was sent meanwhile, so the guard's last command did not change.
        self._tick.guard.idle()
        self._skipped += periods
        self.counts.skipped += periods
        self.counts.missed += periods
        self.loaded.health.skip(self._clocks.now_ns(), periods)
        self._trouble |= _SKIPPED

    def _attend(self, request: Request) -> None:
        """Handle what follows a tick: state changes, answers, hot swap, heartbeat, end of the loop."""
        tick = self._tick
        if tick.state > self._state:
            self._rise()
        if request is not NO_REQUEST:
            self._answer(request)
            if tick.reasons & _GUARD_FAILED:
                self._repeat(request)
        if self._swapper is not None:
            self._swap(self._swapper)
        # Only in RUN: a robot that stands still needs nobody to watch it.
        if self._heartbeat_ns is not None and tick.state == GuardState.RUN and self._silent():
            self._press(GuardState.HOLD, _OPERATOR_SILENT)
        if self._end is not None:
            self._depart()
        # Once per run, when the transport has settled.
        if self.counts.ticks == RATE_TICKS and self.counts.repeated > RATE_SHARE * RATE_TICKS:
            rate_hz = 1e9 / self.period_ns
            sample_hz = rate_hz * (1.0 - self.counts.repeated / RATE_TICKS)
            self._say(f"warning: new samples come at about {sample_hz:.0f} Hz, the policy acts at {rate_hz:.0f} Hz")

    def _silent(self) -> bool:
        """Whether the operator's heartbeat is required and overdue."""
        silence_ns = self._clocks.now_ns() - self._commands.heartbeat_ns
        return self._heartbeat_ns is not None and silence_ns > self._heartbeat_ns

    def _rise(self) -> None:
        tick = self._tick
        self._state = tick.state
        self.counts.rises += 1
        self.why = cause(tick, self._age())
        text = f"{GuardState(tick.state).name}: {self.why}"
        if tick.state == GuardState.PROTECTIVE_STOP:
            self.stop_why = self.why
            if not self._commands.stopped:
                # A fault's stop lasts until a reset like a requested one, whatever ends this process.
                self._levels = (self._commands.latch(), *self._levels[1:])
        if not tick.reasons & (_HOLD_REQUESTED | _DAMP_REQUESTED):
            self.taken_over = True
        # Counted against the version on trial, which rolls back after too many.
        if blames_policy(tick.reasons):
            self.loaded.health.fault(tick.ended_ns, text)
        self._say(text)

    def _age(self) -> str:
        """Describe the age of the sample, and a step of the wall clock that may explain it."""
        text = f"the sample is {self._tick.age_ns * 1e-9:.3g} s old by its own stamp"
        # A step of the wall clock makes every stamp look old or ahead; it is the first thing to rule out.
        step_ns = self._clock_offset_ns() - self._offset_ns
        if abs(step_ns) <= CLOCK_STEP_NS:
            return text
        return f"{text}, and this machine's clock was set by {step_ns * 1e-9:+.3g} s"

    def _clock_offset_ns(self) -> int:
        return self._clocks.wall_ns() - self._clocks.now_ns()

    def _repeat(self, request: Request) -> None:
        """Repeat the safety part of a request that a failed guard did not process."""
        stop = int(Reason.STOP_REQUESTED) if request.stop else 0
        self._press(GuardState.PROTECTIVE_STOP if stop else GuardState(request.least), request.reasons | stop)
        self._skipped += request.skipped

    def _press(self, state: GuardState, reason: int) -> None:
        """Raise the guard's state with the next decision."""
        self._least = max(self._least, int(state))
        self._reasons |= reason

    def _swap(self, swapper: PolicySwapper) -> None:
        # This process cannot load it: its buffers have the fields of the old contract.
        if swapper.other is not None and self._end is None:
            self._say(f"version {swapper.other.version} keeps another contract; the robot stops for it")
            self._leave(LoopEnd.OTHER_CONTRACT)
        elif swapper.ready is not None and self._may_swap(swapper.ready):
            self.loaded = swapper.change(self.loaded)
            self._tick.change(self.loaded.policy)
            self.counts.swaps += 1
            self._say(f"version {self.loaded.candidate.version} has taken over")

    def _may_swap(self, ready: LoadedPolicy) -> bool:
        """Whether a robot that is driven is where the next policy may take over; it waits for that."""
        why = self._tick.outside_start() if self._tick.state == GuardState.RUN else ""
        if why and self.revoked(ready):
            # At once, to end the run with its first tick: it would come as a surprise later.
            return True
        if why and self._waits is not ready:
            self._say(f"version {ready.candidate.version} waits to take over: {why}")
        self._waits = ready if why else None
        return not why

    def _leave(self, end: LoopEnd) -> None:
        """Begin to bring the robot to a safe state."""
        if self._end is None:
            self._end, self.drove = end, self._tick.state == GuardState.RUN
            self._leave_by_ns = self._clocks.now_ns() + round(RAMP_S * 1e9)
            self._press(GuardState.HOLD, _HOLD_REQUESTED)

    def _depart(self) -> None:
        """End the loop once a standstill is measured; escalate to DAMP if HOLD does not bring the joints to rest."""
        tick = self._tick
        if tick.stopped and tick.state >= GuardState.HOLD:
            self._ended = True
        elif tick.ended_ns > self._leave_by_ns + round(DAMP_S * 1e9):
            self._ended = True
            self._say("the joints did not come to rest; nothing more is sent")
        elif tick.ended_ns > self._leave_by_ns and tick.state < GuardState.DAMP:
            self._press(GuardState.DAMP, _DAMP_REQUESTED)
