"""Preferences: training by simulated answers against the true reward, active questions, fine-tuning for a taste."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback
from benchmarks.training.prefer_answers import REACHED, active_over_random, motions_of, teacher_accuracy
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.answers.teachers import TEACHERS
from physai.rlhf.collection.ask import answer_simulated
from physai.rlhf.collection.collect import collect
from physai.rlhf.finetune.finetune import FinetuneSettings, finetune
from physai.rlhf.finetune.judge import judge
from physai.rlhf.finetune.scratch import ScratchSettings, train_by_preferences
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners import session
from physai.train.runners.checkpoint import load_run
from physai.train.runners.runner import Trainer, evaluate_graph, learner_threads
from physai.train.runs.run_config import RunTaskSource, begin_run
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

LABELS = 200
ITERATIONS = 180
WEIGHT = 4.0
"""Of the learned reward in fine-tuning."""
MARGIN = 0.05
"""Share of successes that fine-tuning may lose."""


@dataclass(frozen=True)
class Case:
    """A task, and what fine-tuning is to bring."""

    taste: Mapping[str, float]
    preset: str | None = None
    segment_s: float = 0.5
    """Of the motions that fine-tuning asks about [s]."""
    labels: int = LABELS
    """Answers that it is given."""
    tuning: int = 60
    """Iterations of fine-tuning."""

    def source(self, task: str) -> RunTaskSource:
        """The task as a run records it."""
        return RunTaskSource(task=task, robot=None, preset=self.preset)

    def config(self, task: str) -> TrainConfig:
        """The task's settings."""
        return preset_for(task, self.preset)


TASKS = {
    # Smaller forces.
    "cartpole-swingup": Case(taste={"command_size": -1.0}),
    # A tool that points down, where only its position is asked for.
    "ur10e-reach": Case(taste={"tool_tilt": -1.0}, preset="position", segment_s=2.0, labels=60, tuning=120),
}


class Note(Protocol):
    """Takes one measurement."""

    def __call__(self, name: str, unit: str, value: float, peer: str | None = None) -> None:
        """Keeps it."""
        ...


@dataclass(frozen=True)
class _Size:
    iterations: int = ITERATIONS
    tuning: int | None = None
    labels: int = LABELS
    taste_labels: int | None = None
    worlds: int | None = None
    episodes: int = 256


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Trains, asks and fine-tunes with each seed."""
    size = (
        _Size(iterations=12, tuning=2, labels=24, taste_labels=24, worlds=64, episodes=8) if options.quick else _Size()
    )
    found: dict[str, tuple[str, str | None, list[float]]] = {}

    def note(name: str, unit: str, value: float, peer: str | None = None) -> None:
        found.setdefault(name, (unit, peer, []))[2].append(value)
        report(f"{name}: {value:.4g} {unit}")

    for task in options.chosen(tuple(TASKS)):
        for seed in range(1 if options.quick else options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                true_return = _true(task, seed, Path(folder) / "true", size)
                _scratch(task, seed, Path(folder) / "preferences", size, true_return, note, report)
                _tuned(task, seed, Path(folder), size, note, report)
                reference = load_run(Path(folder) / "true")
                _answers(task, reference.graph, reference.task, seed, size, note, report)
    results = [
        BenchmarkResult(name=name, unit=unit, peer=peer, runs=tuple(runs)) for name, (unit, peer, runs) in found.items()
    ]
    for task in options.chosen(tuple(TASKS)):
        if f"active_over_random.{task}" not in found:
            why = f"with no seed did both ways of asking reach {REACHED:.0%} of new pairs with {size.labels} labels"
            results.append(BenchmarkResult(name=f"active_over_random.{task}", unit="1", runs=(), missing=why))
    return results


def _answers(
    task: str, graph: PolicyGraph, loaded: Task, seed: int, size: _Size, note: Note, report: ProgressCallback
) -> None:
    """Learning from answers about motions of the policy of the true reward."""
    motions = motions_of(graph, loaded, seed)
    ratio = active_over_random(motions, seed, size.labels, report)
    if ratio is not None:
        note(f"active_over_random.{task}", "1", ratio, "random questions")
    for name, teacher in TEACHERS.items():
        accuracy, answered = teacher_accuracy(teacher, motions, seed, size.labels)
        note(f"accuracy.{name}.{task}", "1", accuracy)
        note(f"answered.{name}.{task}", "1", answered)


def _true(task: str, seed: int, folder: Path, size: _Size) -> float:
    """Trains with the task's own reward as long as with preferences; returns the mean return of an episode."""
    case = TASKS[task]
    config = replace(case.config(task), iterations=size.iterations, seed=seed, stop_at_success=None)
    config = replace(config, num_envs=size.worlds or config.num_envs)
    torch.set_num_threads(learner_threads(config))
    source = case.source(task)
    loaded = source.load()
    begin_run(folder, source, config, loaded)
    trainer = Trainer(loaded, config)
    session.run(trainer, folder)
    return judge(trainer.graph, loaded, episodes=size.episodes, action_repeat=config.action_repeat).episode_return


