"""Calibrate a robot's twin: read the recordings, split them, fit, sign, and write the twin and its report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import (
    MAX_SEED,
    require_range,
    several,
    writable_file,
    writable_folder,
    write_page,
)
from physai.sdk.base.parameters.option import Option
from physai.sdk.cli.shared.options import RayAddress

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sim.robots import Robot
    from physai.twin.calibration.calibrate import Calibration
    from physai.twin.calibration.fit.fit import FitProgress
    from physai.twin.logs import RobotLog

REPORT_FILE = "report.html"
FrictionModel = Literal["auto", "coulomb", "stribeck", "load", "stribeck-load", "directional", "full"]


def calibrate(
    model: str | Path | Robot,
    logs: Sequence[str | Path] | Sequence[RobotLog],
    held_out: Annotated[Sequence[str | Path], Option(metavar="FILE", exclusive="split")] | Sequence[RobotLog] = (),
    *,
    out: Annotated[Path | str | None, Option(flags=("-o",), old=("--output",))] = Path("twin.json"),
    columns: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    recorded_on: Annotated[str | None, Option(metavar="ROBOT")] = None,
    window_s: Annotated[float, Option(old=("--window",))] = 0.25,
    friction: FrictionModel = "auto",
    only: Annotated[Sequence[str], Option(metavar="PARAMETER")] = (),
    report: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    budget_steps: int = 30_000_000,
    time_budget_s: float | None = None,
    seed: int = 0,
    num_threads: int = 0,
    ray: RayAddress = None,
    key: SigningKey | None = None,
    progress: Callable[[FitProgress], None] = lambda step: None,
    say: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Fit the twin of a robot to recordings of it, score it on recordings left out of the fit, and write its file.

    Recordings that are unfit for a calibration are left out, and those in which nothing moves show sensor noise only.
    A keyboard interrupt ends the fit and keeps the best result so far.

    Args:
        model: a robot's name, or the path of an MJCF or URDF file.
        logs: recordings (see `physai logs check --help`).
        held_out: recordings to validate on. None for two fifths of the others.
        out: file to write.
        columns: column map for all recordings.
        recorded_on: the recorded robot, MODEL/UNIT such as ur10e/cell-3; stored in the twin and checked when flashing.
        window_s: length of a replay [s].
        friction: friction model of the joints. By default Coulomb friction where that is enough, else the terms of all
            models that recordings left out of fits do not exclude.
        only: parameters to fit; the twin has the others as not constrained, and intervals of the fitted ones are those
            at nominal values of the others. None for all.
        report: folder to write report.html to.
        budget_steps: physics steps that the fit may simulate; with more it fits more windows.
        time_budget_s: end all fits after 85 % of this time [s], with the best result so far, which then depends on the
            computer; the scores after them take as long as they take. None for no limit.
        seed: seed of the split and the bootstrap.
        num_threads: number of threads; 0 takes one per available processor (default).
        ray: replay the alternatives to the twin on Ray, one per processor: auto (the cluster of RAY_ADDRESS or of this
            computer, else one started here), local (one started here), or HOST:PORT of a cluster.
        key: validator's key that signs the twin; None for no signature.
        progress: called after every evaluation of the fit.
        say: called with a line about each recording that is left out.

    Returns:
        The twin, its fit and scores, and the files written.

    Raises:
        LogError: a recording cannot be read, or all are unfit, of another robot, too short, or without motion.
        OriginError: `recorded_on` contradicts the robot or a recording.
        UnknownNameError: `only` names a parameter that the robot does not have.
        PhysaiError: an argument is out of range, or a file cannot be written.
    """
    from physai.sim.robots import load_robot
    from physai.twin.calibration.calibrate import fit_twin
    from physai.twin.calibration.split import split_logs, without_still
    from physai.twin.model.twin import save_twin, signed_twin

    # Check what will be written before a fit that takes minutes.
    file = None if out is None else writable_file(out, "twin.json")
    folder = None if report is None else writable_folder("report", report)
    require_range("seed", seed, 0, MAX_SEED)
    require_range("num_threads", num_threads, 0, 4096)
    cluster = _cluster(ray)
    robot = load_robot(model) if isinstance(model, str | Path) else model
    fitted, named = _recordings(robot, logs, held_out, None if columns is None else Path(columns), say)
    if recorded_on is not None:
        fitted, named = (tuple(with_robot(log, recorded_on, robot) for log in group) for group in (fitted, named))
    moving, still = without_still(fitted)
    train, left_out = (moving, without_still(named)[0]) if named else split_logs(moving, seed)
    if not train:
        raise PhysaiError("nothing moves in these recordings; record the robot swinging or tracking something")
    for log in still:
        say(f"{log.name}: nothing moves in it; used for sensor noise only")
    with cluster:
        result = fit_twin(
            robot,
            train,
            left_out,
            window_s=window_s,
            budget_steps=budget_steps,
            time_budget_s=time_budget_s,
            seed=seed,
            num_threads=num_threads,
            ray=ray,
            still=still,
            only=only,
            friction=friction,
            folder=None if file is None else file.parent,
            report=progress,
        )
    if key is not None:
        result = replace(result, twin=signed_twin(result.twin, key))
    if file is not None:
        save_twin(result.twin, file)
    page = None if folder is None else _write_page(result, folder, str(out or robot.name))
    return replace(result, file=file, report=page)


