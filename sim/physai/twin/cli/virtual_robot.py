"""`physai robot simulate`: runs the virtual robot of a task."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.compute.cli.options import MAX_SEED, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parser import key_values

if TYPE_CHECKING:
    from physai.twin.virtual_robot.paced_twin import RuntimeTally

_EPILOG = """\
The virtual robot publishes simulated sensor samples, with the measured lag, noise and jitter of --twin, and executes
the joint targets it receives. After two control periods without a command it holds positions and brakes efforts, and
counts a timeout. Run `physai robot run` with the same --transport in another terminal.
"""
MAX_DURATION_S = 86_400.0
MAX_LINGER_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai robot simulate`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("task", metavar="TASK", help="task name or Python file")
    parser.add_argument("--transport", default="dds", metavar="NAME", help="dds, udp or ros")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="transport option, such as domain=7 or bind=HOST:PORT; repeatable",
    )
    parser.add_argument("--twin", type=Path, metavar="FILE", help="twin.json of `physai sim calibrate`")
    parser.add_argument("--robot", metavar="ROBOT", help="robot to use, for tasks that accept another one")
    parser.add_argument("--preset", metavar="NAME", help="variant of the task")
    parser.add_argument(
        "--clock",
        choices=("realtime", "lockstep"),
        default="realtime",
        help="lockstep: each command advances the simulation by one control period",
    )
    parser.add_argument("--duration-s", type=float, metavar="S", help="time to run (default: until interrupted)")
    parser.add_argument(
        "--linger-s",
        type=float,
        default=0.0,
        metavar="S",
        help="after a signal, keep running while commands still arrive, at most this long (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default: 0)")
    parser.add_argument("--fingerprint", metavar="SHA256", help="refuse a task whose contract has another fingerprint")
    parser.add_argument("--parent", type=int, metavar="PID", help="exit when this is no longer the parent process")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(arguments: argparse.Namespace) -> int:
    """Runs the robot for the given time or until a signal."""
    from physai.sdk.transport.registry import open_robot_link
    from physai.sdk.transport.simulation import ServesSimulation
    from physai.twin.cli.ending import EndCondition
    from physai.twin.cli.watch import TallyWatch, log
    from physai.twin.virtual_robot.process import VirtualRobot
    from physai.twin.virtual_robot.transport import simulated_robot

    duration_s = MAX_DURATION_S if arguments.duration_s is None else arguments.duration_s
    _require_ranges(arguments, duration_s)
    link = open_robot_link(arguments.transport, key_values(arguments.set, "--set"))
    named = {name: getattr(arguments, name) for name in ("task", "twin", "robot", "preset")}
    options = {name: str(value) for name, value in named.items() if value is not None}
    task, twin = simulated_robot(None, options, seed=arguments.seed)
    fingerprint = task.contract.fingerprint
    if arguments.fingerprint not in (None, fingerprint):
        raise PhysaiError(f"task {task.name} has the contract {fingerprint[:12]}…, not {arguments.fingerprint[:12]}…")
    ending = EndCondition(arguments.linger_s, arguments.parent)
    # Signals are handled before the link opens, so that an early Ctrl-C still closes it.
    link.open(task.contract)
    watch: TallyWatch | None = None
    try:
        robot = VirtualRobot(twin, link, clock=arguments.clock, seed=arguments.seed)
        log(f"{task.contract.robot.name} for {task.name} on {link.name}, {arguments.clock}")
        if isinstance(link, ServesSimulation):
            log(link.serve(robot.control))
        if not arguments.json:
            watch = TallyWatch(robot.tally, link.problems, log, robot.control.paused)
        tally = robot.run(duration_s=duration_s, stopped=lambda: ending.due(robot.tally.commands))
        # After lingering the policy has exited first, so a missing peer is expected.
        problems = () if ending.lingered else link.problems()
    finally:
        if watch is not None:
            watch.close()
        link.close()
    if arguments.json:
        print(json.dumps({"task": task.name, "fingerprint": fingerprint, **tally.as_json(), "problems": problems}))
    else:
        print("\n".join((_text(tally), *problems)))
    return 0


def _require_ranges(arguments: argparse.Namespace, duration_s: float) -> None:
    """Raises PhysaiError if a number is out of range."""
    if not (math.isfinite(duration_s) and 0.0 < duration_s <= MAX_DURATION_S):
        raise PhysaiError(f"--duration-s must be above 0 and at most {MAX_DURATION_S:g} s, got {duration_s}")
    if not 0.0 <= arguments.linger_s <= MAX_LINGER_S:
        raise PhysaiError(f"--linger-s must lie in 0 … {MAX_LINGER_S:g} s, got {arguments.linger_s}")
    require_range("--seed", arguments.seed, 0, MAX_SEED)


def _text(tally: RuntimeTally) -> str:
    lines = [
        f"{tally.periods} control periods, {tally.commands} commands executed",
        f"command timeouts (more than two periods): {tally.silences}, {tally.silent_periods} periods in total",
        f"rejected: {tally.unsafe} unsafe, {tally.stale} stale",
        f"goal met at the end of {tally.met} of {tally.judged} commands, {tally.falls} falls",
    ]
    if tally.lost_s > 0.0:
        lines.append(f"skipped {tally.lost_s:.3f} s because this process fell behind: the machine is overloaded")
    return "\n".join(lines)


command = CliCommand(summary="run the virtual robot of a task", add_arguments=add_arguments, run=run)
"""The verb `robot simulate`."""


def main() -> int:
    """Entry point of `python -m physai.twin.cli.virtual_robot`, which the transport `sim` starts as a subprocess."""
    parser = argparse.ArgumentParser(prog="physai robot simulate", description=command.summary)
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except PhysaiError as error:
        print(f"physai: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
