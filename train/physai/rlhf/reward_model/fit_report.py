"""Report of a fit of a reward model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from physai.rlhf.answers.segment import Segment
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.labels import Labels, stack
from physai.rlhf.reward_model.network import probabilities
from physai.sdk.stats.statistics import clopper_pearson

BINS = 5


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
    """Result of a fit."""

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
    kind: Literal["linear", "network"]
    epochs: int
    """Passes over the answers; 0 for a linear model."""
    seconds: float
    weights: dict[str, float]
    """How much a linear model weighs each number with a name, relative to the sum of all sizes; empty for a network."""
    correlations: dict[str, float]
    """Pearson correlation of the learned reward with each of the segments' terms, both summed over each segment.

    Step by step would not do: a number that the critic saw was the term of the step before.
    """
    uncertainty: float
    """Mean standard deviation of the members' rewards, relative to the reward's over all steps."""
    task_weight: float | None = None
    """c, per standard deviation of the segments' returns; None if the task's reward was not told apart."""
    task_agreement: float | None = None
    """Share of the preferences for the segment with more of the task's reward; None if that is not known."""

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


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


def judged(
    model: RewardEnsemble, prepared: Tensor, labels: Labels, held: Tensor, task_weight: Tensor
) -> dict[str, Any]:
    """Accuracy and calibration on the answers that are held out, as fields of a report."""
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
    liked = mean.view(inputs.shape[:2]).sum(dim=1)
    values = torch.as_tensor(np.stack([segment.terms.sum(axis=0) for segment in segments]))
    correlations: dict[str, float] = {}
    for name, column in zip(terms, values.T, strict=True):
        both = torch.stack([liked, column]).double()
        if bool((both.std(dim=1) > 0.0).all()):
            correlations[name] = float(torch.corrcoef(both)[0, 1])
    uncertainty = float(rates.std(dim=0).mean() / mean.std().clamp(min=1e-9))
    return replace(report, correlations=correlations, uncertainty=uncertainty)
