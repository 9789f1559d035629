"""`physai runs sweep` as a function: train with many settings on Ray, and find the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.compute.ray.ray_address import ray_address
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.cluster.sweep.folder import SweepBase, SweepFolder, SweepTrial
    from physai.cluster.sweep.plan import Sweep
    from physai.cluster.sweep.results import PointResult, TrialResult
    from physai.train.api.options import TrainOptions
    from physai.train.onnx_export.export import ExportReport


@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """Result of a sweep."""

    folder: SweepFolder
    """Folder of the sweep, with its trials."""
    points: list[PointResult]
    """Settings and their results, the best first."""
    complete: bool
    """Whether all trials have ended; false after Ctrl-C."""
    best: TrialResult | None
    """Best trial, whose run is copied to the folder `best`; None if no trial trained to the end."""
    exported: ExportReport | None
    """Export of the best trial's policy."""
    picture: Path | None
    """Learning curves; None if there is nothing to draw."""
    task_file: str | None
    """Task, if it is a file or a run folder, which has to be named again."""


def run_sweep(
    task: Annotated[Path | str | None, Option(word=True)] = None,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    over: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    resume: Annotated[Path | str | None, Option(metavar="RUN")] = None,
    ray: Annotated[str, Option(bare="auto", metavar="ADDRESS", check=ray_address)] = "local",
    device: str | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] = None,
    preset: str | None = None,
    config: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    settings: Annotated[Mapping[str, object] | None, Option(flags=("--set",))] = None,
    say: Callable[[str], None] | None = None,
) -> SweepOutcome:
    """Train with many settings on Ray, and export the best policy; Ctrl-C ends it, `resume` continues it.

    Args:
        task: task name or Python file, as of `physai train`; with `resume` only if it is a file.
        out: sweep folder. None for runs/TASK-sweep/DATE-TIME.
        over: sweep file: settings, trials, seeds and budget.
        resume: continue the sweep in this folder.
        ray: Ray cluster on which trials run: local (Ray started here), auto (the cluster of RAY_ADDRESS or of this
            computer, else one started here), or HOST:PORT of a cluster.
        device: device on which each trial learns: cpu or cuda. None for cuda if the file gives gpus.
        model: MJCF or URDF file to train with instead of the task's own robot.
        twin: calibrated twin to train in.
        preset: variant of the task, if it has any.
        config: file of settings that do not vary.
        settings: a setting that does not vary.
        say: receives progress.

    Returns:
        The results, whose `complete` is false if a signal interrupted the sweep.

    Raises:
        PhysaiError: the sweep file, a setting or a folder cannot be used, or the task cannot be trained so.
        ClusterError: the cluster cannot be joined, or Tune fails.
    """
    from physai.cluster.sweep.tuner import run_trials
    from physai.compute.ray.cluster import check_address, ray_version
    from physai.train.runs.run_config import training_alone

    check_address(ray)
    ray_version()
    tell: Callable[[str], None] = say or (lambda text: None)
    named = {"task": task, "robot": model, "twin": twin}
    fixed = {"over": over, "out": out, "device": device, "preset": preset, "config": config}
    base, sweep, path = (
        _new(named, fixed, settings or {}) if resume is None else _resumed(named, fixed, settings or {}, Path(resume))
    )
    _check_points(base, sweep)
    from physai.cluster.sweep.folder import SweepFolder

    with training_alone(path):
        folder = SweepFolder.new(path, base, sweep) if resume is None else SweepFolder.open(path)
        # With the files that were named and compared, not those at the paths of the record.
        folder.record = folder.record.model_copy(update={"base": base})
        tell(f"{len(folder.trials)} trials of {base.task}, {sweep.concurrent} at a time, into {path}")
        complete = run_trials(folder, lambda trial: _options(folder, trial), address=ray, say=tell)
        return _outcome(folder, complete=complete)


def _new(
    named: Mapping[str, Path | str | None], given: Mapping[str, Any], settings: Mapping[str, object]
) -> tuple[SweepBase, Sweep, Path]:
    from physai.cluster.sweep.folder import SweepBase
    from physai.cluster.sweep.plan import load_sweep, setting_text
    from physai.sim.tasks.registry import BUILT_IN
    from physai.train.api.options import TrainOptions
    from physai.train.settings.config import read_settings

    if not named["task"] or given["over"] is None:
        raise PhysaiError("name a task and a file: physai runs sweep TASK --over FILE.yaml, or go on with `resume` DIR")
    sweep = load_sweep(Path(given["over"]))
    fixed = {} if given["config"] is None else read_settings(Path(given["config"]))
    fixed |= TrainOptions.of(settings=settings).settings
    fixed = {name: setting_text(name, value) for name, value in fixed.items()}
    for name in fixed:
        if name in sweep.parameters or name in ("seed", "iterations"):
            raise PhysaiError(f"{name} is given by {given['over']}; leave it out of `settings` and `config`")
    fixed.setdefault("num_threads", str(sweep.cpus))
    fixed = {name: value for name, value in fixed.items() if name not in sweep.parameters}
    task = str(named["task"]) if str(named["task"]) in BUILT_IN else _path(named["task"])
    paths = {name: None if named[name] is None else _path(named[name]) for name in ("robot", "twin")}
    base = SweepBase(
        task=task,
        robot=paths["robot"],
        twin=paths["twin"],
        preset=given["preset"],
        device=given["device"] or ("cuda" if sweep.gpus else "cpu"),
        settings=fixed,
        hashes=_hashes({"task": task, **paths}),
    )
    default = Path("runs") / f"{Path(task).stem}-sweep" / time.strftime("%Y%m%d-%H%M%S")
    return base, sweep, default if given["out"] is None else Path(given["out"])


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


