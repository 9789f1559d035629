"""Time stamps that can be one, and notices that are counted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from physai.transport.notices import MAX_NOTICES, Notices
from physai.transport.stamps import NANOSECONDS, StampCheck
from physai.transport.udp.packet_source import ClockOffset

NOW = 1_800_000_000 * NANOSECONDS
MS = 1_000_000


def checked(ahead_s: float = 0.1) -> tuple[StampCheck, Notices]:
    notices = Notices()
    return StampCheck("/here", ahead_s, notices), notices


def test_newer_stamps_are_taken_once() -> None:
    check, notices = checked()
    assert check.accepts(NOW - 5 * MS, NOW)
    assert not check.accepts(NOW - 5 * MS, NOW + MS)
    assert not check.accepts(NOW - 6 * MS, NOW + MS)
    assert check.accepts(NOW - 4 * MS, NOW + MS)
    assert notices.told() == ()


def test_no_stamp_at_all() -> None:
    check, notices = checked()
    assert not check.accepts(0, NOW)
    assert not check.accepts(0, NOW)
    assert notices.told() == (
        "/here: its stamp is 0 s, expected when it was measured, as seconds since 1970; let the driver fill it in, or "
        "bind it with `stamp: source` (2 times)",
    )


def test_stamps_from_the_future() -> None:
    check, notices = checked(ahead_s=0.1)
    assert check.accepts(NOW + 100 * MS, NOW)
    assert not check.accepts(NOW + 101 * MS, NOW)
    assert notices.told() == (
        "/here: stamps are 0.1 s ahead of this clock; at most 0.1 s are taken; synchronise the clocks (chrony, PTP)",
    )


def test_a_clock_that_was_set_back() -> None:
    check, notices = checked()
    assert check.accepts(NOW, NOW)
    assert not check.accepts(NOW - NANOSECONDS, NOW)
    assert check.accepts(NOW - NANOSECONDS - 1, NOW)
    assert check.accepts(NOW - NANOSECONDS, NOW)
    assert notices.told() == ("/here: its clock was set back by more than 1 s",)


def test_a_senders_own_clock_is_moved_to_ours() -> None:
    offset = ClockOffset()
    # Booted at NOW - 1 s; its packets take 2, 5 and 1 ms.
    assert offset.moved(1000 * MS, NOW + 2 * MS) == NOW + 2 * MS
    assert offset.moved(1010 * MS, NOW + 15 * MS) == NOW + 12 * MS
    assert offset.moved(1020 * MS, NOW + 21 * MS) == NOW + 21 * MS
    assert offset.moved(1030 * MS, NOW + 33 * MS) == NOW + 31 * MS


def test_a_drifting_clock_is_followed() -> None:
    offset = ClockOffset()
    start = offset.moved(1, NOW)
    assert start == NOW
    # The sender's clock is slow by 1 part in 1000: after 20 s it is 20 ms behind, two windows forget at most 10 s.
    for second in range(1, 21):
        arrival = NOW + second * NANOSECONDS
        assert 0 <= arrival - offset.moved(1 + second * (NANOSECONDS - MS), arrival) <= 12 * MS


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**8)), min_size=1, max_size=50))
def test_moved_stamps_never_lie_in_the_future(packets: list[tuple[int, int]]) -> None:
    offset = ClockOffset()
    stamp = 1
    for step, transit in packets:
        stamp += step
        arrival = NOW + stamp + transit
        assert offset.moved(stamp, arrival) <= arrival


def test_notices_are_counted_and_bounded() -> None:
    notices = Notices()
    for number in range(MAX_NOTICES + 10):
        notices.add(f"number {number}")
    notices.add("number 0")
    told = notices.told()
    assert len(told) == MAX_NOTICES + 1
    assert told[0] == "number 0 (2 times)"
    assert told[-1] == "more was refused, for further reasons (10 times)"
