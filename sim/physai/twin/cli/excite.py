"""`physai sim excite`: designs commands whose recording constrains what a twin's recordings left open."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from physai.compute.cli.options import MAX_SEED, progress_bar, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from physai.sim.robots import Robot
    from physai.twin.calibration.excitation import Excitation

_EPILOG = """\
Each candidate is played in the twin; the one after whose recording the parameters are known best is written. Play it
on the robot with your own driver, or on a stand-in with `physai sim record ROBOT --commands FILE`, and calibrate again
with the recording. The twin may err: watch the robot, and begin with small commands.

exit code: 0 the recording would constrain every parameter, 1 it would not, 2 nothing was written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim excite`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("twin", metavar="TWIN", type=Path, help="twin.json, as `physai sim calibrate` writes it")
    parser.add_argument(
        "--for",
        dest="names",
        metavar="PARAMETER",
        nargs="+",
        default=[],
        help="parameters to constrain, such as link2.mass (default: all that the twin's recordings do not)",
    )
    parser.add_argument(
        "-o", "--output", metavar="CSV", type=Path, default=Path("excitation.csv"), help="default: excitation.csv"
    )
    parser.add_argument("--duration-s", metavar="S", type=float, default=10.0, help="length (default: 10)")
    parser.add_argument("--rate-hz", metavar="HZ", type=float, default=250.0, help="commands per second (default: 250)")
    parser.add_argument("--candidates", metavar="N", type=int, default=12, help="how many are compared (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the candidates (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Designs and writes the commands."""
    from physai.twin.calibration.excitation import design_excitation, envelope, write_commands
    from physai.twin.model.twin import load_twin

    require_range("--seed", arguments.seed, 0, MAX_SEED)
    twin = load_twin(arguments.twin)
    robot = twin.nominal()
    with progress_bar() as bar:
        line = bar.add_task("candidates", total=1.0)
        found = design_excitation(
            twin,
            arguments.names,
            duration_s=arguments.duration_s,
            rate_hz=arguments.rate_hz,
            candidates=arguments.candidates,
            seed=arguments.seed,
            num_threads=len(os.sched_getaffinity(0)),
            tell=lambda done: bar.update(line, completed=done),
        )
    try:
        write_commands(found, robot, arguments.output)
    except OSError as error:
        raise PhysaiError(f"{arguments.output}: cannot be written: {error.strerror}") from error
    if arguments.json:
        motion = {
            name: {"lower": lower, "upper": upper, "speed": speed, "command": command}
            for name, lower, upper, speed, command in envelope(found, robot)
        }
        record = {"commands": str(arguments.output), "before": found.before, "after": found.after, "prior": found.prior}
        print(json.dumps({**record, "constrained": list(found.constrained), "motion": motion}))
    else:
        print(printable("\n".join(_text(found, robot, arguments))))
    return 0 if len(found.constrained) == len(found.after) else 1


def _text(found: Excitation, robot: Robot, arguments: argparse.Namespace) -> Iterator[str]:
    from physai.twin.calibration.excitation import envelope

    rows = [
        (
            name,
            f"{found.prior[name]:.2g}",
            f"{found.before[name]:.2g}",
            f"{std:.2g}",
            "yes" if name in found.constrained else "no",
        )
        for name, std in found.after.items()
    ]
    yield "standard deviation of what it is designed for, expected with one recording of it:"
    yield table(("parameter", "nominal", "now", "then", "constrained"), rows)
    moves = [
        (name, f"{lower:.3g} to {upper:.3g}", f"{speed:.3g}", f"{command:.3g}")
        for name, lower, upper, speed, command in envelope(found, robot)
    ]
    yield "in the twin it moves the joints so:"
    yield table(("joint", "position", "greatest speed", "greatest command"), moves)
    left = [name for name in found.after if name not in found.constrained]
    if left:
        yield (
            f"no candidate constrains {', '.join(left)}: what these joints measure hardly depends on it; give a longer "
            "--duration-s or more --candidates, or measure it otherwise"
        )
    yield f"commands  {arguments.output}"


command = CliCommand(
    summary="design commands that constrain what a twin's recordings left open",
    add_arguments=add_arguments,
    run=run,
)
"""The verb `sim excite`."""
