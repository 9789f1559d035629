"""`physai robot run`: drive the robot with the active policy."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from physai.deploy_jetson.cli import run_telemetry
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.parser import key_values

# The guard intervened and was not reset.
EXIT_TAKEN_OVER = 1

# A policy with a different contract was activated; start again.
EXIT_OTHER_CONTRACT = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; `--root` and `--json` are common to all actions."""
    parser.add_argument("--transport", default="dds", metavar="NAME", help="dds, udp or sim (default: dds)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="option of the transport; may be repeated"
    )
    parser.add_argument("--rate", type=float, metavar="HZ", help="refuse a policy with a different control rate")
    parser.add_argument("--cpu", type=int, metavar="N", help="core reserved for the loop")
    parser.add_argument("--priority", type=int, metavar="P", help="SCHED_FIFO priority of the loop, 1 to 98")
    parser.add_argument("--no-lock", action="store_true", help="do not lock the process's memory")
    parser.add_argument("--seconds", type=float, metavar="S", help="duration (default: until a request to end)")
    parser.add_argument(
        "--heartbeat", type=float, metavar="S", help="hold if the operator's heartbeat is absent for longer"
    )
    parser.add_argument("--stand-by", action="store_true", help="wait for `physai robot command activate`")
    parser.add_argument(
        "--service",
        action="store_true",
        help="for service managers: drive at the start only if the robot's settings say so (drive_after_boot)",
    )
    parser.add_argument("--no-swap", action="store_true", help="do not switch to policies activated during the run")
    parser.add_argument(
        "--no-watchdog", action="store_true", help="no second process that stops the robot if this one hangs"
    )
    parser.add_argument("--unsafe-no-verdict", action="store_true", help="run a policy without a valid verdict")
    run_telemetry.add_arguments(parser)


def run(root: Path, arguments: argparse.Namespace) -> int:
    """Drive the robot until a request to end.

    Args:
        root: the robot's tree of slots.
        arguments: of `add_arguments`.

    Raises:
        PhysaiError: no policy is allowed to run, or it does not start, or does not fit this robot.
    """
    from physai.deploy_jetson.driving import run as drive
    from physai.deploy_jetson.runtime.loop.loop import LoopEnd
    from physai.deploy_jetson.runtime.loop.summary import summary_text
    from physai.deploy_jetson.runtime.system.realtime import MAX_PRIORITY, Realtime
    from physai.sdk.evidence.latency import save_evidence

    # argparse accepts `nan` and `inf` as numbers.
    for name in ("rate", "seconds", "heartbeat"):
        value = getattr(arguments, name)
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise PhysaiError(f"--{name} must be a positive number, got {value}")
    if arguments.priority is not None and not 1 <= arguments.priority <= MAX_PRIORITY:
        raise PhysaiError(f"--priority must lie in 1 … {MAX_PRIORITY}, got {arguments.priority}")
    latency: Path | None = arguments.latency
    driven = drive(
        root,
        arguments.transport,
        config=arguments.config,
        transport_options=key_values(arguments.set, "--set"),
        unsafe_no_verdict=arguments.unsafe_no_verdict,
        rate_hz=arguments.rate,
        heartbeat_s=arguments.heartbeat,
        seconds=arguments.seconds,
        stand_by=arguments.stand_by,
        service=arguments.service,
        # Latency evidence is for one policy, so it must not change during the run.
        hot_swap=not (arguments.no_swap or latency is not None),
        watchdog=not arguments.no_watchdog,
        realtime=Realtime(priority=arguments.priority, cpu=arguments.cpu, lock_memory=not arguments.no_lock),
        telemetry=run_telemetry.open_telemetry(root, arguments),
        say=_say,
        # A second signal while the results are printed must not change the exit code.
        keep_signals=True,
    )
    summary = driven.summary
    if arguments.json:
        record: dict[str, Any] = {
            "end": driven.end.value,
            "guard": driven.guard,
            "stages_us": summary.stages_us,
            "missed_per_million": summary.missed_per_million,
            "steal_s": summary.steal_s,
            **vars(summary.counts),
        }
        print(json.dumps(record, indent=2))
    else:
        print(summary_text(summary))
    if latency is not None:
        if driven.latency is None:
            raise PhysaiError(f"--latency {latency}: the policy never ran, so there is nothing to write")
        save_evidence(driven.latency, latency)
    if driven.end is LoopEnd.OTHER_CONTRACT:
        return EXIT_OTHER_CONTRACT
    return EXIT_TAKEN_OVER if driven.taken_over else 0


def _say(text: str) -> None:
    style = "red" if text.startswith("warning: ") else ""
    shown = printable(text)
    print(styled("physai:", "dim", sys.stderr), styled(shown, style, sys.stderr) if style else shown, file=sys.stderr)
