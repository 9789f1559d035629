"""`physai sim calibrate`: fit a robot's twin to recordings of it."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from physai.sim.calibration.calibrate import Calibration
    from physai.sim.calibration.fit.fit import FitProgress
    from physai.sim.logs import RobotLog
    from physai.sim.robots import Robot
    from physai.sim.twin.record import FittedParameter
    from physai.sim.twin.twin import Twin

REPORT_FILE = "report.html"

_EPILOG = """\
Of several recordings two fifths are kept out of the fit, to judge the twin by; --held-out names them instead. Ctrl-C
ends the fit and keeps the best so far.

exit code: 0 the twin is credible, 1 it was written but is not, 2 it could not be fitted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim calibrate`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("robot", metavar="ROBOT", help="a robot's name, or the path of an MJCF or URDF file")
    parser.add_argument("logs", metavar="LOGS", nargs="+", help="recordings (see `physai logs check --help`)")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, default=Path("twin.json"), help="the twin's file")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--held-out", metavar="FILE", nargs="+", default=[], help="recordings to judge by, not to fit")
    kept.add_argument(
        "--split", action="store_true", help="keep two fifths of LOGS out of the fit (default without --held-out)"
    )
    parser.add_argument("--columns", metavar="YAML", type=Path, help="column map for all of the recordings")
    parser.add_argument(
        "--recorded-on",
        metavar="ROBOT",
        help="the robot that was recorded, MODEL/UNIT such as ur10e/cell-3; goes into the twin, and robots ask for it",
    )
    parser.add_argument("--window", metavar="S", type=float, default=0.25, help="length of a replay (default: 0.25)")
    parser.add_argument("--report", metavar="DIR", type=Path, help=f"write {REPORT_FILE} there")
    parser.add_argument(
        "--time-budget-s", metavar="S", type=float, default=180.0, help="end with the best so far (default: 180)"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the split and the bootstrap (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Fits, writes the twin and says how far to believe it."""
    from physai.sim.calibration.calibrate import calibrate, split_logs, without_still
    from physai.sim.robots import load_robot
    from physai.sim.twin.twin import save_twin

    output = _writable(arguments.output)
    report = None if arguments.report is None else _folder(arguments.report)
    if not 0 <= arguments.seed < 2**32:
        raise PhysaiError(f"--seed must lie in 0 … {2**32 - 1}, got {arguments.seed}")
    robot = load_robot(arguments.robot)
    given, named = _read(robot, arguments.logs, arguments.held_out, arguments.columns)
    if arguments.recorded_on is not None:
        given, named = (
            tuple(_recorded_on(log, arguments.recorded_on, robot) for log in logs) for logs in (given, named)
        )
    moving, still = without_still(given)
    train, held_out = (moving, without_still(named)[0]) if named else split_logs(moving, arguments.seed)
    if not train:
        raise PhysaiError("nothing moves in these recordings; record the robot swinging or tracking something")
    for log in still:
        print(f"{printable(log.name)}: nothing moves in it; it tells of sensor noise only", file=sys.stderr)
    with _progress(arguments.time_budget_s) as tell:
        found = calibrate(
            robot,
            train,
            held_out,
            window_s=arguments.window,
            time_budget_s=arguments.time_budget_s,
            seed=arguments.seed,
            still=still,
            folder=output.parent,
            report=tell,
        )
    save_twin(found.twin, output)
    page = None if report is None else _write_page(found, report, str(arguments.output))
    credibility = found.twin.credible()
    if arguments.json:
        print(json.dumps(_as_json(found, output, page), ensure_ascii=False))
    else:
        print(printable("\n".join(_text(found, output, page))))
        word, colour = ("credible", "green") if credibility.holds else ("not credible", "red")
        print(f"{styled(word, colour, sys.stdout)}: {printable('; '.join(credibility.reasons))}")
    return 0 if credibility.holds else 1


def _read(
    robot: Robot, logs: Sequence[str], held_out: Sequence[str], columns: Path | None
) -> tuple[tuple[RobotLog, ...], tuple[RobotLog, ...]]:
    """The recordings to fit or split, and those named to judge by, under names that tell all of them apart.

    Raises:
        LogError: a recording cannot be read, or has a defect that forbids calibration.
    """
    from physai.sim.logs import LogError, read_logs
    from physai.sim.logs.quality import check_log
    from physai.sim.logs.reader import all_episodes

    first = all_episodes(logs)
    second = all_episodes(held_out) if held_out else ()
    found = read_logs([*first, *second], robot.spec, column_map=columns)
    for log in found:
        # Too little motion is no defect of a set of recordings in which others move.
        defects = [f for f in check_log(log, robot.spec).findings if f.severity == "defect" and f.check != "motion"]
        if defects:
            raise LogError(f"{log.source}: {defects[0].message}; {defects[0].advice} (see `physai logs check`)")
    return found[: len(first)], found[len(first) :]


def _recorded_on(log: RobotLog, name: str, robot: Robot) -> RobotLog:
    """The recording, of which somebody says which robot it is of.

    Raises:
        OriginError: the name is none, of another model, or the recording itself says otherwise.
    """
    from physai.sdk.evidence.origin import Origin, OriginError, is_unit_of

    said = Origin.from_mark(f"robot {name}", source="--recorded-on")
    if not is_unit_of(name, robot.name):
        raise OriginError(f"--recorded-on {name}: the robot is a {robot.name}; give {robot.name}/UNIT")
    if log.origin.kind == "unknown" or log.origin == said:
        return replace(log, origin=said)
    raise OriginError(f"--recorded-on {name}: {log.source} says itself that it is of {log.origin}")


def _writable(path: Path) -> Path:
    if not path.parent.is_dir():
        raise PhysaiError(f"{path}: no folder {path.parent}")
    if path.is_dir():
        raise PhysaiError(f"{path} is a folder; name a file, such as {path / 'twin.json'}")
    return path


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PhysaiError(f"--report {path}: {error.strerror}") from error
    return path


def _write_page(found: Calibration, folder: Path, title: str) -> Path:
    from physai.sdk.base.files import write_atomic
    from physai.sim.calibration.page import calibration_page

    page = folder / REPORT_FILE
    try:
        write_atomic(page, calibration_page(found, title=title).encode())
    except OSError as error:
        raise PhysaiError(f"{page}: cannot be written: {error.strerror}") from error
    return page


@contextlib.contextmanager
def _progress(budget_s: float) -> Generator[Callable[[FitProgress], None]]:
    """A bar over the time budget, and where the fit stands, on stderr of a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        line = bar.add_task("preparing", total=budget_s)

        def tell(step: FitProgress) -> None:
            errors = " ".join(f"{x:.4f}" for x in step.rmse)
            text = f"{step.stage}: {step.parameters} parameters, error {errors}"
            bar.update(line, completed=step.elapsed_s, description=text)

        yield tell


def _as_json(found: Calibration, output: Path, page: Path | None) -> dict[str, Any]:
    from physai.sim.calibration.replay.replay import score_record

    twin, credibility = found.twin, found.twin.credible()
    return {
        "twin": str(output),
        "hash": twin.hash,
        "report": None if page is None else str(page),
        "credible": credibility.holds,
        "reasons": list(credibility.reasons),
        "train": score_record(found.train),
        "train_nominal": score_record(found.train_nominal),
        "held_out": None if found.held_out is None else score_record(found.held_out),
        "held_out_nominal": None if found.held_out_nominal is None else score_record(found.held_out_nominal),
        "parameters": {p.name: p.model_dump(mode="json", exclude={"name"}) for p in twin.parameters},
        "noise": twin.noise.model_dump(mode="json"),
        "timing": twin.timing.model_dump(mode="json"),
        "notes": list(twin.notes),
        "origin": twin.origin.model_dump(mode="json"),
    }


def _text(found: Calibration, output: Path, page: Path | None) -> Iterator[str]:
    twin = found.twin
    known = [p for p in twin.parameters if p.identified]
    rest = [p.name for p in twin.parameters if not p.identified]
    yield f"{len(known)} of {len(twin.parameters)} parameters are constrained by the recordings:"
    yield table(("parameter", "value", "95 %", "nominal", "unit"), [_row(p) for p in known])
    if rest:
        yield f"nominal, as the recordings do not tell: {', '.join(rest)}"
    yield ""
    yield from _errors(found)
    yield _timing(twin)
    yield from (f"note: {note}" for note in twin.notes)
    yield f"twin    {output} ({twin.hash[:12]}), from {twin.origin}"
    if page is not None:
        yield f"report  {page}"


def _timing(twin: Twin) -> str:
    mean, p99 = twin.timing.command_lag_mean_s, twin.timing.command_lag_p99_s
    delay = next((p for p in twin.parameters if p.name.endswith(".delay") and p.identified), None)
    if mean is not None and p99 is not None:
        return f"lag of effort behind command {1e3 * mean:.1f} ms, 99 % within {1e3 * p99:.1f} ms"
    if delay is not None:
        return f"delay of commands {1e3 * delay.value:.1f} ± {1.96e3 * delay.std:.1f} ms, fitted"
    return "lag of commands: not told by these recordings; steps or noise in the command would tell it"


def _row(p: FittedParameter) -> tuple[str, ...]:
    end = " (at its bound)" if p.value in (p.lower, p.upper) else ""
    return p.name, f"{p.value:.4g}{end}", f"± {1.96 * p.std:.2g}", f"{p.prior:.4g}", p.unit


def _errors(found: Calibration) -> Iterator[str]:
    parts = (("fitted", found.train, found.train_nominal), ("held out", found.held_out, found.held_out_nominal))
    rows: list[tuple[str, ...]] = []
    for label, score, nominal in parts:
        if score is None or nominal is None:
            continue
        for name, error, before in zip(score.joint_names, score.rmse, nominal.rmse, strict=True):
            logs, interval = len(score.windows.logs), f"{error.lo:.4f} to {error.hi:.4f}"
            rows.append((f"{label}, {logs} logs", name, f"{error.value:.4f}", interval, f"{before.value:.4f}"))
    yield f"replay error over {found.train.windows.window_s:g} s, open loop, root mean square [rad or m]:"
    yield table(("recordings", "joint", "twin", "95 % interval", "nominal"), rows)


command = CliCommand(summary="fit a robot's twin to recordings of it", add_arguments=add_arguments, run=run)
"""The verb `sim calibrate`."""