def _scratch(
    task: str, seed: int, folder: Path, size: _Size, true_return: float, note: Note, report: ProgressCallback
) -> None:
    case = TASKS[task]
    config = replace(case.config(task), iterations=size.iterations, seed=seed)
    config = replace(config, num_envs=size.worlds or config.num_envs)
    outcome = train_by_preferences(
        case.source(task),
        config,
        folder,
        teacher=TEACHERS["perfect"],
        rater="perfect",
        settings=ScratchSettings(labels=size.labels),
        say=report,
    )
    loaded = load_run(folder)
    worth = judge(loaded.graph, loaded.task, episodes=size.episodes, action_repeat=config.action_repeat)
    note(f"return_ratio.{task}", "1", worth.episode_return / true_return, "PPO with the true reward")
    note(f"seconds.{task}", "s", outcome.seconds)
    note(f"fit_share.{task}", "1", outcome.fit_seconds / outcome.seconds)


def _tuned(task: str, seed: int, folder: Path, size: _Size, note: Note, report: ProgressCallback) -> None:
    """Fine-tunes the policy of the true reward for a taste."""
    case, reference, database = TASKS[task], folder / "true", folder / "taste.db"
    taste, segment_s = case.taste, case.segment_s
    collect(
        reference,
        database,
        pairs=size.taste_labels or case.labels,
        method="random",
        seconds=segment_s,
        seed=seed,
        repeats=0.0,
        explore=True,
    )
    store = PreferenceStore(database)
    answer_simulated(store, TEACHERS["perfect"], rater="perfect", taste=taste, seed=seed)
    store.close()
    settings = FinetuneSettings(iterations=size.tuning or case.tuning, seed=seed, weight=WEIGHT)
    finetune(reference, database, folder / "tuned", settings=settings, taste=taste, say=report)
    before, after = load_run(reference), load_run(folder / "tuned")
    repeat = before.config.action_repeat
    old, new = (judge(r.graph, r.task, episodes=size.episodes, action_repeat=repeat) for r in (before, after))
    rates = [evaluate_graph(r.graph, r.task, episodes=size.episodes)["success"] for r in (before, after)]
    report(f"success {rates[0]:.3f} to {rates[1]:.3f}, return {old.episode_return:.2f} to {new.episode_return:.2f}")
    note(f"success_change.{task}", "1", rates[1] - rates[0])
    note(f"noninferior.{task}", "1", float(rates[1] >= rates[0] - MARGIN))
    note(f"taste_gain.{task}", "1", (new.taste(taste) - old.taste(taste)) / abs(old.taste(taste)))
    # The task's own reward may like the same: what as much training brings without the answers.
    finetune(reference, database, folder / "control", settings=replace(settings, weight=0.0), taste=taste, say=report)
    control = load_run(folder / "control")
    plain = judge(control.graph, control.task, episodes=size.episodes, action_repeat=repeat)
    gain = (plain.taste(taste) - old.taste(taste)) / abs(old.taste(taste))
    note(f"taste_gain_without_preferences.{task}", "1", gain)
