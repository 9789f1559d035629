"""`physai sim replay`: scores how well a twin, or any model, reproduces recordings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import MAX_SEED, require_range
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from physai.sim.robots import Robot
    from physai.twin.calibration.replay.replay import ReplayScore
    from physai.twin.model.twin_file import Interval


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim replay`."""
    parser.add_argument(
        "twin", metavar="TWIN", help="twin.json, a robot's name, or the path of an MJCF (.xml) or URDF (.urdf) file"
    )
    parser.add_argument("logs", metavar="LOGS", nargs="+", help="recordings (see `physai logs check --help`)")
    parser.add_argument(
        "--against", metavar="TWIN", help="compare with another twin or model on the same resampled windows"
    )
    parser.add_argument(
        "--from",
        dest="drive",
        choices=("efforts", "commands"),
        default="efforts",
        help="replay motors from measured efforts, or from commands through the response that the twin measured "
        "(default: efforts)",
    )
    parser.add_argument("--columns", metavar="YAML", type=Path, help="column map for all recordings")
    parser.add_argument("--window", metavar="S", type=float, default=0.25, help="length of a replay (default: 0.25)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Replays and prints the error per joint."""
    from physai.twin.calibration.replay.replay import score_record

    require_range("--seed", arguments.seed, 0, MAX_SEED)
    reference: str | None = arguments.against
    robot, score = _score(arguments, arguments.twin)
    other = None if reference is None else _score(arguments, reference)[1]
    if arguments.json:
        record = {"twin": arguments.twin, "robot": robot.name, **_flat("rmse", score.joint_names, score.rmse)}
        if other is not None:
            record["against"] = {"twin": reference, **_comparison(score, other)}
        print(json.dumps({**record, **score_record(score)}))
    else:
        print(printable(_text(arguments.twin, score)))
        if reference is not None and other is not None:
            print(printable(_against(arguments.twin, score, reference, other)))
    return 0


def _score(arguments: argparse.Namespace, reference: str) -> tuple[Robot, ReplayScore]:
    from physai.twin.calibration.replay.replay import replay
    from physai.twin.logs import read_logs

    robot, subject = _load(reference)
    logs = read_logs(arguments.logs, robot.spec, column_map=arguments.columns)
    drive = "command" if arguments.drive == "commands" else None
    return robot, replay(subject, robot, logs, window_s=arguments.window, seed=arguments.seed, drive=drive)


def _load(reference: str) -> tuple[Robot, Any]:
    """Loads the robot, and the twin or model to replay in."""
    from physai.sim.robots import load_robot
    from physai.twin.model.twin import load_twin
    from physai.twin.parameters.models import calibration_model

    if reference.lower().endswith(".json"):
        twin = load_twin(reference)
        return twin.nominal(), twin
    robot = load_robot(reference)
    return robot, calibration_model(robot)


def _flat(label: str, joints: Sequence[str], intervals: Sequence[Interval]) -> dict[str, Any]:
    return {
        f"{label}.{name}": {"value": interval.value, "lo": interval.lo, "hi": interval.hi}
        for name, interval in zip(joints, intervals, strict=True)
    }


def _comparison(score: ReplayScore, other: ReplayScore) -> dict[str, Any]:
    """The other's errors, their excess over ours on the same windows, and whether the intervals are disjoint."""
    joints = score.joint_names
    apart = {f"apart.{name}": disjoint for name, disjoint in zip(joints, score.apart_from(other), strict=True)}
    return {**_flat("rmse", joints, other.rmse), **_flat("excess", joints, score.gain_over(other)), **apart}


def _against(name: str, score: ReplayScore, other_name: str, other: ReplayScore) -> str:
    rows = [
        (
            joint,
            f"{error.value:.4f}",
            f"{error.lo:.4f} to {error.hi:.4f}",
            f"{gain.value:+.4f}",
            f"{gain.lo:+.4f} to {gain.hi:+.4f}",
            "yes" if apart else "no",
        )
        for joint, error, gain, apart in zip(
            score.joint_names, other.rmse, score.gain_over(other), score.apart_from(other), strict=True
        )
    ]
    head = ("joint", "error", "95 % interval", "excess", "95 % interval", "apart")
    return f"\n{other_name}, and its excess over {name} on the same windows:\n{table(head, rows)}"


def _text(name: str, score: ReplayScore) -> str:
    windows = score.windows
    rows = [
        (joint, f"{error.value:.4f}", f"{error.lo:.4f} to {error.hi:.4f}", f"{moved:.3g}")
        for joint, error, moved in zip(score.joint_names, score.rmse, windows.motion(), strict=True)
    ]
    per_log = [(log, *(f"{x:.4f}" for x in errors)) for log, errors in score.per_log().items()]
    encoders = score.windows.logs[0].joint_names
    offsets = ["", table(("offset of joint_pos", *encoders), _offsets(score))] if encoders else []
    return "\n".join(
        [
            f"{name}: {len(windows)} windows of {windows.window_s:g} s from {len(windows.logs)} recordings, open loop "
            "from measured states; root mean square [rad or m]",
            table(("joint", "error", "95 % interval", "motion"), rows),
            "",
            table(("recording", *score.joint_names), per_log),
            *offsets,
        ]
    )


def _offsets(score: ReplayScore) -> list[tuple[str, ...]]:
    """The encoder's zero in each recording, with its 95 % interval."""
    return [
        (log.name, *(f"{value:+.4f} ± {1.96 * std:.4f}" for value, std in zip(values, stds, strict=True)))
        for log, values, stds in zip(score.windows.logs, score.offsets, score.offset_std, strict=True)
    ]


command = CliCommand(summary="score a twin or any model on recordings", add_arguments=add_arguments, run=run)
"""The verb `sim replay`."""
