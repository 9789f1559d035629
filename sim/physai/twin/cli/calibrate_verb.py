"""`physai sim calibrate`: fits a robot's twin to recordings of it."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import MAX_SEED, add_ray_argument, check_ray_option, progress_bar, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.signed_evidence import add_signing_arguments, signing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from physai.sim.robots import Robot
    from physai.twin.calibration.calibrate import Calibration
    from physai.twin.calibration.fit.fit import FitProgress
    from physai.twin.logs import RobotLog
    from physai.twin.model.twin import Twin
    from physai.twin.model.twin_file import FittedParameter

REPORT_FILE = "report.html"

_EPILOG = """\
Two fifths of the recordings are held out of the fit to validate the twin, unless --held-out names them. Ctrl-C stops
the fit and keeps the best result so far.

exit code: 0 the twin is credible, 1 it was written but is not credible, 2 it could not be fitted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim calibrate`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("robot", metavar="ROBOT", help="a robot's name, or the path of an MJCF or URDF file")
    parser.add_argument("logs", metavar="LOGS", nargs="+", help="recordings (see `physai logs check --help`)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("twin.json"),
        help="file to write (default: twin.json)",
    )
    held_out = parser.add_mutually_exclusive_group()
    held_out.add_argument("--held-out", metavar="FILE", nargs="+", default=[], help="recordings to validate on")
    held_out.add_argument(
        "--split", action="store_true", help="hold two fifths of LOGS out of the fit (default without --held-out)"
    )
    parser.add_argument("--columns", metavar="YAML", type=Path, help="column map for all recordings")
    parser.add_argument(
        "--recorded-on",
        metavar="ROBOT",
        help="the recorded robot, MODEL/UNIT such as ur10e/cell-3; stored in the twin and checked when flashing",
    )
    parser.add_argument("--window", metavar="S", type=float, default=0.25, help="length of a replay (default: 0.25)")
    parser.add_argument(
        "--friction",
        choices=("auto", "coulomb", "stribeck", "load", "stribeck-load", "directional", "full"),
        default="auto",
        help="friction model of the joints (default: the one with the smallest error on recordings left out of fits)",
    )
    parser.add_argument("--report", metavar="DIR", type=Path, help=f"folder to write {REPORT_FILE} to")
    parser.add_argument(
        "--budget-steps",
        metavar="N",
        type=int,
        default=30_000_000,
        help="physics steps that the fit may simulate; with more it fits more windows (default: 30000000)",
    )
    parser.add_argument(
        "--time-budget-s",
        metavar="S",
        type=float,
        help="stop earlier, with the best result so far, which then depends on the computer (default: no limit)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the split and the bootstrap (default: 0)")
    add_ray_argument(parser, "replay the alternatives to the twin on Ray, one per processor")
    add_signing_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _cluster(address: str | None) -> contextlib.AbstractContextManager[object]:
    """Connects once, before the fit: a cluster that does not answer is told before it, and not after it."""
    if address is None:
        return contextlib.nullcontext()
    from physai.compute.ray.cluster import connected

    return connected(address, processors=1)


def run(arguments: argparse.Namespace) -> int:
    """Fits the twin, writes it and reports its credibility."""
    from physai.sim.robots import load_robot
    from physai.twin.calibration.calibrate import calibrate, split_logs, without_still
    from physai.twin.model.twin import save_twin, signed_twin

    # Check what will be written before a fit that takes minutes.
    output = writable(arguments.output)
    report = None if arguments.report is None else writable_folder(arguments.report)
    require_range("--seed", arguments.seed, 0, MAX_SEED)
    check_ray_option(arguments)
    key = signing_key(arguments)
    robot = load_robot(arguments.robot)
    logs, named = _read(robot, arguments.logs, arguments.held_out, arguments.columns)
    if arguments.recorded_on is not None:
        logs, named = (
            tuple(recorded_on(log, arguments.recorded_on, robot) for log in group) for group in (logs, named)
        )
    moving, still = without_still(logs)
    train, held_out = (moving, without_still(named)[0]) if named else split_logs(moving, arguments.seed)
    if not train:
        raise PhysaiError("nothing moves in these recordings; record the robot swinging or tracking something")
    for log in still:
        print(f"{printable(log.name)}: nothing moves in it; used for sensor noise only", file=sys.stderr)
    with _cluster(arguments.ray), _progress() as report_progress:
        result = calibrate(
            robot,
            train,
            held_out,
            window_s=arguments.window,
            budget_steps=arguments.budget_steps,
            time_budget_s=arguments.time_budget_s,
            seed=arguments.seed,
            ray=arguments.ray,
            still=still,
            friction=arguments.friction,
            folder=output.parent,
            report=report_progress,
        )
    if key is not None:
        result = replace(result, twin=signed_twin(result.twin, key))
    save_twin(result.twin, output)
    page = None if report is None else _write_page(result, report, str(arguments.output))
    credibility = result.twin.credible()
    if arguments.json:
        print(json.dumps(_as_json(result, output, page)))
    else:
        print(printable("\n".join(_text(result, output, page))))
        if credibility.holds:
            # The table above has the error and the bound of each joint; the last reason is about the lag.
            reasons = ["every joint's held-out replay error is within its bound", credibility.reasons[-1]]
        else:
            reasons = list(credibility.reasons)
        word, colour = ("credible", "green") if credibility.holds else ("not credible", "red")
        print(f"{styled(word, colour, sys.stdout)}: {printable('; '.join(reasons))}")
    return 0 if credibility.holds else 1


def _read(
    robot: Robot, logs: Sequence[str], held_out: Sequence[str], columns: Path | None
) -> tuple[tuple[RobotLog, ...], tuple[RobotLog, ...]]:
    """Reads LOGS and --held-out under unique names; leaves out, and names, those unfit to calibrate on.

    Raises:
        LogError: a recording cannot be read, or all of LOGS, or of --held-out, are unfit.
    """
    from physai.twin.logs import LogError, read_logs
    from physai.twin.logs.reader import all_episodes

    # One call for both lists, so that names are unique across them and a recording cannot be in both.
    first = all_episodes(logs)
    second = all_episodes(held_out) if held_out else ()
    unfit: list[str] = []
    result = read_logs([*first, *second], robot.spec, column_map=columns, unfit=unfit)
    kept = [log for log in result if _is_fit(log, robot, unfit)]
    groups = tuple(tuple(log for log in kept if log.source in group) for group in (first, second))
    if unfit and not (groups[0] and (groups[1] or not second)):
        raise LogError(unfit[0] + (f" ({len(unfit) - 1} more are unfit, too)" if len(unfit) > 1 else ""))
    for text in unfit:
        print(printable(f"left out: {text}"), file=sys.stderr)
    return groups[0], groups[1]


def _is_fit(log: RobotLog, robot: Robot, unfit: list[str]) -> bool:
    """Whether a recording has no defect that prevents calibration; adds the first one to `unfit`."""
    from physai.twin.logs.quality import check_log

    # One recording may lack motion as long as others in the set have it.
    defects = [f for f in check_log(log, robot.spec).findings if f.severity == "defect" and f.check != "motion"]
    if defects:
        unfit.append(f"{log.source}: {defects[0].message}; {defects[0].advice} (see `physai logs check`)")
    return not defects


def recorded_on(log: RobotLog, name: str, robot: Robot) -> RobotLog:
    """Sets the origin of a recording to the robot given by --recorded-on.

    Raises:
        OriginError: the name is invalid, names another model, or contradicts the origin stored in the recording.
    """
    from physai.sdk.evidence.origin import Origin, OriginError, is_unit_of

    origin = Origin.from_mark(f"robot {name}", source="--recorded-on")
    if not is_unit_of(name, robot.name):
        raise OriginError(f"--recorded-on {name}: the robot is a {robot.name}; give {robot.name}/UNIT")
    if log.origin.kind == "unknown" or log.origin == origin:
        return replace(log, origin=origin)
    raise OriginError(f"--recorded-on {name}: {log.source} states that it is from {log.origin}")


def writable(path: Path) -> Path:
    """Checks that a file can be written, before what takes long; raises PhysaiError."""
    if not path.parent.is_dir():
        raise PhysaiError(f"{path}: folder {path.parent} does not exist")
    if path.is_dir():
        raise PhysaiError(f"{path} is a folder; name a file, such as {path / 'twin.json'}")
    return path


def writable_folder(path: Path) -> Path:
    """Makes the folder of a report; raises PhysaiError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PhysaiError(f"--report {path}: {error.strerror}") from error
    return path


def _write_page(result: Calibration, folder: Path, title: str) -> Path:
    from physai.sdk.base.files import write_atomic
    from physai.twin.calibration.calibration_page import calibration_page

    page = folder / REPORT_FILE
    try:
        write_atomic(page, calibration_page(result, title=title).encode())
    except OSError as error:
        raise PhysaiError(f"{page}: cannot be written: {error.strerror}") from error
    return page


@contextlib.contextmanager
def _progress() -> Generator[Callable[[FitProgress], None]]:
    """Shows a progress bar over the budget on stderr if it is a terminal, else a line per stage."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with progress_bar(*columns) as bar:
        line, stage = bar.add_task("preparing", total=1.0), ""

        def report(step: FitProgress) -> None:
            nonlocal stage
            if bar.disable and step.stage != stage:
                stage = step.stage
                print(f"fitting {step.parameters} parameters to {stage}", file=sys.stderr)
            errors = " ".join(f"{x:.4f}" for x in step.rmse)
            text = f"{step.stage}: {step.parameters} parameters, error {errors}"
            bar.update(line, completed=step.share, description=text)

        yield report


def _as_json(result: Calibration, output: Path, page: Path | None) -> dict[str, Any]:
    from physai.twin.calibration.replay.replay import score_record

    twin, credibility = result.twin, result.twin.credible()
    return {
        "twin": str(output),
        "hash": twin.hash,
        "report": None if page is None else str(page),
        "credible": credibility.holds,
        "reasons": list(credibility.reasons),
        "train": score_record(result.train),
        "train_nominal": score_record(result.train_nominal),
        "held_out": None if result.held_out is None else score_record(result.held_out),
        "held_out_nominal": None if result.held_out_nominal is None else score_record(result.held_out_nominal),
        "commanded": None if result.commanded is None else score_record(result.commanded),
        "commanded_nominal": None if result.commanded_nominal is None else score_record(result.commanded_nominal),
        "actuators": [motor.model_dump(mode="json") for motor in twin.actuators],
        "alternatives": {
            label: {one.name: one.ratio.model_dump(mode="json") for one in found.alternatives}
            for label, found in (("held_out", twin.residuals), ("commanded", twin.command_residuals))
            if found is not None
        },
        "parameters": {p.name: p.model_dump(mode="json", exclude={"name"}) for p in twin.parameters},
        "noise": twin.noise.model_dump(mode="json"),
        "sensors": {
            name: joint.model_dump(mode="json") for name, joint in zip(twin.joint_names, twin.sensors, strict=False)
        },
        "timing": twin.timing.model_dump(mode="json"),
        "notes": list(twin.notes),
        "origin": twin.origin.model_dump(mode="json"),
        "signed_by": None if twin.signature is None else twin.signature.key_id,
    }


def _text(result: Calibration, output: Path, page: Path | None) -> Iterator[str]:
    from physai.twin.calibration.page_motors import motor_rows

    twin = result.twin
    known = [p for p in twin.parameters if p.identified]
    yield f"{len(known)} of {len(twin.parameters)} parameters are constrained by the recordings:"
    yield table(("parameter", "value", "95 %", "nominal", "unit"), [_row(p) for p in known])
    if len(known) < len(twin.parameters):
        where = "--report DIR lists them" if page is None else "the report lists them"
        yield f"the other {len(twin.parameters) - len(known)} keep their nominal values; {where}"
    yield ""
    yield from _errors(result)
    yield _timing(twin)
    yield from (f"{label}: {text}" for label, text in motor_rows(twin))
    yield from (f"note: {note}" for note in twin.notes)
    yield f"twin    {output} ({twin.hash[:12]}), from {twin.origin}"
    if twin.signature is not None:
        yield f"signed  by {twin.signature.key_id[:16]}"
    elif twin.origin.kind == "robot":
        yield "signed  by nobody: gates take its origin for unknown; sign it with --key (physai keys init makes one)"
    if page is not None:
        yield f"report  {page}"


def _timing(twin: Twin) -> str:
    from physai.twin.parameters.parameters import DELAY

    mean, p99 = twin.timing.command_lag_mean_s, twin.timing.command_lag_p99_s
    # Without measured efforts the lag is unknown, but a fit to positions may still have found a delay.
    delay = next((p for p in twin.parameters if p.name == DELAY and p.identified), None)
    if mean is not None and p99 is not None:
        return f"command-to-effort lag {1e3 * mean:.1f} ms, 99 % within {1e3 * p99:.1f} ms"
    if delay is not None:
        return f"command delay {1e3 * delay.value:.1f} ± {1.96e3 * delay.std:.1f} ms, fitted"
    return "command lag: not identifiable from these recordings; record commands with steps or noise to measure it"


def _row(p: FittedParameter) -> tuple[str, ...]:
    at_bound = " (at its bound)" if p.value in (p.lower, p.upper) else ""
    return p.name, f"{p.value:.4g}{at_bound}", f"± {1.96 * p.std:.2g}", f"{p.prior:.4g}", p.unit


def _errors(result: Calibration) -> Iterator[str]:
    from physai.twin.model.credibility import bounds

    limits = None if result.twin.residuals is None else bounds(result.twin.residuals)
    commanded = None if result.twin.command_residuals is None else bounds(result.twin.command_residuals)
    parts = (
        ("fitted", result.train, result.train_nominal, None),
        ("held out", result.held_out, result.held_out_nominal, limits),
        ("from commands", result.commanded, result.commanded_nominal, commanded),
    )
    rows: list[tuple[str, ...]] = []
    for label, score, nominal, most in parts:
        if score is None or nominal is None:
            continue
        for name, error, before in zip(score.joint_names, score.rmse, nominal.rmse, strict=True):
            logs, bound = len(score.windows.logs), "" if most is None else f"{most[name]:.2g}"
            interval = f"{error.lo:.2g} to {error.hi:.2g}"
            rows.append((f"{label}, {logs} logs", name, f"{error.value:.2g}", interval, f"{before.value:.2g}", bound))
    yield f"replay error over {result.train.windows.window_s:g} s, open loop, root mean square [rad or m]:"
    yield table(("recordings", "joint", "twin", "95 % interval", "nominal", "bound"), rows)


command = CliCommand(summary="fit a robot's twin to recordings of it", add_arguments=add_arguments, run=run)
"""The verb `sim calibrate`."""
