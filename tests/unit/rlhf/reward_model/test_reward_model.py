"""The reward ensemble, its fit and the choice of pairs."""

import contextlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.training.prefer_answers import Motions, teacher_accuracy
from hypothesis import given
from hypothesis import strategies as st

from physai.rlhf.answers.answers import Answer, Pair
from physai.rlhf.answers.segment import PreferenceError, Segment
from physai.rlhf.answers.teachers import TEACHERS, Teacher
from physai.rlhf.collection.choose import LED, choose_pairs, with_repeats
from physai.rlhf.reward_model.ensemble import MAX_RATE, RewardEnsemble, load_ensemble, save_ensemble
from physai.rlhf.reward_model.fit import fit
from physai.rlhf.reward_model.fit_report import calibration, explain
from physai.rlhf.reward_model.labels import Labels, agreement, labels_of
from physai.rlhf.reward_model.network import FitSettings
from physai.train.models.numpy_policy import seeded

CRITIC, ACTIONS, STEPS = 3, 1, 5
FAST = FitSettings(epochs=40, hidden=(16,))


def segments(count: int, seed: int = 0) -> list[Segment]:
    """Segments whose first term is the first critic input plus twice the action."""
    rng = np.random.default_rng(seed)
    made: list[Segment] = []
    for _ in range(count):
        critic = rng.normal(size=(STEPS, CRITIC)).astype(np.float32) + rng.normal(size=CRITIC).astype(np.float32)
        action = rng.uniform(-1.0, 1.0, (STEPS, ACTIONS)).astype(np.float32)
        terms = np.stack([critic[:, 0] + 2.0 * action[:, 0], rng.normal(size=STEPS)], axis=1).astype(np.float32)
        made.append(
            Segment(episode_seed=0, start_step=0, qpos=critic[:, :1], critic=critic, action=action, terms=terms)
        )
    return made


def inputs_of(listed: list[Segment]) -> torch.Tensor:
    return torch.as_tensor(np.stack([np.concatenate([s.critic, s.action], axis=1) for s in listed]))


def labelled(listed: list[Segment], count: int, seed: int = 1) -> Labels:
    """Perfect answers to random pairs."""
    rng = np.random.default_rng(seed)
    first = rng.integers(len(listed), size=count)
    second = (first + rng.integers(1, len(listed), size=count)) % len(listed)
    sums = np.array([s.terms[:, 0].sum() for s in listed])
    target = (sums[first] > sums[second]).astype(np.float32)
    return Labels(torch.as_tensor(first), torch.as_tensor(second), torch.as_tensor(target))


def test_a_fit_finds_the_reward_behind_the_answers() -> None:
    listed = segments(120)
    model, report = fit(inputs_of(listed), labelled(listed, 200), seed=0, settings=FAST)
    report = explain(model, report, listed, ("reward", "chance"))
    assert report.answers == 200
    assert report.accuracy is not None
    assert report.accuracy >= 0.8
    assert report.accuracy_interval is not None
    assert report.accuracy_interval[0] <= report.accuracy <= report.accuracy_interval[1]
    assert report.correlations["reward"] >= 0.8
    assert abs(report.correlations["chance"]) <= 0.2
    # New segments, which the fit has not seen.
    fresh = segments(100, seed=7)
    learned = model.reward(*(torch.as_tensor(np.stack([getattr(s, n) for s in fresh])) for n in ("critic", "action")))
    true = torch.as_tensor(np.stack([s.terms[:, 0] for s in fresh]))
    assert float(torch.corrcoef(torch.stack([learned.flatten(), true.flatten()]))[0, 1]) >= 0.8


def test_agreement_of_answers_with_the_tasks_reward() -> None:
    """Three preferences and a tie; two of the three are for what is worth more."""
    first, second = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 2, 0])
    labels = Labels(first, second, torch.tensor([1.0, 1.0, 1.0, 0.5]))
    assert agreement(labels, [3.0, 2.0, 2.5]) == pytest.approx(2.0 / 3.0)
    # An answer about two that are worth as much is not for more of it, to which side ever.
    for target in (0.0, 1.0):
        assert agreement(replace(labels, target=torch.full((4,), target)), [0.0, 0.0, 0.0]) == 0.0


