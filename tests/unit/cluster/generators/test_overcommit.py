"""What decision 0020 says of overcommitting: the rule of `--staleness 1` that asks for fewer chunks ahead."""

import heapq
from collections.abc import Callable

from benchmarks.cluster.cluster_overlap import Overcommitted, makespan
from hypothesis import given
from hypothesis import strategies as st

from physai.cluster.generators.batching import Admission, ChunkTicket

Batches = list[list[ChunkTicket]]


def played(admission: Admission, seconds: Callable[[ChunkTicket], float], *, updates: int) -> tuple[Batches, float]:
    """Batches of so many updates that take no time, and when the last one is taken [s]."""
    now, batches = 0.0, Batches()
    under_way: list[tuple[float, int, ChunkTicket]] = []
    while True:
        for ticket in admission.deal():
            heapq.heappush(under_way, (now + seconds(ticket), ticket.number, ticket))
        while admission.ready:
            batches.append(admission.take())
            ages = [len(batches) - 1 - ticket.version for ticket in batches[-1]]
            assert max(ages) <= admission.staleness
            if len(batches) == updates:
                return batches, now
            assert admission.advance() == []
            for ticket in admission.deal():
                heapq.heappush(under_way, (now + seconds(ticket), ticket.number, ticket))
        now, number, ticket = heapq.heappop(under_way)
        assert admission.arrive(ticket.generator, number)


durations = st.lists(st.floats(0.1, 9.0), min_size=1, max_size=30)


@given(batch=st.integers(1, 5), times=durations)
def test_a_whole_batch_more_is_staleness_1(batch: int, times: list[float]) -> None:
    def seconds(ticket: ChunkTicket) -> float:
        return times[ticket.number % len(times)]

    whole = played(Overcommitted(batch, batch=batch, extra=batch), seconds, updates=20)
    assert whole == played(Admission(batch, batch=batch, staleness=1), seconds, updates=20)


@given(batch=st.integers(1, 4), extra=st.integers(1, 4), times=durations)
def test_fewer_more_are_never_older_than_one_update(batch: int, extra: int, times: list[float]) -> None:
    admission = Overcommitted(batch + extra, batch=batch, extra=min(batch, extra))
    batches, _ = played(admission, lambda ticket: times[ticket.number % len(times)], updates=15)
    numbers = [ticket.number for tickets in batches for ticket in tickets]
    assert len(set(numbers)) == len(numbers) == 15 * batch


def test_both_make_two_updates_per_chunk_of_a_straggler() -> None:
    """Four generators take 1 s for a chunk, the fifth 10 s."""

    def seconds(ticket: ChunkTicket) -> float:
        return 10.0 if ticket.generator == 4 else 1.0

    # Waiting for all, an update takes 10 s.
    assert played(Admission(5, batch=5, staleness=0), seconds, updates=20)[1] == 200.0
    # The late chunk of version V is in batch V + 1: two updates in 10 s, with five chunks and with four.
    assert played(Admission(5, batch=5, staleness=1), seconds, updates=20)[1] == 100.0
    batches, end = played(Overcommitted(5, batch=4, extra=1), seconds, updates=20)
    assert end == 100.0
    assert [len(batch) for batch in batches] == [4] * 20


def test_makespan_by_hand() -> None:
    # Two actors: 3 | 3, then 2 on the first that is free, and 2 on the other; or the long ones last.
    assert makespan([3.0, 3.0, 2.0, 2.0], 2) == 5.0
    assert makespan([1.0, 1.0, 4.0], 2) == 5.0
    assert makespan([4.0, 1.0, 1.0], 2) == 4.0
