"""Fine-tunes a run's policy by preferences, on a leash to what it was."""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from physai.rlhf.answers.motion_features import with_seen
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.collection.collect import without_stops
from physai.rlhf.collection.draw import layout_of
from physai.rlhf.finetune.constraint import Constraint, Keeper
from physai.rlhf.finetune.kl_penalty import Leash, LeashedCollector
from physai.rlhf.finetune.record import CurvePoint, origin, write_record
from physai.rlhf.reward_model.ensemble import MODEL_FILE, RewardEnsemble, save_ensemble
from physai.rlhf.reward_model.fit import fit_store
from physai.rlhf.reward_model.fit_report import FitReport, fit_line
from physai.sdk.evidence.preferences import Preferences
from physai.sim.policies.resolve import REFERENCE_FOLDER
from physai.sim.tasks.task import Task
from physai.train.collectors.collector import Collector, Learner
from physai.train.onnx_export.export import export_policy
from physai.train.runners import session
from physai.train.runners.checkpoint import LoadedRun, load_run
from physai.train.runners.initial_weights import load_initial_weights
from physai.train.runners.runner import PlayedSource, Trainer, engine_threads, learner_threads
from physai.train.runs.run_config import RunTaskSource, begin_run, load_config, require_no_run, training_alone
from physai.train.settings.config import TrainConfig

CRITIC_ITERATIONS = 10
"""Rollouts of the reference that the critic of the learned reward, which knows nothing, learns from first."""
TARGET_KL = 0.5
"""Divergence from the reference per step and action that is aimed at [nat]."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """Settings of fine-tuning."""

    iterations: int = 60
    seed: int = 0
    weight: float = 1.0
    """Weight of the learned reward's advantages, relative to the task's."""
    target_kl: float | None = None
    """Divergence from the reference per step [nat]; None for `TARGET_KL` per action."""
    constraint: Constraint = field(default_factory=Constraint)
    """What may be lost of the task."""
    num_envs: int | None = None
    """Worlds; None for the run's own."""


@dataclass(frozen=True, kw_only=True)
class WorldsElsewhere:
    """Stepper of the worlds in place of the process that learns."""

    open: Callable[[Task, RunTaskSource, TrainConfig], AbstractContextManager[Callable[[Learner], PlayedSource]]]
    """Has it at hand while a block runs: makes a trainer's source of rollouts."""
    origin: Mapping[str, str]
    """Entries of the run's provenance."""


class SeenSource(RunTaskSource):
    """Source of a task whose critic sees what a person sees, in the process that steps its worlds, too."""

    def load(self) -> Task:
        return with_seen(super().load())


@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """Result of fine-tuning."""

    run: str
    reason: str
    iterations: int
    kl: float
    """Divergence of the last rollout [nat per step]."""
    kept: int
    """Iteration whose policy was written; 0 for the reference's."""
    fit: FitReport
    before: CurvePoint
    """What the reference is worth, on episodes that nothing was chosen by."""
    after: CurvePoint
    """What the policy that was written is worth, on the same episodes."""
    seconds: float
    interrupted: bool
    """Whether a signal ended it."""


def finetune(
    run: Path,
    database: Path,
    out: Path,
    *,
    settings: FinetuneSettings,
    raters: Collection[str] = (),
    taste: Mapping[str, float] | None = None,
    task: str | Path | None = None,
    robot: str | Path | None = None,
    elsewhere: WorldsElsewhere | None = None,
    say: Callable[[str], None] = print,
) -> Finetuned:
    """Fits a reward model to a database and fine-tunes a run's policy with it into a new run folder.

    Args:
        run: run folder; its policy is the reference.
        database: answers to segments of the same contract.
        out: new run folder.
        settings: how.
        raters: whose answers count; those of all if none is named.
        taste: what the answers came from, if it is known; only reported in the over-optimisation curve.
        task: see `physai.train.runners.checkpoint.load_run`.
        robot: likewise.
        elsewhere: what steps the worlds; this process if None.
        say: takes messages for the user.

    Raises:
        CheckpointError: `out` holds a run, or `run` is none.
        PreferenceError: the database is of another task, or has too few answers.
        UnknownNameError: a rater has answered nothing.
        ExportError: the reference cannot be exported.
        ClusterError: the worlds cannot be stepped elsewhere.
    """
    require_no_run(out)
    loaded = load_run(run, task=task, robot=robot)
    source = load_config(run)[0].chosen(run, task=task, robot=robot)
    config = _config(loaded.config, settings)
    torch.set_num_threads(learner_threads(config))
    seen = with_seen(loaded.task)
    with ExitStack() as stack:
        rollouts = (
            stack.enter_context(elsewhere.open(seen, SeenSource(**asdict(source)), config)) if elsewhere else None
        )
        store = _opened(database, seen, config)
        stack.callback(store.close)
        model, report = fit_store(store, seed=settings.seed, beside_task=True, raters=raters)
        say(fit_line(report))
        with training_alone(out):
            say(f"exporting the policy of {run} as the reference")
            begun = _begun(out, loaded, store, (model, report), raters)
            extra = elsewhere.origin if elsewhere else dict[str, str]()
            begin_run(out, source, config, loaded.task, origin={**begun.entries, **extra})
            trainer, collector = _trainer(seen, config, model, settings, rollouts)
            _scale_seen(trainer, model, added=load_initial_weights(trainer, run))
            say(f"fitting critics to {CRITIC_ITERATIONS} rollouts of it")
            if collector.warm_up(trainer.learner, CRITIC_ITERATIONS):
                say(f"{run} has no critic that foresees the task's reward; one was fitted to the reference first")
            keeper = Keeper(trainer, collector, settings.constraint, weight=settings.weight, taste=taste, say=say)
            try:
                ended = session.run(
                    trainer,
                    out,
                    extra_sinks=[keeper],
                    stop=lambda: collector.stop_reason,
                    resumable=False,
                    settle=keeper.settle,
                )
            except KeyboardInterrupt:
                say(f"nothing was kept: {out} holds the weights of the reference")
                raise
            tuned = _ended(out, ended, collector, keeper, report)
            compared = {name: asdict(tuned)[name] for name in ("kept", "before", "after")}
            write_record(out, begun, keeper, {"fit": report.facts(), "settings": asdict(settings), **compared})
    return tuned


