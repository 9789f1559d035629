"""`physai sim record`: generates synthetic recordings of a robot."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from physai.compute.cli.options import MAX_SEED, progress_bar, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from collections.abc import Callable

    from physai.twin.calibration.synthetic_robot import Array, StandIn

_EPILOG = """\
The recorded stand-in is the robot's model with masses, friction, gains, delay and sensor noise changed by --seed. A
free body, whose file has a <freejoint/> and no other joint, is thrown to the floor that its file has. Use
it to try the workflow without a robot: record, `physai sim calibrate`, `physai sim validate`. A twin fitted to these
recordings is credible for the stand-in only; it says nothing about a real robot.
"""

MAX_RECORDINGS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim record`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("robot", metavar="ROBOT", help="a robot's name, or the path of an MJCF or URDF file")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder for the recordings")
    parser.add_argument("--recordings", metavar="N", type=int, default=5, help="how many (default: 5)")
    parser.add_argument("--duration-s", metavar="S", type=float, help="length of each (default: 10; of a throw 1)")
    parser.add_argument("--rate-hz", metavar="HZ", type=float, default=250.0, help="samples per second (default: 250)")
    parser.add_argument(
        "--steps",
        metavar="SHARE",
        type=float,
        default=0.0,
        help="add random steps of this share of the effort limit to the commands of motors, which show the lag of the "
        "efforts (default: 0)",
    )
    parser.add_argument(
        "--commands", metavar="CSV", type=Path, help="play these commands, as `physai sim excite` writes them, instead"
    )
    parser.add_argument("--seed", type=int, default=0, help="which stand-in (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Writes the recordings and their column map."""
    from physai.sim.robots import load_robot
    from physai.twin.calibration.excitation import read_commands
    from physai.twin.calibration.synthetic_robot import stand_in

    require_range("--recordings", arguments.recordings, 1, MAX_RECORDINGS)
    require_range("--seed", arguments.seed, 0, MAX_SEED)
    folder: Path = arguments.output
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PhysaiError(f"{folder} already exists; name a new or empty folder")
    robot = load_robot(arguments.robot)
    if arguments.commands is not None and not robot.spec.joints:
        raise PhysaiError(f"robot {robot.name} has no joints that --commands could drive; without them it is thrown")
    given = None if arguments.commands is None else read_commands(arguments.commands, robot)
    synthetic = stand_in(robot, arguments.seed)
    files: list[str] = []
    with progress_bar() as bar:
        line = bar.add_task("recording", total=arguments.recordings)
        for number in range(arguments.recordings):

            def tell(done: float, number: int = number) -> None:
                bar.update(line, completed=number + done)

            path = folder / f"{number + 1:02d}.csv"
            _record(synthetic, arguments, given, number, path, tell)
            files.append(str(path))
    if arguments.json:
        print(json.dumps({"robot": robot.name, "seed": arguments.seed, "recordings": files}))
    else:
        print(f"{len(files)} recordings of a stand-in for {robot.name} in {folder}")
        print(f"next: physai sim calibrate {arguments.robot} {folder}/*.csv -o twin.json")
    return 0


def _record(
    synthetic: StandIn,
    arguments: argparse.Namespace,
    given: tuple[Array, float] | None,
    number: int,
    path: Path,
    tell: Callable[[float], None],
) -> None:
    """Writes one recording, of given commands and their rate if any; with the first one its folder and column map."""
    from physai.twin.calibration.synthetic_robot import excite, play, write_columns, write_recording
    from physai.twin.calibration.synthetic_toss import toss, write_toss, write_toss_columns

    robot, rate_hz, duration_s = synthetic.robot, arguments.rate_hz, arguments.duration_s
    if duration_s is None:
        duration_s = 10.0 if robot.spec.joints else 1.0
    # The folder is made after the recording: a robot that cannot be recorded leaves no empty one behind.
    if not robot.spec.joints:
        thrown = toss(synthetic, duration_s=duration_s, rate_hz=rate_hz, seed=number, tell=tell)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_toss(thrown, robot, path)
        write_toss_columns(path.parent)
        return
    if given is not None:
        recording = play(synthetic, given[0], rate_hz=given[1], seed=number, tell=tell)
    else:
        recording = excite(
            synthetic, duration_s=duration_s, rate_hz=rate_hz, seed=number, steps=arguments.steps, tell=tell
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_recording(recording, robot, path)
    write_columns(robot, path.parent)


command = CliCommand(summary="generate synthetic recordings of a robot", add_arguments=add_arguments, run=run)
"""The verb `sim record`."""
