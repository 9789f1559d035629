"""`physai sim excite`: designs commands whose recording constrains what a twin's recordings left open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bar
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb
from physai.twin.calibration.design import excite

if TYPE_CHECKING:
    from physai.twin.calibration.design import DesignedCommands


@verb(excite, summary="design commands that constrain what a twin's recordings left open")
def command(call: Callable[..., DesignedCommands], *, as_json: AsJson = False) -> int:
    """Present the commands and what their recording would tell.

    Each candidate is played in the twin; the one after whose recording the parameters are known best is written. Play
    it on the robot with your own driver, or on a stand-in with `physai sim record ROBOT --commands FILE`, and
    calibrate again with the recording. The twin may err: watch the robot, and begin with small commands.

    exit code: 0 the recording would constrain every parameter, 1 it would not, 2 nothing was written
    """
    from physai.twin.calibration.stand_in.excitation import envelope

    with share_bar("candidates") as progress:
        made = call(progress=progress)
    found = made.excitation
    if as_json:
        motion = {
            name: {"lower": lower, "upper": upper, "speed": speed, "command": command}
            for name, lower, upper, speed, command in envelope(found, made.robot)
        }
        record = {"commands": str(made.file), "before": found.before, "after": found.after, "prior": found.prior}
        print(json.dumps({**record, "constrained": list(found.constrained), "motion": motion}))
    else:
        print(printable("\n".join(_text(made))))
    return 0 if made.constrains_all else 1


def _text(made: DesignedCommands) -> Iterator[str]:
    from physai.twin.calibration.stand_in.excitation import envelope

    found, robot = made.excitation, made.robot
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
    yield f"commands  {made.file}"
