"""Runs a policy on a robot: check, connect, wait for the robot, drive it, leave it safe."""

import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from physai.deploy_jetson.agent.active import open_active
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlSocket
from physai.deploy_jetson.runtime.commands.lease import LeaseKeeper
from physai.deploy_jetson.runtime.commands.queue import NO_LEVELS, Command, CommandQueue, Levels, Ticket
from physai.deploy_jetson.runtime.health import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate, CandidateError, examine
from physai.deploy_jetson.runtime.hot_swap.policy_watcher import start_scout
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy, PolicySwapper
from physai.deploy_jetson.runtime.io.robot_check import DescribesRobot, check_robot
from physai.deploy_jetson.runtime.loop import Counts, Loop, LoopEnd
from physai.deploy_jetson.runtime.options import RunOptions, require_rate
from physai.deploy_jetson.runtime.summary import Summary, stages_us, summarise
from physai.deploy_jetson.runtime.system.realtime import acquire, become_helper
from physai.deploy_jetson.runtime.system.service_manager import ServiceManager
from physai.deploy_jetson.runtime.tick import Clocks, Tick
from physai.deploy_jetson.runtime.watchdog.client import Watchdog
from physai.deploy_jetson.slots.health import health_path
from physai.deploy_jetson.telemetry.diagnosis import diagnose
from physai.deploy_jetson.telemetry.steal_time import steal_s
from physai.deploy_jetson.telemetry.telemetry import Sources, Telemetry
from physai.deploy_jetson.ticks.lifecycle import Lifecycle, advance
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.recording_channels import ORIGIN_METADATA_KEY
from physai.sdk.safety import ANSWERS, GuardState, RequestAnswer
from physai.sdk.transport.protocol import (
    Exclusive,
    SupportsDiagnostics,
    SupportsReset,
    SupportsWatchdog,
    Transport,
    TransportError,
)

_STAND_BY_S = 0.05
_SUSPENDED_S = 5.0
"""Maximum pause of the process while it waits for its robot [s]; after a longer one it must not start to move it."""
_SAY_AGAIN_S = 2.0
_GIVE_UP_S = 2.0
"""Time for which a robot is kept from others while something keeps it from being driven [s]."""
_NEWS_S = 0.1
_DIAGNOSE_S = 1.0
_MAX_NEWS = 256


