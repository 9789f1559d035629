"""Admission of chunks in any order of events: nothing is lost, doubled or too old, and no generator is left out."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from physai.cluster.generators.batching import Admission, ChunkTicket, Stragglers


class AnyOrder(RuleBasedStateMachine):
    """A trainer and its generators; hypothesis chooses who is how fast, dies, and when the trainer dies."""

    @initialize(
        generators=st.integers(1, 4),
        segments=st.integers(1, 3),
        staleness=st.integers(0, 3),
        version=st.integers(0, 5),
        stragglers=st.sampled_from(["wait", "drop"]),
    )
    def begin(self, generators: int, segments: int, staleness: int, version: int, stragglers: Stragglers) -> None:
        self.generators, self.batch, self.staleness = generators, generators * segments, staleness
        self.stragglers: Stragglers = stragglers
        self.learned_before = version * self.batch
        self.number_of_batches = version
        self.resume()

    def resume(self) -> None:
        """A new trainer: it knows how many updates there were, and nothing of what was running or at hand."""
        self.admission = Admission(
            self.generators,
            batch=self.batch,
            staleness=self.staleness,
            version=self.number_of_batches,
            stragglers=self.stragglers,
        )
        assert self.admission.accepted == self.number_of_batches * self.batch
        self.playing: dict[int, ChunkTicket] = {}
        self.arrived: set[int] = set()
        self.taken: set[int] = set()
        self.counted_dropped = 0
        self.batches: list[set[int]] = []
        """Who contributed to each batch of this session."""
        self.lost_at: dict[int, int] = {}
        """The batch at which each generator was lost last."""
        self.ghosts: list[ChunkTicket] = []
        self.ask()

    def ask(self) -> None:
        expected = self.admission.allowed
        assert expected <= (self.staleness + self.admission.version + 1) * self.batch - (
            self.admission.accepted + len(self.playing)
        )
        tickets = self.admission.deal()
        assert len(tickets) == expected
        for ticket in tickets:
            assert ticket.generator not in self.playing
            assert ticket.version == self.admission.version
            self.playing[ticket.generator] = ticket
        assert self.admission.allowed == 0

    @precondition(lambda self: self.playing)
    @rule(data=st.data())
    def a_chunk_arrives(self, data: st.DataObject) -> None:
        which = data.draw(st.sampled_from(sorted(self.playing)))
        ticket = self.playing.pop(which)
        dropped = self.admission.dropped
        if self.admission.arrive(which, ticket.number):
            self.arrived.add(ticket.number)
        else:
            assert self.admission.dropped == dropped + 1
            self.counted_dropped += 1
        assert not self.admission.arrive(which, ticket.number), "a chunk that comes twice counts once"
        self.ask()

    @precondition(lambda self: self.playing)
    @rule(data=st.data())
    def a_generator_dies(self, data: st.DataObject) -> None:
        which = data.draw(st.sampled_from(sorted(self.playing)))
        self.ghosts.append(self.playing.pop(which))
        self.admission.lose(which)
        self.lost_at[which] = self.number_of_batches
        self.ask()

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data())
    def one_given_up_answers_after_all(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.ghosts))
        refused, at_hand = self.admission.refused, self.admission.accepted
        assert not self.admission.arrive(ticket.generator, ticket.number)
        assert (self.admission.refused, self.admission.accepted) == (refused + 1, at_hand)

    @precondition(lambda self: self.admission.ready)
    @rule()
    def the_trainer_takes_a_batch(self) -> None:
        batch = self.admission.take()
        assert len(batch) == self.batch
        numbers = {ticket.number for ticket in batch}
        assert len(numbers) == self.batch
        assert numbers <= self.arrived, "each chunk is in one place of one batch"
        assert not numbers & self.taken, "nothing is learned from twice"
        for ticket in batch:
            assert 0 <= self.number_of_batches - ticket.version <= self.staleness
        self.taken |= numbers
        self.arrived -= numbers
        self.batches.append({ticket.generator for ticket in batch})
        self.number_of_batches += 1
        assert not self.admission.ready, "the next one is learned from with other weights"
        if self.staleness == 0:
            assert (len(self.playing), self.admission.allowed) == (0, 0), "no generator plays while the trainer learns"

    @precondition(lambda self: self.admission.version < self.number_of_batches)
    @rule()
    def the_trainer_has_learned(self) -> None:
        for ticket in self.admission.advance():
            self.arrived.remove(ticket.number)
            self.counted_dropped += 1
        self.ask()

    @rule()
    def the_trainer_dies_and_resumes(self) -> None:
        self.resume()

    @invariant()
    def every_chunk_is_somewhere_once(self) -> None:
        admission = self.admission
        assert admission.running == len(self.playing)
        assert admission.accepted == self.number_of_batches * self.batch + len(self.arrived)
        assert admission.dropped == self.counted_dropped
        assert sum(admission.learned.values()) == len(self.taken)
        assert admission.accepted + admission.running <= (self.staleness + admission.version + 1) * self.batch

    @invariant()
    def somebody_is_at_work(self) -> None:
        assert self.playing or self.admission.ready or self.admission.version < self.number_of_batches

    @invariant()
    def who_waits_drops_nothing_and_leaves_out_nobody(self) -> None:
        if self.stragglers == "drop":
            return
        assert self.admission.dropped == 0
        for which in range(self.generators):
            since = max(0, self.lost_at.get(which, -1) + 1 - (self.number_of_batches - len(self.batches)))
            window = self.batches[since:][-(self.staleness + 1) :]
            assert len(window) <= self.staleness or any(which in batch for batch in window)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_admission_by_hand() -> None:
    """η = 1 and two generators: at version 0 there is room for 4 chunks, two at a time."""
    admission = Admission(2, batch=2, staleness=1)
    assert [(t.number, t.generator, t.version) for t in admission.deal()] == [(0, 0, 0), (1, 1, 0)]
    assert admission.arrive(0, 0)
    assert admission.allowed == 1
    assert [(t.number, t.generator) for t in admission.deal()] == [(2, 0)]
    # A batch without generator 1: its chunk, of version 0, is in time for the batch after.
    assert admission.arrive(0, 2)
    assert admission.ready
    assert [t.number for t in admission.deal()] == [3]
    assert [t.number for t in admission.take()] == [0, 2]
    assert admission.advance() == []
    assert admission.version == 1
    # (1 + 1 + 1) · 2 - (2 + 2): room for two more, and no generator is idle.
    assert (admission.allowed, admission.accepted) == (0, 2)
    assert admission.arrive(0, 3)
    (more,) = admission.deal()
    assert (more.generator, more.version) == (0, 1)
    assert admission.arrive(0, more.number)
    assert admission.overdue == [1], "chunk 1 would be two updates old in batch 2"
    assert not admission.ready
    assert admission.allowed == 1, "(1 + 1 + 1) · 2 - (4 + 1)"
    assert admission.arrive(1, 1)
    assert [t.number for t in admission.take()] == [3, 1], "by generators"
    assert admission.shares() == [0.75, 0.25]


def straggle(stragglers: Stragglers, *, segments: int, ratio: int, batches: int) -> tuple[Admission, float]:
    """Two generators, of which the second needs `ratio` times as long; learning takes no time.

    Returns:
        The bookkeeping after some batches, and how many of them there were in the time that the slow generator takes
        for a horizon, which is what a synchronous batch takes.
    """
    admission = Admission(2, batch=2 * segments, staleness=2, stragglers=stragglers)
    due: dict[int, tuple[int, int]] = {}
    now = 0

    def ask() -> None:
        for ticket in admission.deal():
            due[ticket.generator] = now + (1, ratio)[ticket.generator], ticket.number

    ask()
    while admission.version < batches:
        which = min(due, key=lambda one: (due[one][0], one))
        now, number = due.pop(which)
        admission.arrive(which, number)
        ask()
        while admission.ready:
            admission.take()
            admission.advance()
            ask()
    return admission, batches / (now / (ratio * segments))


def test_a_straggler_ten_times_slower_is_waited_for() -> None:
    """Its chunk may be 2 updates old: it is in every third batch, and one of its six chunks."""
    admission, speed = straggle("wait", segments=1, ratio=10, batches=300)
    assert speed == pytest.approx(3.0, rel=0.02)
    assert admission.shares()[1] == pytest.approx(1 / 6, rel=0.02)
    assert admission.dropped == 0


def test_chunks_of_a_third_let_it_keep_up() -> None:
    """While it plays one, the other one plays ten: eleven, less than the two batches of six that need not wait."""
    admission, speed = straggle("wait", segments=3, ratio=10, batches=300)
    assert speed == pytest.approx(5.5, rel=0.02)
    assert admission.shares()[1] == pytest.approx(1 / 11, rel=0.02)
    assert admission.dropped == 0


def test_a_straggler_that_is_not_waited_for_contributes_nothing() -> None:
    admission, speed = straggle("drop", segments=1, ratio=10, batches=300)
    assert speed == pytest.approx(5.0, rel=0.02)
    assert admission.shares() == [1.0, 0.0]
    assert admission.dropped == pytest.approx(300 * 2 / 10, abs=2)


def test_a_batch_that_is_not_ready_is_not_taken() -> None:
    admission = Admission(2, batch=2, staleness=0)
    admission.deal()
    with pytest.raises(RuntimeError, match="no batch is ready at version 0"):
        admission.take()


def test_of_generators_that_are_equally_fast_each_has_the_same_share() -> None:
    admission, _ = straggle("wait", segments=1, ratio=1, batches=100)
    assert Counter(admission.learned) == {0: 100, 1: 100}
