"""Reward models that are networks: gradient descent on the answers, and what a model predicts."""

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from physai.rlhf.answers.segment import PreferenceError
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.labels import Labels, pairs_of

TASK_WEIGHT_RATE = 10.0
"""How much faster c is learned than the networks."""


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """Settings of a fit."""

    kind: Literal["auto", "linear", "network"] = "auto"
    """`linear` weighs numbers with names, `network` learns of all inputs; `auto` takes what predicts better the answers
    that were left out."""
    members: int = 3
    """Networks; a linear model has `physai.rlhf.reward_model.linear.FOLDS` members."""
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


def loss_of(advantage: Tensor, target: Tensor, noise: float) -> Tensor:
    """Cross entropy of each answer, shape of the advantages."""
    probability = (1.0 - noise) * torch.sigmoid(advantage) + 0.5 * noise
    # Rounding may give exactly 0 or 1 without noise.
    probability = probability.clamp(1e-6, 1.0 - 1e-6)
    return -(target * probability.log() + (1.0 - target) * (1.0 - probability).log())


def descend(
    model: RewardEnsemble,
    task_weight: nn.Parameter,
    prepared: Tensor,
    labels: Labels,
    learned: Tensor,
    how: FitSettings,
    epochs: int,
    generator: torch.Generator,
) -> tuple[int, float]:
    """Gradient descent until the loss of what the members did not draw stops falling.

    Every member has a bootstrap sample of the answers `learned`: where they say little, the members disagree.

    Returns:
        The passes, and the least loss.
    """
    groups: list[dict[str, Any]] = [
        {"params": list(model.parameters())},
        # One number that is to explain what it can before the networks do.
        {"params": [task_weight], "lr": TASK_WEIGHT_RATE * how.learning_rate, "weight_decay": 0.0},
    ]
    optimiser: Any = torch.optim.AdamW(groups, lr=how.learning_rate, weight_decay=how.weight_decay)
    best, best_state, since, epoch = math.inf, copy.deepcopy(model.state_dict()), 0, 0
    best_weight = task_weight.detach().clone()
    drawn, left = _bootstrap(pairs_of(labels, learned), model.members, generator)
    sample = learned[drawn]
    for epoch in range(1, epochs + 1):
        order = torch.rand(sample.shape, generator=generator).argsort(dim=1)
        for rows in torch.split(sample.gather(1, order), how.batch, dim=1):
            loss = loss_of(advantages(model, prepared, labels, rows, task_weight), labels.target[rows], how.label_noise)
            optimiser.zero_grad()
            torch.autograd.backward(loss.mean(dim=1).sum())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimiser.step()
        with torch.no_grad():
            loss = loss_of(
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
    return epoch, best


def _bootstrap(pair: Tensor, members: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws pairs for each member, and n answers to them; also 1 for the answers that are left, else 0, both (E, n)."""
    pairs = int(pair.max()) + 1
    drawn = torch.randint(pairs, (members, pairs), generator=generator)
    times = torch.zeros(members, pairs).scatter_add_(1, drawn, torch.ones(drawn.shape))[:, pair]
    left = (times == 0.0).float()
    if not bool(left.any()):
        raise PreferenceError(f"answers are about {pairs} pairs only; answer more pairs")
    if pairs < len(pair):
        drawn = torch.multinomial(times, len(pair), replacement=True, generator=generator)
    return drawn, left


@torch.no_grad()
def probabilities(
    model: RewardEnsemble, prepared: Tensor, labels: Labels, rows: Tensor, task_weight: Tensor | None = None
) -> Tensor:
    """Probability of each member that the first segment is preferred, (E, n); see `advantages`."""
    return torch.sigmoid(advantages(model, prepared, labels, rows, task_weight))
