"""`physai robot run` as a function."""

import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.loop.loop import LoopEnd
from physai.deploy_jetson.runtime.loop.summary import Summary
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.telemetry.telemetry import Telemetry
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.manifest import read_file
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.transport.protocol import Transport
from physai.sdk.transport.registry import open_transport


@dataclass(frozen=True)
class RobotRun:
    """Result of a run."""

    end: LoopEnd
    """Cause of the end."""
    guard: str
    """State of the guard at the end."""
    taken_over: bool
    """Whether the guard intervened and was not reset."""
    summary: Summary
    """Durations of the stages of a tick, missed deadlines and counts."""
    latency: LatencyEvidence | None
    """Duration of every tick, for the latency gate; None unless the telemetry kept the ticks and the policy ran."""


def run(
    policy: str | Path,
    transport: Transport | str,
    *,
    root: str | Path | None = None,
    config: str | Path | None = None,
    transport_options: Mapping[str, str] | None = None,
    unsafe_no_verdict: bool = False,
    rate_hz: float | None = None,
    heartbeat_s: float | None = None,
    seconds: float | None = None,
    stand_by: bool = False,
    service: bool = False,
    hot_swap: bool = True,
    watchdog: bool = True,
    realtime: Realtime | None = None,
    telemetry: Telemetry | None = None,
    say: Callable[[str], None] = print,
    keep_signals: bool = False,
) -> RobotRun:
    """Drive the robot with a policy until a request to end.

    The first SIGTERM or Ctrl-C ramps to a safe state, the next ones request a protective stop. The memory of the
    process stays locked, and its timers and pages set for the loop, so give a robot a process of its own.

    Args:
        policy: the robot's tree of slots, whose active policy runs, or a bundle that is installed there and activated
            first.
        transport: connection to the robot: an object of a class of your own, not yet connected, or a name (dds, udp).
        root: the robot's tree, if `policy` is a bundle; `physai robot setup` makes it.
        config: folder of the owner's files; None for the default of that tree.
        transport_options: options of a transport that is named.
        unsafe_no_verdict: run a policy without a valid verdict.
        rate_hz: required rate of the policy [Hz].
        heartbeat_s: longest silence of the operator before HOLD [s]; None if no operator is required.
        seconds: duration [s]; None to drive until requested to end.
        stand_by: wait for the request `activate` before the first command.
        service: drive at the start only if the robot's settings say so (`drive_after_boot`).
        hot_swap: switch to a policy that is activated during the run; latency evidence is for one policy.
        watchdog: start a second process that brakes the robot if this one hangs or dies.
        realtime: priority, core and memory lock of the loop.
        telemetry: receives the tick records.
        say: prints a message; called from a separate thread.
        keep_signals: leave the handlers of SIGTERM and SIGINT installed at the end.

    Raises:
        PhysaiError: no policy is allowed to run, or it does not start, or does not fit this robot.
    """
    tree, owner = _tree(Path(policy), root, None if config is None else Path(config), unsafe=unsafe_no_verdict)
    options = RunOptions(
        root=tree,
        config=owner,
        realtime=realtime or Realtime(),
        unsafe_no_verdict=unsafe_no_verdict,
        rate_hz=rate_hz,
        heartbeat_s=heartbeat_s,
        seconds=seconds,
        stand_by=stand_by,
        service=service,
        hot_swap=hot_swap,
        watchdog=watchdog,
    )
    opened = open_transport(transport, transport_options or {}) if isinstance(transport, str) else transport
    runtime = Runtime(options, opened, telemetry=telemetry, say=say)
    # Python delivers signals to the main thread only.
    handles = threading.current_thread() is threading.main_thread()
    with caught_signals(runtime.commands, keep=keep_signals) if handles else nullcontext():
        end = runtime.run()
    return RobotRun(end, runtime.guard_state, runtime.taken_over, runtime.summary(), latency_evidence(runtime))


def _tree(policy: Path, root: str | Path | None, config: Path | None, *, unsafe: bool) -> tuple[Path, Path | None]:
    """The robot's tree, with the bundle installed and active if `policy` is one."""
    if policy.is_dir():
        return policy, config
    if not policy.exists():
        raise PhysaiError(f"{policy}: neither a robot's tree nor a bundle; make a tree with `physai robot setup`")
    if root is None:
        raise PhysaiError(
            f"{policy} is a bundle; name the robot's tree to install it in with root, see `physai robot setup`"
        )
    agent = UpdateAgent(root=Path(root), config_root=config)
    if not agent.install(read_file(policy), unsafe_no_verdict=unsafe).active:
        agent.activate()
    return Path(root), config


@contextmanager
def caught_signals(commands: CommandQueue, *, keep: bool = False) -> Generator[None]:
    """Ramp to a safe state on the first SIGTERM or Ctrl-C, and request a protective stop on the next ones.

    Args:
        commands: queue of the runtime.
        keep: leave the handlers installed after the block.
    """
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        # Ctrl-C again: the user does not want to wait for the ramp.
        if received:
            commands.put(Command.STOP)
        received.append(number)
        commands.put(Command.SHUTDOWN)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if not keep:
                signal.signal(number, handler)


def latency_evidence(runtime: Runtime) -> LatencyEvidence | None:
    """Duration of every tick of a run; None unless its telemetry kept the ticks and the policy ran."""
    loaded, ticks = runtime.loaded, runtime.telemetry.tick_seconds()
    return loaded.candidate.latency_evidence(ticks, runtime.transport.name) if loaded is not None and ticks else None
