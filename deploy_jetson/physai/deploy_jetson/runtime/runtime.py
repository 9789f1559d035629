"""A robot's policy from start to end: check, connect, wait for the robot, drive it, leave it safe."""

import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physai.deploy_jetson.agent.active import open_active
from physai.deploy_jetson.runtime.candidate import Candidate, CandidateError, examine
from physai.deploy_jetson.runtime.control import CONTROL_FILE, ControlSocket
from physai.deploy_jetson.runtime.health import RuntimeHealth
from physai.deploy_jetson.runtime.lifecycle import Lifecycle, advance
from physai.deploy_jetson.runtime.loop import Counts, End, Loop
from physai.deploy_jetson.runtime.orders import Mailbox, Order
from physai.deploy_jetson.runtime.realtime import Realtime, acquire, become_helper
from physai.deploy_jetson.runtime.robot_check import DescribesRobot, check_robot
from physai.deploy_jetson.runtime.scout import start_scout
from physai.deploy_jetson.runtime.summary import Summary, stages_us, steal_s, summarise
from physai.deploy_jetson.runtime.swap import Loaded, Swapper
from physai.deploy_jetson.runtime.tick import Clocks, Tick
from physai.deploy_jetson.slots.health import health_path
from physai.deploy_jetson.telemetry.diagnosis import diagnose
from physai.deploy_jetson.telemetry.telemetry import Sources, Telemetry
from physai.sdk.contract import PolicyContract
from physai.sdk.safety import GuardState
from physai.sdk.wire import Diagnoses, Transport, TransportError

RATE_TOLERANCE = 1e-3
"""Share by which a rate may differ from 1 / control_dt and still be it."""

_TAKES_BACK = (Order.DEACTIVATE, Order.HOLD, Order.DAMP)
"""Orders after which an activation that has not happened yet is not wanted any more; so does an emergency stop."""

