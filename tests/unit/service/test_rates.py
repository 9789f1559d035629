"""Token buckets: by hand, on a clock that the test holds."""

import pytest

from physai.service.auth import rates
from physai.service.auth.rates import KeyedBuckets, TokenBucket


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rates, "time", clock)
    return clock


def test_a_burst_and_then_the_rate(clock: Clock) -> None:
    bucket = TokenBucket(2.0, burst=3.0)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 0.4
    assert not bucket.take(), "0.8 of a token"
    clock.now += 0.2
    assert [bucket.take(), bucket.take()] == [True, False], "1.2 tokens"
    clock.now += 3600.0
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False], "no more than the burst"


def test_keys_do_not_share(clock: Clock) -> None:
    buckets = KeyedBuckets(1.0, burst=1.0)
    assert [buckets.take("a"), buckets.take("a"), buckets.take("b")] == [True, False, True]


def test_the_oldest_key_is_forgotten(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MAX_KEYS", 2)
    buckets = KeyedBuckets(1.0, burst=1.0)
    assert [buckets.take(key) for key in ("a", "b", "a", "c")] == [True, True, False, True]
    assert [buckets.take(key) for key in ("a", "b")] == [False, True], "b was used longest ago"
