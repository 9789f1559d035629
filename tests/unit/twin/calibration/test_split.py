"""Splits hold every kind of evidence in both parts, and say what a single recording shows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.twin.calibration.split import evidence, split_logs, untested
from physai.twin.logs import RobotLog

SEEDS = st.integers(0, 2**32 - 1)


def recorded(seed: int, *, size: float = 1.0, quick: bool = False) -> RobotLog:
    """A joint that follows a sum of sines of its own; with quick commands, efforts follow them 10 ms later."""
    random = np.random.default_rng(seed)
    time = np.arange(0.0, 4.0, 0.005)
    rates, phases = random.uniform(1.0, 6.0, 4), random.uniform(0.0, 6.28, 4)
    position = size * np.sin(np.outer(time, rates) + phases).sum(axis=1)[:, None]
    command = size * np.sin(2.0 * time)[:, None]
    if quick:
        command = command + size * random.choice([-0.5, 0.5], len(time) // 20 + 1).repeat(20)[: len(time), None]
    effort = np.interp(time - 0.01, time, command[:, 0])[:, None]
    # Without noise, smooth commands would show their lag, too.
    effort = effort + 0.05 * size * random.normal(size=effort.shape)
    name = f"log{seed}"
    return RobotLog(name, ("hinge",), time, position, None, effort, command, "joint_effort", name, f"{seed:064x}")


def names(logs: tuple[RobotLog, ...]) -> set[str]:
    return {log.name for log in logs}


@given(SEEDS, st.permutations(range(5)))
@settings(deadline=None, max_examples=4)
def test_a_lag_that_one_recording_shows_is_fitted_and_said_to_be_untested(seed: int, order: list[int]) -> None:
    logs = [recorded(number, quick=number == 3) for number in order]
    train, held_out = split_logs(logs, seed)
    assert len(held_out) == 2
    assert "log3" in names(train)
    assert "the lag of hinge" in untested(train, held_out)


@given(SEEDS, st.permutations(range(5)))
@settings(deadline=None, max_examples=4)
def test_what_two_recordings_show_is_in_both_parts(seed: int, order: list[int]) -> None:
    """Two with lags, and the two largest motions, which are others."""
    logs = [recorded(number, quick=number in (1, 2), size=3.0 if number in (3, 4) else 1.0) for number in order]
    train, held_out = split_logs(logs, seed)
    for pair in ({"log1", "log2"}, {"log3", "log4"}):
        assert len(pair & names(train)) == len(pair & names(held_out)) == 1
    assert untested(train, held_out) == ()


@given(SEEDS)
@settings(deadline=None, max_examples=4)
def test_the_seed_does_not_decide_where_the_evidence_does(seed: int) -> None:
    logs = [recorded(number, size=1.0 + 0.1 * number) for number in range(5)]
    assert split_logs(logs, seed) == split_logs(logs, 0)


def test_recordings_of_one_motion_stay_together() -> None:
    logs = [recorded(number) for number in range(5)]
    again = replace(logs[0], name="again", joint_pos=logs[0].joint_pos + 1e-4)
    for seed in range(5):
        train, held_out = split_logs([*logs, again], seed)
        assert ("log0" in names(train)) == ("again" in names(train))
        assert train
        assert held_out


def test_shares_of_evidence_by_hand() -> None:
    """A motion, its efforts and speeds twice as large as the other's."""
    one = recorded(0)
    assert one.joint_effort is not None
    other = replace(one, joint_pos=0.5 * one.joint_pos, joint_effort=0.5 * one.joint_effort)
    found = evidence([one, other])
    for what in ("range", "speed", "effort"):
        assert found[f"the {what} of hinge"] == pytest.approx([1.0, 0.5])
    assert "the lag of hinge" not in found
    assert untested([one], []) == ()
