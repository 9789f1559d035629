"""Fine-tunes a run's policy by preferences, on a leash to what it was."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from physai.sdk.evidence.preferences import Preferences
from physai.sim.policies.resolve import REFERENCE_FOLDER
from physai.sim.preferences.seen import with_seen
from physai.sim.preferences.store import PreferenceStore
from physai.sim.tasks.task import Task
from physai.train.config import TrainConfig
from physai.train.onnx_export.export import export_policy
from physai.train.preferences.collect import without_stops
from physai.train.preferences.constraint import Constraint, Keeper
from physai.train.preferences.draw import layout_of
from physai.train.preferences.ensemble import MODEL_FILE, RewardEnsemble, save_ensemble
from physai.train.preferences.fit import fit_store
from physai.train.preferences.fit_report import FitReport
from physai.train.preferences.leash import Leash, LeashedCollector
from physai.train.preferences.record import CurvePoint, origin, write_record
from physai.train.runners import session
from physai.train.runners.checkpoint import LoadedRun, load_run
from physai.train.runners.collector import Collector, Learner
from physai.train.runners.initial_weights import load_initial_weights
from physai.train.runners.run_config import RunTaskSource, begin_run, load_config, require_no_run, training_alone
from physai.train.runners.runner import PlayedSource, Trainer, engine_threads, learner_threads

CRITIC_ITERATIONS = 10
"""Rollouts of the reference that the critic of the learned reward, which knows nothing, learns from first."""
TARGET_KL = 0.5
"""Divergence from the reference per step and action that is aimed at [nat]."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """How a policy is fine-tuned."""

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
    """What steps the worlds in place of the process that learns."""

    open: Callable[[Task, RunTaskSource, TrainConfig], AbstractContextManager[Callable[[Learner], PlayedSource]]]
    """Has it at hand while a block runs: makes a trainer's source of rollouts."""
    origin: Mapping[str, str]
    """Entries of the run's provenance."""


class SeenSource(RunTaskSource):
    """Where a task comes from whose critic sees what a person sees, in the process that steps its worlds, too."""

    def load(self) -> Task:
        return with_seen(super().load())


@dataclass(frozen=True, kw_only=True)
class Finetuned:
    """What fine-tuning left."""

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
    taste: Mapping[str, float] | None = None,
    task: str | None = None,
    robot: str | None = None,
    elsewhere: WorldsElsewhere | None = None,
    say: Callable[[str], None] = print,
) -> Finetuned:
    """Fits a reward model to a database and fine-tunes a run's policy with it into a new run folder.

    Args:
        run: run folder; its policy is the reference.
        database: answers to segments of the same contract.
        out: new run folder.
        settings: how.
        taste: what the answers came from, if it is known; only reported in the over-optimisation curve.
        task: see `physai.train.runners.checkpoint.load_run`.
        robot: likewise.
        elsewhere: what steps the worlds; this process if None.
        say: takes messages for the user.

    Raises:
        CheckpointError: `out` holds a run, or `run` is none.
        PreferenceError: the database is of another task, or has too few answers.
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
        model, report = fit_store(store, seed=settings.seed, beside_task=True)
        say(fit_line(report))
        with training_alone(out):
            extra = elsewhere.origin if elsewhere else dict[str, str]()
            stated = _begun(out, source, config, loaded, store, (model, report), extra)
            trainer, collector = _trainer(seen, config, model, settings, rollouts)
            _scale_seen(trainer, model, added=load_initial_weights(trainer, run))
            if collector.warm_up(trainer.learner, CRITIC_ITERATIONS):
                say(f"{run} has no critic that foresees the task's reward; one was fitted to the reference first")
            keeper = Keeper(trainer, collector, settings.constraint, weight=settings.weight, taste=taste)
            ended = session.run(
                trainer,
                out,
                extra_sinks=[keeper],
                stop=lambda: collector.stop_reason,
                resumable=False,
                settle=keeper.settle,
            )
            facts = {
                "fit": report.facts(),
                "settings": asdict(settings),
                "kept": keeper.kept,
                "before": asdict(keeper.before),
                "after": asdict(keeper.after),
            }
            write_record(out, stated, keeper, facts)
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
    source: RunTaskSource,
    config: TrainConfig,
    reference: LoadedRun,
    store: PreferenceStore,
    fitted: tuple[RewardEnsemble, FitReport],
    extra: Mapping[str, str],
) -> Preferences:
    """Begins the run: with its reward model, with its reference as a policy file, and with what it states of both."""
    model, report = fitted
    digest = save_ensemble(model, out / MODEL_FILE, facts=report.facts())
    exported = export_policy(
        reference.graph, reference.task, out / REFERENCE_FOLDER, provenance=reference.provenance, key=reference.key
    )
    stated = origin(store, report, reward_model=digest, reference=exported.policy_sha256)
    begin_run(out, source, config, reference.task, origin={**stated.entries, **extra})
    return stated


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
    """What fine-tuning changed, without exploration, in one line."""
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
    """Which policy was written, in one line."""
    if tuned.kept:
        return f"written: the policy of iteration {tuned.kept}, the most liked one that does the task well enough"
    return "written: the weights of the reference, for no policy that does the task well enough is liked more"


def fit_line(report: FitReport) -> str:
    """A fit in one line."""
    text = f"reward model: {report.answers} answers, {report.seconds:.1f} s"
    if report.accuracy is not None and report.accuracy_interval is not None:
        low, high = report.accuracy_interval
        text += f"; predicts {report.accuracy:.0%} of {report.held_out} held-out ones (95 %: {low:.0%} to {high:.0%})"
        if low <= 0.5:
            text += ", which may be chance: answer more pairs"
    strongest = sorted(report.correlations.items(), key=lambda item: -abs(item[1]))[:3]
    if report.task_agreement is not None:
        text += f"; {report.task_agreement:.0%} of the answers are for more of the task's reward"
    if report.task_weight is not None:
        text += ", which is left to the task"
    if report.weights:
        largest = sorted(report.weights.items(), key=lambda item: -abs(item[1]))[:3]
        likes = ", ".join(f"{'more' if share > 0.0 else 'less'} {name} ({abs(share):.0%})" for name, share in largest)
        text += f"; likes {likes}, or what goes along with them"
    elif strongest:
        text += "; goes along with " + ", ".join(f"{name} {value:+.2f}" for name, value in strongest)
    return text
