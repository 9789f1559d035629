"""Numbers of episodes, against a published plan and against enumeration."""

import math

import pytest

from physai.sim.stats.sample_size import episodes_per_arm, non_inferiority_power
from physai.sim.stats.statistics import CountError, newcombe


def test_the_plan_of_physim_gate() -> None:
    """github.com/kiyeonjeon21/physim-gate, release 0.2.0: 90 % and five points need about 573 episodes per run."""
    assert episodes_per_arm(0.9, 0.05) == 573
    assert non_inferiority_power(573, 0.9, 0.05) >= 0.8 > non_inferiority_power(572, 0.9, 0.05)


def test_power_by_enumeration() -> None:
    episodes, rate, margin = 12, 0.7, 0.4
    weights = [math.comb(episodes, k) * rate**k * (1 - rate) ** (episodes - k) for k in range(episodes + 1)]
    expected = sum(
        weights[candidate] * weights[baseline]
        for candidate in range(episodes + 1)
        for baseline in range(episodes + 1)
        if newcombe((candidate, episodes), (baseline, episodes))[0] > -margin
    )
    assert 0.2 < expected < 0.9
    assert non_inferiority_power(episodes, rate, margin) == pytest.approx(expected, abs=1e-9)


def test_near_the_large_sample_number() -> None:
    """2 · 0.25 · ((1.960 + 0.842) / 0.2)² = 98."""
    assert 90 <= episodes_per_arm(0.5, 0.2) <= 110


def test_more_is_asked_for_less_margin_more_power_and_more_confidence() -> None:
    plan = episodes_per_arm(0.8, 0.2)
    assert episodes_per_arm(0.8, 0.15) > plan
    assert episodes_per_arm(0.8, 0.2, power=0.9) > plan
    assert episodes_per_arm(0.8, 0.2, confidence=0.99) > plan


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(CountError, match=r"margin of 0\.0001 needs about 1\.41e\+08 episodes"):
        episodes_per_arm(0.9, 1e-4)
    with pytest.raises(CountError, match=r"rate must lie between 0 and 1, got 1\.0"):
        episodes_per_arm(1.0, 0.05)
    with pytest.raises(CountError, match="power must lie between 0 and 1, got nan"):
        episodes_per_arm(0.9, 0.05, power=math.nan)
    with pytest.raises(CountError, match="episodes must lie in 1"):
        non_inferiority_power(0, 0.9, 0.05)
