"""`physai robot run`: drive the robot with the active policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from physai.deploy_jetson.driving import run
from physai.deploy_jetson.telemetry.run_telemetry import RunTelemetry
from physai.deploy_jetson.update.robot_tree import TreeOption, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled
from physai.sdk.cli.verb import AsJson, Option, verb

if TYPE_CHECKING:
    from physai.deploy_jetson.driving import RobotRun

# The guard intervened and was not reset.
EXIT_TAKEN_OVER = 1

# A policy with a different contract was activated; start again.
EXIT_OTHER_CONTRACT = 3


@verb(run, summary="drive this robot with the active policy")
def run_verb(
    call: Callable[..., RobotRun],
    *,
    telemetry: Annotated[RunTelemetry | None, Option(flatten=True)],
    tree: TreeOption = None,
    as_json: AsJson = False,
) -> int:
    """Drive the robot until a request to end.

    exit code: 1 the guard intervened and was not reset, 3 a policy with another contract was activated
    """
    from physai.deploy_jetson.runtime.loop.loop import LoopEnd
    from physai.deploy_jetson.runtime.loop.summary import summary_text

    robot = tree_of(tree)
    # A second signal while the results are printed must not change the exit code.
    driven = call(robot.existing(), config_root=robot.config_root, say=_say, keep_signals=True)
    summary = driven.summary
    if as_json:
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
    latency = None if telemetry is None else telemetry.latency
    if latency is not None and driven.latency is None:
        raise PhysaiError(f"--latency {latency}: the policy never ran, so there is nothing to write")
    if driven.end is LoopEnd.OTHER_CONTRACT:
        return EXIT_OTHER_CONTRACT
    return EXIT_TAKEN_OVER if driven.taken_over else 0


def _say(text: str) -> None:
    style = "red" if text.startswith("warning: ") else ""
    shown = printable(text)
    print(styled("physai:", "dim", sys.stderr), styled(shown, style, sys.stderr) if style else shown, file=sys.stderr)
