"""Tables of a preference database. Rows are only added; an answer that is undone keeps its row."""

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, LargeBinary, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Sha256 = String(64)


class AnswerTable(DeclarativeBase):
    """Metadata of all tables."""


class LayoutRow(AnswerTable):
    """The one row that says what the segments hold."""

    __tablename__ = "layout"

    format_version: Mapped[int] = mapped_column(Integer, primary_key=True)
    document: Mapped[str] = mapped_column(Text)
    """JSON of `physai.rlhf.answers.segment.SegmentLayout`."""


class SourceRow(AnswerTable):
    """A policy that played segments."""

    __tablename__ = "sources"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    policy: Mapped[str] = mapped_column(Sha256)
    """SHA-256 of its weights and statistics."""
    origin: Mapped[str] = mapped_column(Text)
    """JSON: run, iteration, seed, versions of the software."""
    created: Mapped[float] = mapped_column(Float)


class SegmentRow(AnswerTable):
    """A stretch of one episode."""

    __tablename__ = "segments"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    source: Mapped[int] = mapped_column(ForeignKey("sources.id"))
    sha256: Mapped[str] = mapped_column(Sha256)
    """Of the uncompressed numbers."""
    episode_seed: Mapped[str] = mapped_column(String(20))
    """Decimal, because SQLite's integers are signed."""
    start_step: Mapped[int] = mapped_column(Integer)
    data: Mapped[bytes] = mapped_column(LargeBinary)
    """Compressed numbers; see `physai.rlhf.answers.segment`."""


class PairRow(AnswerTable):
    """Two segments to be compared."""

    __tablename__ = "pairs"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    first: Mapped[int] = mapped_column(ForeignKey("segments.id"))
    second: Mapped[int] = mapped_column(ForeignKey("segments.id"))
    method: Mapped[str] = mapped_column(String(16))
    """How it was chosen: `best`, `disagreement`, `random` or `uniform`."""
    score: Mapped[float | None] = mapped_column(Float)
    """Disagreement of the ensemble when it was chosen."""
    repeat_of: Mapped[int | None] = mapped_column(ForeignKey("pairs.id"))
    """The pair that is asked again, to see how consistent a rater is."""
    created: Mapped[float] = mapped_column(Float)


class FitRow(AnswerTable):
    """Report of a fit of a reward model; the model itself is in a file of its own."""

    __tablename__ = "fits"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    document: Mapped[str] = mapped_column(Text)
    """JSON: number of answers, accuracy on held-out ones, and what the learned reward correlates with."""
    created: Mapped[float] = mapped_column(Float)


class AnswerRow(AnswerTable):
    """A rater's answer about a pair."""

    __tablename__ = "answers"
    __table_args__ = (
        Index(
            "one_answer_per_pair_and_rater",
            "pair",
            "rater",
            unique=True,
            sqlite_where=text("withdrawn IS NULL"),
            postgresql_where=text("withdrawn IS NULL"),
        ),
    )

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Chosen by who sends it, so that an answer that is sent again is stored once."""
    pair: Mapped[int] = mapped_column(ForeignKey("pairs.id"))
    rater: Mapped[str] = mapped_column(String(64))
    choice: Mapped[str] = mapped_column(String(16))
    """As seen on the screen: `left`, `right`, `equal` or `cannot_tell`."""
    swapped: Mapped[bool] = mapped_column(Boolean)
    """Whether the second segment was shown on the left."""
    latency_s: Mapped[float | None] = mapped_column(Float)
    time: Mapped[float] = mapped_column(Float)
    """[s since 1970]."""
    withdrawn: Mapped[float | None] = mapped_column(Float)
    """When it was undone [s since 1970]."""
