"""Trains a policy by preferences alone: ask, fit, learn, and ask again about what it does now (Christiano et al. 2017).

The task's reward is not seen by the learner. Its terminations are: in the end, a failure costs more than the learned
reward can pay.
"""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from physai.rlhf.answers.answers import Method
from physai.rlhf.answers.motion_features import with_seen
from physai.rlhf.answers.store import DATABASE_FILE, PreferenceStore
from physai.rlhf.answers.teachers import Teacher
from physai.rlhf.collection.ask import answer_simulated
from physai.rlhf.collection.collect import add_questions, without_stops
from physai.rlhf.collection.draw import layout_of
from physai.rlhf.finetune.record import Curve, origin, write_record
from physai.rlhf.reward_model.ensemble import MODEL_FILE, RewardEnsemble, save_ensemble
from physai.rlhf.reward_model.fit import MIN_ANSWERS, fit_store
from physai.rlhf.reward_model.fit_report import FitReport
from physai.rlhf.reward_model.network import FitSettings
from physai.rlhf.reward_model.reward import PreferenceCollector
from physai.sdk.base.errors import CheckpointError
from physai.sdk.evidence.preferences import PREFIX
from physai.sim.tasks.task import Task
from physai.train.collectors.collector import Collector, Learner
from physai.train.runners import session
from physai.train.runners.runner import Trainer, engine_threads, learner_threads
from physai.train.runs.run_config import RunTaskSource, add_provenance, begin_run, require_no_run, training_alone
from physai.train.settings.config import TrainConfig

POINTS = 8
"""Points of the over-optimisation curve."""
FIRST_SHARE = 0.25
"""Share of the labels that is asked before the first iteration."""
WHEN = (0.04, 0.08, 0.11, 0.15, 0.19, 0.23, 0.26, 0.3)
"""Shares of the iterations after which the others are asked, in equal parts: while the policy still explores."""


@dataclass(frozen=True, kw_only=True)
class ScratchSettings:
    """Settings of training by preferences."""

    labels: int = 200
    method: Method = "best"
    segment_s: float = 0.5
    weight: float = 1.0
    fit: FitSettings = field(default_factory=FitSettings)


@dataclass(frozen=True, kw_only=True)
class ScratchOutcome:
    """Result of training by preferences."""

    run: str
    reason: str
    labels: int
    iterations: int
    seconds: float
    """Training time, asking and fitting included [s]."""
    fit_seconds: float
    ask_seconds: float
    """Drawing and choosing segments, and the simulated teacher [s]."""
    fit: FitReport
    interrupted: bool
    """Whether a signal ended it."""


def schedule(labels: int, iterations: int) -> dict[int, int]:
    """Number of labels to ask before each iteration (from 0); their sum is `labels`."""
    first = min(labels, max(MIN_ANSWERS + 2, round(FIRST_SHARE * labels)))
    plan = {0: first}
    left = labels - first
    for index, share in enumerate(WHEN):
        part = left * (index + 1) // len(WHEN) - left * index // len(WHEN)
        when = min(round(share * iterations), iterations - 1)
        plan[when] = plan.get(when, 0) + part
    return {when: count for when, count in plan.items() if count}


class Asker:
    """Asks a simulated teacher and refits the reward model, before some of the rollouts."""

    def __init__(
        self,
        store: PreferenceStore,
        task: Task,
        teacher: Teacher,
        rater: str,
        plan: Mapping[int, int],
        *,
        settings: ScratchSettings,
        seed: int,
        taste: Mapping[str, float] | None,
        say: Callable[[str], None],
    ) -> None:
        self._store, self._task, self._teacher, self._rater = store, task, teacher, rater
        self._plan, self._settings, self._seed, self._taste, self._say = plan, settings, seed, taste, say
        self.asked: Callable[[], object] = lambda: None
        """Called when the last question was answered."""
        self.fit_seconds = self.ask_seconds = 0.0
        self.report: FitReport | None = None

    def __call__(self, collector: PreferenceCollector) -> None:
        """Asks and fits if it is time."""
        count = self._plan.get(collector.iteration, 0)
        if not count:
            return
        start = time.perf_counter()
        seed = self._seed * 1000 + collector.iteration
        add_questions(
            self._store,
            collector.learner.graph,
            self._task,
            pairs=count,
            method=self._settings.method if collector.model else "random",
            seed=seed,
            origin={"iteration": collector.iteration},
            std=collector.learner.ppo.log_std.detach().exp(),
            training=True,
            action_repeat=collector.config.action_repeat,
            model=collector.model,
        )
        answer_simulated(self._store, self._teacher, rater=self._rater, taste=self._taste, seed=self._seed)
        self.ask_seconds += time.perf_counter() - start
        start = time.perf_counter()
        collector.model, self.report = self._fitted(collector.model)
        self.fit_seconds += time.perf_counter() - start
        if collector.iteration == max(self._plan):
            self.asked()
        self._say(
            f"iteration {collector.iteration}: {self.report.answers} answers, fitted in {self.report.seconds:.1f} s"
        )

    def _fitted(self, start: RewardEnsemble | None) -> tuple[RewardEnsemble, FitReport]:
        return fit_store(self._store, seed=self._seed, settings=self._settings.fit, start=start)


