"""Reward models of a few numbers with names, and when they are taken."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.rlhf.answers.segment import PreferenceError
from physai.rlhf.reward_model.ensemble import load_ensemble, save_ensemble
from physai.rlhf.reward_model.fit import fit
from physai.rlhf.reward_model.labels import Labels, told_apart
from physai.rlhf.reward_model.linear import FOLDS, MAX_WEIGHT, fit_linear
from physai.rlhf.reward_model.network import FitSettings, probabilities

NAMED = {f"number {column}": column + 2 for column in range(40)}
"""Of 44 columns; two before and two after them have no names."""
ANSWERS, STEPS = 60, 20
FAST = FitSettings(epochs=20, hidden=(16,))


def motions(seed: int = 0) -> torch.Tensor:
    """400 segments, each with a mean of its own in every column; column 5 never changes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(400, 1, 44, generator=generator) + 0.5 * torch.randn(400, STEPS, 44, generator=generator)
    inputs[:, :, 5] = 3.0
    return inputs


def answers(worth: torch.Tensor, count: int, seed: int = 1, *, segments: int = 200) -> Labels:
    """Perfect answers to random pairs of the first segments."""
    both = torch.randint(segments, (count, 2), generator=torch.Generator().manual_seed(seed))
    first, second = both.T
    return Labels(first, second, 0.5 + 0.5 * torch.sign(worth[first] - worth[second]))


def test_sixty_answers_find_one_number_among_forty() -> None:
    """A network is right about far fewer new pairs here."""
    inputs = motions()
    worth = -inputs[:, :, 9].sum(dim=1)
    model, report = fit(inputs, answers(worth, ANSWERS), seed=0, settings=FAST, named=NAMED)
    assert report.kind == "linear"
    name, share = max(report.weights.items(), key=lambda item: abs(item[1]))
    assert name == "number 7"
    assert share < -0.5
    assert "number 3" not in report.weights
    new = torch.arange(200, 399)
    labels = Labels(new, new + 1, (worth[new] > worth[new + 1]).float())
    prepared = model.normalise(inputs.flatten(0, 1)).view_as(inputs)
    rows = torch.arange(len(new))
    predicted = probabilities(model, prepared, labels, rows).mean(dim=0)
    assert float(((predicted > 0.5) == (labels.target > 0.5)).float().mean()) > 0.9
    # Per step, too: what is paid goes along with what is liked, although answers are about sums.
    rate = model.rates(inputs[200:].flatten(0, 1)).mean(dim=0)
    assert float(torch.corrcoef(torch.stack([rate, -inputs[200:, :, 9].flatten()]))[0, 1]) > 0.9


def test_a_network_is_taken_where_no_sum_of_numbers_explains_the_answers() -> None:
    inputs = motions()[..., 7:11]
    worth = -inputs[:, :, 2].abs().sum(dim=1)
    named = {"what counts": 2, "another": 3}
    _, report = fit(inputs, answers(worth, 400), seed=0, settings=replace(FAST, epochs=60), named=named)
    assert report.kind == "network"
    assert report.weights == {}


def test_answers_by_chance_weigh_nothing() -> None:
    inputs, coins = motions(), torch.randint(2, (400,), generator=torch.Generator().manual_seed(2)).float()
    labels = answers(coins, 40)
    labels = replace(labels, target=torch.randint(2, (40,), generator=torch.Generator().manual_seed(5)).float())
    with pytest.raises(PreferenceError, match="none goes along with the answers"):
        fit(inputs, labels, seed=0, settings=replace(FAST, kind="linear"), named=NAMED)
    assert fit(inputs, labels, seed=0, settings=FAST, named=NAMED)[1].kind == "network"


def test_raters_who_agree_about_the_same_pairs_choose_the_model_that_one_of_them_would() -> None:
    """Answers to a pair are left out together; else what is learned by heart is taken for what predicts best."""
    inputs = motions()
    worth = -inputs[:, :, 9].mean(dim=1)
    one = answers(worth + 0.5 * torch.randn(400, generator=torch.Generator().manual_seed(3)), ANSWERS)
    # The second half of the raters is asked with the sides exchanged.
    turned = Labels(one.second, one.first, 1.0 - one.target)
    all_ = Labels(*(torch.cat([getattr(x, n) for x in (one, one, turned)]) for n in ("first", "second", "target")))
    found = [fit(inputs, labels, seed=0, settings=replace(FAST, epochs=80), named=NAMED)[1] for labels in (one, all_)]
    assert [report.kind for report in found] == ["linear", "linear"]
    assert found[1].weights == pytest.approx(found[0].weights, abs=1e-3)


def test_a_model_without_names_is_a_network() -> None:
    inputs = motions()
    labels = answers(inputs[:, :, 9].sum(dim=1), ANSWERS)
    assert fit(inputs, labels, seed=0, settings=FAST)[1].kind == "network"
    assert fit(inputs, labels, seed=0, settings=replace(FAST, kind="network"), named=NAMED)[1].kind == "network"


def test_what_is_known_already_is_told_apart() -> None:
    """Answers that follow a return, and one number a little."""
    inputs, rng = motions(), np.random.default_rng(4)
    known = torch.as_tensor(rng.normal(size=400), dtype=torch.float32)
    liked = inputs[:, :, 9].mean(dim=1)
    labels = answers(2.0 * known + liked, 200)
    told = replace(labels, known=known[labels.first] - known[labels.second])
    model, report = fit(inputs, told, seed=0, settings=replace(FAST, kind="linear"), named=NAMED)
    assert report.task_weight is not None
    assert report.task_weight > 1.0
    assert max(report.weights, key=lambda name: abs(report.weights[name])) == "number 7"
    assert model.members == FOLDS


def test_a_linear_model_is_read_back(tmp_path: Path) -> None:
    inputs = motions()
    model, report = fit(inputs, answers(inputs[:, :, 9].sum(dim=1), ANSWERS), seed=0, settings=FAST, named=NAMED)
    digest = save_ensemble(model, tmp_path / "model.npz", facts=report.facts())
    read, facts = load_ensemble(tmp_path / "model.npz")
    assert (read.digest(), facts["kind"], read.hidden) == (digest, "linear", ())
    torch.testing.assert_close(read.rates(inputs[0]), model.rates(inputs[0]), rtol=0.0, atol=0.0)


@given(seed=st.integers(0, 10_000), count=st.integers(10, 60), size=st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_opposite_answers_have_opposite_weights(seed: int, count: int, size: int) -> None:
    """Also where one number, known or not, tells all answers apart: every weight is bounded."""
    rng = np.random.default_rng(seed)
    difference, known = rng.normal(size=(count, size)), rng.normal(size=count)
    target = np.where(difference[:, 0] > 0.0, 1.0, 0.0)
    pair = np.arange(count)
    one = fit_linear(difference, target, pair=pair, known=known, seed=seed)
    other = fit_linear(difference, 1.0 - target, pair=pair, known=known, seed=seed)
    assert one.penalty == other.penalty
    np.testing.assert_allclose(one.weights, -other.weights, atol=1e-3)
    assert np.isfinite(one.advantage).all()
    assert np.abs(one.weights).max() <= MAX_WEIGHT


def test_returns_near_the_end_of_single_precision_are_told_apart() -> None:
    """By hand: the returns are 0, 1 and 2 times 3e38, whose standard deviation is 3e38."""
    labels = Labels(torch.tensor([2, 0]), torch.tensor([0, 1]), torch.tensor([1.0, 0.0]))
    apart = told_apart(labels, [0.0, 3e38, 6e38])
    assert [float(one) for one in apart] == pytest.approx([2.0, -1.0])
