"""A training run from its options, in this process or as several ranks."""

import logging
from collections.abc import Callable
from contextlib import nullcontext

import torch

from physai.sdk.base.errors import DeviceError, PhysaiError
from physai.sim.robots.checks.check import unstable_servos
from physai.train.api.options import RolloutPool, TrainOptions
from physai.train.api.ranks import require_one_learner, starts_ranks, train_as_ranks
from physai.train.api.resolution import ResolvedRun, require_budget, resolved
from physai.train.collectors import distributed
from physai.train.collectors.devices import choose_device
from physai.train.collectors.distributed import Ranks
from physai.train.runners import session
from physai.train.runners.imitation.teacher import imitate_file
from physai.train.runners.initial_weights import load_initial_weights
from physai.train.runners.runner import Trainer, check_settings, learner_threads
from physai.train.runners.session import TrainingRun
from physai.train.runs.run_config import begin_run, begin_session, training_alone
from physai.train.settings.config import TrainConfig

logger = logging.getLogger(__name__)

Say = Callable[[str], None]


def train_with(options: TrainOptions, *, say: Say | None = None) -> TrainingRun:
    """`train` with its options in one object."""
    require_budget(options.time_budget_s)
    if starts_ranks(options.gpus):
        return train_as_ranks(options)
    with distributed.joined() as ranks:
        # One rank chooses the folder, which has the time in its name.
        run = ranks.first(lambda: resolved(options))
        with training_alone(run.folder) if ranks.leads else nullcontext():
            return _train(run, options, ranks, say)


def _train(run: ResolvedRun, options: TrainOptions, ranks: Ranks, say: Say | None) -> TrainingRun:
    tell: Say = say or logger.info
    config, generators = run.config, options.generators
    _check_generators(config, generators, ranks.size)
    if ranks.size > 1 and ":" in run.device:
        raise DeviceError(
            f"`device` {run.device} is one GPU for {ranks.size} processes; use `device` cuda, which gives each "
            "its own, and CUDA_VISIBLE_DEVICES to choose which"
        )
    device = ranks.device(choose_device(run.device, config.engine))
    torch.set_num_threads(learner_threads(config))
    task = run.source.load()
    check_settings(task, config, ranks=ranks.size)
    if ranks.leads:
        worlds = f"{config.num_envs} worlds" + (f" in each of {ranks.size} processes" if ranks.size > 1 else "")
        worlds += generators.described(config) if generators else ""
        tell(
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
            _begin(run, trainer, options, tell)
        if options.teacher is not None and not options.resume:
            imitate_file(trainer, options.teacher, say=tell)
        outcome = session.run(
            trainer,
            run.folder,
            time_budget_s=options.time_budget_s,
            resume=options.resume is not None,
            wandb_project=options.wandb,
            mlflow_experiment=options.mlflow,
            live=say is not None,
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


def _check_generators(config: TrainConfig, generators: RolloutPool | None, ranks: int) -> None:
    if generators is not None:
        require_one_learner(generators, ranks)
        generators.check(config)
    elif config.staleness:
        raise PhysaiError(
            f"the run's staleness is {config.staleness}, which takes generators; add `generators` 1 or more, or start "
            "a new run with `settings` staleness=0"
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
