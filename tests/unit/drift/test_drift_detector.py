"""E-detectors: their arithmetic by hand, the bound on false alarms, and attempts to outvote a drift."""

import numpy as np
import pytest

from physai.drift.monitor.detector import Detectors, least_blocks
from physai.drift.monitor.findings import threshold_of

ONE = np.ones(1, bool)
STEP, NO_MARGIN = np.ones(1), np.zeros(1)


def test_full_bets_grow_as_by_hand() -> None:
    detectors = Detectors(1, 1e9)
    for _ in range(2):
        detectors.bet(np.array([5.0]), NO_MARGIN, STEP, ONE)
    # R = (R + 1)·e: 1.5, then 2.5·1.5; the other sign bets against and has 0.5, then 1.5·0.5.
    assert np.exp(detectors.logs[:, 0]) == pytest.approx([3.75, 0.75])
    assert np.exp(detectors.level) == pytest.approx((3.75 + 0.75) / 2.0)


def test_no_block_decides_alone_however_large_its_amount() -> None:
    detectors = Detectors(1, threshold_of(0.05))
    assert not detectors.bet(np.array([1e12]), NO_MARGIN, STEP, ONE)
    assert np.exp(detectors.logs[0, 0]) == pytest.approx(1.5)


def test_any_number_of_harmless_blocks_before_does_not_delay_an_alarm() -> None:
    threshold = threshold_of(0.05)
    detectors = Detectors(3, threshold)
    known, margin, step = np.ones(3, bool), np.full(3, 0.1), np.full(3, 0.1)
    for _ in range(10_000):
        assert not detectors.bet(np.zeros(3), margin, step, known)
    count = 1
    while not detectors.bet(np.array([1.0, 0.0, 0.0]), margin, step, known):
        count += 1
    assert count <= least_blocks(3, threshold)
    assert detectors.since[0, 0] == 10_000


def test_blocks_that_say_nothing_leave_a_detector_as_it_is() -> None:
    detectors = Detectors(1, 1e9)
    detectors.bet(np.array([5.0]), NO_MARGIN, STEP, ONE)
    before = detectors.logs.copy()
    detectors.bet(np.array([-5.0]), NO_MARGIN, STEP, ~ONE)
    assert (detectors.logs == before).all()


def test_unchanged_runs_alarm_at_most_as_often_as_was_asked() -> None:
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(60):
        detectors = Detectors(4, threshold_of(0.05))
        # At the margin itself, and with tails that no Gaussian has.
        noise = 0.1 + 0.1 * rng.standard_t(2.0, size=(240, 4))
        alarms += any(detectors.bet(row, np.full(4, 0.1), np.full(4, 0.1), np.ones(4, bool)) for row in noise)
    assert alarms <= 6  # 3 are expected at most; 7 or more have a probability below 4 %


def test_a_lower_share_of_false_alarms_takes_longer() -> None:
    assert threshold_of(0.05) == pytest.approx(600.0 / 2.5 / 0.05)
    assert least_blocks(1, threshold_of(0.05)) < least_blocks(1, threshold_of(0.001))
