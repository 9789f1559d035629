"""Rank validity: published and hand-computed values, laws, bootstrap intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.stats.rank import RankError, Trials, mmrv, pearson, rank_validity, spearman

# SIMPLER, Table 1, "pick coke can", mean over orientations of the can: on the robot, and by visual matching.
COKE_REAL = np.array([0.853, 0.920, 0.760, 0.907, 0.293, 0.133])
COKE_SIM = np.array([0.857, 0.710, 0.567, 0.787, 0.170, 0.027])

distinct = st.lists(st.integers(-1000, 1000), min_size=3, max_size=12, unique=True)


def of(scores: np.ndarray, trials: int | None = None) -> list[Trials]:
    return [Trials(score=float(score), trials=trials) for score in scores]


def test_published_table() -> None:
    assert mmrv(real=COKE_REAL, sim=COKE_SIM) == pytest.approx(0.031, abs=5e-4)
    assert pearson(real=COKE_REAL, sim=COKE_SIM) == pytest.approx(0.975, abs=5e-4)


def test_mmrv_is_not_symmetric() -> None:
    """The trap of SIMPLER's function: with real and sim exchanged the same table gives 0.062."""
    assert mmrv(real=COKE_SIM, sim=COKE_REAL) == pytest.approx(0.062, abs=5e-4)


def test_by_hand() -> None:
    """Policies 1 and 2 are exchanged: both lose 0.2, the third nothing. Ranks 2, 1, 3: 1 - 6·2/(3·8) = 0.5."""
    real, sim = np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.3, 0.8])
    assert mmrv(real=real, sim=sim) == pytest.approx(0.4 / 3)
    assert spearman(real=real, sim=sim) == pytest.approx(0.5)


def test_ties_share_a_rank() -> None:
    """Ranks 1.5, 1.5, 3 against 1, 2, 3: (0.5·1 + 0 + 1·1) / sqrt(1.5·2)."""
    assert spearman(real=np.array([0.2, 0.2, 0.9]), sim=np.array([0.1, 0.3, 0.5])) == pytest.approx(1.5 / 3.0**0.5)


@given(distinct)
def test_order_alone_decides(real: list[int]) -> None:
    """A simulation with the same order, however distorted, has no violation and rank correlation 1; reversed, -1."""
    scores = np.array(real, dtype=float)
    assert mmrv(real=scores, sim=np.exp(0.01 * scores)) == 0.0
    assert spearman(real=scores, sim=scores**3) == pytest.approx(1.0)
    assert spearman(real=scores, sim=-scores) == pytest.approx(-1.0)
    # Each policy's greatest violation is then its distance from the farthest other.
    farthest = np.maximum(scores - scores.min(), scores.max() - scores)
    assert mmrv(real=scores, sim=-scores) == pytest.approx(farthest.mean())


@given(distinct)
def test_order_of_policies_does_not_matter(real: list[int]) -> None:
    scores, sim = np.array(real, dtype=float), np.array(real[::-1], dtype=float)
    turned = np.roll(scores, 1), np.roll(sim, 1)
    for statistic in (pearson, spearman, mmrv):
        assert statistic(real=scores, sim=sim) == pytest.approx(statistic(real=turned[0], sim=turned[1]))


def test_equal_scores_have_no_correlation() -> None:
    validity = rank_validity(real=of(np.array([0.1, 0.5, 0.9])), sim=of(np.full(3, 0.1 + 0.2)))
    assert validity.pearson.value is None
    assert validity.spearman.value is None
    # The order of every pair is lost, and counts for the policy that is better on the robot.
    assert validity.mmrv.value is not None


def test_certain_successes_leave_doubt() -> None:
    """Ten of ten trials do not show a rate of exactly 1; a thousand times as many trials come closer to it."""
    few, many = (
        rank_validity(real=of(np.array([1.0, 0.9, 0.5, 0.1]), n), sim=of(np.array([1.0, 0.8, 0.6, 0.2]), n))
        for n in (10, 10_000)
    )
    assert few.resampled == many.resampled == "trials"
    assert few.pearson.low is not None
    assert many.pearson.low is not None
    assert few.pearson.low < 0.9 < 0.97 < many.pearson.low


def test_scores_of_trials_are_resampled() -> None:
    """Equal trials have no spread, so the interval has no width."""
    real = [Trials(score=s, trials=5, values=np.full(5, s)) for s in (1.0, 2.0, 4.0)]
    validity = rank_validity(real=real, sim=real)
    assert (validity.spearman.low, validity.spearman.high) == (1.0, 1.0)


@pytest.mark.slow
def test_intervals_cover() -> None:
    """Real and simulated scores of 30 policies with correlation 0.8: 95 % intervals contain it in most of 100 cases."""
    rng = np.random.default_rng(1)
    covered = 0
    for case in range(100):
        real = rng.normal(size=30)
        sim = 0.8 * real + 0.6 * rng.normal(size=30)
        estimate = rank_validity(real=of(real), sim=of(sim), seed=case).pearson
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 0.8 <= estimate.high
    assert covered >= 85


def test_same_seed_same_interval() -> None:
    one, two = (rank_validity(real=of(COKE_REAL, 25), sim=of(COKE_SIM, 100), seed=3) for _ in range(2))
    assert one == two


def test_two_policies_are_refused() -> None:
    with pytest.raises(RankError, match="2 policies on the robot and 2 in simulation"):
        rank_validity(real=of(COKE_REAL[:2]), sim=of(COKE_SIM[:2]))
