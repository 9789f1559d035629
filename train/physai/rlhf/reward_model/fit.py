"""Fits a reward ensemble to answers by the Bradley-Terry model (Christiano et al. 2017, section 2.2.3).

P[first preferred] = σ(Σ r(first) - Σ r(second)), the sums over the steps of each segment. An answer is wrong by chance
with probability ε: P' = (1 - ε) P + ε/2. A tie counts half for either segment.

Where a policy is fine-tuned, its task's reward is known, and many answers are for more of it. Then P = σ(Σ r(first) -
Σ r(second) + c (R(first) - R(second))) with the task's return R of each segment, and c is fitted along with r: what the
task's reward explains is left to it, and r is what else people like.
"""

import copy
import hashlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from physai.rlhf.answers.segment import REWARD, PreferenceError
from physai.rlhf.answers.store import PreferenceStore
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.fit_report import FitReport, explain, judged
from physai.rlhf.reward_model.labels import Labels, agreement, labels_of, pairs_of, stack, told_apart
from physai.rlhf.reward_model.linear import FOLDS, MIN_SPREAD, fit_linear
from physai.rlhf.reward_model.network import FitSettings, descend, loss_of
from physai.train.models.numpy_policy import seeded

MIN_ANSWERS = 10
"""Fewest answers that a model is fitted to."""
MIN_STD = 1e-3
"""Least scale of an input; what varies less in the segments counts as constant at first."""


def fit_store(
    store: PreferenceStore,
    *,
    seed: int = 0,
    settings: FitSettings | None = None,
    start: RewardEnsemble | None = None,
    beside_task: bool = False,
    raters: Collection[str] = (),
) -> tuple[RewardEnsemble, FitReport]:
    """Fits a model to the answers of a database; see `fit`.

    Args:
        store: the database.
        seed: see `fit`.
        settings: likewise.
        start: likewise.
        beside_task: tell the task's reward apart.
        raters: whose answers count; those of all if none is named.
    """
    segments = store.segments()
    rows = {number: row for row, number in enumerate(segments)}
    labels = labels_of(store.pairs(), store.answers(raters), rows)
    listed = list(segments.values())
    worth: list[float] | None = None
    if REWARD in store.layout.terms:
        column = store.layout.terms.index(REWARD)
        worth = [float(segment.terms[:, column].sum()) for segment in listed]
    if beside_task and worth:
        labels = replace(labels, known=told_apart(labels, worth))
    inputs = stack(listed) if listed else torch.zeros(0, 1, 1)
    named = store.layout.named
    model, report = fit(inputs, labels, seed=seed, settings=settings, start=start, named=named)
    report = explain(model, report, listed, store.layout.terms)
    return model, report if worth is None else replace(report, task_agreement=agreement(labels, worth))


