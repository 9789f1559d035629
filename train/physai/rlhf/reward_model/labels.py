"""Answers as numbers: pairs of segments, and what was preferred."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from physai.rlhf.answers.answers import Answer, Pair
from physai.rlhf.answers.segment import PreferenceError, Segment


@dataclass(frozen=True)
class Labels:
    """Answers as numbers: N pairs of segments and how much of the preference the first has."""

    first: Tensor
    """Rows of `inputs`, (N,)."""
    second: Tensor
    target: Tensor
    """1, 0.5 or 0, (N,)."""
    known: Tensor | None = None
    """How much greater the task's return of the first is, in standard deviations, (N,); None to not tell it apart."""


def pairs_of(labels: Labels, rows: Tensor) -> Tensor:
    """Number of the pair of segments that each of some answers is about, whatever the order of the two, as they come,
    (n,).

    What is left out to judge a model must be left out with all answers to the same pair, of whichever rater.
    """
    known: dict[tuple[int, int], int] = {}
    both: Any = torch.stack([labels.first[rows], labels.second[rows]], dim=1).sort(dim=1).values
    return torch.tensor([known.setdefault((a, b), len(known)) for a, b in both.tolist()], dtype=torch.long)


def stack(segments: Sequence[Segment]) -> Tensor:
    """Inputs of the reward model, (segments, T, C + A)."""
    return torch.as_tensor(np.stack([np.concatenate([s.critic, s.action], axis=1) for s in segments]))


def labels_of(pairs: Sequence[Pair], answers: Sequence[Answer], rows: Mapping[int, int]) -> Labels:
    """The answers that name a preference or a tie.

    Args:
        pairs: all pairs.
        answers: of one rater or several.
        rows: row of each segment, by its number.

    Raises:
        PreferenceError: an answer is about a pair or a segment that is missing.
    """
    by_number = {pair.id: pair for pair in pairs}
    values = {"first": 1.0, "equal": 0.5, "second": 0.0}
    first, second, target = list[int](), list[int](), list[float]()
    for answer in answers:
        if answer.preference == "cannot_tell":
            continue
        pair = by_number.get(answer.pair)
        if pair is None or pair.first not in rows or pair.second not in rows:
            raise PreferenceError(f"the database is damaged: pair {answer.pair} or a segment of it is missing")
        first.append(rows[pair.first])
        second.append(rows[pair.second])
        target.append(values[answer.preference])
    sides = torch.tensor([first, second], dtype=torch.long)
    return Labels(sides[0], sides[1], torch.tensor(target))


def told_apart(labels: Labels, worth: Sequence[float]) -> Tensor:
    """Difference in worth of each first segment, in standard deviations of the segments, (N,)."""
    values = torch.tensor(worth, dtype=torch.float64)
    return ((values[labels.first] - values[labels.second]) / values.std().clamp(min=1e-6)).float()


def agreement(labels: Labels, worth: Sequence[float]) -> float:
    """Share of the preferences, without ties, for the segment that is worth more; none where both are worth as much."""
    decided = labels.target != 0.5
    values = torch.tensor(worth, dtype=torch.float64)
    more = values[labels.first] - values[labels.second]
    return float((more * (labels.target - 0.5) > 0.0)[decided].double().mean())
