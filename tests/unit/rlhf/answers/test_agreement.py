"""Agreement of raters, by numbers worked out by hand and by laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.rlhf.answers.agreement import agreement, consistency, krippendorff_alpha
from physai.rlhf.answers.answers import Answer, Choice, Pair


def test_alpha_of_two_raters_by_hand() -> None:
    # Krippendorff 2011, section A: ten units, of which four differ, so that o_01 + o_10 = 8; six ones and fourteen
    # zeros; α = 1 - 19 · 8 / (2 · 6 · 14) = 0.095.
    first, second = "0100000010", "1110010000"
    assert krippendorff_alpha(list(map("".join, zip(first, second, strict=True)))) == pytest.approx(16.0 / 168.0)


def test_alpha_with_missing_values_by_hand() -> None:
    # Units ab, aa, b, aab. Coincidences of different values, ordered: 2 · 1/1 of ab, 4 · 1/2 of aab; together 4.
    # n_a = 1 + 2 + 2 = 5, n_b = 1 + 1 = 2, n = 7; α = 1 - 6 · 4 / (2 · 5 · 2) = -0.2.
    assert krippendorff_alpha(["ab", "aa", "b", "aab"]) == pytest.approx(-0.2)


def test_alpha_is_unknown_without_two_values_or_without_difference() -> None:
    assert krippendorff_alpha([]) is None
    assert krippendorff_alpha(["a", "b"]) is None
    assert krippendorff_alpha(["aa", "aa"]) is None


UNITS = st.lists(st.text("abc", min_size=0, max_size=4), max_size=8)


@given(UNITS, st.permutations("abc"))
def test_alpha_knows_no_names_and_no_order_of_raters(units: list[str], names: list[str]) -> None:
    alpha = krippendorff_alpha(units)
    renamed = [unit[::-1].translate(str.maketrans("abc", "".join(names))) for unit in units]
    assert krippendorff_alpha(renamed) == (None if alpha is None else pytest.approx(alpha))
    assert alpha is None or alpha <= 1.0


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=8))
def test_raters_who_always_agree_have_alpha_one(values: list[str]) -> None:
    alpha = krippendorff_alpha([value * 3 for value in values])
    assert alpha == (pytest.approx(1.0) if len(set(values)) > 1 else None)


def said(pair: int, choice: Choice, *, rater: str = "ann", swapped: bool = False) -> Answer:
    return Answer(key=f"{pair} {rater}", pair=pair, rater=rater, choice=choice, swapped=swapped)


PAIRS = [
    Pair(id=1, first=10, second=11, method="random"),
    Pair(id=2, first=12, second=13, method="random"),
    Pair(id=3, first=11, second=10, method="random", repeat_of=1),
    Pair(id=4, first=13, second=12, method="random", repeat_of=2),
]


def test_a_repetition_is_the_same_if_it_prefers_the_same_segment() -> None:
    # 10 is preferred both times: as the first of pair 1, as the second of pair 3. Of pair 2, 12 and then 13.
    found = consistency(PAIRS, [said(1, "left"), said(3, "right"), said(2, "left"), said(4, "left")])
    assert (found.repeated, found.same) == (2, 1)
    # Clopper-Pearson of 1 in 2: 1 - 0.975^(1/2) and its mirror.
    assert found.interval == pytest.approx((0.012579, 0.987421), abs=1e-5)


def test_sides_do_not_matter_and_cannot_tell_does_not_count() -> None:
    found = consistency(
        PAIRS, [said(1, "right", swapped=True), said(3, "right"), said(2, "cannot_tell"), said(4, "left")]
    )
    assert (found.repeated, found.same) == (1, 1)


def test_agreement_compares_segments_not_sides() -> None:
    same = [said(1, "left"), said(1, "right", rater="bo", swapped=True), said(2, "right"), said(2, "right", rater="bo")]
    assert agreement(same) == pytest.approx(1.0)