def fit(
    inputs: Tensor,
    labels: Labels,
    *,
    seed: int,
    settings: FitSettings | None = None,
    start: RewardEnsemble | None = None,
    named: Mapping[str, int] | None = None,
) -> tuple[RewardEnsemble, FitReport]:
    """Fits an ensemble, linear or of networks.

    Args:
        inputs: all segments, (S, T, I); unlabelled ones fix the scales, too.
        labels: what was answered.
        seed: of weights, orders, samples and of what is left out.
        settings: None for the defaults.
        start: a model whose weights to start from, with a third of the passes, if it is of networks.
        named: columns of the inputs that have names, of which linear models are made; without any, all are networks.

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
    held = _held_out(labels, how.held_out)
    learned = (~held).nonzero().flatten()
    if not len(set(map(int, pairs_of(labels, learned)))) >= FOLDS:
        raise PreferenceError(
            f"{int(held.sum())} of {len(held)} answers are held out, and the others are about fewer than {FOLDS} "
            "pairs; answer more pairs"
        )
    if bool((labels.target[learned] == 0.5).all()):
        raise PreferenceError(f"all {len(learned)} answers that are not held out are ties; answer more pairs")
    fits: list[_Fit] = []
    if named and how.kind != "network":
        fits += _linear(inputs, labels, learned, how, named, seed)
    if how.kind == "linear" and not fits:
        raise PreferenceError("a linear model is made of numbers with names; none goes along with the answers")
    if how.kind != "linear":
        fits.append(_network(inputs, labels, learned, how, start, seed))
    best = min(fits, key=lambda one: one.loss)
    flat = inputs.reshape(-1, inputs.shape[-1])
    best.model.freeze_scale(flat)
    prepared = best.model.normalise(flat).reshape(inputs.shape)
    return best.model, FitReport(
        **judged(best.model, prepared, labels, held, best.task_weight),
        kind="network" if best.model.hidden else "linear",
        epochs=best.epochs,
        seconds=time.perf_counter() - begun,
        weights=best.weights,
        correlations={},
        uncertainty=0.0,
        task_weight=None if labels.known is None else float(best.task_weight.mean()),
    )


@dataclass(frozen=True)
class _Fit:
    """A model, and how well it predicts answers that its members did not learn from."""

    model: RewardEnsemble
    task_weight: Tensor
    """c of each member, (E, 1)."""
    loss: float
    """Mean cross entropy of those answers."""
    epochs: int = 0
    weights: dict[str, float] = field(default_factory=dict[str, float])


def _network(
    inputs: Tensor, labels: Labels, learned: Tensor, how: FitSettings, start: RewardEnsemble | None, seed: int
) -> _Fit:
    generator = seeded(seed)
    if start is not None and start.hidden:
        # Its scale of the inputs stays: with another one its weights would be another function.
        model, epochs = copy.deepcopy(start), -(-how.epochs // 3)
    else:
        model = RewardEnsemble(inputs.shape[-1], members=how.members, hidden=how.hidden, generator=generator)
        _scale(model, inputs)
        with torch.no_grad():
            # Answers say nothing of what no segment shows to vary, so nothing would change a weight that was drawn.
            model.weights[0][:, model.input_std <= MIN_STD] = 0.0
        epochs = how.epochs
    prepared = model.normalise(inputs.reshape(-1, inputs.shape[-1])).reshape(inputs.shape)
    task_weight = nn.Parameter(torch.zeros(model.members, 1))
    done, loss = descend(model, task_weight, prepared, labels, learned, how, epochs, generator)
    return _Fit(model, task_weight.detach(), loss, done)


def _linear(
    inputs: Tensor, labels: Labels, learned: Tensor, how: FitSettings, named: Mapping[str, int], seed: int
) -> list[_Fit]:
    """A linear model, if anything that has a name goes along with the answers."""
    model = RewardEnsemble(inputs.shape[-1], members=FOLDS, hidden=(), generator=seeded(seed))
    _scale(model, inputs)
    columns = list(named.values())
    means = ((inputs[..., columns].double() - model.input_mean[columns]) / model.input_std[columns]).mean(dim=1)
    spread = means.std(dim=0)
    varies = spread > MIN_SPREAD
    means = torch.where(varies, means / spread, 0.0)
    difference = means[labels.first[learned]] - means[labels.second[learned]]
    known = None if labels.known is None else labels.known[learned].double().numpy()
    target = labels.target[learned]
    pair = pairs_of(labels, learned).numpy()
    found = fit_linear(difference.numpy(), target.double().numpy(), pair=pair, known=known, seed=seed)
    weights = torch.as_tensor(found.weights)
    if not bool(weights.any(dim=1).all()):
        return []
    with torch.no_grad():
        # A member's output is summed over the steps, of which the fit took the mean.
        per_step = torch.where(varies, weights / spread, 0.0) / inputs.shape[1]
        model.weights[0].zero_()
        model.weights[0][:, columns, 0] = per_step.float()
    loss = float(loss_of(torch.as_tensor(found.advantage).float(), target, how.label_noise).mean())
    mean = found.weights.mean(axis=0)
    shares = {name: float(weight / np.abs(mean).sum()) for name, weight in zip(named, mean, strict=True) if weight}
    return [_Fit(model, torch.as_tensor(found.known).float()[:, None], loss, weights=shares)]


def _scale(model: RewardEnsemble, inputs: Tensor) -> None:
    flat = inputs.reshape(-1, inputs.shape[-1])
    # Without rounding, so that a constant becomes 0.
    constant = flat.amin(dim=0) == flat.amax(dim=0)
    model.input_mean.copy_(torch.where(constant, flat[0], flat.mean(dim=0)))
    model.input_std.copy_(torch.where(constant, 0.0, flat.std(dim=0)).clamp(min=MIN_STD))


def _held_out(labels: Labels, share: float) -> Tensor:
    """Mask of the answers that are held out, bool, (N,).

    The segments decide, so that a pair stays held out in every later fit, and so do repetitions of it.
    """
    both: Any = torch.stack([labels.first, labels.second], dim=1).sort(dim=1).values
    draws = [int.from_bytes(hashlib.sha256(f"{a} {b}".encode()).digest()[:4]) / 2**32 for a, b in both.tolist()]
    return torch.tensor(draws) < share
