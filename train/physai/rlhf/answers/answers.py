"""Pairs of segments, questions about them, and answers."""

from dataclasses import dataclass
from typing import Literal, get_args

from physai.rlhf.answers.segment import PreferenceError

MAX_NAME = 64

Choice = Literal["left", "right", "equal", "cannot_tell"]
Method = Literal["best", "disagreement", "random", "uniform"]
Preference = Literal["first", "second", "equal", "cannot_tell"]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two segments by number, and how they were chosen."""

    id: int = 0
    """Given by the database."""
    first: int
    second: int
    method: Method
    score: float | None = None
    repeat_of: int | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """A pair as one rater sees it."""

    pair: int
    left: int
    """Number of the segment on the left."""
    right: int
    swapped: bool
    """Whether the pair's second segment is on the left."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A rater's answer to a question."""

    key: str
    """Chosen by the sender, unique: the same answer sent twice is stored once."""
    pair: int
    rater: str
    choice: Choice
    swapped: bool
    latency_s: float | None = None
    """Time from showing the pair to the answer [s]."""

    @property
    def preference(self) -> Preference:
        """The choice in terms of the pair."""
        if self.choice in ("equal", "cannot_tell"):
            return self.choice
        return "first" if (self.choice == "left") != self.swapped else "second"


def require_name(what: str, name: str) -> None:
    """Check the name of a rater, or a key; raises PreferenceError."""
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise PreferenceError(f"a {what} has 1 to {MAX_NAME} printable characters, got {name!r:.100}")


def require_answer(answer: Answer) -> None:
    """Check an answer; raises PreferenceError."""
    require_name("key", answer.key)
    require_name("rater", answer.rater)
    if answer.choice not in get_args(Choice):
        raise PreferenceError(f"an answer is one of {', '.join(get_args(Choice))}, got {answer.choice!r:.40}")
    if answer.latency_s is not None and not 0.0 <= answer.latency_s <= 1e6:
        raise PreferenceError(f"a latency lies in 0 … 1e6 s, got {answer.latency_s}")
