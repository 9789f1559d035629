"""Which requests a node that stood still may read late; times are by hand, in seconds."""

from physai.ros.pauses import Pauses

SENDER_S = 3.0


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def awake(pauses: Pauses, first_s: float, last_s: float) -> None:
    """Looks every 50 ms."""
    for number in range(round((last_s - first_s) / 0.05) + 1):
        pauses.look(ns(first_s + 0.05 * number))


def test_a_node_that_is_awake_reads_nothing_late() -> None:
    pauses = Pauses(ns(10.0))
    awake(pauses, 10.0, 20.0)
    assert pauses.late(ns(20.04), SENDER_S) == ""
    assert pauses.read_since_ns(ns(20.04)) == ns(20.0)


def test_what_waited_in_a_pause_is_late_until_it_is_drained() -> None:
    pauses = Pauses(ns(10.0))
    told = "this node stood still for 6 s, so the request may be an old one; ask again 5 s later"
    assert pauses.late(ns(16.0), SENDER_S) == told, "also before the timer has looked"
    awake(pauses, 16.0, 20.95)
    assert pauses.late(ns(20.95), SENDER_S) == told
    awake(pauses, 21.0, 21.0)
    assert pauses.late(ns(21.0), SENDER_S) == ""


def test_a_short_pause_does_not_hide_a_long_one_before_it() -> None:
    """A request of the first 6 s, read after a second pause of 1.2 s, counted as 1.2 s old at most."""
    pauses = Pauses(ns(10.0))
    awake(pauses, 16.0, 16.1)
    awake(pauses, 17.3, 17.3)
    assert pauses.read_since_ns(ns(17.35)) == ns(10.0)
    assert "stood still for 7 s" in pauses.late(ns(17.35), SENDER_S)
    awake(pauses, 17.35, 22.3)
    assert pauses.late(ns(22.35), SENDER_S) == ""
