"""The preference database loses nothing and doubles nothing."""

import hashlib
import json
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from physai.rlhf.answers.answers import Answer, Choice, Pair, Question
from physai.rlhf.answers.segment import PreferenceError, Segment, SegmentLayout, decode, encode, parse_layout
from physai.rlhf.answers.store import PreferenceStore
from physai.sdk.base.errors import UnknownNameError

LAYOUT = SegmentLayout(
    task="t", fingerprint="f", step_dt=0.02, steps=3, qpos=2, critic=4, actions=1, terms=("reward", "joint_speed")
)
SEED = 2**64 - 1
LAST_FIT = PreferenceStore.last_fit


def segment(value: float = 0.0) -> Segment:
    def part(width: int) -> np.ndarray:
        return np.full((3, width), value, np.float32)

    return Segment(episode_seed=SEED, start_step=7, qpos=part(2), critic=part(4), action=part(1), terms=part(2))


def filled(path: Path, pairs: int = 4) -> PreferenceStore:
    store = PreferenceStore(path, layout=LAYOUT)
    numbers = store.add_segments("p" * 64, {"run": "r"}, [segment(float(i)) for i in range(pairs + 1)])
    store.add_pairs([Pair(first=numbers[i], second=numbers[i + 1], method="random") for i in range(pairs)])
    return store


def answer(question: Question, *, key: str = "k", rater: str = "ann", choice: Choice = "left") -> Answer:
    return Answer(key=key, pair=question.pair, rater=rater, choice=choice, swapped=question.swapped)


def reopened(store: PreferenceStore) -> PreferenceStore:
    return PreferenceStore(store.path)


@pytest.mark.parametrize("layout", [None, LAYOUT])
def test_a_folder_is_no_database(layout: SegmentLayout | None, tmp_path: Path) -> None:
    with pytest.raises(PreferenceError, match="is a folder, and a database is a file; name a file"):
        PreferenceStore(tmp_path, layout=layout)
    filled(tmp_path / "preferences.db").close()
    with pytest.raises(PreferenceError, match=f"the database in it is {tmp_path / 'preferences.db'}"):
        PreferenceStore(tmp_path, layout=layout)


def test_answers_of_some_raters(tmp_path: Path) -> None:
    store = filled(tmp_path / "preferences.db", pairs=1)
    with pytest.raises(UnknownNameError, match="no rater named 'ann'; known: none"):
        store.answers(["ann"])
    for rater in ("ann", "bob", "cem"):
        question = store.next_question(rater)
        assert question is not None
        store.record(answer(question, key=rater, rater=rater))
    assert [one.rater for one in store.answers()] == ["ann", "bob", "cem"]
    assert [one.rater for one in store.answers(["cem", "ann", "cem"])] == ["ann", "cem"]
    store.withdraw("ann")
    with pytest.raises(UnknownNameError, match="no rater named 'ann'; known: bob, cem"):
        store.answers(["ann", "bob"])


def test_segments_come_back(tmp_path: Path) -> None:
    store = filled(tmp_path / "db")
    again = PreferenceStore(tmp_path / "db").segments()
    assert list(again) == [1, 2, 3, 4, 5]
    assert again[3].episode_seed == SEED
    assert again[3].start_step == 7
    assert again[3].critic.tolist() == segment(2.0).critic.tolist()
    assert store.segments_of_last_source() == [1, 2, 3, 4, 5]


def test_damaged_and_foreign_segments_are_refused() -> None:
    data, sha256 = encode(segment(), LAYOUT)
    bomb = zlib.compress(b"\0" * 10_000_000)
    for bad in (data[:-9], b"", bomb, zlib.compress(b"\1" * 4 * 27)):
        with pytest.raises(PreferenceError, match="damaged"):
            decode(bad, LAYOUT, sha256=sha256, episode_seed=0, start_step=0)
    with pytest.raises(PreferenceError, match="shape"):
        encode(segment(), LAYOUT.model_copy(update={"qpos": 3}))
    with pytest.raises(PreferenceError, match="not finite"):
        encode(segment(np.nan), LAYOUT)


def test_another_layout_is_refused_with_both_values(tmp_path: Path) -> None:
    filled(tmp_path / "db")
    with pytest.raises(PreferenceError, match="steps 3 and 5"):
        PreferenceStore(tmp_path / "db", layout=LAYOUT.model_copy(update={"steps": 5}))
    with pytest.raises(PreferenceError, match="physai preferences collect"):
        PreferenceStore(tmp_path / "missing")
    (tmp_path / "text").write_text("no database, but long enough to be looked at " * 40)
    with pytest.raises(PreferenceError, match="cannot be used"):
        PreferenceStore(tmp_path / "text")


def test_an_answer_sent_twice_is_stored_once(tmp_path: Path) -> None:
    store = filled(tmp_path / "db")
    question = store.next_question("ann")
    assert question is not None
    assert store.record(answer(question))
    assert not store.record(answer(question))
    assert len(store.answers()) == 1
    with pytest.raises(PreferenceError, match="belongs to"):
        store.record(answer(question, choice="right"))
    with pytest.raises(PreferenceError, match="has answered pair 1 already"):
        store.record(answer(question, key="other"))


def test_an_undone_answer_is_asked_again(tmp_path: Path) -> None:
    store = filled(tmp_path / "db")
    question = store.next_question("ann")
    assert question is not None
    before = store.digest()
    store.record(answer(question))
    assert store.digest() != before
    last = store.last_answer("ann")
    assert last is not None
    store.withdraw(last.key)
    assert store.next_question("ann") == question
    assert store.digest() == before
    assert store.record(answer(question, key="second try", choice="right"))


