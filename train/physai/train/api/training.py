"""`physai train` as a function."""

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from physai.sdk.base.errors import DeviceError, PhysaiError
from physai.sim.robots.checks.check import unstable_servos
from physai.train.api.options import RolloutPool, TrainOptions
from physai.train.api.resolution import ResolvedRun, require_budget, resolved
from physai.train.collectors import distributed
from physai.train.collectors.devices import choose_device
from physai.train.collectors.distributed import Ranks
from physai.train.runners import session
from physai.train.runners.imitation.teacher import imitate_file
from physai.train.runners.initial_weights import load_initial_weights
from physai.train.runners.runner import Trainer, check_settings, learner_threads
from physai.train.runners.session import TrainingOutcome
from physai.train.runs.run_config import begin_run, begin_session, training_alone
from physai.train.settings.config import TrainConfig

logger = logging.getLogger(__name__)

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class TrainingRun(TrainingOutcome):
    """Result of a run, and its folder."""

    run: Path
    """Run folder."""
    contract: str
    """Fingerprint of the task's contract."""
    task: str
    """Name of the task, or path of its file."""
    leads: bool = True
    """Whether this process is the first of several ranks, which writes the run folder."""
    diverged_episodes: int = 0
    """Episodes that ended because the physics diverged."""
    totals: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What became of generators and their chunks in this session."""


def train(
    task: str | Path | None = None,
    out: str | Path | None = None,
    *,
    resume: str | Path | None = None,
    device: str = "auto",
    engine: str | None = None,
    deterministic: bool = False,
    num_envs: int | None = None,
    staleness: int | None = None,
    seed: int | None = None,
    iterations: int | None = None,
    time_budget_s: float | None = None,
    robot: str | Path | None = None,
    twin: str | Path | None = None,
    preset: str | None = None,
    config: TrainConfig | str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    init_from: str | Path | None = None,
    teacher: str | Path | None = None,
    wandb: str | None = None,
    mlflow: str | None = None,
    generators: RolloutPool | None = None,
    say: Say | None = None,
) -> TrainingRun:
    """Train a policy and write the run into a folder.

    Ctrl-C saves a checkpoint and returns; `train(resume=FOLDER)` continues from it. In a program that torchrun started,
    each process is one rank of the run.

    Args:
        task: name of a built-in task, path of a task file, or run folder whose copy of the task is to be run; with
            `resume` only if the run's task is not built in.
        out: run folder; created if missing. None for `runs/TASK/DATE-TIME`.
        resume: run folder to continue from its checkpoint.
        device: where to learn: auto (a GPU if there is one), cpu, cuda or cuda:N.
        engine: physics engine: mujoco on the CPU, or warp where the policy learns. None for warp on a GPU, else mujoco.
        deterministic: make runs on one GPU equal, which is slower.
        num_envs: number of worlds simulated in parallel, on each GPU.
        staleness: greatest age of the weights that generators play with [updates].
        seed: seed of all random numbers.
        iterations: number of updates after which to stop.
        time_budget_s: training time after which to stop [s]; earlier sessions of a resumed run count.
        robot: MJCF or URDF file to train with instead of the task's own robot.
        twin: calibrated twin (`twin.json`) whose model, delay and noise to train with; None for the nominal robot.
        preset: variant of the task.
        config: training settings, or a YAML file of settings that go over the task's; None for those of the task.
        settings: single settings by name, which go over `config`.
        init_from: run folder whose weights to start from.
        teacher: policy file or run folder to imitate first, on the CPU.
        wandb: project of Weights & Biases to log to, too.
        mlflow: experiment of MLflow to log to, too.
        generators: processes that step the worlds, such as `physai.cluster.Generators`; None for this process.
        say: receives progress and warnings; None for the module's logger.

    Raises:
        PhysaiError: the task, robot, twin, a setting or the folder cannot be used.
    """
    options = TrainOptions(
        task=None if task is None else str(task),
        out=_path(out),
        resume=_path(resume),
        device=device,
        engine=engine,
        deterministic=deterministic,
        num_envs=num_envs,
        staleness=staleness,
        seed=seed,
        iterations=iterations,
        time_budget_s=time_budget_s,
        robot=None if robot is None else str(robot),
        twin=_path(twin),
        preset=preset,
        config=config if isinstance(config, TrainConfig) else _path(config),
        settings={name: str(value) for name, value in (settings or {}).items()},
        init_from=_path(init_from),
        teacher=_path(teacher),
        wandb=wandb,
        mlflow=mlflow,
        generators=generators,
    )
    return train_with(options, say=say)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def train_with(options: TrainOptions, *, say: Say | None = None) -> TrainingRun:
    """`train` with its options in one object."""
    require_budget(options.time_budget_s)
    with distributed.joined() as ranks:
        # One rank chooses the folder, which has the time in its name.
        run = ranks.first(lambda: resolved(options))
        with training_alone(run.folder) if ranks.leads else nullcontext():
            return _train(run, options, ranks, say or logger.info)


def _train(run: ResolvedRun, options: TrainOptions, ranks: Ranks, say: Say) -> TrainingRun:
    config, generators = run.config, options.generators
    _check_generators(config, generators)
    if ranks.size > 1 and ":" in run.device:
        raise DeviceError(
            f"--device {run.device} is one GPU for {ranks.size} processes; use --device cuda, which gives each "
            "its own, and CUDA_VISIBLE_DEVICES to choose which"
        )
    device = ranks.device(choose_device(run.device, config.engine))
    torch.set_num_threads(learner_threads(config))
    task = run.source.load()
    check_settings(task, config, ranks=ranks.size)
    if ranks.leads:
        worlds = f"{config.num_envs} worlds" + (f" in each of {ranks.size} processes" if ranks.size > 1 else "")
        worlds += generators.described(config) if generators else ""
        say(
            f"training {task.name} on {device} with engine {config.engine}, {worlds}, seed {config.seed}, into "
            f"{run.folder}"
        )
    pool = generators.opened(task, run.source, config) if generators else nullcontext()
    with pool as rollouts:
        trainer = Trainer(task, config, device=device, ranks=ranks, source=rollouts)
        if options.init_from is not None:
            load_initial_weights(trainer, options.init_from)
        if ranks.leads:
            # Only now, so that what was refused leaves no run.
            _begin(run, trainer, options, say)
        if options.teacher is not None and not options.resume:
            imitate_file(trainer, options.teacher, say=say)
        outcome = session.run(
            trainer,
            run.folder,
            time_budget_s=options.time_budget_s,
            resume=options.resume is not None,
            wandb_project=options.wandb,
            mlflow_experiment=options.mlflow,
        )
    return TrainingRun(
        **vars(outcome),
        run=run.folder,
        contract=task.contract.fingerprint,
        task=run.source.task,
        leads=ranks.leads,
        diverged_episodes=trainer.diverged_episodes,
        totals=generators.totals(trainer.collector) if generators else {},
    )


def _check_generators(config: TrainConfig, generators: RolloutPool | None) -> None:
    if generators is not None:
        generators.check(config)
    elif config.staleness:
        raise PhysaiError(
            f"the run's staleness is {config.staleness}, which takes generators; add --generators 1 or more, or start "
            "a new run with --set staleness=0"
        )


def _begin(run: ResolvedRun, trainer: Trainer, options: TrainOptions, say: Say) -> None:
    """Writes what a new run, or a session of an old one, keeps of its circumstances; warns of what learns badly."""
    origin = options.generators.origin() if options.generators else {}
    if options.resume:
        begin_session(run.folder, origin)
        return
    sources = {"init_from": options.init_from, "teacher": options.teacher}
    origin = {name: str(path) for name, path in sources.items() if path is not None} | origin
    for note in begin_run(run.folder, run.source, trainer.config, trainer.task, origin=origin):
        say(note)
    # A policy learns little from servos that tremble or explode, and no episode counts as diverged.
    for finding in unstable_servos(trainer.task.robot, trainer.task.model):
        say(f"warning: {finding.about} {finding.text}; {finding.next_step} (physai robots check)")
