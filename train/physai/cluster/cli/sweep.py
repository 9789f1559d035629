"""`physai runs sweep`: train with many settings on Ray, and find the best."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.cluster.sweep.folder import SweepBase, SweepFolder, SweepTrial
    from physai.cluster.sweep.plan import Sweep
    from physai.cluster.sweep.results import PointResult, TrialResult
    from physai.train.onnx_export.export import ExportReport

MAX_ROWS = 20
"""Points that the table shows."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "task",
        nargs="?",
        help="task name or Python file, as of `physai train`; with --resume only if it is a file",
    )
    parser.add_argument("--over", type=Path, metavar="YAML", help="sweep file: settings, trials, seeds and budget")
    parser.add_argument("--out", type=Path, metavar="DIR", help="sweep folder (default: runs/TASK-sweep/DATE-TIME)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="continue the sweep in this folder")
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        default="local",
        metavar="ADDRESS",
        help="where trials run: local (Ray started here, the default), auto (the cluster of RAY_ADDRESS or of this "
        "computer, else one started here), or HOST:PORT of a cluster",
    )
    parser.add_argument("--device", help="where each trial learns: cpu or cuda (default: cuda if the file gives gpus)")
    parser.add_argument(
        "--robot", metavar="FILE", help="MJCF or URDF file to train with instead of the task's own robot"
    )
    parser.add_argument("--twin", type=Path, metavar="TWIN", help="calibrated twin to train in")
    parser.add_argument("--preset", help="variant of the task, if it has any")
    parser.add_argument("--config", type=Path, metavar="YAML", help="file of settings that do not vary")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="options", help="a setting that does not vary"
    )
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")


def _run(arguments: argparse.Namespace) -> int:
    """Trains and reports; returns 0, 1 if no trial trained to the end, or 130 when a signal interrupted it."""
    from physai.cluster.sweep.tuner import run_trials
    from physai.compute.ray.cluster import check_address, ray_version
    from physai.train.runs.run_config import training_alone

    check_address(arguments.ray)
    ray_version()
    if arguments.resume is None:
        base, sweep, path = _new(arguments)
    else:
        base, sweep, path = _resumed(arguments)
    _check_points(base, sweep)
    from physai.cluster.sweep.folder import SweepFolder

    with training_alone(path):
        folder = SweepFolder.new(path, base, sweep) if arguments.resume is None else SweepFolder.open(path)
        # With the files that were named and compared, not those at the paths of the record.
        folder.record = folder.record.model_copy(update={"base": base})
        _say(f"{len(folder.trials)} trials of {base.task}, {sweep.concurrent} at a time, into {path}")
        is_complete = run_trials(folder, lambda trial: _words(folder, trial), address=arguments.ray, say=_say)
        return _report(folder, arguments, is_complete=is_complete)


def _new(arguments: argparse.Namespace) -> tuple[SweepBase, Sweep, Path]:
    from physai.cluster.cli.settings import option_pair
    from physai.cluster.sweep.folder import SweepBase
    from physai.cluster.sweep.plan import load_sweep, setting_text
    from physai.sim.tasks.registry import BUILT_IN
    from physai.train.settings.config import read_settings

    if not arguments.task or arguments.over is None:
        raise PhysaiError("name a task and a file: physai runs sweep TASK --over FILE.yaml, or go on with --resume DIR")
    sweep = load_sweep(arguments.over)
    settings = {} if arguments.config is None else read_settings(arguments.config)
    settings |= dict(option_pair(text) for text in arguments.options)
    settings = {name: setting_text(name, value) for name, value in settings.items()}
    for name in settings:
        if name in sweep.parameters or name in ("seed", "iterations"):
            raise PhysaiError(f"{name} is given by {arguments.over}; leave it out of --set and --config")
    settings.setdefault("num_threads", str(sweep.cpus))
    settings = {name: value for name, value in settings.items() if name not in sweep.parameters}
    task = arguments.task if arguments.task in BUILT_IN else _path(arguments.task)
    files = {"robot": arguments.robot, "twin": arguments.twin}
    paths = {name: None if value is None else _path(value) for name, value in files.items()}
    base = SweepBase(
        task=task,
        robot=paths["robot"],
        twin=paths["twin"],
        preset=arguments.preset,
        device=arguments.device or ("cuda" if sweep.gpus else "cpu"),
        settings=settings,
        hashes=_hashes({"task": task, **paths}),
    )
    out = arguments.out or Path("runs") / f"{Path(task).stem}-sweep" / time.strftime("%Y%m%d-%H%M%S")
    return base, sweep, out


