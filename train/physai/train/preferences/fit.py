"""Fits a reward ensemble to answers by the Bradley-Terry model (Christiano et al. 2017, section 2.2.3).

P[first preferred] = σ(Σ r(first) - Σ r(second)), the sums over the steps of each segment. An answer is wrong by chance
with probability ε: P' = (1 - ε) P + ε/2. A tie counts half for either segment.

Where a policy is fine-tuned, its task's reward is known, and many answers are for more of it. Then P = σ(Σ r(first) -
Σ r(second) + c (R(first) - R(second))) with the task's return R of each segment, and c is fitted along with r: what the
task's reward explains is left to it, and r is what else people like.
"""

import copy
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from physai.sim.preferences.answers import Answer, Pair
from physai.sim.preferences.segment import REWARD, PreferenceError, Segment
from physai.sim.preferences.store import PreferenceStore
from physai.sim.stats.statistics import clopper_pearson
from physai.train.models.numpy_policy import seeded
from physai.train.preferences.ensemble import RewardEnsemble

MIN_ANSWERS = 10
"""Fewest answers that a model is fitted to."""
BINS = 5
TASK_WEIGHT_RATE = 10.0
"""How much faster c is learned than the networks."""


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How a model is fitted."""

    members: int = 3
    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 80
    """Greatest number of passes over the answers."""
    patience: int = 15
    """Passes without a lower loss of the answers outside the bootstrap samples after which a fit ends."""
    batch: int = 32
    """Pairs per step."""
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    label_noise: float = 0.1
    """ε: share of the answers that are taken as given by chance."""
    held_out: float = 0.2
    """Share of the pairs that nothing is learned from."""


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Held-out pairs whose predicted probability lies in one fifth of [0, 1]."""

    pairs: int
    predicted: float
    """Mean predicted probability that the first segment is preferred."""
    observed: float
    """Share in which it was."""


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """What a fit reached."""

    answers: int
    """Answers learned from or held out: preferences and ties."""
    held_out: int
    """Held-out preferences; ties are not among them."""
    accuracy: float | None
    """Share of them that the ensemble's mean predicts; None if none was held out."""
    accuracy_interval: tuple[float, float] | None
    """95 % Clopper-Pearson interval."""
    calibration: tuple[CalibrationBin, ...]
    calibration_error: float | None
    """Mean difference of predicted and observed, weighted by pairs."""
    epochs: int
    seconds: float
    correlations: dict[str, float]
    """Pearson correlation of the learned reward with each of the segments' terms, over all steps."""
    uncertainty: float
    """Mean standard deviation of the members' rewards, relative to the reward's over all steps."""
    task_weight: float | None = None
    """c, per standard deviation of the segments' returns; None if the task's reward was not told apart."""
    task_agreement: float | None = None
    """Share of the preferences for the segment with more of the task's reward; None if that is not known."""

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


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


def stack(segments: Sequence[Segment]) -> Tensor:
    """Inputs of the reward model, (segments, T, C + A)."""
    return torch.as_tensor(np.stack([np.concatenate([s.critic, s.action], axis=1) for s in segments]))