def train_by_preferences(
    source: RunTaskSource,
    config: TrainConfig,
    out: Path,
    *,
    teacher: Teacher,
    rater: str,
    settings: ScratchSettings,
    taste: Mapping[str, float] | None = None,
    say: Callable[[str], None] = print,
) -> ScratchOutcome:
    """Trains a policy into a run folder that also holds the database.

    Args:
        source: where the task comes from.
        config: settings of PPO and the run.
        out: new run folder.
        teacher: who answers.
        rater: its name in the database.
        settings: how.
        taste: what it likes; None for the task's own reward.
        say: takes messages for the user.

    Raises:
        CheckpointError: `out` holds a run.
        PreferenceError: episodes are shorter than segments, or too few questions had an answer.
    """
    require_no_run(out)
    if (out / DATABASE_FILE).exists():
        raise CheckpointError(f"{out} already holds the answers of a run that did not end; give another `out`")
    task = with_seen(source.load())
    config = replace(config, **without_stops(config))
    torch.set_num_threads(learner_threads(config))
    with training_alone(out):
        layout = layout_of(task, seconds=settings.segment_s, action_repeat=config.action_repeat)
        store = PreferenceStore(out / DATABASE_FILE, layout=layout)
        try:
            plan = schedule(settings.labels, config.iterations)
            asker = Asker(store, task, teacher, rater, plan, settings=settings, seed=config.seed, taste=taste, say=say)
            return _train(store, asker, source, config, out, task, settings, taste)
        finally:
            store.close()


def _train(
    store: PreferenceStore,
    asker: Asker,
    source: RunTaskSource,
    config: TrainConfig,
    out: Path,
    task: Task,
    settings: ScratchSettings,
    taste: Mapping[str, float] | None,
) -> ScratchOutcome:
    collectors: list[PreferenceCollector] = []

    def rollouts(learner: Learner) -> PreferenceCollector:
        worlds = Collector(task, config, learner, num_threads=engine_threads(config))
        collectors.append(PreferenceCollector(task, config, worlds))
        collectors[0].before = asker
        return collectors[0]

    trainer = Trainer(task, config, source=rollouts)
    # What a policy does not try, it is not asked about: its exploration narrows only after the last question.
    noise = trainer.learner.ppo.log_std.requires_grad_(False)
    asker.asked = functools.partial(noise.requires_grad_, True)
    # Without this, a run that is killed would be continued with the task's reward.
    begin_run(out, source, config, task, origin={f"{PREFIX}answers": "0"})
    curve = Curve(trainer.graph, task, collectors[0], max(1, config.iterations // POINTS), taste)
    ended = session.run(trainer, out, extra_sinks=[curve], resumable=False)
    model, report = collectors[0].model, asker.report
    assert model is not None
    assert report is not None
    digest = save_ensemble(model, out / MODEL_FILE, facts=report.facts())
    stated = origin(store, report, reward_model=digest, reference=None)
    # Only now are data and reward model known.
    add_provenance(out, stated.entries)
    write_record(out, stated, curve, {"fit": report.facts()})
    return ScratchOutcome(
        run=str(out),
        reason=ended.reason,
        labels=len(store.answers()),
        iterations=ended.iterations,
        seconds=ended.seconds,
        fit_seconds=asker.fit_seconds,
        ask_seconds=asker.ask_seconds,
        fit=report,
        interrupted=ended.interrupted,
    )
