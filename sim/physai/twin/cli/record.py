"""`physai sim record`: generates synthetic recordings of a robot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bar
from physai.sdk.cli.verb import AsJson, verb
from physai.twin.calibration.stand_in.recordings import record

if TYPE_CHECKING:
    from physai.twin.calibration.stand_in.recordings import StandInRecordings


@verb(record, summary="generate synthetic recordings of a robot")
def command(
    call: Callable[..., StandInRecordings], *, model: str, out: Path, seed: int, as_json: AsJson = False
) -> int:
    """Present the files.

    The recorded stand-in is the robot's model with masses, friction, gains, delay and sensor noise changed by --seed.
    A free body, whose file has a <freejoint/> and no other joint, is thrown to the floor that its file has. Use it to
    try the workflow without a robot: record, `physai sim calibrate`, `physai sim validate`. A twin fitted to these
    recordings is credible for the stand-in only; it says nothing about a real robot.
    """
    with share_bar("recording") as progress:
        made = call(progress=progress)
    if as_json:
        print(json.dumps({"robot": made.robot.name, "seed": seed, "recordings": [str(file) for file in made.files]}))
    else:
        print(f"{len(made.files)} recordings of a stand-in for {made.robot.name} in {out}")
        print(f"next: physai sim calibrate {model} {out}/*.csv -o twin.json")
    return 0