def test_sides_are_mixed_differ_between_raters_and_stay(tmp_path: Path) -> None:
    store = filled(tmp_path / "db", pairs=64)
    swapped: dict[str, list[bool]] = {"ann": [], "bo": []}
    for rater, sides in swapped.items():
        for number in range(64):
            question = store.next_question(rater)
            assert question is not None
            assert question == store.next_question(rater)
            assert {question.left, question.right} == {question.pair, question.pair + 1}
            sides.append(question.swapped)
            store.record(answer(question, key=f"{rater} {number}", rater=rater))
        # 64 tosses of a coin: fewer than 12 or more than 52 of one side have a chance of 1e-6.
        assert 12 <= sum(sides) <= 52
    assert swapped["ann"] != swapped["bo"]
    assert store.next_question("ann") is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("key", ""), ("key", "k" * 65), ("rater", "a\nb"), ("choice", "both"), ("latency_s", float("nan")), ("pair", 99)],
)
def test_invalid_answers_are_refused(tmp_path: Path, field: str, value: object) -> None:
    store = filled(tmp_path / "db")
    good = Answer(key="k", pair=1, rater="ann", choice="left", swapped=False)
    with pytest.raises(PreferenceError):
        store.record(replace(good, **{field: value}))
    assert store.answers() == []


def test_preferences_are_of_segments_not_of_sides() -> None:
    base = Answer(key="k", pair=1, rater="ann", choice="left", swapped=False)
    assert base.preference == "first"
    assert replace(base, swapped=True).preference == "second"
    assert replace(base, choice="right").preference == "second"
    assert replace(base, choice="right", swapped=True).preference == "first"
    assert replace(base, choice="equal", swapped=True).preference == "equal"


def test_numbers_that_are_not_finite_are_refused_as_damage() -> None:
    # Who damages a segment on purpose writes a digest that fits.
    raw = np.full(3 * 9, np.nan, "<f4").tobytes()
    with pytest.raises(PreferenceError, match="not finite"):
        decode(zlib.compress(raw), LAYOUT, sha256=hashlib.sha256(raw).hexdigest(), episode_seed=0, start_step=0)


def test_a_huge_layout_is_refused() -> None:
    # 10,000 steps of 3 · 4096 + 2 numbers would unpack to 492 MB for each picture.
    huge = LAYOUT.model_dump() | {"steps": 10_000, "qpos": 4096, "critic": 4096, "actions": 4096}
    with pytest.raises(PreferenceError, match="exceed 4194304 numbers"):
        parse_layout(json.dumps(huge))


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("INSERT INTO fits (document, created) VALUES ('no JSON', 0)", LAST_FIT),
        ("INSERT INTO fits (document, created) VALUES ('[1]', 0)", LAST_FIT),
        ("INSERT INTO fits (document, created) VALUES ('{\"accuracy\": 1e999}', 0)", LAST_FIT),
        ("INSERT INTO fits (document, created) VALUES ('{\"a\": \"' || hex(zeroblob(524288)) || '\"}', 0)", LAST_FIT),
        ("UPDATE sources SET origin = 'no JSON'", PreferenceStore.sources),
        ("UPDATE segments SET episode_seed = 'one'", PreferenceStore.segments),
        ("UPDATE segments SET data = 'text'", PreferenceStore.segments),
        ("UPDATE answers SET choice = 'LEFT'", PreferenceStore.answers),
        ("UPDATE answers SET latency_s = 'slow'", PreferenceStore.answers),
        ("UPDATE answers SET rater = x'00'", PreferenceStore.answers),
        ("UPDATE layout SET document = x'ff'", reopened),
        ("DROP TABLE pairs", PreferenceStore.pairs),
    ],
)
def test_what_another_program_wrote_is_refused(
    tmp_path: Path, change: str, read: Callable[[PreferenceStore], object]
) -> None:
    store = filled(tmp_path / "db")
    store.record(Answer(key="k", pair=1, rater="ann", choice="left", swapped=False))
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(PreferenceError):
        read(store)
    store.close()


def test_a_database_in_which_nothing_is_stored_takes_another_layout(tmp_path: Path) -> None:
    """A first `physai preferences collect` that asked for too long segments leaves one."""
    PreferenceStore(tmp_path / "db", layout=LAYOUT).close()
    other = LAYOUT.model_copy(update={"steps": 5})
    PreferenceStore(tmp_path / "db", layout=other).close()
    store = PreferenceStore(tmp_path / "db")
    assert store.layout == other
    store.close()


RATERS, CHOICES = st.sampled_from(["ann", "bo"]), st.sampled_from(["left", "right", "equal", "cannot_tell"])


class Database(RuleBasedStateMachine):
    """Answers, repeats, undoes and reopens in any order; a dictionary says what must be there."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "db"
        self.store = filled(self.path)
        self.expected: dict[tuple[int, str], Answer] = {}
        self.sent: list[Answer] = []

    @rule(rater=RATERS, choice=CHOICES)
    def answer(self, rater: str, choice: Choice) -> None:
        question = self.store.next_question(rater)
        open_pairs = [pair for pair in range(1, 5) if (pair, rater) not in self.expected]
        assert (question.pair if question else None) == min(open_pairs, default=None)
        if question is not None:
            one = answer(question, key=f"key {len(self.sent)}", rater=rater, choice=choice)
            assert self.store.record(one)
            self.sent.append(one)
            self.expected[question.pair, rater] = one

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        assert not self.store.record(data.draw(st.sampled_from(self.sent)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.sent))
        self.store.withdraw(one.key)
        if self.expected.get((one.pair, one.rater)) == one:
            del self.expected[one.pair, one.rater]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = PreferenceStore(self.path)

    @invariant()
    def holds_what_was_said(self) -> None:
        assert self.store.answers() == [self.expected[key] for key in sorted(self.expected)]

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestDatabase = Database.TestCase
TestDatabase.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