def _path(value: Any) -> str:
    """Path at which other working folders, and computers, find a file; a robot may also be a name."""
    return str(Path(value).resolve()) if Path(value).exists() else str(value)


def _hashes(files: dict[str, str | None]) -> dict[str, str]:
    from physai.sdk.base.formats.canonical import sha256_hex

    return {
        name: sha256_hex(Path(path).read_bytes())
        for name, path in files.items()
        if path is not None and Path(path).is_file()
    }


def _resumed(arguments: argparse.Namespace) -> tuple[SweepBase, Sweep, Path]:
    """The recorded sweep. Files that it names are opened only if the user names them, too, and they are the same.

    Raises:
        PhysaiError: a file is not named, or has changed; or an option would change the sweep.
    """
    from physai.cluster.sweep.folder import SweepFolder
    from physai.sim.robots import robot_names
    from physai.sim.tasks.registry import BUILT_IN

    record = SweepFolder.open(arguments.resume).record
    base = record.base
    fixed = [
        f"--{name}" for name in ("over", "out", "device", "preset", "config") if getattr(arguments, name) is not None
    ]
    fixed += [f"--set {option}" for option in arguments.options]
    if fixed:
        raise PhysaiError(f"a sweep that is continued keeps its settings; leave out {', '.join(fixed)}")
    recorded = {"task": base.task, "robot": base.robot, "twin": base.twin}
    named = {"task": arguments.task, "robot": arguments.robot, "twin": arguments.twin}
    for what, before in recorded.items():
        is_name = before is None or before in (BUILT_IN if what == "task" else robot_names())
        now = named[what]
        if now is None and is_name:
            named[what] = before
        elif now is None:
            option = "TASK" if what == "task" else f"--{what} FILE"
            raise PhysaiError(
                f"the sweep's {what} is the file {(before or '')[:256]!r}, and no file is opened because "
                f"another file names it; name it: physai runs sweep {option} --resume {arguments.resume}"
            )
        elif is_name and str(now) != before:
            raise PhysaiError(f"the sweep's {what} is {before}, not {now}; leave it out")
        elif not is_name:
            named[what] = _path(now)
    if _hashes(named) != base.hashes:
        raise PhysaiError(
            f"{', '.join(str(value) for value in named.values() if value)}: not the content that the sweep began with; "
            "give the same files, or start a new sweep"
        )
    return base.model_copy(update=named), record.sweep, arguments.resume


