"""`physai robot simulate`: a process that stands in for the robot of a task."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.parser import key_values

if TYPE_CHECKING:
    from physai.sim.virtual_robot.paced_twin import RuntimeTally

_EPILOG = """\
It publishes what the robot's sensors would show, from the task's twin with the measured lag, noise and jitter of
--twin, and obeys the joint targets that come back. Without commands for two control periods it holds its positions and
brakes its efforts, and counts that. Start `physai robot run` with the same --transport beside it.
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
        help="option of the transport, such as domain=7 or bind=HOST:PORT; may be repeated",
    )
    parser.add_argument("--twin", type=Path, metavar="FILE", help="twin.json of `physai sim calibrate`")
    parser.add_argument("--robot", metavar="ROBOT", help="robot to play the task with, where it takes another")
    parser.add_argument("--preset", metavar="NAME", help="variant of the task")
    parser.add_argument(
        "--clock",
        choices=("realtime", "lockstep"),
        default="realtime",
        help="lockstep: a control period passes with each command, and none without",
    )
    parser.add_argument("--duration-s", type=float, metavar="S", help="time to play (default: until interrupted)")
    parser.add_argument(
        "--linger-s",
        type=float,
        default=0.0,
        metavar="S",
        help="when told to end while commands still come, go on until they end, at most this long (default: 0)",
    )
    parser.add_argument("--seed", type=int, default=0, help="fixes every random number (default: 0)")
    parser.add_argument("--fingerprint", metavar="SHA256", help="refuse a task whose contract has another one")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this is no longer the parent process")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")


def run(arguments: argparse.Namespace) -> int:
    """Plays the robot until the time is over, or a signal ends it."""
    from physai.sdk.transport.registry import open_robot_link
    from physai.sdk.transport.simulation import ServesSimulation
    from physai.sim.cli.ending import EndCondition
    from physai.sim.cli.watch import TallyWatch, say
    from physai.sim.virtual_robot.process import VirtualRobot
    from physai.sim.virtual_robot.transport import simulated_robot

    duration_s = MAX_DURATION_S if arguments.duration_s is None else arguments.duration_s
    _require_sane(arguments, duration_s)
    link = open_robot_link(arguments.transport, key_values(arguments.set, "--set"))
    named = {name: getattr(arguments, name) for name in ("task", "twin", "robot", "preset")}
    given = {name: str(value) for name, value in named.items() if value is not None}
    task, twin = simulated_robot(None, given, seed=arguments.seed)
    fingerprint = task.contract.fingerprint
    if arguments.fingerprint not in (None, fingerprint):
        raise PhysaiError(f"task {task.name} has the contract {fingerprint[:12]}…, not {arguments.fingerprint[:12]}…")
    ending = EndCondition(arguments.linger_s, arguments.parent)
    link.open(task.contract)
    watch: TallyWatch | None = None
    try:
        robot = VirtualRobot(twin, link, clock=arguments.clock, seed=arguments.seed)
        say(f"{task.contract.robot.name} for {task.name} on {link.name}, {arguments.clock}")
        if isinstance(link, ServesSimulation):
            say(link.serve(robot.control))
        if not arguments.json:
            watch = TallyWatch(robot.tally, link.problems, say, robot.control.paused)
        tally = robot.run(duration_s=duration_s, stopped=lambda: ending.due(robot.tally.commands))
        # Where it outlived the policy, what is missing now was there.
        told = () if ending.lingered else link.problems()
    finally:
        if watch is not None:
            watch.close()
        link.close()
    if arguments.json:
        print(json.dumps({"task": task.name, "fingerprint": fingerprint, **tally.as_json(), "problems": told}))
    else:
        print("\n".join((_text(tally), *told)))
    return 0


def _require_sane(arguments: argparse.Namespace, duration_s: float) -> None:
    """Raises PhysaiError where a number is none that can be meant."""
    if not (math.isfinite(duration_s) and 0.0 < duration_s <= MAX_DURATION_S):
        raise PhysaiError(f"--duration-s must be above 0 and at most {MAX_DURATION_S:g} s, got {duration_s}")
    if not 0.0 <= arguments.linger_s <= MAX_LINGER_S:
        raise PhysaiError(f"--linger-s must lie in 0 … {MAX_LINGER_S:g} s, got {arguments.linger_s}")
    if not 0 <= arguments.seed < 2**32:
        raise PhysaiError(f"--seed must lie in 0 … {2**32 - 1}, got {arguments.seed}")


def _text(tally: RuntimeTally) -> str:
    lines = [
        f"{tally.periods} control periods, {tally.commands} commands obeyed",
        f"silent for more than two periods: {tally.silences} times, {tally.silent_periods} periods in all",
        f"not obeyed: {tally.unsafe} unsafe, {tally.stale} stale",
        f"goal met at the end of {tally.met} of {tally.judged} commands, {tally.falls} falls",
    ]
    if tally.lost_s > 0.0:
        lines.append(f"left out {tally.lost_s:.3f} s for which this process was late: the machine is busy")
    return "\n".join(lines)


command = CliCommand(summary="stand in for the robot of a task", add_arguments=add_arguments, run=run)
"""The verb `robot simulate`."""


def main() -> int:
    """Runs the verb alone, as `python -m physai.sim.cli.virtual_robot`: the twin's transport starts it so."""
    parser = argparse.ArgumentParser(prog="physai robot simulate", description=command.summary)
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except PhysaiError as error:
        print(f"physai: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
