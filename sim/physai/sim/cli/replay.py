"""`physai sim replay`: how well a twin, or any model, replays recordings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.cli.command import Command
from physai.sdk.cli.text import printable, table

if TYPE_CHECKING:
    from physai.sim.calibrate.replay import ReplayScore
    from physai.sim.robots import Robot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim replay`."""
    parser.add_argument(
        "twin", metavar="TWIN", help="twin.json, a robot's name, or the path of an MJCF (.xml) or URDF (.urdf) file"
    )
    parser.add_argument("logs", metavar="LOGS", nargs="+", help="recordings (see `physai logs check --help`)")
    parser.add_argument("--columns", metavar="YAML", type=Path, help="column map for all of the recordings")
    parser.add_argument("--window", metavar="S", type=float, default=0.25, help="length of a replay (default: 0.25)")
    parser.add_argument("--seed", type=int, default=0, help="draws the bootstrap (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Replays and prints the error per joint."""
    from physai.sim.calibrate.replay import replay, score_record
    from physai.sim.logs import read_logs

    robot, subject = _load(arguments.twin)
    logs = read_logs(arguments.logs, robot.spec, column_map=arguments.columns)
    score = replay(subject, robot, logs, window_s=arguments.window, seed=arguments.seed)
    if arguments.json:
        print(json.dumps({"twin": arguments.twin, "robot": robot.name, **_flat(score), **score_record(score)}))
    else:
        print(printable(_text(arguments.twin, score)))
    return 0


def _load(reference: str) -> tuple[Robot, Any]:
    """The robot, and the twin or model to replay in."""
    from physai.sim.calibrate.fitted import calibration_model
    from physai.sim.calibrate.twin import load_twin
    from physai.sim.robots import load_robot

    if reference.lower().endswith(".json"):
        twin = load_twin(reference)
        return twin.nominal(), twin
    robot = load_robot(reference)
    return robot, calibration_model(robot)


def _flat(score: ReplayScore) -> dict[str, dict[str, float]]:
    return {
        f"rmse.{name}": {"value": error.value, "lo": error.lo, "hi": error.hi}
        for name, error in zip(score.joint_names, score.rmse, strict=True)
    }


def _text(name: str, score: ReplayScore) -> str:
    windows = score.windows
    rows = [
        (joint, f"{error.value:.4f}", f"{error.lo:.4f} to {error.hi:.4f}", f"{moved:.3g}")
        for joint, error, moved in zip(score.joint_names, score.rmse, windows.motion(), strict=True)
    ]
    own = [(log, *(f"{x:.4f}" for x in errors)) for log, errors in score.per_log().items()]
    return "\n".join(
        [
            f"{name}: {len(windows)} windows of {windows.window_s:g} s of {len(windows.logs)} recordings, open loop "
            "from measured states; root mean square [rad or m]",
            table(("joint", "error", "95 % interval", "moved by"), rows),
            "",
            table(("recording", *score.joint_names), own),
        ]
    )


command = Command(summary="score a twin or any model on recordings", add_arguments=add_arguments, run=run)
"""The verb `sim replay`."""
