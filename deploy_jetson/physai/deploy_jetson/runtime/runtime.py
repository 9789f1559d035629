"""Runs a policy on a robot: load and check it, connect, wait for the robot, drive it, bring it to rest."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlSocket
from physai.deploy_jetson.runtime.commands.lease import LeaseKeeper
from physai.deploy_jetson.runtime.commands.queue import NO_LEVELS, CommandQueue, Levels
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate, CandidateError, examine, require_rate
from physai.deploy_jetson.runtime.hot_swap.health_report import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy, PolicySwapper, open_swapper
from physai.deploy_jetson.runtime.io.robot_check import DescribesRobot, check_robot
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.loop_result import Counts, LoopEnd
from physai.deploy_jetson.runtime.loop.summary import Summary, stages_us
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.revocation.status_watch import StatusWatch
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.shadow.shadow_runs import Shadows
from physai.deploy_jetson.runtime.standby.standby import Standby
from physai.deploy_jetson.runtime.standby.start import drives_at_once, note_driving, settings_of
from physai.deploy_jetson.runtime.stop.keeper import StopKeeper
from physai.deploy_jetson.runtime.stop.rest import StandstillWatch
from physai.deploy_jetson.runtime.stop.stop_records import StopRecords
from physai.deploy_jetson.runtime.system.realtime import acquire
from physai.deploy_jetson.runtime.system.reporter import Reporter
from physai.deploy_jetson.runtime.system.service_manager import ServiceManager
from physai.deploy_jetson.runtime.watchdog.client import Watchdog, open_watchdog
from physai.deploy_jetson.telemetry.diagnosis import diagnose
from physai.deploy_jetson.telemetry.telemetry import Sources, Telemetry
from physai.deploy_jetson.ticks.lifecycle import Lifecycle, advance
from physai.deploy_jetson.update.slots.health import health_path
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.recording_channels import ORIGIN_METADATA_KEY
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import (
    Exclusive,
    SharesStops,
    SupportsAddresses,
    SupportsDiagnostics,
    Transport,
    TransportError,
)


class Runtime:
    """One run of a policy, in the thread that calls `run`."""

    def __init__(
        self,
        options: RunOptions,
        transport: Transport,
        *,
        telemetry: Telemetry | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Initialize without loading or connecting.

        Args:
            options: options of the run.
            transport: not yet open.
            telemetry: receives the tick records; None only counts them.
            say: prints a message; called from a separate thread.
        """
        self.options, self.transport = options, transport
        self.state = Lifecycle.UNCONFIGURED
        self.commands = CommandQueue()
        self.telemetry = telemetry or Telemetry()
        self._reporter = Reporter(
            say,
            problems=self._problems,
            publish=self._publish_diagnostics,
        )
        self._say = self._reporter.report
        self._contract: PolicyContract | None = None
        self._tick: Tick | None = None
        self._loop: Loop | None = None
        self._standby: Standby | None = None
        self._control: ControlSocket | None = None
        self._swapper: PolicySwapper | None = None
        self._watchdog: Watchdog | None = None
        self._exclusive = transport if isinstance(transport, Exclusive) else None
        self._keeper: LeaseKeeper | None = None
        self._shadows: Shadows | None = None
        self._words: StatusWatch | None = None
        self._stops: StopKeeper | None = None
        self._standstill: StandstillWatch | None = None
        self._manager = ServiceManager()
        self._scout: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None
        # Why a loop ended whose policy drove.
        self._drove: LoopEnd | None = None

    def run(self) -> LoopEnd:
        """Run from UNCONFIGURED to FINALIZED.

        Raises:
            PhysaiError: no policy is allowed to run, or it does not start, or does not fit this robot.
        """
        try:
            loop, standby = self._configure()
            self._begin()
            wanted = NO_LEVELS if drives_at_once(self.options, self._say) else None
            while True:
                granted = standby.wait(wanted)
                if isinstance(granted, LoopEnd):
                    return granted
                end = self._drive(loop, granted)
                self._drove = end if loop.drove else None
                if end not in (LoopEnd.DEACTIVATED, LoopEnd.LEASE_LOST):
                    return end
                wanted = None
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._finish()

    def _drive(self, loop: Loop, levels: Levels) -> LoopEnd:
        """Activate, run the loop, and deactivate."""
        self.state = advance(self.state, Lifecycle.ACTIVE)
        self._say(f"active at {1e9 / loop.period_ns:g} Hz")
        try:
            end = loop.run(self.options.seconds, levels=levels)
        finally:
            self.state = advance(self.state, Lifecycle.INACTIVE)
        if self._exclusive is not None:
            # Skipped after an exception: the watchdog brakes the robot then, and `_finish` releases the lease after it.
            self._exclusive.release()
        self._say(f"not active any more: {end.value}")
        return end

    def _configure(self) -> tuple[Loop, Standby]:
        """Load the policy and connect; UNCONFIGURED to INACTIVE."""
        # First, so that a word which waits on a stick counts for this start already.
        self._words = words = StatusWatch(self.options, self.commands, self._say)
        active = words.open_active()
        candidate = examine(active)
        if candidate.unsafe_no_verdict and not self.options.unsafe_no_verdict:
            raise CandidateError(
                f"version {candidate.version} was installed without a valid verdict; validate and install it again, or "
                f"run it regardless with {self.options.names.unsafe_no_verdict}"
            )
        self._contract = contract = active.bundle.contract
        require_rate(self.options, contract)
        # Before the health counters are replaced: raises if another runtime uses this tree.
        path = health_path(self.options.root).with_name(CONTROL_FILE)
        self._control = ControlSocket(
            path,
            self.commands,
            self.status,
            record=self.telemetry.record,
            shadow=lambda what: {} if self._shadows is None else self._shadows.ask(what),
            settled=self.stop_settled,
        )
        policy = candidate.load(contract)
        health = self._open_health(candidate)
        self._connect(contract)
        sources = Sources(about=self._about, status=self.status, say=self._say)
        sink = self.telemetry.configure(contract, self.transport.sample(), sources, settings_of(self.options).segments)
        # After the transport, whose descriptors it shares.
        self._watchdog = open_watchdog(contract, self.transport, self.options, self._say)
        self._tick = Tick(
            contract,
            self.transport,
            policy,
            sink,
            watchdog=self._watchdog,
            lost=(lambda: "") if self._exclusive is None else self._exclusive.lost,
        )
        self._shadows = Shadows(self.telemetry, contract, self.options, self.transport.name, self._say)
        self._shadows.active = lambda: candidate if self._loop is None else self._loop.loaded.candidate
        if self.options.hot_swap:
            sha256 = candidate.bundle_sha256
            made, say = self._open_health, self._say
            self._scout, self._swapper = open_swapper(self.options, contract, sha256, made, say, self.commands)
        self._loop = Loop(
            self._tick,
            LoadedPolicy(candidate, policy, health),
            self.commands,
            period_ns=round(contract.timing.control_dt * 1e9),
            say=self._say,
            swapper=self._swapper,
            heartbeat_s=self.options.heartbeat_s,
            watchdog=self._watchdog,
            progress=self._shadows.after(self._manager.progress),
        )
        words.attach(self._loop, self._tick, contract)
        self._stops = self._open_stops()
        self._standstill = StandstillWatch(contract, self._tick, self.transport, self.commands)
        self._standby = Standby(
            self._loop,
            self._tick,
            self.transport,
            self.commands,
            self._reporter,
            heartbeat_s=self.options.heartbeat_s,
            watchdog=self._watchdog,
            keeper=self._stops,
            standstill=self._standstill,
            seconds=None if self.options.stand_by or self.options.service else self.options.seconds,
        )
        self.state = advance(self.state, Lifecycle.INACTIVE)
        self._say(f"version {candidate.version} ({contract.task} on {contract.robot.name}) in slot {candidate.slot}")
        if self.commands.stopped or self._stops.elsewhere:
            found = self._stops.elsewhere or self._stops.inherited
            self._say(f"stopped by {found}; send `reset` once the robot stands still, then `activate`")
        if candidate.unsafe_no_verdict:
            self._say(f"warning: version {candidate.version} runs WITHOUT A VALID VERDICT")
        return self._loop, self._standby

    def _open_stops(self) -> StopKeeper:
        """Read the stops of earlier runtimes, and keep the ones of this one."""
        transport = self.transport
        addresses = transport.addresses() if isinstance(transport, SupportsAddresses) else ()
        shares = transport if isinstance(transport, SharesStops) else None
        records = StopRecords(self.options.root, addresses)
        return StopKeeper(
            self.commands,
            records,
            shares=shares,
            why=self._stop_reason,
            drives=lambda: self.state is Lifecycle.ACTIVE,
        )

    def _stop_reason(self) -> str:
        return "" if self._loop is None else self._loop.stop_why

    def stop_settled(self, number: int) -> str | None:
        """See `StopKeeper.settled`."""
        return None if self._stops is None else self._stops.settled(number)

    def _connect(self, contract: PolicyContract) -> None:
        """Open the transport, renew its lease from now on, and check that the robot is the one of the contract."""
        self.transport.open(contract)
        if self._exclusive is not None:
            self._keeper = LeaseKeeper(self._exclusive)
            self._keeper.start()
        robot = self.transport.description() if isinstance(self.transport, DescribesRobot) else None
        if robot is not None:
            check_robot(contract, robot)

    def _begin(self) -> None:
        """Start the helper threads, then request real-time settings."""
        # In this order: `acquire` moves every other thread that exists off the loop's core, below its priority.
        self._reporter.start()
        self.telemetry.start()
        if self._words is not None:
            self._words.begin()
        if self._stops is not None:
            self._stops.start()
        if self._control is not None:
            self._control.start()
        if self._swapper is not None:
            self._swapper.start()
        for warning in acquire(self.options.realtime):
            self._say(f"warning: {warning}")
        if self._shadows is not None:
            self._shadows.begin()
        self._manager.ready()

    def _open_health(self, candidate: Candidate) -> RuntimeHealth:
        path = health_path(self.options.root)
        return RuntimeHealth(path, bundle_sha256=candidate.bundle_sha256, now_ns=time.monotonic_ns())

    def status(self) -> dict[str, Any]:
        """Return the status for the control socket, as plain data."""
        loop, tick = self._loop, self._tick
        record: dict[str, Any] = {"lifecycle": self.state.value, **self._about()}
        if loop is None or tick is None:
            return record
        return {
            **record,
            "unsafe_no_verdict": loop.loaded.candidate.unsafe_no_verdict,
            "rate_hz": 1e9 / loop.period_ns,
            # Nothing is guarded while nothing is sent.
            "guard": GuardState(tick.state).name if self.state is Lifecycle.ACTIVE else "",
            "why": loop.why if self.state is Lifecycle.ACTIVE else "",
            "withheld": tick.withheld and self.state is Lifecycle.ACTIVE,
            "waiting_for": self.waiting_for,
            "lease": 0 if self._exclusive is None else self._exclusive.lease_number,
            "stop_asked": self.commands.stopped,
            # A standstill measured before the newest stop does not confirm it.
            "stopped": self._confirmed(tick, loop),
            "stop_recorded": self.stop_settled(self.commands.stop) == "" if self.commands.stopped else None,
            **vars(loop.counts),
            "stages_us": stages_us(self.telemetry.meter),
            **self.telemetry.status(),
            "shadow": {} if self._shadows is None else self._shadows.status(),
            "verdict": {} if self._words is None else self._words.status(),
        }

    def _confirmed(self, tick: Tick, loop: Loop) -> bool:
        if self.state is Lifecycle.ACTIVE:
            return tick.stopped and loop.seen == self.commands.levels
        return self._standstill is not None and self._standstill.confirmed

    def _about(self) -> dict[str, Any]:
        """Identify the running policy."""
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
    def waiting_for(self) -> str:
        """The thing that an inactive runtime waits for; empty if none."""
        return "" if self._standby is None else self._standby.waiting_for

    @property
    def loaded(self) -> LoadedPolicy | None:
        """The current policy, or the last one; None before one is loaded."""
        return None if self._loop is None else self._loop.loaded

    @property
    def guard_state(self) -> str:
        """Name of the guard's state after the last tick."""
        return GuardState(0 if self._tick is None else self._tick.state).name

    @property
    def taken_over(self) -> bool:
        """Whether the guard intervened without a request and was not reset since."""
        return self._loop is not None and self._loop.taken_over

    def summary(self) -> Summary:
        """Return the summary of the run so far."""
        counts = Counts() if self._loop is None else self._loop.counts
        return Summary(stages_us(self.telemetry.meter), counts, self.telemetry.steal_s())

    def _finish(self) -> None:
        """Release everything, from any state."""
        if self.state is Lifecycle.ACTIVE:
            self.state = advance(self.state, Lifecycle.INACTIVE)
        self.commands.refuse_all("refused: the runtime ends")
        # systemd then expects the process to end.
        self._manager.stopping()
        # Before the transport is closed, which the reporter queries.
        self._reporter.stop()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._keeper is not None:
            self._keeper.close()
        if self._stops is not None:
            self._stops.close()
        self.transport.close()
        if self._control is not None:
            self._control.close()
        self._note_driving()
        if self._swapper is not None:
            self._swapper.close()
        if self._scout is not None:
            # Killed, because it may wait for a policy that hangs.
            self._scout.kill()
            self._scout.wait()
        if self._shadows is not None:
            self._shadows.close()
        if self._words is not None:
            self._words.close()
        if self._loop is not None:
            self._loop.loaded.health.close()
        # After the loop has ended, so that the last recording has every tick.
        self.telemetry.finish(self._error)
        self._reporter.flush()
        self.state = advance(self.state, Lifecycle.FINALIZED)

    def _note_driving(self) -> None:
        """Let the run after an update go on, unless the operator has asked for something else since."""
        loop, commands = self._loop, self.commands
        if self._drove is not None and loop is not None and loop.seen == commands.levels and not commands.stopped:
            note_driving(self.options.root, self._drove)

    def _problems(self) -> Iterator[str]:
        yield from self.transport.problems()
        if self._watchdog is not None:
            yield self._watchdog.problem()
        if self._keeper is not None:
            yield self._keeper.problem
        if self._stops is not None and self._stops.problem:
            yield f"warning: {self._stops.problem}"

    def _publish_diagnostics(self) -> None:
        if isinstance(self.transport, SupportsDiagnostics):
            diagnosis = diagnose(self.status())
            # There may be no receiver, or no network.
            with suppress(TransportError):
                self.transport.diagnose(diagnosis.level, diagnosis.message, diagnosis.values)
