"""The answer from blocks: made-up estimates, whose right answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from physai.drift.equations.changes import Change
from physai.drift.equations.estimate import BlockEstimate
from physai.drift.monitor.blocks import Block
from physai.drift.monitor.findings import find, usual_of

CHANGES = tuple(Change("gain", f"joint{k}", "", 1.0, 0.06, 0.07) for k in range(3))


def block(amount: tuple[float, ...], number: int) -> Block:
    """A block in which each change has an amount, all of them with the same precision."""
    weight = np.full(3, 1.0 / 0.02**2)
    values = np.array(amount)
    return Block(
        0,
        2.5 * number,
        "usable",
        BlockEstimate(
            pull=values * weight,
            weight=weight,
            noise=np.full(3, 0.02),
            twin=np.zeros(3),
            unexplained=np.zeros(1),
            equations=100,
        ),
        np.ones(3, bool),
    )


def noisy(mean: tuple[float, ...], count: int, first: int = 0) -> list[Block]:
    rng = np.random.default_rng(first)
    return [
        block((mean[0] + n[0], mean[1] + n[1], mean[2] + n[2]), first + k)
        for k, n in enumerate(0.02 * rng.standard_normal((count, 3)))
    ]


def test_unchanged_blocks_hold() -> None:
    found = find(CHANGES, noisy((0.0, 0.0, 0.0), 100), 0.05)
    assert found.outcome == "HOLDS"
    assert found.named == ()
    assert all(record.watched for record in found.changes)


def test_a_change_is_found_named_dated_and_measured() -> None:
    found = find(CHANGES, [*noisy((0.0, 0.0, 0.0), 50), *noisy((0.0, -0.15, 0.05), 60, first=50)], 0.05)
    assert found.outcome == "DRIFTED"
    assert found.named == (1,)
    assert found.since == pytest.approx(50, abs=1)
    assert found.alarm is not None
    assert found.alarm < 50 + 2 * found.needed
    assert found.changes[1].mean == pytest.approx(-0.15, abs=3 * found.changes[1].mean_std)


def test_changes_that_blocks_do_not_tell_apart_are_both_named() -> None:
    found = find(CHANGES, noisy((0.15, 0.15, 0.0), 100), 0.05)
    assert set(found.named) == {0, 1}


def test_a_certain_but_small_difference_is_not_what_drifted() -> None:
    """Its blocks are as sure of 0.05, below the tolerance, as of the large change."""
    blocks = noisy((0.15, 0.05, 0.0), 100)
    for one in blocks:
        assert one.estimate is not None
        one.estimate.pull[1] *= 400.0
        one.estimate.weight[1] *= 400.0
    assert find(CHANGES, blocks, 0.05).named == (0,)


def test_too_few_blocks_are_no_evidence() -> None:
    found = find(CHANGES, noisy((0.0, 0.0, 0.0), 10), 0.05)
    assert found.outcome == "NO EVIDENCE"
    assert found.needed > 10


def test_without_a_usable_block_there_is_no_evidence() -> None:
    found = find(CHANGES, [Block(0, 2.5 * k, "no motion commanded") for k in range(1440)], 0.05)
    assert found.outcome == "NO EVIDENCE"
    assert found.alarm is None


def test_what_the_calibration_shows_as_well_is_no_drift() -> None:
    """The model is off by 15 % wherever it is looked at, and by 2 % between recordings."""
    own = [replace(one, log=k // 10) for k, one in enumerate(noisy((0.15, 0.0, 0.0), 50))]
    later = noisy((0.15, 0.0, 0.0), 100, first=200)
    assert find(CHANGES, later, 0.05).outcome == "DRIFTED"
    usual = usual_of(3, own)
    assert usual.centre == pytest.approx([0.15, 0.0, 0.0], abs=0.01)
    assert find(CHANGES, later, 0.05, usual).outcome == "HOLDS"
    # A change on top of it is one.
    found = find(CHANGES, noisy((0.35, 0.0, 0.0), 100, first=200), 0.05, usual)
    assert found.named == (0,)
    assert found.changes[0].mean == pytest.approx(0.2, abs=0.02)


def test_recordings_of_the_calibration_that_disagree_widen_what_is_usual() -> None:
    own = [replace(one, log=k) for k, amount in enumerate((-0.2, 0.2)) for one in noisy((amount, 0.0, 0.0), 10)]
    assert find(CHANGES, noisy((0.3, 0.0, 0.0), 100), 0.05, usual_of(3, own)).outcome == "HOLDS"