def test_answers_that_are_held_out_teach_nothing() -> None:
    """Nearly all are; or the only preferences among ties are."""
    listed = segments(60)
    inputs, labels = inputs_of(listed), labelled(listed, 40)
    with pytest.raises(
        PreferenceError, match=r"(39|40) of 40 answers are held out, .* fewer than 5 pairs; answer more pairs"
    ):
        fit(inputs, labels, seed=0, settings=replace(FAST, held_out=0.999))
    quick = replace(FAST, epochs=1)
    refused: list[str] = []
    for row in range(40):
        target = torch.full((40,), 0.5)
        target[row] = 1.0
        try:
            assert fit(inputs, replace(labels, target=target), seed=0, settings=quick)[1].held_out == 0
        except PreferenceError as error:
            refused.append(str(error))
    assert 0 < len(refused) < 20
    assert all(re.fullmatch(r"all \d\d answers that are not held out are ties; .*", text) for text in refused)


def test_what_the_tasks_reward_explains_is_left_to_it() -> None:
    """Answers by the task's return, which no input shows, and by a bit of what the inputs show."""
    listed, rng = segments(120), np.random.default_rng(5)
    hidden = rng.normal(size=len(listed))
    sums = np.array([s.terms[:, 0].sum() for s in listed])
    plain = labelled(listed, 300)
    score = torch.as_tensor(2.0 * hidden + sums / sums.std())
    labels = replace(plain, target=(score[plain.first] > score[plain.second]).float())
    known = torch.as_tensor(hidden, dtype=torch.float32)
    told = replace(labels, known=known[labels.first] - known[labels.second])
    settings = replace(FAST, label_noise=0.0)
    without, blind = fit(inputs_of(listed), labels, seed=0, settings=settings)
    model, report = fit(inputs_of(listed), told, seed=0, settings=settings)
    assert blind.task_weight is None
    assert report.task_weight is not None
    assert report.task_weight > 0.5
    assert report.accuracy is not None
    assert blind.accuracy is not None
    assert report.accuracy > blind.accuracy + 0.1
    found = [
        explain(m, r, listed, ("reward", "chance")).correlations["reward"]
        for m, r in ((without, blind), (model, report))
    ]
    assert found[1] > max(0.6, found[0])


@pytest.mark.parametrize("value", [0.1, 1000.06])
def test_what_no_segment_shows_to_vary_is_worth_nothing(value: float) -> None:
    """A policy that learns may change it, for instance the height of a link that no segment moved."""
    listed = segments(60)
    inputs = torch.cat([torch.full((60, STEPS, 1), value), inputs_of(listed)], dim=2)
    model, _ = fit(inputs, labelled(listed, 80), seed=0, settings=FAST)
    moved = inputs.clone()
    moved[..., 0] = 0.5 * value
    rates, after = (model.rates(x.flatten(0, 1)) for x in (inputs, moved))
    assert bool(torch.isfinite(rates).all())
    torch.testing.assert_close(after, rates, rtol=0.0, atol=0.0)


def test_a_benchmark_tells_teachers_apart() -> None:
    motions = Motions(segments(120), segments(120, seed=7), {})
    right, answered = teacher_accuracy(TEACHERS["perfect"], motions, 0, 120, settings=FAST)
    wrong, _ = teacher_accuracy(Teacher(eps_mistake=1.0), motions, 0, 120, settings=FAST)
    _, fewer = teacher_accuracy(Teacher(eps_skip=0.8), motions, 0, 120, settings=FAST)
    assert right >= 0.75
    assert wrong <= 0.25
    assert answered == 1.0
    assert 0.1 <= fewer <= 0.9


def test_contradicting_answers_teach_nothing_and_are_no_certainty() -> None:
    listed = segments(60)
    labels = labelled(listed, 100)
    coins = torch.as_tensor(np.random.default_rng(3).integers(0, 2, 100).astype(np.float32))
    _, report = fit(inputs_of(listed), Labels(labels.first, labels.second, coins), seed=0, settings=FAST)
    assert report.accuracy is not None
    assert report.accuracy_interval is not None
    assert report.accuracy_interval[0] <= 0.5