def _ended(
    out: Path, ended: session.TrainingOutcome, collector: LeashedCollector, keeper: Keeper, report: FitReport
) -> Finetuned:
    return Finetuned(
        run=str(out),
        reason=ended.reason,
        iterations=ended.iterations,
        kl=collector.kl,
        kept=keeper.kept,
        fit=report,
        before=keeper.before,
        after=keeper.after,
        seconds=ended.seconds,
        interrupted=ended.interrupted,
    )


def _config(reference: TrainConfig, settings: FinetuneSettings) -> TrainConfig:
    return replace(
        reference,
        **without_stops(reference) | {"seed": settings.seed},
        iterations=settings.iterations,
        num_envs=reference.num_envs if settings.num_envs is None else settings.num_envs,
        curriculum_iterations=0,
    )


def _begun(
    out: Path,
    reference: LoadedRun,
    store: PreferenceStore,
    fitted: tuple[RewardEnsemble, FitReport],
    raters: Collection[str],
) -> Preferences:
    """Begins the folder: with the reward model, and with the reference as a policy file. Returns what states both."""
    model, report = fitted
    digest = save_ensemble(model, out / MODEL_FILE, facts=report.facts())
    exported = export_policy(
        reference.graph, reference.task, out / REFERENCE_FOLDER, provenance=reference.provenance, key=reference.key
    )
    return origin(store, report, reward_model=digest, reference=exported.policy_sha256, raters=raters)


def _opened(database: Path, task: Task, config: TrainConfig) -> PreferenceStore:
    """The database, checked against the task; its segments may have any length."""
    store = PreferenceStore(database)
    seconds = store.layout.steps * store.layout.step_dt
    wanted = layout_of(task, seconds=seconds, action_repeat=config.action_repeat)
    store.close()
    return PreferenceStore(database, layout=wanted)


def _trainer(
    task: Task,
    config: TrainConfig,
    model: RewardEnsemble,
    settings: FinetuneSettings,
    rollouts: Callable[[Learner], PlayedSource] | None,
) -> tuple[Trainer, LeashedCollector]:
    leash = Leash(target_kl=settings.target_kl or TARGET_KL * task.contract.action.size)
    made: list[LeashedCollector] = []

    def source(learner: Learner) -> LeashedCollector:
        worlds = rollouts(learner) if rollouts else Collector(task, config, learner, num_threads=engine_threads(config))
        made.append(LeashedCollector(task, config, worlds, model=model, leash=leash))
        return made[0]

    trainer = Trainer(task, config, source=source)
    trainer.learner.ppo.log_std.requires_grad_(False)
    return trainer, made[0]


def _scale_seen(trainer: Trainer, model: RewardEnsemble, *, added: int) -> None:
    """Scales critic inputs that the reference's critic did not have, the last ones, as those of the segments."""
    normaliser, size = trainer.learner.critic_normaliser, trainer.task.critic_size
    with torch.no_grad():
        normaliser.mean[size - added :] = model.input_mean[size - added : size].double()
        normaliser.variance[size - added :] = model.input_std[size - added : size].double().square()
    normaliser.refresh()


def change_line(tuned: Finetuned) -> str:
    """Effect of fine-tuning, without exploration, in one line."""
    before, after = asdict(tuned.before), asdict(tuned.after)
    names = {"learned": "learned reward", "task": "task's reward", "taste": "taste"}
    lines = [
        f"{name} {before[key]:.3g} to {after[key]:.3g} per second"
        for key, name in names.items()
        if before[key] is not None
    ]
    if before["success"] is not None:
        lines.append(f"success {before['success']:.1%} to {after['success']:.1%}")
    return ", ".join(lines)


def kept_line(tuned: Finetuned) -> str:
    """The policy that was written, in one line."""
    if tuned.kept:
        return f"written: the policy of iteration {tuned.kept}, the most liked one that does the task well enough"
    return "written: the weights of the reference, for no policy that does the task well enough is liked more"