_STAND_BY_S = 0.05
_SAY_AGAIN_S = 2.0
_NEWS_S = 0.1
_DIAGNOSE_S = 1.0
_MAX_NEWS = 256


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run."""

    root: Path
    """The robot's tree of slots."""
    realtime: Realtime = field(default_factory=Realtime)
    unsafe_no_verdict: bool = False
    """Whether a policy that was installed without a valid verdict may run."""
    rate_hz: float | None = None
    """Rate the policy must have [Hz]; None for whatever its contract says."""
    heartbeat_s: float | None = None
    """Longest silence of the operator before HOLD [s]; None where nobody has to watch."""
    seconds: float | None = None
    """How long to drive [s]; None for until it is told."""
    stand_by: bool = False
    """Whether to wait for the order `activate` before the first command."""
    hot_swap: bool = True
    """Whether to take over policies that are activated meanwhile."""


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
            say: shows a line to whoever looks; called in a thread of its own.
            clocks: what time it is.
        """
        self.options, self.transport = options, transport
        self.state = Lifecycle.UNCONFIGURED
        self.waiting_for = ""
        """What keeps the robot from being driven, while it is inactive; empty for nothing."""
        self.mailbox = Mailbox()
        self.telemetry = telemetry or Telemetry()
        self._clocks = clocks or Clocks()
        self._show = say
        self._news: deque[str] = deque(maxlen=_MAX_NEWS)
        self._over = threading.Event()
        self._reporter = threading.Thread(target=self._report, name="physai-news", daemon=True)
        self._steal_s = steal_s()
        self._contract: PolicyContract | None = None
        self._tick: Tick | None = None
        self._loop: Loop | None = None
        self._control: ControlSocket | None = None
        self._swapper: Swapper | None = None
        self._scout: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def run(self) -> End:
        """From unconfigured to finalized.

        Raises:
            PhysaiError: there is no policy that may run, or it does not start, or not on this robot.
        """
        try:
            loop, tick = self._configure()
            self._begin()
            wanted = not self.options.stand_by
            while True:
                end = self._stand_by(loop, tick, wanted=wanted)
                if end is not None:
                    return end
                end = self._drive(loop)
                if end is not End.DEACTIVATED:
                    return end
                wanted = False
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._finish()

    def _drive(self, loop: Loop) -> End:
        """Inactive to active, and back when it is over."""
        self.state = advance(self.state, Lifecycle.ACTIVE)
        self._say(f"active at {1e9 / loop.period_ns:g} Hz")
        try:
            end = loop.run(self.options.seconds)
        finally:
            self.state = advance(self.state, Lifecycle.INACTIVE)
        self._say(f"not active any more: {end.value}")
        return end

    def _configure(self) -> tuple[Loop, Tick]:
        """Loads and connects; unconfigured to inactive."""
        active = open_active(self.options.root)
        candidate = examine(active)
        if candidate.unsafe_no_verdict and not self.options.unsafe_no_verdict:
            raise CandidateError(
                f"version {candidate.version} was installed without a valid verdict; validate and install it again, or "
                "run it regardless with --unsafe-no-verdict"
            )
        self._contract = contract = active.bundle.contract
        self._require_rate(contract)
        # Before the counters are replaced: it refuses to share the tree with another runtime.
        path = health_path(self.options.root).with_name(CONTROL_FILE)
        self._control = ControlSocket(
            path, self.mailbox, self.status, record=self.telemetry.record, prepare=self._become_helper
        )
        policy = candidate.load(contract)
        health = self._open_health(candidate)
        self.transport.open(contract)
        robot = self.transport.description() if isinstance(self.transport, DescribesRobot) else None
        if robot is not None:
            check_robot(contract, robot)
        sources = Sources(about=self._about, status=self.status, say=self._say, prepare=self._become_helper)
        sink = self.telemetry.configure(contract, self.transport.sample(), sources)
        self._tick = Tick(contract, self.transport, policy, sink, ranges=candidate.ranges, clocks=self._clocks)
        if self.options.hot_swap:
            self._scout, connection = start_scout(self.options.root, candidate.bundle_sha256)
            self._swapper = Swapper(
                connection,
                contract,
                self._open_health,
                self._say,
                unsafe_no_verdict=self.options.unsafe_no_verdict,
                prepare=self._become_helper,
            )
        self._loop = Loop(
            self._tick,
            Loaded(candidate, policy, health),
            self.mailbox,
            period_ns=round(contract.timing.control_dt * 1e9),
            say=self._say,
            swapper=self._swapper,
            heartbeat_s=self.options.heartbeat_s,
            clocks=self._clocks,
        )
        self.state = advance(self.state, Lifecycle.INACTIVE)
        self._say(f"version {candidate.version} ({contract.task} on {contract.robot.name}) in slot {candidate.slot}")
        if candidate.unsafe_no_verdict:
            self._say(f"warning: version {candidate.version} runs WITHOUT A VALID VERDICT (--unsafe-no-verdict)")
        return self._loop, self._tick

    def _require_rate(self, contract: PolicyContract) -> None:
        wanted, found = self.options.rate_hz, 1.0 / contract.timing.control_dt
        if wanted is not None and not abs(wanted / found - 1.0) <= RATE_TOLERANCE:
            raise CandidateError(
                f"the policy was trained at {found:g} Hz and means something else at {wanted:g} Hz; leave out --rate, "
                "or train and export for that rate"
            )

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

    def _become_helper(self) -> None:
        become_helper(self.options.realtime)

    def _open_health(self, candidate: Candidate) -> RuntimeHealth:
        path = health_path(self.options.root)
        return RuntimeHealth(path, bundle_sha256=candidate.bundle_sha256, now_ns=self._clocks.now_ns())

    def _stand_by(self, loop: Loop, tick: Tick, *, wanted: bool) -> End | None:
        """Waits in INACTIVE until the robot is heard and may be driven; why not, if it is to end instead."""
        shown, shown_ns = "", 0
        while True:
            self.transport.wait(_STAND_BY_S)
            if not loop.stand_by():
                return End.OTHER_CONTRACT
            while self.mailbox.orders:
                order = self.mailbox.orders.popleft()
                if order is Order.SHUTDOWN:
                    return End.SHUTDOWN
                wanted = order is Order.ACTIVATE or (wanted and order not in _TAKES_BACK)
            wanted = wanted and not self.mailbox.stop
            self.waiting_for = obstacle = self._obstacle(tick)
            if wanted and not obstacle:
                return None
            text, now_ns = f"waiting for {obstacle or 'the order to activate'}", self._clocks.now_ns()
            again = (wanted or text != shown) and now_ns - shown_ns > _SAY_AGAIN_S * 1e9
            if not shown or again:
                self._say(text)
                shown, shown_ns = text, now_ns

    def _obstacle(self, tick: Tick) -> str:
        """What keeps the robot from being driven; empty for nothing."""
        missing = self.transport.missing()
        if missing:
            return ", ".join(f"{name} (for {seconds:.0f} s)" for name, seconds in missing)
        silent = self._silence_s()
        if silent is not None:
            return f"the operator, who {silent}"
        return tick.obstacle()

    def _silence_s(self) -> str | None:
        """When the operator was last heard, if that is too long ago."""
        limit_s, heard_ns = self.options.heartbeat_s, self.mailbox.heartbeat_ns
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
            "why": loop.why,
            "waiting_for": self.waiting_for,
            "stop_asked": self.mailbox.stop,
            "stopped": tick.stopped,
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
        }

    @property
    def loaded(self) -> Loaded | None:
        """The policy that drives, or drove last; None before there is one."""
        return None if self._loop is None else self._loop.loaded

    @property
    def guard_state(self) -> str:
        """Name of the guard's state after the last tick."""
        return GuardState(0 if self._tick is None else self._tick.state).name

    @property
    def taken_over(self) -> bool:
        """Whether the guard took over when nobody had asked for it, and was not reset."""
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
        # Whoever reports asks the transport how it is, so it ends before that does.
        self._over.set()
        if self._reporter.is_alive():
            self._reporter.join()
        self.transport.close()
        if self._control is not None:
            self._control.close()
        if self._swapper is not None:
            self._swapper.close()
        if self._scout is not None:
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
        known: set[str] = set()
        looked_ns = diagnosed_ns = 0
        while not self._over.wait(_NEWS_S):
            now_ns = self._clocks.now_ns()
            if now_ns - looked_ns > _SAY_AGAIN_S * 1e9:
                looked_ns = now_ns
                for problem in self.transport.problems():
                    if problem not in known and len(known) < _MAX_NEWS:
                        known.add(problem)
                        self._say(problem)
            if now_ns - diagnosed_ns > _DIAGNOSE_S * 1e9:
                diagnosed_ns = now_ns
                self._diagnose()
            self._flush()

    def _diagnose(self) -> None:
        """Tells the robot's other programs, where the transport reaches them."""
        if isinstance(self.transport, Diagnoses):
            found = diagnose(self.status())
            with suppress(TransportError):  # nobody may hear it, or the network be gone
                self.transport.diagnose(found.level, found.message, found.values)

    def _flush(self) -> None:
        while self._news:
            self._show(self._news.popleft())
