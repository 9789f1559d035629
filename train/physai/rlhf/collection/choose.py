"""Choice of the pairs of segments to ask about."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from physai.rlhf.answers.answers import Method, Pair
from physai.rlhf.answers.segment import PreferenceError, Segment
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.labels import Labels, stack
from physai.rlhf.reward_model.network import probabilities

Couples = npt.NDArray[np.int64]
"""Rows of two segments, (n, 2)."""
CANDIDATES = 50
"""Random pairs per pair that is asked, among which disagreement chooses (PEBBLE, Lee et al. 2021)."""

LED: tuple[Method, ...] = ("best", "disagreement")
"""Methods that need a model; until there is one, pairs are random."""
BEST = ((0.4, 0.3), (0.4, 0.06))
"""Shares of the pairs by `best`, and from which share of the segments, the most liked ones, they are drawn."""


def choose_pairs(
    numbers: Sequence[int],
    segments: Sequence[Segment],
    *,
    count: int,
    method: Method,
    seed: int,
    model: RewardEnsemble | None = None,
    newest: int | None = None,
) -> list[Pair]:
    """Chooses pairs.

    Args:
        numbers: the segments' numbers in the database.
        segments: the segments.
        count: how many pairs.
        method: `disagreement` takes those of `CANDIDATES` times as many random pairs on whose preference the members
            differ most, by the standard deviation of their probabilities (Christiano et al. 2017, section 2.2.4);
            `random` draws pairs; `uniform` uses every segment equally often, give or take one.
        seed: of the choice.
        model: the ensemble that disagrees.
        newest: number of segments at the end of which every pair has one; None for all. What a policy does now is
            compared with what was done before, else a model learns nothing from a policy that always does the same.

    Raises:
        PreferenceError: there are too few segments, or no model.
    """
    if len(numbers) < 2:
        raise PreferenceError(f"pairs need at least two segments, got {len(numbers)}")
    rng = np.random.default_rng(seed)
    scores: list[float] | None = None
    if method == "uniform":
        couples = _uniform(len(numbers), count, rng)
    elif method == "random":
        couples = _random(len(numbers), newest or len(numbers), count, rng)
    elif model is None:
        raise PreferenceError(f"pairs by {method} need a fitted model; choose the first pairs at random")
    elif method == "best":
        couples = _best(model, segments, count, rng)
    else:
        candidates = _random(len(numbers), newest or len(numbers), CANDIDATES * count, rng)
        spread = disagreement(model, segments, candidates)
        best = np.argsort(-spread, kind="stable")[:count]
        couples, scores = candidates[best], spread[best].tolist()
    return [
        Pair(
            first=numbers[int(a)], second=numbers[int(b)], method=method, score=None if scores is None else scores[row]
        )
        for row, (a, b) in enumerate(zip(*couples.T, strict=True))
    ]


def _random(segments: int, newest: int, count: int, rng: np.random.Generator) -> Couples:
    first = rng.integers(segments - newest, segments, size=count)
    return np.stack([first, (first + rng.integers(1, segments, size=count)) % segments], axis=1)


def _best(model: RewardEnsemble, segments: Sequence[Segment], count: int, rng: np.random.Generator) -> Couples:
    """Pairs of `BEST` first, then random ones."""
    inputs = stack(segments)
    liked = model.rates(inputs.reshape(-1, inputs.shape[-1])).mean(dim=0).reshape(inputs.shape[:2]).sum(dim=1)
    order = np.argsort(-liked.numpy(), kind="stable")
    parts: list[Couples] = []
    for share, best in BEST:
        among = order[: max(2, round(best * len(order)))]
        parts.append(among[_random(len(among), len(among), round(share * count), rng)])
    rest = count - sum(len(part) for part in parts)
    return np.concatenate([*parts, _random(len(order), len(order), rest, rng)])


def _uniform(segments: int, count: int, rng: np.random.Generator) -> Couples:
    """Neighbours in one random order after another; an odd one out begins the next order."""
    flat: list[int] = []
    while len(flat) < 2 * count:
        order = rng.permutation(segments).tolist()
        if flat and len(flat) % 2 and flat[-1] == order[0]:
            order.append(order.pop(0))
        flat += order
    return np.array(flat[: 2 * count]).reshape(-1, 2)


def disagreement(model: RewardEnsemble, segments: Sequence[Segment], couples: Couples) -> npt.NDArray[np.float32]:
    """Standard deviation of the members' probabilities for each pair, (n,)."""
    inputs = stack(segments)
    prepared = model.normalise(inputs.reshape(-1, inputs.shape[-1])).reshape(inputs.shape)
    first, second = torch.as_tensor(couples[:, 0]), torch.as_tensor(couples[:, 1])
    labels = Labels(first, second, torch.zeros(len(first)))
    everything: Any = torch.arange(len(first))
    found = [probabilities(model, prepared, labels, rows) for rows in everything.split(256)]
    return torch.cat(found, dim=1).std(dim=0).numpy()


def with_repeats(pairs: Sequence[Pair], earlier: Sequence[Pair], share: float, seed: int) -> list[Pair]:
    """The pairs, and a share of them more that repeat earlier ones with the segments exchanged."""
    rng = np.random.default_rng(seed)
    known = [pair for pair in earlier if pair.repeat_of is None]
    count = min(len(known), round(share * len(pairs)))
    order: list[int] = rng.permutation(len(known))[:count].tolist()
    again = [known[index] for index in order]
    repeats = [Pair(first=p.second, second=p.first, method=p.method, repeat_of=p.id) for p in again]
    return [*pairs, *repeats]
