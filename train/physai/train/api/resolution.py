"""Folder, task and settings of a run, from its options."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from physai.sdk.base.errors import PhysaiError, TaskError
from physai.sdk.evidence.preferences import preference_entries
from physai.sdk.policy.team_record import TEAM_KEY
from physai.sim.policies.saved_task import kept_task
from physai.sim.robots import robot_names
from physai.sim.tasks.registry import BUILT_IN
from physai.train.api.options import TrainOptions, default_folder
from physai.train.collectors.devices import choose_engine
from physai.train.runners.checkpoint import learned_on, read_checkpoint
from physai.train.runners.initial_weights import network_settings, require_same_network
from physai.train.runs.run_config import RunTaskSource, load_config, require_no_run
from physai.train.settings.config import TrainConfig, read_settings, with_options, with_settings
from physai.train.settings.presets import settings_of


@dataclass(frozen=True)
class ResolvedRun:
    """A run that may begin or continue."""

    folder: Path
    source: RunTaskSource
    config: TrainConfig
    device: str
    """As `--device`: auto, cpu, cuda or cuda:N."""


def resolved(options: TrainOptions) -> ResolvedRun:
    """Folder, task and settings of a new run, or of one that continues.

    Raises:
        PhysaiError: there is no such task, a setting is wrong, the folder holds a run, or there is no run to continue.
    """
    if options.resume is not None:
        return _resumed(options, options.resume)
    source, config = configured(options)
    folder = options.out or default_folder(source)
    require_no_run(folder, resumable=True)
    return ResolvedRun(folder, source, config, options.device)


def configured(options: TrainOptions) -> tuple[RunTaskSource, TrainConfig]:
    """The task of a new run and its settings: the task's, then the initial network's, the file's, the options'.

    Raises:
        PhysaiError: there is no such task, or a setting is wrong.
    """
    if not options.task:
        raise PhysaiError("name a task to train (see `physai tasks`), or a run to continue with `resume` RUN")
    source = options.source
    task = source.load()
    if isinstance(options.config, TrainConfig):
        config, named = options.config, {"engine"}
    else:
        config, named = settings_of(task, source.task, source.preset), set(task.training)
        if options.init_from is not None:
            config = with_settings(config, network_settings(options.init_from), source=str(options.init_from))
    if isinstance(options.config, Path):
        settings = read_settings(options.config)
        config = with_settings(config, settings, source=str(options.config))
        named |= set(settings)
    given = dict(options.settings)
    for name in ("num_envs", "seed", "iterations", "engine", "staleness"):
        if getattr(options, name) is not None:
            given[name] = str(getattr(options, name))
    if "engine" not in named:
        # Generators step worlds on processors, also where there is a GPU; and so do some settings.
        on_processors = options.generators is not None or with_options(config, given).on_processors
        given.setdefault("engine", choose_engine("cpu" if on_processors else options.device))
    if options.deterministic:
        given["deterministic"] = "true"
    config = with_options(config, given)
    if options.init_from is not None:
        require_same_network(config, options.init_from)
    return source, config


def _resumed(options: TrainOptions, run: Path) -> ResolvedRun:
    source, config, origin = load_config(run)
    if TEAM_KEY in origin:
        raise PhysaiError(
            f"{run} learned in the team {origin[TEAM_KEY]}; continue all its robots with `resume` "
            f"{run.resolve().parent}, or this one alone in a new run with `init_from` {run}"
        )
    if preference_entries(origin):
        raise PhysaiError(
            f"{run} learned from preferences, whose reward `physai train` does not know; start again with "
            "physai finetune or physai preferences train"
        )
    kept = ["num_envs", "seed", "out", "engine", "config", "init_from", "teacher", "staleness"]
    if not options.task:
        # A robot from a file has to be named again, so --model is allowed with it.
        kept += (
            ["preset", "twin"] if source.robot and source.robot not in robot_names() else ["model", "preset", "twin"]
        )
    require_no_settings(options, kept)
    if not options.task:
        require_built_in(source.task, run)
    named = options.task and not Path(options.task).is_dir()
    if named and Path(str(options.task)).name != Path(source.task).name:
        # The contract check that follows reports how the two tasks differ.
        source = options.source
    else:
        source = source.chosen(run, task=options.task, robot=options.model)
    if options.iterations is not None:
        config = replace(config, iterations=options.iterations)
    device = options.device
    if device == "auto" and config.engine == "warp" and learned_on(read_checkpoint(run)) == "cpu":
        # A GPU draws other numbers.
        device = "cpu"
    return ResolvedRun(run, source, config, device)


def require_budget(time_budget_s: float | None) -> None:
    """Refuse a time budget that is no positive number of seconds.

    Raises:
        PhysaiError: the budget is not positive and finite.
    """
    if time_budget_s is not None and not (math.isfinite(time_budget_s) and time_budget_s > 0.0):
        raise PhysaiError(f"`time_budget_s` must be a positive number of seconds, got {time_budget_s}")


def require_built_in(task: str, run: Path) -> None:
    """Refuse the task file of a run, which the user has to name.

    Raises:
        TaskError: the task is not built in.
    """
    if task in BUILT_IN:
        return
    kept = kept_task(run)
    copy = None if kept is None else kept.source
    ways = "name it" if copy is None else f"read {copy} and name its folder, {run}, or another file"
    raise TaskError(
        f"{run} was trained with the task file {task[:256]!r}, and no Python file is run because another file names "
        f"it; {ways}: physai train TASK --resume {run}"
    )


def require_no_settings(options: TrainOptions, names: Iterable[str]) -> None:
    """Refuse options of a new run, since a run keeps its settings.

    Raises:
        PhysaiError: one of the named options, a setting or `deterministic` was given.
    """
    fixed = [f"`{name}`" for name in names if getattr(options, name) is not None]
    fixed += [f"`settings` {name}={value}" for name, value in options.settings.items()]
    fixed += ["`deterministic`"] if options.deterministic else []
    if fixed:
        raise PhysaiError(f"a resumed run keeps its settings; leave out {', '.join(fixed)} or start a new run")