def _words(folder: SweepFolder, trial: SweepTrial) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Words after `physai` that begin a trial, and those that continue it."""
    base, sweep = folder.record.base, folder.record.sweep
    run = str(folder.run(trial).resolve())
    settings = {**base.settings, **trial.point}
    new = [*_source_words(base), "--seed", str(trial.seed), "--out", run]
    new += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    if sweep.budget.iterations is not None:
        limit = ["--iterations", str(sweep.budget.iterations)]
    else:
        limit = ["--time-budget-s", str(sweep.budget.seconds)]
    # A run folder keeps its robot and its twin.
    resumed = ["train", *_task_file(base), "--resume", run, "--device", base.device]
    return (*new, *limit), (*resumed, *limit)


def _task_file(base: SweepBase) -> list[str]:
    """The task, if it is a file or a run folder: runs of such tasks have it named again."""
    from physai.sim.tasks.registry import BUILT_IN

    return [] if base.task in BUILT_IN else [base.task]


def _source_words(base: SweepBase) -> list[str]:
    options = (("--robot", base.robot), ("--twin", base.twin), ("--preset", base.preset), ("--device", base.device))
    return ["train", base.task, *(word for name, value in options if value is not None for word in (name, value))]


def _check_points(base: SweepBase, sweep: Sweep) -> None:
    """Refuses what trials would refuse, before any of them starts.

    Raises:
        PhysaiError: the task cannot be trained so, or a point gives a setting that is unknown or out of range.
    """
    from physai.cluster.sweep.plan import SweepError
    from physai.train.api.options import TrainOptions
    from physai.train.api.resolution import configured
    from physai.train.settings.config import with_options

    options = TrainOptions(
        task=base.task,
        robot=base.robot,
        twin=None if base.twin is None else Path(base.twin),
        preset=base.preset,
        device=base.device,
        settings={name: str(value) for name, value in base.settings.items()},
    )
    _, config = configured(options)
    for number, point in enumerate(sweep.points()):
        try:
            with_options(config, point)
        except PhysaiError as error:
            shown = ", ".join(f"{name} {value}" for name, value in point.items())
            raise SweepError(f"trial {number} ({shown}): {error}") from None


def _report(folder: SweepFolder, arguments: argparse.Namespace, *, is_complete: bool) -> int:
    from physai.cluster.sweep.folder import BEST_FOLDER
    from physai.cluster.sweep.plot import draw
    from physai.cluster.sweep.results import best_trial, ranked, trial_results, write_csv

    file = _task_file(folder.record.base)
    results = trial_results(folder)
    write_csv(folder, results)
    picture = draw(folder, results)
    points = ranked(results)
    best = best_trial(points) if is_complete else None
    report = None if best is None else _export_best(folder, best)
    if arguments.json:
        print(json.dumps(_record(folder, points, best, report, is_complete=is_complete), indent=2))
    else:
        print(printable(_table(folder, points)))
    if picture is not None:
        _say(f"picture: {picture}")
    if not is_complete:
        _say(f"interrupted; continue with: {shlex.join(['physai', 'sweep', *file, '--resume', str(folder.path)])}")
        return 130
    if best is None:
        _say("no trial trained to the end")
        return 1
    # The best of many noisy values is too good on average.
    target = str(folder.path / BEST_FOLDER)
    words = ["physai", "eval", target, *(["--task", target] if file else [])]
    _say(f"best: {best.trial.name}, exported; next: {shlex.join(words)}")
    return 0


def _export_best(folder: SweepFolder, best: TrialResult) -> ExportReport:
    """Copies the best run to `best`, with its policy exported."""
    import shutil

    from physai.cluster.sweep.folder import BEST_FOLDER
    from physai.sim.policies.resolve import EXPORT_FOLDER
    from physai.train.cli.export_verb import export_run
    from physai.train.runners.checkpoint import load_run

    file = _task_file(folder.record.base)
    target = folder.path / BEST_FOLDER
    copy = folder.path / f".{BEST_FOLDER}.new"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder.run(best.trial), copy)
    run = load_run(copy, task=file[0] if file else None, robot=None)
    report = export_run(run, copy / EXPORT_FOLDER, 1000)
    shutil.rmtree(target, ignore_errors=True)
    copy.rename(target)
    return report


def _record(
    folder: SweepFolder,
    points: list[PointResult],
    best: TrialResult | None,
    report: ExportReport | None,
    *,
    is_complete: bool,
) -> dict[str, Any]:
    from physai.cluster.sweep.folder import BEST_FOLDER

    sweep = folder.record.sweep
    return {
        "sweep": str(folder.path),
        "complete": is_complete,
        "metric": sweep.metric,
        "clock": sweep.budget.clock,
        "points": [
            {
                "number": point.number,
                "settings": point.point,
                "mean": point.mean,
                "trials": [
                    {
                        "run": str(folder.run(result.trial)),
                        "seed": result.trial.seed,
                        "state": result.state,
                        "value": result.value,
                        "time": result.time,
                        **({"reason": result.reason} if result.reason else {}),
                    }
                    for result in point.trials
                ],
            }
            for point in points
        ],
        "best": None if best is None else str(folder.run(best.trial)),
        "exported": None if report is None else str(folder.path / BEST_FOLDER),
        "policy_sha256": None if report is None else report.policy_sha256,
    }


def _table(folder: SweepFolder, points: list[PointResult]) -> str:
    names = list(folder.record.sweep.parameters)
    rows = [
        [
            str(point.number),
            *(point.point[name] for name in names),
            "-" if point.mean is None else f"{point.mean:.4g}",
            f"{min(point.values):.4g} … {max(point.values):.4g}" if len(point.values) > 1 else "",
            _states(point),
        ]
        for point in points[:MAX_ROWS]
    ]
    text = table(["trial", *names, folder.record.sweep.metric, "over seeds", "state"], rows, indent="")
    more = len(points) - MAX_ROWS
    return text + (f"\nand {more} more, in {folder.path / 'results.csv'}" if more > 0 else "")


def _states(point: PointResult) -> str:
    states = [result.state for result in point.trials]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    return states[0] if len(states) == 1 else ", ".join(f"{count} {state}" for state, count in counts.items())


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


command = CliCommand(
    summary="train with many settings on Ray and export the best", add_arguments=_add_arguments, run=_run
)
"""The verb `sweep`."""
