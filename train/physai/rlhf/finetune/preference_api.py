"""The verbs of `physai preferences` as functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.rlhf.answers.teacher_choice import (
    MAX_PAIRS,
    MIN_LABELS,
    MethodName,
    Taste,
    TeacherName,
    TeacherParameters,
    chosen_teacher,
    require_seed,
)
from physai.rlhf.finetune.fine_tune import Raters
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.arguments import several
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.rlhf.collection.collect import Collected
    from physai.rlhf.finetune.scratch import ScratchOutcome
    from physai.rlhf.reward_model.fit_report import FitReport

Database = Annotated[Path | str, Option(metavar="DB")]


@dataclass(frozen=True, kw_only=True)
class SimulatedAnswers:
    """Answers of a simulated teacher."""

    rater: str
    """Name of the teacher in the database."""
    answered: int
    """Number of answers that were added."""


@dataclass(frozen=True, kw_only=True)
class FittedReward:
    """Reward model that was fitted to answers."""

    sha256: str
    """Digest of the model."""
    report: FitReport
    facts: Mapping[str, Any]
    """Figures of the report, with the digest of the database."""


def collect_preferences(
    runs: Annotated[Sequence[Path | str], Option(metavar="RUN")],
    *,
    out: Path | str,
    pairs: int = 60,
    method: MethodName = "disagreement",
    segment_s: float = 0.5,
    repeats: Annotated[float, Option(metavar="SHARE")] = 0.1,
    explore: bool = True,
    task: str | Path | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    seed: int = 0,
) -> list[Collected]:
    """Draw pairs of segments from the policies of runs of one task into a database.

    Args:
        runs: run folders.
        out: database; begun if there is none.
        pairs: pairs from each run.
        method: how to choose pairs: mostly among those that the reward models so far like best, by their disagreement,
            at random, or every segment equally often; the first pairs are random.
        segment_s: length of a segment [s].
        repeats: share of the pairs that ask earlier ones again, with the sides exchanged.
        explore: play without the run's exploration noise.
        task: task of runs whose task is not built in.
        model: MJCF or URDF file of runs whose robot is not built in.
        seed: seed of all random numbers.

    Returns:
        Segments and pairs that were added, of each run.

    Raises:
        PhysaiError: an option is out of range, a run cannot be read, or the database is of another task.
    """
    require_seed(seed)
    if not 1 <= pairs <= MAX_PAIRS:
        raise PhysaiError(f"`pairs` must lie in 1 … {MAX_PAIRS}, got {pairs}")
    if not 0.0 <= repeats <= 1.0:
        raise PhysaiError(f"`repeats` must lie in [0, 1], got {repeats}")
    from physai.rlhf.collection.collect import collect

    return [
        collect(
            Path(run),
            Path(out),
            pairs=pairs,
            method=method,
            seconds=segment_s,
            seed=seed,
            repeats=repeats,
            explore=explore,
            task=task,
            robot=model,
        )
        for run in several(runs)
    ]


def answer_preferences(
    database: Database,
    *,
    simulated: Annotated[TeacherName, Option(metavar="TEACHER")],
    parameters: Annotated[TeacherParameters | None, Option(flatten=True)] = None,
    taste: Taste = None,
    reward_file: Annotated[Path | str | None, Option(old=("--reward",))] = None,
    reward_without: Annotated[Sequence[str], Option(repeat=True, metavar="LAYER,…")] = (),
    rater: Annotated[str | None, Option(metavar="NAME")] = None,
    limit: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> SimulatedAnswers:
    """Let a simulated teacher answer the pairs that it has not answered.

    Args:
        database: database of `physai preferences collect`.
        simulated: teacher: perfect, noisy, myopic, mistaken, skipping or equal.
        parameters: other parameters of the teacher.
        taste: terms that it likes, as joint_speed=-1. None for the task's own reward.
        reward_file: Python file whose reward(steps) or rubric(episode) says what the teacher likes; it runs in a
            sandbox.
        reward_without: run the file of `reward_file` although the kernel or container lacks this layer of its sandbox:
            namespaces, landlock.
        rater: name of the rater, to which simulated- is added. None for the teacher's, and the hash of `reward_file`.
        limit: greatest number of answers.
        seed: seed of all random numbers.
        say: receives the confinement of the file.

    Raises:
        PhysaiError: an option is out of range, the database is damaged, or the file fails.
    """
    require_seed(seed)
    if limit is not None and not 1 <= limit <= MAX_PAIRS:
        raise PhysaiError(f"`limit` must lie in 1 … {MAX_PAIRS}, got {limit}")
    if reward_file is not None and taste is not None:
        raise PhysaiError(f"`reward_file` {reward_file} and `taste` {taste} both say what is liked; give one")
    from physai.compute.sandbox.reward import UserReward, parse_layers
    from physai.rlhf.answers.preferences import parse_taste
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.answers.teachers import SIMULATED
    from physai.rlhf.collection.ask import answer_simulated

    teacher = chosen_teacher(simulated, parameters)
    with ExitStack() as stack:
        reward, name = None, str(simulated)
        if reward_file is not None:
            reward = stack.enter_context(UserReward(Path(reward_file), without=parse_layers(reward_without)))
            if say is not None:
                say(f"{reward.form} of {reward_file}: {reward.confinement}")
            # Answers by another file are another rater's.
            name = f"{name}-{reward.sha256[:12]}"
        # Model cards count simulated teachers by their names, so that none passes for a person.
        known_as = SIMULATED + (rater or name).removeprefix(SIMULATED)
        store = PreferenceStore(Path(database))
        stack.callback(store.close)
        likes = None if taste is None else parse_taste(taste, store.layout.terms)
        count = answer_simulated(store, teacher, rater=known_as, taste=likes, reward=reward, seed=seed, limit=limit)
    return SimulatedAnswers(rater=known_as, answered=count)


def preference_status(database: Database) -> dict[str, Any]:
    """Contents of a database, and the agreement of its raters.

    Args:
        database: database of `physai preferences collect`.

    Raises:
        PhysaiError: the database is damaged.
    """
    from physai.rlhf.answers.agreement import agreement, consistency, shares
    from physai.rlhf.answers.store import PreferenceStore

    store = PreferenceStore(Path(database))
    try:
        pairs, answers = store.pairs(), store.answers()
        raters: dict[str, Any] = {}
        for rater in sorted({answer.rater for answer in answers}):
            own = [answer for answer in answers if answer.rater == rater]
            timed = sorted(answer.latency_s for answer in own if answer.latency_s is not None)
            raters[rater] = {
                "answers": len(own),
                "open": len(pairs) - len(own),
                "choices": shares(own),
                "median_latency_s": timed[len(timed) // 2] if timed else None,
                "consistency": asdict(consistency(pairs, own)),
            }
        return {
            "task": store.layout.task,
            "contract": store.layout.fingerprint,
            "segments": store.count_segments(),
            "segment_s": store.layout.steps * store.layout.step_dt,
            "terms": list(store.layout.terms),
            "pairs": len(pairs),
            "repeated": sum(pair.repeat_of is not None for pair in pairs),
            "methods": {m: sum(p.method == m for p in pairs) for m in sorted({p.method for p in pairs})},
            "policies": [policy for policy, _ in store.sources()],
            "answers": len(answers),
            "raters": raters,
            "krippendorff_alpha": agreement(answers),
            "sha256": store.digest(),
        }
    finally:
        store.close()


def fit_preferences(
    database: Database,
    *,
    raters: Raters = (),
    out: Path | str | None = None,
    seed: int = 0,
) -> FittedReward:
    """Fit a reward model to the answers of a database.

    Args:
        database: database of `physai preferences collect`.
        raters: learn from the answers of this rater only; may be repeated. None for all raters.
        out: file of the model to write (.npz).
        seed: seed of all random numbers.

    Raises:
        PhysaiError: there are too few answers, a rater has none, or the database is damaged.
    """
    require_seed(seed)
    from physai.rlhf.answers.store import PreferenceStore
    from physai.rlhf.reward_model.ensemble import save_ensemble
    from physai.rlhf.reward_model.fit import fit_store

    store = PreferenceStore(Path(database))
    try:
        model, report = fit_store(store, seed=seed, beside_task=True, raters=raters)
        facts = {**report.facts(), "database": store.digest()}
        told = {name: facts[name] for name in ("answers", "accuracy", "correlations", "weights")}
        store.add_fit(told)
    finally:
        store.close()
    digest = model.digest() if out is None else save_ensemble(model, Path(out), facts=facts)
    return FittedReward(sha256=digest, report=report, facts=facts)


def train_from_preferences(
    task: str | Path,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    simulated: Annotated[TeacherName, Option(metavar="TEACHER", old=("--teacher",))],
    parameters: Annotated[TeacherParameters | None, Option(flatten=True)] = None,
    taste: Taste = None,
    labels: int = 200,
    method: MethodName = "best",
    segment_s: float = 0.5,
    iterations: int = 180,
    num_envs: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> ScratchOutcome:
    """Train a policy by preferences of a simulated teacher alone: ask, fit and learn in turn.

    Args:
        task: task name or Python file.
        out: run folder. None for runs/TASK/DATE-TIME.
        simulated: teacher: perfect, noisy, myopic, mistaken, skipping or equal.
        parameters: other parameters of the teacher.
        taste: terms that it likes, as joint_speed=-1. None for the task's own reward.
        labels: answers to ask for.
        method: how to choose pairs: mostly among those that the reward models so far like best, by their disagreement,
            at random, or every segment equally often; the first pairs are random.
        segment_s: length of a segment [s].
        iterations: updates of PPO.
        num_envs: number of worlds simulated in parallel. None for the task's.
        seed: seed of all random numbers.
        say: receives progress.

    Returns:
        The run, whose `interrupted` is true if a signal ended it.

    Raises:
        PhysaiError: an option is out of range, or the task or the folder cannot be used.
    """
    require_seed(seed)
    if not MIN_LABELS <= labels <= MAX_PAIRS:
        raise PhysaiError(f"`labels` must lie in {MIN_LABELS} … {MAX_PAIRS}, got {labels}")
    from physai.rlhf.answers.preferences import parse_taste, term_names
    from physai.rlhf.answers.teachers import SIMULATED
    from physai.rlhf.finetune.scratch import ScratchSettings, train_by_preferences
    from physai.sim.policies.resolve import named_source
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import with_options
    from physai.train.settings.presets import settings_of

    source = RunTaskSource(**asdict(named_source(str(task), robot=None, preset=None)), twin=None)
    loaded = source.load()
    options = {"seed": str(seed), "iterations": str(iterations)}
    options |= {} if num_envs is None else {"num_envs": str(num_envs)}
    config = with_options(settings_of(loaded, source.task, source.preset), options)
    default = Path("runs") / Path(source.task).stem / time.strftime("%Y%m%d-%H%M%S")
    return train_by_preferences(
        source,
        config,
        default if out is None else Path(out),
        teacher=chosen_teacher(simulated, parameters),
        rater=SIMULATED + simulated,
        settings=ScratchSettings(labels=labels, method=method, segment_s=segment_s),
        taste=None if taste is None else parse_taste(taste, term_names(loaded)),
        say=say or (lambda text: None),
    )