def _resumed(
    given_files: Mapping[str, Path | str | None],
    given: Mapping[str, Any],
    settings: Mapping[str, object],
    resume: Path,
) -> tuple[SweepBase, Sweep, Path]:
    """The recorded sweep. Files that it names are opened only if the user names them, too, and they are the same.

    Raises:
        PhysaiError: a file is not named, or has changed; or an option would change the sweep.
    """
    from physai.cluster.sweep.folder import SweepFolder
    from physai.sim.robots import robot_names
    from physai.sim.tasks.registry import BUILT_IN

    record = SweepFolder.open(resume).record
    base = record.base
    fixed = [f"--{name}" for name, value in given.items() if value is not None]
    fixed += [f"--set {name}={value}" for name, value in settings.items()]
    if fixed:
        raise PhysaiError(f"a sweep that is continued keeps its settings; leave out {', '.join(fixed)}")
    recorded = {"task": base.task, "robot": base.robot, "twin": base.twin}
    named = {name: None if value is None else str(value) for name, value in given_files.items()}
    for what, before in recorded.items():
        is_name = before is None or before in (BUILT_IN if what == "task" else robot_names())
        now = named[what]
        if now is None and is_name:
            named[what] = before
        elif now is None:
            option = {"task": "TASK", "robot": "--model FILE", "twin": "--twin FILE"}[what]
            raise PhysaiError(
                f"the sweep's {what} is the file {(before or '')[:256]!r}, and no file is opened because "
                f"another file names it; name it: physai runs sweep {option} --resume {resume}"
            )
        elif is_name and now != before:
            raise PhysaiError(f"the sweep's {what} is {before}, not {now}; leave it out")
        elif not is_name:
            named[what] = _path(now)
    if _hashes(named) != base.hashes:
        raise PhysaiError(
            f"{', '.join(str(value) for value in named.values() if value)}: not the content that the sweep began with; "
            "give the same files, or start a new sweep"
        )
    return base.model_copy(update=named), record.sweep, resume


def _options(folder: SweepFolder, trial: SweepTrial) -> tuple[TrainOptions, TrainOptions]:
    """Options that begin a trial, and those that continue it."""
    from physai.train.api.options import TrainOptions

    base, budget = folder.record.base, folder.record.sweep.budget
    run = folder.run(trial).resolve()
    limit = {"iterations": budget.iterations} if budget.iterations is not None else {"time_budget_s": budget.seconds}
    begun = TrainOptions.of(
        **_source(base), settings={**base.settings, **trial.point}, seed=trial.seed, out=run, **limit
    )
    # A run folder keeps its robot and its twin.
    return begun, TrainOptions.of(task=_task_file(base), resume=run, device=base.device, **limit)


def _task_file(base: SweepBase) -> str | None:
    """The task, if it is a file or a run folder: runs of such tasks have it named again."""
    from physai.sim.tasks.registry import BUILT_IN

    return None if base.task in BUILT_IN else base.task


def _source(base: SweepBase) -> dict[str, Any]:
    files = {"task": base.task, "model": base.robot, "twin": base.twin}
    return {**files, "preset": base.preset, "device": base.device}


def _check_points(base: SweepBase, sweep: Sweep) -> None:
    """Refuses what trials would refuse, before any of them starts.

    Raises:
        PhysaiError: the task cannot be trained so, or a point gives a setting that is unknown or out of range.
    """
    from physai.cluster.sweep.plan import SweepError
    from physai.train.api.options import TrainOptions
    from physai.train.api.resolution import configured
    from physai.train.settings.config import with_options

    options = TrainOptions.of(**_source(base), settings=base.settings)
    _, config = configured(options)
    for number, point in enumerate(sweep.points()):
        try:
            with_options(config, point)
        except PhysaiError as error:
            shown = ", ".join(f"{name} {value}" for name, value in point.items())
            raise SweepError(f"trial {number} ({shown}): {error}") from None


def _outcome(folder: SweepFolder, *, complete: bool) -> SweepOutcome:
    from physai.cluster.sweep.plot import draw
    from physai.cluster.sweep.results import best_trial, ranked, trial_results, write_csv

    results = trial_results(folder)
    write_csv(folder, results)
    picture = draw(folder, results)
    points = ranked(results)
    best = best_trial(points) if complete else None
    return SweepOutcome(
        folder=folder,
        points=points,
        complete=complete,
        best=best,
        exported=None if best is None else _export_best(folder, best),
        picture=picture,
        task_file=_task_file(folder.record.base),
    )


def _export_best(folder: SweepFolder, best: TrialResult) -> ExportReport:
    """Copies the best run to `best`, with its policy exported."""
    import shutil

    from physai.cluster.sweep.folder import BEST_FOLDER
    from physai.train.api.exporting import export

    target = folder.path / BEST_FOLDER
    copy = folder.path / f".{BEST_FOLDER}.new"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder.run(best.trial), copy)
    report = export(copy, task=_task_file(folder.record.base))
    shutil.rmtree(target, ignore_errors=True)
    copy.rename(target)
    return report
