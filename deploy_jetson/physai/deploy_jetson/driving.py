"""`physai robot run` as a function."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.deploy_jetson.runtime.system.realtime import MAX_PRIORITY, Realtime
from physai.deploy_jetson.telemetry.run_telemetry import RunTelemetry, make_telemetry
from physai.deploy_jetson.update.robot_tree import RobotTree, agent_of, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.deploy_jetson.runtime.commands.queue import CommandQueue
    from physai.deploy_jetson.runtime.loop.loop import LoopEnd
    from physai.deploy_jetson.runtime.loop.summary import Summary
    from physai.deploy_jetson.runtime.runtime import Runtime
    from physai.sdk.evidence.latency import LatencyEvidence
    from physai.sdk.transport.protocol import Transport


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
    policy: Annotated[str | Path, Option(hidden=True)],
    transport: Annotated[Transport | str, Option(metavar="NAME", help="dds, udp or sim (default: dds)")] = "dds",
    *,
    tree: Annotated[RobotTree | Path | str | None, Option(hidden=True)] = None,
    config_root: Annotated[str | Path | None, Option(hidden=True)] = None,
    transport_options: Annotated[Mapping[str, str] | None, Option(flags=("--set",))] = None,
    rate_hz: Annotated[float | None, Option(metavar="HZ", old=("--rate",))] = None,
    heartbeat_s: Annotated[float | None, Option(old=("--heartbeat",))] = None,
    seconds: Annotated[float | None, Option(flags=("--duration-s",), old=("--seconds",), metavar="S")] = None,
    stand_by: bool = False,
    service: bool = False,
    hot_swap: Annotated[
        bool, Option(flags=("--no-swap",), help="do not switch to policies activated during the run")
    ] = True,
    watchdog: Annotated[bool, Option(help="no second process that stops the robot if this one hangs")] = True,
    unsafe_no_verdict: bool = False,
    shadow: Annotated[str | Path | None, Option(metavar="BUNDLE")] = None,
    realtime: Annotated[Realtime | None, Option(flatten=True)] = None,
    telemetry: Annotated[RunTelemetry | None, Option(flatten=True)] = None,
    say: Callable[[str], None] = print,
    keep_signals: Annotated[bool, Option(hidden=True)] = False,
) -> RobotRun:
    """Drive the robot with a policy until a request to end.

    The first SIGTERM or Ctrl-C ramps to a safe state, the next ones request a protective stop. The memory of the
    process stays locked, and its timers and pages set for the loop, so give a robot a process of its own.

    Args:
        policy: the robot's tree of slots, whose active policy runs, or a bundle that is installed there and activated
            first.
        transport: connection to the robot: a name (dds, udp, sim), or an object of a class of your own, not yet
            connected.
        tree: the robot's tree, if `policy` is a bundle; `set_up_robot` makes it.
        config_root: folder of the owner's files; None for the default of that tree.
        transport_options: option of the transport; may be repeated.
        rate_hz: refuse a policy with a different control rate [Hz].
        heartbeat_s: hold if the operator's heartbeat is absent for longer [s].
        seconds: duration from the activation to the final ramp to a safe state [s]. None for until a request to end.
        stand_by: wait for `physai robot command activate` before the first command.
        service: for service managers: drive at the start only if the robot's settings say so (drive_after_boot).
        hot_swap: switch to a policy that is activated during the run; latency evidence is for one policy.
        watchdog: start a second process that brakes the robot if this one hangs or dies.
        unsafe_no_verdict: run a policy without a valid verdict.
        shadow: bundle of a second policy, which computes on the same samples and commands nothing.
        realtime: priority, core and memory lock of the loop.
        telemetry: metrics, recordings and tick times; None for recordings of 30 s in the tree.
        say: prints a message; called from a separate thread.
        keep_signals: leave the handlers of SIGTERM and SIGINT installed at the end.

    Returns:
        The end of the run. The evidence of `telemetry.latency` is written, unless the policy never ran.

    Raises:
        TransportError: `transport` lacks a part of `physai.sdk.Transport`; found before anything is installed.
        PhysaiError: no policy is allowed to run, or it does not start, or does not fit this robot.
    """
    from physai.deploy_jetson.runtime.run_options import RunOptions
    from physai.deploy_jetson.runtime.runtime import Runtime
    from physai.sdk.evidence.latency import save_evidence
    from physai.sdk.transport.protocol import Transport
    from physai.sdk.transport.registry import open_transport, require_members

    _require_ranges(rate_hz, seconds, heartbeat_s, realtime)
    if not isinstance(transport, str):
        require_members(transport, Transport, "the transport")
    robot = _robot(Path(policy), tree, config_root, unsafe_no_verdict)
    outputs = RunTelemetry() if telemetry is None else telemetry
    latency = outputs.latency
    options = RunOptions(
        root=robot.path,
        config=robot.config_path,
        realtime=realtime or Realtime(),
        unsafe_no_verdict=unsafe_no_verdict,
        rate_hz=rate_hz,
        heartbeat_s=heartbeat_s,
        seconds=seconds,
        stand_by=stand_by,
        service=service,
        # Latency evidence is for one policy, so it must not change during the run.
        hot_swap=hot_swap and latency is None,
        watchdog=watchdog,
        shadow=None if shadow is None else Path(shadow),
    )
    recorded = make_telemetry(outputs, robot.path)
    opened = open_transport(transport, transport_options or {}) if isinstance(transport, str) else transport
    runtime = Runtime(options, opened, telemetry=recorded, say=say)
    # Python delivers signals to the main thread only.
    handles = threading.current_thread() is threading.main_thread()
    with caught_signals(runtime.commands, keep=keep_signals) if handles else nullcontext():
        end = runtime.run()
    evidence = latency_evidence(runtime)
    if latency is not None and evidence is not None:
        save_evidence(evidence, Path(latency))
    return RobotRun(end, runtime.guard_state, runtime.taken_over, runtime.summary(), evidence)


def _require_ranges(
    rate_hz: float | None, seconds: float | None, heartbeat_s: float | None, realtime: Realtime | None
) -> None:
    for name, value in {"rate-hz": rate_hz, "duration-s": seconds, "heartbeat-s": heartbeat_s}.items():
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise PhysaiError(f"--{name} must be a positive number, got {value}")
    priority = None if realtime is None else realtime.priority
    if priority is not None and not 1 <= priority <= MAX_PRIORITY:
        raise PhysaiError(f"`priority` must lie in 1 … {MAX_PRIORITY}, got {priority}")


def _robot(policy: Path, given: RobotTree | Path | str | None, config: str | Path | None, unsafe: bool) -> RobotTree:
    """The robot's tree, with the bundle installed and active if `policy` is one."""
    tree = tree_of(given) if config is None else replace(tree_of(given), config_root=config)
    if policy.is_dir():
        return replace(tree, root=policy)
    if not policy.exists():
        raise PhysaiError(f"{policy}: neither a robot's tree nor a bundle; make a tree with `physai robot setup`")
    if given is None:
        raise PhysaiError(f"{policy} is a bundle; name the robot's tree for it with `tree`, see `physai robot setup`")
    from physai.sdk.bundle.archive import read_file

    agent = agent_of(tree)
    if not agent.install(read_file(policy), unsafe_no_verdict=unsafe).active:
        agent.activate()
    return tree


@contextmanager
def caught_signals(commands: CommandQueue, *, keep: bool = False) -> Generator[None]:
    """Ramp to a safe state on the first SIGTERM or Ctrl-C, and request a protective stop on the next ones.

    Args:
        commands: queue of the runtime.
        keep: leave the handlers installed after the block.
    """
    from physai.deploy_jetson.runtime.commands.queue import Command

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