def with_robot(log: RobotLog, name: str, robot: Robot) -> RobotLog:
    """Set the origin of a recording to a robot that the user names.

    Args:
        log: the recording.
        name: MODEL/UNIT.
        robot: the model.

    Raises:
        OriginError: the name is invalid, names another model, or contradicts the origin stored in the recording.
    """
    from physai.sdk.evidence.origin import Origin, OriginError, is_unit_of

    origin = Origin.from_mark(f"robot {name}", source="`recorded_on`")
    if not is_unit_of(name, robot.name):
        raise OriginError(f"`recorded_on` {name}: the robot is a {robot.name}; give {robot.name}/UNIT")
    if log.origin.kind == "unknown" or log.origin == origin:
        return replace(log, origin=origin)
    raise OriginError(f"`recorded_on` {name}: {log.source} states that it is from {log.origin}")


def _cluster(address: str | None) -> contextlib.AbstractContextManager[object]:
    """Connection to a cluster; entered before the fit, so that an unreachable one is reported first."""
    if address is None:
        return contextlib.nullcontext()
    from physai.compute.ray.cluster import check_address, connected

    check_address(address)
    return connected(address, processors=1)


def _recordings(
    robot: Robot,
    logs: Sequence[str | Path] | Sequence[RobotLog],
    held_out: Sequence[str | Path] | Sequence[RobotLog],
    columns: Path | None,
    say: Callable[[str], None],
) -> tuple[tuple[RobotLog, ...], tuple[RobotLog, ...]]:
    """Fit recordings of both groups; unfit ones are reported.

    Raises:
        LogError: a recording cannot be read, or all of one group are unfit.
    """
    from physai.twin.logs import LogError, RobotLog, read_logs
    from physai.twin.logs.reader import all_episodes

    unfit: list[str] = []
    logs, held_out = several(logs), several(held_out)
    if logs and all(isinstance(log, RobotLog) for log in (*logs, *held_out)):
        groups = (cast("Sequence[RobotLog]", logs), cast("Sequence[RobotLog]", held_out))
    else:
        # One call for both lists, so that names are unique across them and a recording cannot be in both.
        first = all_episodes(cast("Sequence[str | Path]", logs))
        second = all_episodes(cast("Sequence[str | Path]", held_out)) if held_out else ()
        read = read_logs([*first, *second], robot.spec, column_map=columns, unfit=unfit)
        groups = tuple([log for log in read if log.source in group] for group in (first, second))
    kept, named = (tuple(log for log in group if _is_fit(log, robot, unfit)) for group in groups)
    if unfit and not (kept and (named or not held_out)):
        raise LogError(unfit[0] + (f" ({len(unfit) - 1} more are unfit, too)" if len(unfit) > 1 else ""))
    for text in unfit:
        say(f"left out: {text}")
    return kept, named


def _is_fit(log: RobotLog, robot: Robot, unfit: list[str]) -> bool:
    """Whether a recording has no defect that prevents calibration; adds the first one to `unfit`."""
    from physai.twin.logs.quality import check_log

    # One recording may lack motion as long as others in the set have it.
    defects = [f for f in check_log(log, robot.spec).findings if f.severity == "defect" and f.check != "motion"]
    if defects:
        unfit.append(f"{log.source}: {defects[0].message}; {defects[0].advice} (see `physai logs check`)")
    return not defects


def _write_page(result: Calibration, folder: Path, title: str) -> Path:
    from physai.twin.calibration.calibration_page import calibration_page

    return write_page(folder / REPORT_FILE, calibration_page(result, title=title))