class Runtime:
    """One run, in the thread that calls `run`."""

    def __init__(
        self,
        options: RunOptions,
        transport: Transport,
        *,
        telemetry: Telemetry | None = None,
        say: Callable[[str], None] = print,
        clocks: Clocks | None = None,
    ) -> None:
        """Nothing is loaded or connected yet.

        Args:
            options: how to run.
            transport: not yet open.
            telemetry: takes the tick records; None for one that only counts them.
            say: reports a line of text; called from a separate thread.
            clocks: what time it is.
        """
        self.options, self.transport = options, transport
        self.state = Lifecycle.UNCONFIGURED
        self.waiting_for = ""
        """What keeps the robot from being driven, while it is inactive; empty for nothing."""
        self.commands = CommandQueue()
        self.telemetry = telemetry or Telemetry()
        self._clocks = clocks or Clocks()
        self._show = say
        self._news: deque[str] = deque(maxlen=_MAX_NEWS)
        self._told: set[str] = set()
        """Problems of the transport that were shown since the last activation began."""
        self._over = threading.Event()
        self._reporter = threading.Thread(target=self._report, name="physai-news", daemon=True)
        self._steal_s = steal_s()
        self._contract: PolicyContract | None = None
        self._tick: Tick | None = None
        self._loop: Loop | None = None
        self._control: ControlSocket | None = None
        self._swapper: PolicySwapper | None = None
        self._watchdog: Watchdog | None = None
        self._exclusive = transport if isinstance(transport, Exclusive) else None
        self._keeper: LeaseKeeper | None = None
        self._manager = ServiceManager()
        self._scout: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def run(self) -> LoopEnd:
        """From unconfigured to finalized.

        Raises:
            PhysaiError: there is no policy that may run, or it does not start, or not on this robot.
        """
        try:
            loop, tick = self._configure()
            self._begin()
            wanted = None if self.options.stand_by else NO_LEVELS
            while True:
                found = self._stand_by(loop, tick, wanted=wanted)
                if isinstance(found, LoopEnd):
                    return found
                end = self._drive(loop, found)
                if end not in (LoopEnd.DEACTIVATED, LoopEnd.LEASE_LOST):
                    return end
                wanted = None
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._finish()

    def _drive(self, loop: Loop, levels: Levels) -> LoopEnd:
        """Inactive to active, and back when it is over."""
        self.state = advance(self.state, Lifecycle.ACTIVE)
        self._say(f"active at {1e9 / loop.period_ns:g} Hz")
        try:
            end = loop.run(self.options.seconds, levels=levels)
        finally:
            self.state = advance(self.state, Lifecycle.INACTIVE)
        if self._exclusive is not None:
            # Not after an exception: the watchdog speaks then, and `_finish` gives the robot up once it is silent.
            self._exclusive.release()
        self._say(f"not active any more: {end.value}")
        return end

    def _configure(self) -> tuple[Loop, Tick]:
        """Loads and connects; unconfigured to inactive."""
        active = open_active(self.options.root, config=self.options.config)
        candidate = examine(active)
        if candidate.unsafe_no_verdict and not self.options.unsafe_no_verdict:
            raise CandidateError(
                f"version {candidate.version} was installed without a valid verdict; validate and install it again, or "
                f"run it regardless with {self.options.names.unsafe_no_verdict}"
            )
        self._contract = contract = active.bundle.contract
        require_rate(self.options, contract)
        # Before the counters are replaced: it refuses to share the tree with another runtime.
        path = health_path(self.options.root).with_name(CONTROL_FILE)
        self._control = ControlSocket(
            path, self.commands, self.status, record=self.telemetry.record, prepare=self._become_helper
        )
        policy = candidate.load(contract)
        health = self._open_health(candidate)
        self.transport.open(contract)
        if self._exclusive is not None:
            self._keeper = LeaseKeeper(self._exclusive, self._become_helper)
            self._keeper.start()
        robot = self.transport.description() if isinstance(self.transport, DescribesRobot) else None
        if robot is not None:
            check_robot(contract, robot)
        sources = Sources(about=self._about, status=self.status, say=self._say, prepare=self._become_helper)
        sink = self.telemetry.configure(contract, self.transport.sample(), sources)
        self._watchdog = self._open_watchdog(contract)
        self._tick = Tick(
            contract,
            self.transport,
            policy,
            sink,
            clocks=self._clocks,
            watchdog=self._watchdog,
            lost=(lambda: "") if self._exclusive is None else self._exclusive.lost,
        )
        if self.options.hot_swap:
            self._scout, connection = start_scout(self.options.root, self.options.config, candidate.bundle_sha256)
            self._swapper = PolicySwapper(
                connection,
                contract,
                self._open_health,
                self._say,
                unsafe_no_verdict=self.options.unsafe_no_verdict,
                to_run_unsafe=self.options.names.unsafe_no_verdict,
                prepare=self._become_helper,
            )
        self._loop = Loop(
            self._tick,
            LoadedPolicy(candidate, policy, health),
            self.commands,
            period_ns=round(contract.timing.control_dt * 1e9),
            say=self._say,
            swapper=self._swapper,
            heartbeat_s=self.options.heartbeat_s,
            clocks=self._clocks,
            watchdog=self._watchdog,
            progress=self._manager.progress,
        )
        self.state = advance(self.state, Lifecycle.INACTIVE)
        self._say(f"version {candidate.version} ({contract.task} on {contract.robot.name}) in slot {candidate.slot}")
        if candidate.unsafe_no_verdict:
            self._say(f"warning: version {candidate.version} runs WITHOUT A VALID VERDICT")
        return self._loop, self._tick

    def _begin(self) -> None:
        """Starts the helpers, then asks the kernel for what the loop needs."""
        self._reporter.start()
        self.telemetry.start()
        if self._control is not None:
            self._control.start()
        if self._swapper is not None:
            self._swapper.start()
        for warning in acquire(self.options.realtime):
            self._say(f"warning: {warning}")
        self._manager.ready()

    def _become_helper(self) -> None:
        become_helper(self.options.realtime)

    def _open_health(self, candidate: Candidate) -> RuntimeHealth:
        path = health_path(self.options.root)
        return RuntimeHealth(path, bundle_sha256=candidate.bundle_sha256, now_ns=self._clocks.now_ns())

    def _open_watchdog(self, contract: PolicyContract) -> Watchdog | None:
        if not self.options.watchdog:
            self._say("warning: no watchdog: if this process hangs or dies, nothing stops the robot")
        elif not isinstance(self.transport, SupportsWatchdog):
            self._say(f"no watchdog: only this process reaches a robot through the transport {self.transport.name}")
        else:
            return Watchdog(contract, self.transport, self.options.realtime)
        return None

    def _stand_by(self, loop: Loop, tick: Tick, *, wanted: Levels | None) -> LoopEnd | Levels:
        """Waits in INACTIVE until the robot is heard and may be driven.

        Args:
            loop: that is to drive.
            tick: in it.
            wanted: levels of the request to activate, None where there is none yet.

        Returns:
            The levels of the request that was granted, or why the runtime is to end instead.
        """
        commands = self.commands
        shown, shown_ns = "", 0
        awake_ns = clear_ns = self._clocks.now_ns()
        while True:
            self.transport.wait(_STAND_BY_S)
            before_ns, awake_ns = awake_ns, self._clocks.now_ns()
            if wanted is not None and awake_ns - before_ns > _SUSPENDED_S * 1e9:
                self._say("not activated: this process stood still meanwhile; `activate` asks for it again")
                wanted = None
            if commands.shutdown:
                return LoopEnd.SHUTDOWN
            if not loop.stand_by():
                return LoopEnd.OTHER_CONTRACT
            while (ticket := commands.take()) is not None:
                wanted = self._answer(ticket, wanted)
            if wanted != commands.levels or commands.stopped:
                # A stop, hold, damp or deactivate came after the request.
                wanted = None
            now_ns, obstacle = self._clocks.now_ns(), self._obstacle(tick)
            clear_ns = clear_ns if obstacle else now_ns
            if self._exclusive is not None:
                if wanted is None or now_ns - clear_ns > _GIVE_UP_S * 1e9:
                    self._exclusive.release()
                elif not obstacle:
                    obstacle = self._exclusive.claim()
            self.waiting_for = obstacle
            if wanted is not None and not obstacle:
                return wanted
            text = f"waiting for {obstacle or self._next_request()}"
            again = (wanted is not None or text != shown) and now_ns - shown_ns > _SAY_AGAIN_S * 1e9
            if not shown or again:
                self._say(text)
                shown, shown_ns = text, now_ns

    def _next_request(self) -> str:
        """What an operator has to ask for, while nothing is driven."""
        return "a reset of the stop" if self.commands.stopped else "the request to activate"

    def _answer(self, ticket: Ticket, wanted: Levels | None) -> Levels | None:
        """Answers a request while nothing is driven; the levels of the activation that is wanted after it."""
        commands = self.commands
        if ticket.levels != commands.levels:
            ticket.answer(ANSWERS[RequestAnswer.SUPERSEDED])
        elif ticket.command is Command.RESET:
            stopped, commands.acknowledged = commands.stopped, ticket.levels[0]
            told = "the stop is reset" if stopped else "there is no stop to reset"
            ticket.answer(f"{told}; nothing is driven, `activate` begins to drive", obeyed=stopped)
        elif ticket.command is Command.START:
            ticket.answer("refused: nothing is driven; `activate` begins to drive")
        elif commands.stopped:
            ticket.answer("refused: a stop was requested; reset it first")
        else:
            if wanted != ticket.levels:
                self._forget()
            ticket.answer("accepted: activates as soon as the robot can be driven", obeyed=True)
            return ticket.levels
        return wanted

    def _forget(self) -> None:
        """Lets what was wrong before this activation no longer be told as if it were wrong now."""
        if isinstance(self.transport, SupportsReset):
            self.transport.forget()
        self._told.clear()

    def _obstacle(self, tick: Tick) -> str:
        """What keeps the robot from being driven; empty for nothing."""
        missing = self.transport.missing()
        if missing:
            return ", ".join(f"{name} (for {seconds:.0f} s)" for name, seconds in missing)
        silent = self._silence_s()
        if silent is not None:
            return f"the operator, who {silent}"
        return tick.obstacle() or ("" if self._watchdog is None else self._watchdog.obstacle())

    def _silence_s(self) -> str | None:
        """When the operator was last heard, if that is too long ago."""
        limit_s, heard_ns = self.options.heartbeat_s, self.commands.heartbeat_ns
        if limit_s is None:
            return None
        silence_s = (self._clocks.now_ns() - heard_ns) * 1e-9
        if silence_s <= limit_s:
            return None
        return f"was last heard {silence_s:.1f} s ago" if heard_ns else "was never heard"

    def status(self) -> dict[str, Any]:
        """What is going on, for the control socket: plain data."""
        loop, tick = self._loop, self._tick
        record: dict[str, Any] = {"lifecycle": self.state.value, **self._about()}
        if loop is None or tick is None:
            return record
        return {
            **record,
            "unsafe_no_verdict": loop.loaded.candidate.unsafe_no_verdict,
            "rate_hz": 1e9 / loop.period_ns,
            "guard": GuardState(tick.state).name,
            "why": loop.why if self.state is Lifecycle.ACTIVE else "",
            "waiting_for": self.waiting_for,
            "lease": 0 if self._exclusive is None else self._exclusive.lease_number,
            "stop_asked": self.commands.stopped,
            "stopped": tick.stopped and loop.seen == self.commands.levels,
            **vars(loop.counts),
            "stages_us": stages_us(self.telemetry.meter),
            **self.telemetry.status(),
        }

    def _about(self) -> dict[str, Any]:
        """What runs."""
        record: dict[str, Any] = {"transport": self.transport.name}
        if self._loop is None:
            return record
        candidate = self._loop.loaded.candidate
        return {
            **record,
            "version": candidate.version,
            "slot": candidate.slot,
            "robot": "" if self._contract is None else self._contract.robot.name,
            "bundle_sha256": candidate.bundle_sha256,
            "contract": candidate.fingerprint,
            ORIGIN_METADATA_KEY: candidate.origin(self.transport.name).mark,
        }

    @property
    def loaded(self) -> LoadedPolicy | None:
        """The policy that drives, or drove last; None before there is one."""
        return None if self._loop is None else self._loop.loaded

    @property
    def guard_state(self) -> str:
        """Name of the guard's state after the last tick."""
        return GuardState(0 if self._tick is None else self._tick.state).name

    @property
    def taken_over(self) -> bool:
        """Whether the guard took over without a request, and was not reset."""
        return self._loop is not None and self._loop.taken_over

    def summary(self) -> Summary:
        """What the run came to so far."""
        counts = Counts() if self._loop is None else self._loop.counts
        before, now = self._steal_s, steal_s()
        steal = None if before is None or now is None else now - before
        return summarise(self.telemetry.meter, counts, steal=steal)

    def _finish(self) -> None:
        """Lets everything go; whatever state it is in."""
        if self.state is Lifecycle.ACTIVE:
            self.state = advance(self.state, Lifecycle.INACTIVE)
        self.commands.refuse_all("refused: the runtime ends")
        self._manager.stopping()
        # Reports query the transport, so the reporting thread ends first.
        self._over.set()
        if self._reporter.is_alive():
            self._reporter.join()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._keeper is not None:
            self._keeper.close()
        self.transport.close()
        if self._control is not None:
            self._control.close()
        if self._swapper is not None:
            self._swapper.close()
        if self._scout is not None:
            # It may be waiting for the answers of a policy that hangs.
            self._scout.kill()
            self._scout.wait()
        if self._loop is not None:
            self._loop.loaded.health.close()
        self.telemetry.finish(self._error)
        self._flush()
        self.state = advance(self.state, Lifecycle.FINALIZED)

    def _say(self, text: str) -> None:
        self._news.append(text)

    def _report(self) -> None:
        """Shows the news: printing may wait for a terminal, which the loop must not."""
        self._become_helper()
        looked_ns = diagnosed_ns = 0
        while not self._over.wait(_NEWS_S):
            now_ns = self._clocks.now_ns()
            if now_ns - looked_ns > _SAY_AGAIN_S * 1e9:
                looked_ns = now_ns
                watched = "" if self._watchdog is None else self._watchdog.problem()
                leased = "" if self._keeper is None else self._keeper.problem
                for problem in (*self.transport.problems(), watched, leased):
                    if problem and problem not in self._told and len(self._told) < _MAX_NEWS:
                        self._told.add(problem)
                        self._say(problem)
            if now_ns - diagnosed_ns > _DIAGNOSE_S * 1e9:
                diagnosed_ns = now_ns
                self._diagnose()
            self._flush()

    def _diagnose(self) -> None:
        """Publish diagnostics, where the transport supports it."""
        if isinstance(self.transport, SupportsDiagnostics):
            found = diagnose(self.status())
            with suppress(TransportError):  # there may be no receiver, or no network
                self.transport.diagnose(found.level, found.message, found.values)

    def _flush(self) -> None:
        while self._news:
            self._show(self._news.popleft())
