"""Which process steps which generator's worlds, while processes come and go."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from physai.cluster.generators.dispatch import deal


def test_deal_by_hand() -> None:
    # New worlds go to the process of their number, as far as there is one.
    assert deal([0, 1, 2], [0, 1, 2], {}) == [(0, 0), (1, 1), (2, 2)]
    assert deal([0, 1, 2], [1], {}) == [(0, 1)]
    # Two processes for three generators: 2 waits for process 0, though 1 is idle.
    assert deal([2], [1], {0: 0, 1: 1, 2: 0}) == []
    # A third process takes it over.
    assert deal([2], [1, 2], {0: 0, 1: 1, 2: 0}) == [(2, 2)]
    # Of those that wait for one process, the first goes there.
    assert deal([2, 0], [0], {0: 0, 1: 1, 2: 0}) == [(2, 0)]
    assert deal([0], [], {}) == []


@given(
    generators=st.integers(1, 12),
    rounds=st.lists(st.sets(st.integers(0, 11), min_size=1), min_size=1, max_size=8),
)
def test_each_generator_plays_once_per_round_whatever_processes_there_are(
    generators: int, rounds: list[set[int]]
) -> None:
    """In each round all generators wait; between them, processes come and go."""
    holders, before = dict[int, int](), dict[int, int]()
    # The last processes stay for another two rounds.
    for processes in [*rounds, rounds[-1], rounds[-1]]:
        before = {which: process for which, process in holders.items() if process in processes}
        holders = dict(before)
        waiting, played = list(range(generators)), Counter[int]()
        while waiting:
            pairs = deal(waiting, sorted(processes), holders)
            assert pairs, "nothing goes on"
            assert max(Counter(process for _, process in pairs).values()) == 1
            for which, process in pairs:
                waiting.remove(which)
                holders[which] = process
                played[which] += 1
        assert played == Counter(range(generators))
    # As even as it can be, and worlds stay where they are.
    counts = Counter(dict.fromkeys(rounds[-1], 0))
    counts.update(holders.values())
    assert max(counts.values()) - min(counts.values()) <= 1
    assert holders == before