def test_a_warm_start_keeps_the_scale_of_the_inputs() -> None:
    listed = segments(80)
    start, _ = fit(inputs_of(listed[:40]), labelled(listed[:40], 60), seed=0, settings=FAST)
    before = start.digest()
    model, report = fit(inputs_of(listed), labelled(listed, 60), seed=0, settings=FAST, start=start)
    assert torch.equal(model.input_mean, start.input_mean)
    assert start.digest() == before != model.digest()
    assert report.epochs <= 14


def test_too_few_answers_are_refused() -> None:
    listed = segments(10)
    with pytest.raises(PreferenceError, match="needs 10 answers"):
        fit(inputs_of(listed), labelled(listed, 9), seed=0, settings=FAST)


def test_labels_take_ties_as_halves_and_leave_out_who_cannot_tell() -> None:
    pairs = [Pair(id=n, first=n, second=n + 1, method="random") for n in (1, 2, 3)]

    def said(pair: int, choice: str, swapped: bool) -> Answer:
        return Answer(key=f"{pair}", pair=pair, rater="r", choice=choice, swapped=swapped)  # pyright: ignore[reportArgumentType]

    answers = [said(1, "left", True), said(2, "equal", False), said(3, "cannot_tell", False)]
    labels = labels_of(pairs, answers, {1: 0, 2: 1, 3: 2, 4: 3})
    assert torch.equal(labels.target, torch.tensor([0.0, 0.5]))
    assert torch.equal(labels.first, torch.tensor([0, 1]))
    assert torch.equal(labels.second, torch.tensor([1, 2]))


def test_calibration_by_hand() -> None:
    predicted, observed = torch.tensor([0.1, 0.1, 0.9, 1.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])
    low, high = calibration(predicted, observed)
    assert (low.pairs, low.predicted, low.observed) == (2, pytest.approx(0.1), 0.5)
    assert (high.pairs, high.predicted, high.observed) == (2, pytest.approx(0.95), 1.0)


@given(st.integers(0, 1000), st.floats(-1e6, 1e6, width=32))
def test_the_reward_is_bounded_whatever_the_state(seed: int, size: float) -> None:
    model = RewardEnsemble(CRITIC + ACTIONS, hidden=(8,), generator=seeded(seed))
    model.freeze_scale(torch.randn(50, CRITIC + ACTIONS, generator=seeded(seed)))
    reward = model.reward(torch.full((4, CRITIC), size), torch.full((4, ACTIONS), size))
    assert bool(((reward >= 0.0) & (reward <= MAX_RATE)).all())


def test_members_are_computed_as_one_by_one() -> None:
    model = RewardEnsemble(4, members=3, hidden=(6, 5), generator=seeded(0))
    x = torch.randn(7, 4, generator=seeded(1))
    for member in range(3):
        y = x
        for index, (weight, bias) in enumerate(zip(model.weights, model.biases, strict=True)):
            y = y @ weight[member] + bias[member]
            y = torch.nn.functional.leaky_relu(y) if index < 2 else y
        torch.testing.assert_close(model.raw(x)[member], y[:, 0])


def test_a_file_keeps_the_model_and_notices_damage(tmp_path: Path) -> None:
    model = RewardEnsemble(4, hidden=(6, 5), generator=seeded(0))
    path = tmp_path / "model.npz"
    digest = save_ensemble(model, path, facts={"answers": 3})
    again, facts = load_ensemble(path)
    assert again.digest() == digest == model.digest()
    assert facts == {"answers": 3}
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(PreferenceError, match=r"damaged|no reward model"):
        load_ensemble(path)
    path.write_text("text")
    with pytest.raises(PreferenceError, match="no reward model"):
        load_ensemble(path)
    with pytest.raises(PreferenceError, match="cannot be read"):
        load_ensemble(tmp_path / "missing.npz")


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"members": math.inf}, "is no reward model"),
        ({"members": 64, "hidden": [4096] * 8}, "are out of range"),
        ({"hidden": []}, "is no reward model"),
        ({"hidden": "wide"}, "is no reward model"),
        ({"format_version": 2}, "has format version 2"),
    ],
)
def test_a_file_that_says_something_else_than_it_holds_is_refused(
    tmp_path: Path, about: dict[str, object], message: str
) -> None:
    """Before 34 GB of weights are drawn that it names in a few bytes."""
    path = tmp_path / "model.npz"
    save_ensemble(RewardEnsemble(4, hidden=(6,), generator=seeded(0)), path, facts={})
    with np.load(path) as archive:
        arrays: dict[str, Any] = dict(archive)
    stated = {**json.loads(arrays.pop("about").tobytes()), **about}
    np.savez(path, about=np.frombuffer(json.dumps(stated).encode(), np.uint8), **arrays)
    with pytest.raises(PreferenceError, match=message):
        load_ensemble(path)


