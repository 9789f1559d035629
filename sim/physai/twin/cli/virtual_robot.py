"""`physai robot simulate`: runs the virtual robot of a task."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.verb import AsJson, verb
from physai.twin.virtual_robot.simulate_robot import simulate_robot

if TYPE_CHECKING:
    from physai.twin.virtual_robot.paced_twin import RuntimeTally
    from physai.twin.virtual_robot.simulate_robot import SimulatedRun


@verb(simulate_robot, summary="run the virtual robot of a task")
def command(call: Callable[..., SimulatedRun], *, as_json: AsJson = False) -> int:
    """Print the statistics at the end.

    The virtual robot publishes simulated sensor samples, with the measured lag, noise and jitter of --twin, and
    executes the joint targets it receives. After two control periods without a command it holds positions and brakes
    efforts, and counts a timeout. Run `physai robot run` with the same --transport in another terminal. With
    --transport ros it uses rclpy; source ROS 2 first.
    """
    found = call(say=_log, watch=None if as_json else _log)
    if as_json:
        record = {"task": found.task, "fingerprint": found.fingerprint, **found.tally.as_json()}
        print(json.dumps({**record, "problems": found.problems}))
    else:
        print("\n".join((_text(found.tally), *found.problems)))
    return 0


def _log(text: str) -> None:
    print(styled("physai:", "dim", sys.stderr), printable(text), file=sys.stderr, flush=True)


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
