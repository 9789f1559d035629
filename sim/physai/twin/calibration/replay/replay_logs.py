"""Score a twin, or any model, on recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from physai.sdk.base.parameters.arguments import MAX_SEED, require_choice, require_range, several
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sim.robots import Robot
    from physai.twin.calibration.replay.replay import ReplayScore
    from physai.twin.logs import RobotLog
    from physai.twin.model.twin import Twin


@dataclass(frozen=True, kw_only=True)
class ReplayComparison:
    """Score of a twin or model on recordings, and of another one on the same windows."""

    robot: Robot
    score: ReplayScore
    against: ReplayScore | None


def replay(
    twin: str | Path | Twin | Robot,
    logs: Sequence[str | Path] | Sequence[RobotLog],
    *,
    against: Annotated[str | Path | None, Option(metavar="TWIN")] | Twin | Robot = None,
    drive: Annotated[Literal["efforts", "commands"], Option(flags=("--inputs",), old=("--from",))] = "efforts",
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    window_s: Annotated[float, Option(old=("--window",))] = 0.25,
    seed: int = 0,
) -> ReplayComparison:
    """Replay recordings in a twin or model from measured states, open loop, and score its errors per joint.

    Args:
        twin: twin.json, a robot's name, or the path of an MJCF (.xml) or URDF (.urdf) file.
        logs: recordings (see `physai logs check --help`).
        against: compare with another twin or model on the same resampled windows.
        drive: replay motors from measured efforts, or from commands through the response that the twin measured.
        columns: column map for all recordings.
        window_s: length of a replay [s].
        seed: seed of the bootstrap.

    Returns:
        The scores.

    Raises:
        LogError: a recording cannot be read, or is of another robot.
        PhysaiError: an argument is out of range, or a twin or model cannot be read.
    """
    require_range("seed", seed, 0, MAX_SEED)
    logs = several(logs)
    require_choice("drive", drive, ("efforts", "commands"))

    def score(reference: str | Path | Twin | Robot) -> tuple[Robot, ReplayScore]:
        from physai.twin.calibration.replay.replay import replay as score_of
        from physai.twin.logs import RobotLog, read_logs

        robot, subject = _loaded(reference)
        if logs and all(isinstance(log, RobotLog) for log in logs):
            read = tuple(cast("Sequence[RobotLog]", logs))
        else:
            paths = cast("Sequence[str | Path]", logs)
            read = read_logs(paths, robot.spec, column_map=None if columns is None else Path(columns))
        kind = "command" if drive == "commands" else None
        return robot, score_of(subject, robot, read, window_s=window_s, seed=seed, drive=kind)

    robot, first = score(twin)
    return ReplayComparison(robot=robot, score=first, against=None if against is None else score(against)[1])


def _loaded(reference: str | Path | Twin | Robot) -> tuple[Robot, Any]:
    """The robot, and the twin or model to replay in."""
    from physai.sim.robots import load_robot
    from physai.twin.model.twin import Twin, load_twin
    from physai.twin.parameters.models import calibration_model

    if isinstance(reference, str | Path) and str(reference).lower().endswith(".json"):
        reference = load_twin(reference)
    if isinstance(reference, Twin):
        return reference.nominal(), reference
    robot = load_robot(reference) if isinstance(reference, str | Path) else reference
    return robot, calibration_model(robot)
