"""Agreement of raters with each other and with themselves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from physai.rlhf.answers.answers import Answer, Pair
from physai.sdk.stats.statistics import clopper_pearson


def krippendorff_alpha(units: Sequence[Sequence[str]]) -> float | None:
    """Krippendorff's α for nominal values, with missing ones (Krippendorff 2011, "Computing Krippendorff's
    Alpha-Reliability", section C).

    α = 1 - D_o / D_e = 1 - (n - 1) Σ_{c≠k} o_ck / Σ_{c≠k} n_c n_k, where the coincidences o_ck count the ordered pairs
    of values c, k within a unit of m_u values, each weighted 1 / (m_u - 1), and n_c = Σ_k o_ck, n = Σ_c n_c.

    Args:
        units: the values that raters gave to each unit.

    Returns:
        1 for agreement, 0 for what chance gives; None if no unit has two values, or all values are the same.
    """
    totals: Counter[str] = Counter()
    disagreement = 0.0
    for values in units:
        if len(values) < 2:
            continue
        counts = Counter(values)
        totals.update(counts)
        different = len(values) ** 2 - sum(count * count for count in counts.values())
        disagreement += different / (len(values) - 1)
    n = sum(totals.values())
    expected = n * n - sum(count * count for count in totals.values())
    return None if expected == 0 else 1.0 - (n - 1) * disagreement / expected


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Share of repeated pairs that raters answered as they did the first time."""

    repeated: int
    """Pairs that a rater answered twice with a preference or a tie."""
    same: int
    interval: tuple[float, float] | None
    """95 % Clopper-Pearson interval of the share; None without a repeated pair."""


def consistency(pairs: Sequence[Pair], answers: Sequence[Answer]) -> Consistency:
    """Compares answers to repeated pairs; those that could not tell do not count."""
    said = {(answer.pair, answer.rater): answer.preference for answer in answers if answer.preference != "cannot_tell"}
    # A repetition may list its segments in the other order, so preferences are named by segment.
    by_number = {pair.id: pair for pair in pairs}
    repeated = same = 0
    for pair in pairs:
        original = by_number.get(pair.repeat_of or 0)
        if original is None:
            continue
        for rater in sorted({answer.rater for answer in answers}):
            if (pair.id, rater) in said and (original.id, rater) in said:
                repeated += 1
                same += _named(pair, said[pair.id, rater]) == _named(original, said[original.id, rater])
    return Consistency(repeated=repeated, same=same, interval=clopper_pearson(same, repeated) if repeated else None)


def _named(pair: Pair, preference: str) -> str:
    return {"first": str(pair.first), "second": str(pair.second)}.get(preference, preference)


def agreement(answers: Sequence[Answer]) -> float | None:
    """Krippendorff's α of all raters over the pairs; `cannot_tell` is a missing value."""
    units: dict[int, list[str]] = {}
    for answer in answers:
        if answer.preference != "cannot_tell":
            units.setdefault(answer.pair, []).append(answer.preference)
    return krippendorff_alpha(list(units.values()))


def shares(answers: Sequence[Answer]) -> Mapping[str, int]:
    """Count of each choice, as seen on the screen."""
    return dict(sorted(Counter(answer.choice for answer in answers).items()))