def labels_of(pairs: Sequence[Pair], answers: Sequence[Answer], rows: Mapping[int, int]) -> Labels:
    """The answers of all raters that name a preference or a tie.

    Args:
        pairs: all pairs.
        answers: all answers.
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
    return Labels(torch.tensor(first), torch.tensor(second), torch.tensor(target))


def fit_store(
    store: PreferenceStore,
    *,
    seed: int = 0,
    settings: FitSettings | None = None,
    start: RewardEnsemble | None = None,
    beside_task: bool = False,
) -> tuple[RewardEnsemble, FitReport]:
    """Fits a model to all answers of a database; see `fit`.

    Args:
        store: the database.
        seed: see `fit`.
        settings: likewise.
        start: likewise.
        beside_task: tell the task's reward apart.
    """
    segments = store.segments()
    rows = {number: row for row, number in enumerate(segments)}
    labels = labels_of(store.pairs(), store.answers(), rows)
    listed = list(segments.values())
    worth: list[float] | None = None
    if REWARD in store.layout.terms:
        column = store.layout.terms.index(REWARD)
        worth = [float(segment.terms[:, column].sum()) for segment in listed]
    if beside_task and worth:
        labels = replace(labels, known=_told_apart(labels, worth))
    model, report = fit(
        stack(listed) if listed else torch.zeros(0, 1, 1), labels, seed=seed, settings=settings, start=start
    )
    report = explain(model, report, listed, store.layout.terms)
    return model, report if worth is None else replace(report, task_agreement=agreement(labels, worth))


def _told_apart(labels: Labels, worth: Sequence[float]) -> Tensor:
    values = torch.tensor(worth)
    return (values[labels.first] - values[labels.second]) / values.std().clamp(min=1e-6)


def agreement(labels: Labels, worth: Sequence[float]) -> float:
    """Share of the preferences, without ties, for the segment that is worth more."""
    decided = labels.target != 0.5
    values = torch.tensor(worth, dtype=torch.float64)
    more = values[labels.first] > values[labels.second]
    return float((more == (labels.target == 1.0))[decided].double().mean())


def fit(
    inputs: Tensor,
    labels: Labels,
    *,
    seed: int,
    settings: FitSettings | None = None,
    start: RewardEnsemble | None = None,
) -> tuple[RewardEnsemble, FitReport]:
    """Fits an ensemble; each member has its own weights, order and bootstrap sample of the answers.

    Args:
        inputs: all segments, (S, T, I); unlabelled ones fix the scales, too.
        labels: what was answered.
        seed: of weights, orders, samples and of what is held out.
        settings: None for the defaults.
        start: a model whose weights to start from, with a third of the passes.

    Raises:
        PreferenceError: there are too few answers, or all are ties.
    """
    begun, how = time.perf_counter(), settings or FitSettings()
    if not len(labels.target) >= MIN_ANSWERS:
        raise PreferenceError(
            f"a reward model needs {MIN_ANSWERS} answers with a preference or a tie, got {len(labels.target)}"
        )
    if bool((labels.target == 0.5).all()):
        raise PreferenceError(f"all {len(labels.target)} answers are ties, which say nothing of what is better")
    generator = seeded(seed)
    model = _begun(inputs, how, generator, start)
    flat = inputs.reshape(-1, inputs.shape[-1])
    prepared = model.normalise(flat).reshape(inputs.shape)
    held = _held_out(labels, how.held_out)
    learned = (~held).nonzero().flatten()
    if not len(learned):
        raise PreferenceError(f"all {len(held)} answers are held out; answer more pairs")
    epochs = how.epochs if start is None else -(-how.epochs // 3)
    task_weight = nn.Parameter(torch.zeros(model.members, 1))
    done = _descend(model, task_weight, prepared, labels, learned, how, epochs, generator)
    model.freeze_scale(flat)
    report = _judged(model, prepared, labels, held, task_weight)
    return model, FitReport(
        **report,
        epochs=done,
        seconds=time.perf_counter() - begun,
        correlations={},
        uncertainty=0.0,
        task_weight=None if labels.known is None else float(task_weight.detach().mean()),
    )


def _begun(
    inputs: Tensor, how: FitSettings, generator: torch.Generator, start: RewardEnsemble | None
) -> RewardEnsemble:
    if start is not None:
        # Its scale of the inputs stays: with another one its weights would be another function.
        return copy.deepcopy(start)
    model = RewardEnsemble(inputs.shape[-1], members=how.members, hidden=how.hidden, generator=generator)
    flat = inputs.reshape(-1, inputs.shape[-1])
    model.input_mean.copy_(flat.mean(dim=0))
    model.input_std.copy_(flat.std(dim=0).clamp(min=1e-3))
    return model


def _held_out(labels: Labels, share: float) -> Tensor:
    """Which answers nothing is learned from, bool, (N,).

    The segments decide, so that a pair stays held out in every later fit, and so do repetitions of it.
    """
    both: Any = torch.stack([labels.first, labels.second], dim=1).sort(dim=1).values
    draws = [int.from_bytes(hashlib.sha256(f"{a} {b}".encode()).digest()[:4]) / 2**32 for a, b in both.tolist()]
    return torch.tensor(draws) < share


def advantages(
    model: RewardEnsemble, prepared: Tensor, labels: Labels, rows: Tensor, task_weight: Tensor | None = None
) -> Tensor:
    """Σ r(first) - Σ r(second) of each member for rows of the labels, (E, n) for rows (E, n) or (n,).

    With the weights c of the members, (E, 1), what the task's reward explains is added.
    """
    rows = rows.expand(model.members, -1) if rows.dim() == 1 else rows
    both = torch.stack([labels.first[rows], labels.second[rows]], dim=2)
    x = prepared[both]
    sums = model.raw(x.reshape(model.members, -1, x.shape[-1])).reshape(x.shape[:4]).sum(dim=3)
    difference = sums[..., 0] - sums[..., 1]
    return difference if labels.known is None or task_weight is None else difference + task_weight * labels.known[rows]


def _loss(advantage: Tensor, target: Tensor, noise: float) -> Tensor:
    """Cross entropy of each answer, shape of the advantages."""
    probability = (1.0 - noise) * torch.sigmoid(advantage) + 0.5 * noise
    # Rounding may give exactly 0 or 1 without noise.
    probability = probability.clamp(1e-6, 1.0 - 1e-6)
    return -(target * probability.log() + (1.0 - target) * (1.0 - probability).log())


def _descend(
    model: RewardEnsemble,
    task_weight: nn.Parameter,
    prepared: Tensor,
    labels: Labels,
    learned: Tensor,
    how: FitSettings,
    epochs: int,
    generator: torch.Generator,
) -> int:
    """Gradient descent until the loss of what the members did not draw stops falling; returns the passes.

    Every member has a bootstrap sample of the answers `learned`: where they say little, the members disagree.
    """
    groups: list[dict[str, Any]] = [
        {"params": list(model.parameters())},
        # One number that is to explain what it can before the networks do.
        {"params": [task_weight], "lr": TASK_WEIGHT_RATE * how.learning_rate, "weight_decay": 0.0},
    ]
    optimiser: Any = torch.optim.AdamW(groups, lr=how.learning_rate, weight_decay=how.weight_decay)
    best, best_state, since, epoch = math.inf, copy.deepcopy(model.state_dict()), 0, 0
    best_weight = task_weight.detach().clone()
    drawn = torch.randint(len(learned), (model.members, len(learned)), generator=generator)
    sample = learned[drawn]
    left = torch.ones(sample.shape).scatter_(1, drawn, 0.0)
    for epoch in range(1, epochs + 1):
        order = torch.rand(sample.shape, generator=generator).argsort(dim=1)
        for rows in torch.split(sample.gather(1, order), how.batch, dim=1):
            loss = _loss(advantages(model, prepared, labels, rows, task_weight), labels.target[rows], how.label_noise)
            optimiser.zero_grad()
            torch.autograd.backward(loss.mean(dim=1).sum())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
        with torch.no_grad():
            loss = _loss(
                advantages(model, prepared, labels, learned, task_weight), labels.target[learned], how.label_noise
            )
            now = float((loss * left).sum() / left.sum().clamp(min=1.0))
        if not math.isfinite(now):
            raise PreferenceError(f"the reward model's loss is {now} in pass {epoch}; lower its learning rate")
        if now < best:
            best, best_state, since = now, copy.deepcopy(model.state_dict()), 0
            best_weight = task_weight.detach().clone()
        else:
            since += 1
            if since >= how.patience:
                break
    model.load_state_dict(best_state)
    task_weight.data.copy_(best_weight)
    return epoch


@torch.no_grad()
def probabilities(
    model: RewardEnsemble, prepared: Tensor, labels: Labels, rows: Tensor, task_weight: Tensor | None = None
) -> Tensor:
    """Probability of each member that the first segment is preferred, (E, n); see `advantages`."""
    return torch.sigmoid(advantages(model, prepared, labels, rows, task_weight))


def _judged(
    model: RewardEnsemble, prepared: Tensor, labels: Labels, held: Tensor, task_weight: Tensor
) -> dict[str, Any]:
    rows = (held & (labels.target != 0.5)).nonzero().flatten()
    report: dict[str, Any] = {"answers": len(labels.target), "held_out": len(rows), "accuracy": None}
    report |= {"accuracy_interval": None, "calibration": (), "calibration_error": None}
    if not len(rows):
        return report
    predicted = probabilities(model, prepared, labels, rows, task_weight).mean(dim=0)
    observed = labels.target[rows]
    right = int(((predicted > 0.5) == (observed > 0.5)).sum())
    bins = calibration(predicted, observed)
    error = sum(one.pairs * abs(one.predicted - one.observed) for one in bins) / len(rows)
    return report | {
        "accuracy": right / len(rows),
        "accuracy_interval": clopper_pearson(right, len(rows)),
        "calibration": bins,
        "calibration_error": error,
    }


def calibration(predicted: Tensor, observed: Tensor) -> tuple[CalibrationBin, ...]:
    """The calibration curve: predicted probabilities against shares, in bins that are not empty."""
    place = (predicted * BINS).long().clamp(0, BINS - 1)
    return tuple(
        CalibrationBin(
            pairs=int((place == index).sum()),
            predicted=float(predicted[place == index].mean()),
            observed=float(observed[place == index].mean()),
        )
        for index in range(BINS)
        if bool((place == index).any())
    )


def explain(model: RewardEnsemble, report: FitReport, segments: Sequence[Segment], terms: Sequence[str]) -> FitReport:
    """Adds what the learned reward goes along with, and where its members differ."""
    inputs = stack(segments)
    rates = model.rates(inputs.reshape(-1, inputs.shape[-1]))
    mean = rates.mean(dim=0)
    values = torch.as_tensor(np.concatenate([segment.terms for segment in segments]))
    correlations: dict[str, float] = {}
    for name, column in zip(terms, values.T, strict=True):
        both = torch.stack([mean, column]).double()
        if bool((both.std(dim=1) > 0.0).all()):
            correlations[name] = float(torch.corrcoef(both)[0, 1])
    uncertainty = float(rates.std(dim=0).mean() / mean.std().clamp(min=1e-9))
    return replace(report, correlations=correlations, uncertainty=uncertainty)