def test_any_damage_of_a_file_is_a_refusal(tmp_path: Path) -> None:
    path, rng = tmp_path / "model.npz", np.random.default_rng(0)
    save_ensemble(RewardEnsemble(4, hidden=(), generator=seeded(0)), path, facts={})
    data = path.read_bytes()
    # Every header, in which a byte says how numbers are compressed, how many there are and the like.
    headers = [at + offset for at in range(len(data)) if data[at : at + 2] == b"PK" for offset in range(4, 46)]
    for place in headers:
        for value in rng.integers(256, size=2).tolist():
            damaged = bytearray(data)
            damaged[min(place, len(data) - 1)] = value
            path.write_bytes(damaged)
            with contextlib.suppress(PreferenceError):
                load_ensemble(path)


def test_disagreement_asks_where_members_differ() -> None:
    listed = segments(60)
    model, _ = fit(inputs_of(listed), labelled(listed, 80), seed=0, settings=FAST)
    numbers = list(range(100, 160))
    chosen = choose_pairs(numbers, listed, count=10, method="disagreement", seed=0, model=model)
    scores = [pair.score or 0.0 for pair in chosen]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0.0
    for method in LED:
        with pytest.raises(PreferenceError, match=f"pairs by {method} need a fitted model"):
            choose_pairs(numbers, listed, count=10, method=method, seed=0)


def test_best_asks_mostly_about_what_is_liked() -> None:
    """Of 10 pairs 4 are among the best 18 of 60 segments, 4 among the best 4, and 2 among all."""
    listed = segments(60)
    inputs = inputs_of(listed)
    model, _ = fit(inputs, labelled(listed, 80), seed=0, settings=FAST)
    liked = model.rates(inputs.flatten(0, 1)).mean(dim=0).view(60, -1).mean(dim=1)
    rank = {100 + int(number): place for place, number in enumerate(np.argsort(-liked.numpy(), kind="stable"))}
    chosen = choose_pairs(list(range(100, 160)), listed, count=10, method="best", seed=0, model=model)
    worse = [max(rank[pair.first], rank[pair.second]) for pair in chosen]
    assert len(chosen) == 10
    assert all(pair.first != pair.second for pair in chosen)
    assert max(worse[:4]) < 18
    assert max(worse[4:8]) < 4
    few = choose_pairs([1, 2], listed[:2], count=3, method="best", seed=0, model=model)
    assert [{pair.first, pair.second} for pair in few] == [{1, 2}] * 3


@given(st.integers(2, 9), st.integers(1, 20), st.integers(0, 99))
def test_uniform_uses_every_segment_equally_often(count: int, pairs: int, seed: int) -> None:
    chosen = choose_pairs(list(range(count)), segments(1) * count, count=pairs, method="uniform", seed=seed)
    uses = [sum((pair.first == n) + (pair.second == n) for pair in chosen) for n in range(count)]
    assert len(chosen) == pairs
    assert max(uses) - min(uses) <= 1
    assert all(pair.first != pair.second for pair in chosen)


def test_repeats_exchange_the_segments_of_earlier_pairs() -> None:
    earlier = [Pair(id=n, first=n, second=n + 1, method="random") for n in range(1, 11)]
    new = [Pair(first=50, second=51, method="random")] * 10
    everything = with_repeats(new, earlier, 0.3, 0)
    assert everything[:10] == new
    assert len(everything) == 13
    for pair in everything[10:]:
        assert pair.repeat_of is not None
        original = earlier[pair.repeat_of - 1]
        assert (pair.first, pair.second) == (original.second, original.first)
