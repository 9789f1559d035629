"""Synthetic recordings of a robot, to try the workflow without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import MAX_SEED, require_range
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sim.robots import Robot

MAX_RECORDINGS = 100


@dataclass(frozen=True, kw_only=True)
class StandInRecordings:
    """Recordings of a stand-in, in a folder with their column map."""

    robot: Robot
    files: tuple[Path, ...]


def record(
    model: str | Path | Robot,
    *,
    out: Annotated[Path | str, Option(flags=("-o",), old=("--output",), metavar="DIR")],
    recordings: int = 5,
    duration_s: float | None = None,
    rate_hz: Annotated[float, Option(metavar="HZ")] = 250.0,
    steps: Annotated[float, Option(metavar="SHARE")] = 0.0,
    commands: Annotated[Path | str | None, Option(metavar="CSV")] = None,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> StandInRecordings:
    """Record a stand-in for a robot: its model with masses, friction, gains, delay and sensor noise changed.

    A free body, whose file has a <freejoint/> and no other joint, is thrown to the floor that its file has.

    Args:
        model: a robot's name, or the path of an MJCF or URDF file.
        out: folder for the recordings, new or empty.
        recordings: number of recordings.
        duration_s: length of each [s]. None for 10, of a throw 1.
        rate_hz: samples per second.
        steps: add random steps of this share of the effort limit to the commands of motors, which show the lag of the
            efforts.
        commands: play these commands, as `physai sim excite` writes them, instead.
        seed: choice of the stand-in.
        progress: called with the share that is done.

    Returns:
        The robot and the files.

    Raises:
        ModelError: the robot cannot be recorded.
        PhysaiError: an argument is out of range, or the folder is not empty.
    """
    from physai.sim.robots import load_robot
    from physai.twin.calibration.stand_in.excitation import read_commands
    from physai.twin.calibration.stand_in.synthetic_robot import excite, play, stand_in, write_columns, write_recording
    from physai.twin.calibration.stand_in.synthetic_toss import toss, write_toss, write_toss_columns

    require_range("recordings", recordings, 1, MAX_RECORDINGS)
    require_range("seed", seed, 0, MAX_SEED)
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PhysaiError(f"{folder} already exists; name a new or empty folder")
    robot = load_robot(model) if isinstance(model, str | Path) else model
    jointed = bool(robot.spec.joints)
    if commands is not None and not jointed:
        raise PhysaiError(f"robot {robot.name} has no joints that `commands` could drive; without them it is thrown")
    given = None if commands is None else read_commands(Path(commands), robot)
    if duration_s is None:
        duration_s = 10.0 if jointed else 1.0
    synthetic = stand_in(robot, seed)
    files = tuple(folder / f"{number + 1:02d}.csv" for number in range(recordings))
    for number, path in enumerate(files):

        def tell(done: float, number: int = number) -> None:
            progress((number + done) / recordings)

        # The folder is made after a recording: a robot that cannot be recorded leaves no empty one behind.
        if not jointed:
            thrown = toss(synthetic, duration_s=duration_s, rate_hz=rate_hz, seed=number, tell=tell)
            folder.mkdir(parents=True, exist_ok=True)
            write_toss(thrown, robot, path)
            write_toss_columns(folder)
            continue
        if given is not None:
            played = play(synthetic, given[0], rate_hz=given[1], seed=number, tell=tell)
        else:
            played = excite(synthetic, duration_s=duration_s, rate_hz=rate_hz, seed=number, steps=steps, tell=tell)
        folder.mkdir(parents=True, exist_ok=True)
        write_recording(played, robot, path)
        write_columns(robot, folder)
    return StandInRecordings(robot=robot, files=files)
