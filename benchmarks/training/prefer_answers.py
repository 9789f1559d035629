"""Learning of a reward model from answers: active against random questions, and the six simulated teachers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.measure import ProgressCallback
from physai.rlhf.answers.answers import Method, Pair
from physai.rlhf.answers.motion_features import with_seen
from physai.rlhf.answers.segment import Segment
from physai.rlhf.answers.teachers import TEACHERS, Teacher, scale_of
from physai.rlhf.collection.choose import choose_pairs
from physai.rlhf.collection.draw import draw_segments, layout_of
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.fit import fit
from physai.rlhf.reward_model.labels import Labels, stack
from physai.rlhf.reward_model.network import FitSettings, probabilities
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph

STEP = 20
"""Labels between two fits in the comparison of questions."""
REACHED = 0.9
"""Accuracy on new pairs whose number of labels is compared."""
TARGETS = {"first": 1.0, "second": 0.0, "equal": 0.5}


@dataclass(frozen=True)
class Motions:
    """Segments of a policy."""

    pool: Sequence[Segment]
    """To ask about."""
    new: Sequence[Segment]
    """To test with."""
    named: Mapping[str, int]
    """Columns of their critic inputs that have names."""


def motions_of(graph: PolicyGraph, task: Task, seed: int) -> Motions:
    """600 segments of half a second of a policy that explores."""
    task = with_seen(task)
    std, layout = torch.full((task.contract.action.size,), 0.5), layout_of(task, seconds=0.5)
    segments = draw_segments(graph, task, layout, count=600, seed=seed + 1, std=std, training=True)
    return Motions(segments[::2], segments[1::2], layout.named)


def active_over_random(motions: Motions, seed: int, labels: int, report: ProgressCallback) -> float | None:
    """Labels that disagreement needs for `REACHED` on new pairs, over those that random pairs need.

    Returns:
        The ratio; None if one of them does not reach it.
    """
    needed: dict[Method, int | None] = {}
    methods: tuple[Method, ...] = ("disagreement", "random")
    for method in methods:
        curve = _accuracies(motions, method, seed, labels)
        needed[method] = next((count for count, share in curve if share >= REACHED), None)
        report(f"{method}: " + ", ".join(f"{count} labels {share:.1%}" for count, share in curve))
    active, random = needed["disagreement"], needed["random"]
    return None if active is None or random is None else active / random


def _accuracies(motions: Motions, method: Method, seed: int, labels: int) -> list[tuple[int, float]]:
    """Share of 1,000 new pairs that is predicted, after every `STEP` labels."""
    rng, pool, new = np.random.default_rng(seed), motions.pool, motions.new
    tested = _told(TEACHERS["perfect"], new, _test_pairs(new), rng)
    asked: list[Pair] = []
    curve: list[tuple[int, float]] = []
    model: RewardEnsemble | None = None
    while len(asked) < labels:
        how: Method = "random" if model is None else method
        asked += choose_pairs(
            range(len(pool)), pool, count=STEP, method=how, seed=seed * 1000 + len(asked), model=model
        )
        model, _ = fit(stack(pool), _told(TEACHERS["perfect"], pool, asked, rng), seed=seed, named=motions.named)
        curve.append((len(asked), _accuracy(model, new, tested)))
    return curve


def teacher_accuracy(
    teacher: Teacher,
    motions: Motions,
    seed: int,
    labels: int,
    *,
    settings: FitSettings | None = None,
) -> tuple[float, float]:
    """Accuracy of a reward model that learns from so many answers of a teacher to random questions.

    Returns:
        Share of 1,000 new pairs that it orders as the task's reward does, and share of questions that were answered.
    """
    pool, new = motions.pool, motions.new
    pairs = choose_pairs(range(len(pool)), pool, count=labels, method="random", seed=seed)
    told = _told(teacher, pool, pairs, np.random.default_rng(seed))
    model, _ = fit(stack(pool), told, seed=seed, settings=settings, named=motions.named)
    tested = _told(TEACHERS["perfect"], new, _test_pairs(new), np.random.default_rng(seed))
    return _accuracy(model, new, tested), len(told.target) / len(pairs)


def _test_pairs(new: Sequence[Segment]) -> Sequence[Pair]:
    return choose_pairs(range(len(new)), new, count=1000, method="random", seed=99)


def _accuracy(model: RewardEnsemble, new: Sequence[Segment], tested: Labels) -> float:
    inputs = stack(new)
    prepared = model.normalise(inputs.flatten(0, 1)).view_as(inputs)
    predicted = probabilities(model, prepared, tested, torch.arange(len(tested.target))).mean(dim=0)
    return float(((predicted > 0.5) == (tested.target > 0.5)).float().mean())


def _told(teacher: Teacher, segments: Sequence[Segment], pairs: Sequence[Pair], rng: np.random.Generator) -> Labels:
    """Answers about pairs from a teacher who likes the task's reward, without those of which it cannot tell."""
    rewards = [segment.terms[:, 0].astype(np.float64) for segment in segments]
    sums = [float(values.sum()) for values in rewards]
    scale = scale_of(sums, sums)
    said = [teacher.answer(rewards[pair.first], rewards[pair.second], scale, rng) for pair in pairs]
    told = [(pair, TARGETS[choice]) for pair, choice in zip(pairs, said, strict=True) if choice in TARGETS]
    first, second = (torch.tensor([getattr(pair, side) for pair, _ in told]) for side in ("first", "second"))
    return Labels(first, second, torch.tensor([target for _, target in told]))
