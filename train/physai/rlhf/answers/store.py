"""A preference database: segments, pairs and answers in one SQLite file that loses nothing that it has confirmed.

Every method is one transaction, and a write returns after it is on disk. Several processes may use a file at once.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from physai.compute.database import connect
from physai.rlhf.answers.answers import Answer, Pair, Question, require_answer, require_name
from physai.rlhf.answers.segment import (
    MAX_DOCUMENT,
    DatabaseError,
    PreferenceError,
    Segment,
    SegmentLayout,
    decode,
    encode,
    parse_layout,
    parse_object,
)
from physai.rlhf.answers.tables import AnswerRow, AnswerTable, FitRow, LayoutRow, PairRow, SegmentRow, SourceRow
from physai.sdk.base.errors import unknown_name

FORMAT_VERSION = 1
MAX_SEGMENTS = 1_000_000
MAX_IN_QUERY = 500
DATABASE_FILE = "preferences.db"
"""The database in the folder of a run that learned from preferences alone."""

Result = TypeVar("Result")


class PreferenceStore:
    """One database."""

    def __init__(self, path: Path, *, layout: SegmentLayout | None = None) -> None:
        """Opens a database, or begins one if a layout is given.

        Raises:
            PreferenceError: there is none, it is of another layout or version, or it is no database.
        """
        if path.is_dir():
            inside = path / DATABASE_FILE
            hint = f"the database in it is {inside}" if inside.is_file() else "name a file"
            raise PreferenceError(f"{path} is a folder, and a database is a file; {hint}")
        if layout is None and not path.is_file():
            raise PreferenceError(
                f"{path} does not exist; begin a database with `physai preferences collect RUN --out {path}`"
            )
        self.path = path
        self._engine = connect(f"sqlite:///{path}")
        self.layout = self._run(lambda session: _opened(session, layout))

    def close(self) -> None:
        """Closes the file."""
        self._engine.dispose()

    def _run(self, work: Callable[[Session], Result]) -> Result:
        try:
            with Session(self._engine) as session, session.begin():
                return work(session)
        except SQLAlchemyError as error:
            cause = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise DatabaseError(f"{self.path} cannot be used: {cause}") from error
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            # SQLite keeps text in columns of numbers, and documents may come from anywhere.
            text = " ".join(str(error).split())[:200]
            raise DatabaseError(f"{self.path} is damaged: {type(error).__name__}: {text}") from error

    def add_segments(self, policy: str, origin: Mapping[str, Any], segments: Sequence[Segment]) -> list[int]:
        """Stores segments that one policy played, all or none.

        Args:
            policy: SHA-256 of its weights and statistics.
            origin: run, iteration, versions and the like.
            segments: of the layout's shapes.

        Returns:
            Their numbers.

        Raises:
            PreferenceError: a segment is of another shape or not finite, or there are too many.
        """
        encoded = [(segment, *encode(segment, self.layout)) for segment in segments]

        def work(session: Session) -> list[int]:
            if not _count(session, SegmentRow) + len(segments) <= MAX_SEGMENTS:
                raise PreferenceError(f"{self.path} may hold {MAX_SEGMENTS} segments; begin another database")
            source = SourceRow(policy=policy, origin=json.dumps(dict(origin), sort_keys=True), created=time.time())
            session.add(source)
            session.flush()
            rows = [
                SegmentRow(
                    source=source.id,
                    sha256=sha256,
                    episode_seed=str(segment.episode_seed),
                    start_step=segment.start_step,
                    data=data,
                )
                for segment, data, sha256 in encoded
            ]
            session.add_all(rows)
            session.flush()
            return [row.id for row in rows]

        return self._run(work)

    def add_pairs(self, pairs: Sequence[Pair]) -> list[int]:
        """Stores pairs to be asked, in their order, all or none; their own numbers do not count.

        Raises:
            PreferenceError: a segment or a repeated pair does not exist, or a pair has one segment twice.
        """
        for pair in pairs:
            if pair.first == pair.second:
                raise PreferenceError(f"a pair needs two segments, got {pair.first} twice")

        def work(session: Session) -> list[int]:
            now = time.time()
            rows = [PairRow(**{k: v for k, v in asdict(p).items() if k != "id"}, created=now) for p in pairs]
            session.add_all(rows)
            session.flush()
            return [row.id for row in rows]

        return self._run(work)

    def segments(self, numbers: Sequence[int] | None = None) -> dict[int, Segment]:
        """Segments by number; all if None.

        Raises:
            PreferenceError: one is damaged or does not exist.
        """

        def work(session: Session) -> dict[int, Segment]:
            query = select(SegmentRow).order_by(SegmentRow.id)
            wanted = None if numbers is None else set(numbers)
            # A database takes so many values in one query.
            few = wanted is not None and len(wanted) <= MAX_IN_QUERY
            rows = session.scalars(query.where(SegmentRow.id.in_(wanted)) if few and wanted else query)
            found = {row.id: _segment(row, self.layout) for row in rows if wanted is None or row.id in wanted}
            missing = (wanted or set()) - set(found)
            if missing:
                raise PreferenceError(f"{self.path} has no segment {min(missing)}")
            return found

        return self._run(work)

    def count_segments(self) -> int:
        """Number of segments."""
        return self._run(lambda session: _count(session, SegmentRow))

    def segments_of_last_source(self) -> list[int]:
        """Numbers of the segments that were added last."""

        def work(session: Session) -> list[int]:
            last = session.scalar(select(func.max(SourceRow.id)))
            return list(session.scalars(select(SegmentRow.id).where(SegmentRow.source == last).order_by(SegmentRow.id)))

        return self._run(work)

    def sources(self) -> list[tuple[str, dict[str, Any]]]:
        """SHA-256 and origin of each policy that played segments."""
        return self._run(
            lambda session: [
                (row.policy, parse_object(row.origin))
                for row in session.scalars(select(SourceRow).order_by(SourceRow.id))
            ]
        )

    def pairs(self) -> list[Pair]:
        """All pairs in the order in which they are asked."""
        return self._run(lambda s: [_pair(row) for row in s.scalars(select(PairRow).order_by(PairRow.id))])

    def next_question(self, rater: str) -> Question | None:
        """The first pair that a rater has not answered; None if there is none."""
        return next(iter(self.open_questions(rater, limit=1)), None)

    def open_questions(self, rater: str, *, limit: int) -> list[Question]:
        """The first pairs that a rater has not answered, in the order in which they are asked."""
        require_name("rater", rater)

        def work(session: Session) -> list[Question]:
            open_ = select(PairRow).where(PairRow.id.not_in(_answered(rater))).order_by(PairRow.id).limit(limit)
            return [_question(row, rater) for row in session.scalars(open_)]

        return self._run(work)

    def question(self, pair: int, rater: str) -> Question:
        """A pair as a rater sees it, answered or not.

        Raises:
            PreferenceError: there is no such pair.
        """
        require_name("rater", rater)

        def work(session: Session) -> Question:
            row = session.get(PairRow, pair)
            if row is None:
                raise PreferenceError(f"there is no pair {pair}")
            return _question(row, rater)

        return self._run(work)

    def progress(self, rater: str) -> tuple[int, int]:
        """Number of pairs that a rater has answered, and of all pairs."""

        def work(session: Session) -> tuple[int, int]:
            answered = session.scalar(select(func.count()).select_from(_answered(rater).subquery())) or 0
            return answered, _count(session, PairRow)

        return self._run(work)

    def add_fit(self, document: Mapping[str, Any]) -> None:
        """Stores what a reward model has learnt, for those who answer."""
        text = json.dumps(dict(document), sort_keys=True, allow_nan=False)
        self._run(lambda session: session.add(FitRow(document=text, created=time.time())))

    def last_fit(self) -> dict[str, Any] | None:
        """Report of the latest reward model; None before the first."""

        def work(session: Session) -> dict[str, Any] | None:
            start = func.substr(FitRow.document, 1, MAX_DOCUMENT + 1)
            text = session.scalars(select(start).order_by(FitRow.id.desc()).limit(1)).first()
            return None if text is None else parse_object(text)

        return self._run(work)

    def record(self, answer: Answer) -> bool:
        """Stores an answer.

        Returns:
            False if the same answer, by its key, was stored before.

        Raises:
            PreferenceError: the key belongs to another answer, the rater has answered this pair, or a value is invalid.
        """
        require_answer(answer)

        def work(session: Session) -> bool:
            known = session.get(AnswerRow, answer.key)
            if known is not None:
                if _answer(known) != answer:
                    raise PreferenceError(f"the key {answer.key!r} belongs to an answer to pair {known.pair}")
                return False
            if session.get(PairRow, answer.pair) is None:
                raise PreferenceError(f"there is no pair {answer.pair}")
            session.add(AnswerRow(**asdict(answer), time=time.time(), withdrawn=None))
            try:
                session.flush()
            except IntegrityError as error:
                raise PreferenceError(
                    f"{answer.rater!r} has answered pair {answer.pair} already; withdraw that answer first"
                ) from error
            return True

        return self._run(work)

    def withdraw(self, key: str, *, rater: str | None = None) -> None:
        """Undoes an answer; its row remains, and the pair is asked again.

        Args:
            key: of the answer.
            rater: whose answer it must be; None for anyone's.

        Raises:
            PreferenceError: there is no such answer.
        """

        def work(session: Session) -> None:
            row = session.get(AnswerRow, key)
            if row is None or rater not in (None, row.rater):
                raise PreferenceError(f"there is no answer {key!r:.80}")
            if row.withdrawn is None:
                row.withdrawn = time.time()

        self._run(work)

    def last_answer(self, rater: str) -> Answer | None:
        """The latest answer of a rater that is not undone."""

        def work(session: Session) -> Answer | None:
            query = select(AnswerRow).where(AnswerRow.rater == rater, AnswerRow.withdrawn.is_(None))
            row = session.scalars(query.order_by(AnswerRow.time.desc(), AnswerRow.pair.desc()).limit(1)).first()
            return None if row is None else _answer(row)

        return self._run(work)

    def answers(self, raters: Collection[str] = ()) -> list[Answer]:
        """Answers that are not undone, by pair and rater.

        Args:
            raters: whose; of all if none is named.

        Raises:
            UnknownNameError: one of them has answered nothing.
        """
        query = select(AnswerRow).where(AnswerRow.withdrawn.is_(None)).order_by(AnswerRow.pair, AnswerRow.rater)
        answers = self._run(lambda session: [_answer(row) for row in session.scalars(query)])
        known = sorted({answer.rater for answer in answers})
        for rater in raters:
            if rater not in known:
                raise unknown_name("rater", rater[:64], known)
        return [answer for answer in answers if not raters or answer.rater in raters]

    def digest(self) -> str:
        """SHA-256 of layout, sources, segments, pairs and answers: what a reward model was fitted to."""

        def work(session: Session) -> str:
            sha256 = hashlib.sha256(self.layout.model_dump_json(exclude_defaults=True).encode())
            for row in session.execute(select(SegmentRow.id, SegmentRow.sha256).order_by(SegmentRow.id)):
                sha256.update(f"segment {row.id} {row.sha256}\n".encode())
            for source in session.scalars(select(SourceRow).order_by(SourceRow.id)):
                sha256.update(f"source {source.id} {source.policy}\n".encode())
            for pair in session.scalars(select(PairRow).order_by(PairRow.id)):
                sha256.update(f"pair {pair.id} {pair.first} {pair.second}\n".encode())
            query = select(AnswerRow).where(AnswerRow.withdrawn.is_(None)).order_by(AnswerRow.pair, AnswerRow.rater)
            for row in session.scalars(query):
                line = json.dumps(["answer", row.pair, row.rater, _answer(row).preference])
                sha256.update(line.encode())
            return sha256.hexdigest()

        return self._run(work)


def _opened(session: Session, layout: SegmentLayout | None) -> SegmentLayout:
    AnswerTable.metadata.create_all(session.connection())
    row = session.scalars(select(LayoutRow)).first()
    if row is None:
        if layout is None:
            raise PreferenceError("it is no preference database")
        session.add(LayoutRow(format_version=FORMAT_VERSION, document=layout.model_dump_json()))
        return layout
    if row.format_version != FORMAT_VERSION:
        raise PreferenceError(f"the database has format version {row.format_version}, this physai {FORMAT_VERSION}")
    found = parse_layout(row.document)
    if layout is not None and found != layout and not _count(session, SegmentRow):
        # Nothing was drawn, for instance because episodes end before segments of that length.
        row.document = layout.model_dump_json()
        return layout
    if layout is not None and found != layout:
        raise PreferenceError(f"the database holds other segments: {found.differences(layout)}; begin another one")
    return found


def _count(session: Session, table: type[AnswerTable]) -> int:
    return session.scalar(select(func.count()).select_from(table)) or 0


def _answered(rater: str) -> Select[int]:
    return select(AnswerRow.pair).where(AnswerRow.rater == rater, AnswerRow.withdrawn.is_(None))


def _segment(row: SegmentRow, layout: SegmentLayout) -> Segment:
    seed = int(row.episode_seed)
    return decode(row.data, layout, sha256=row.sha256, episode_seed=seed, start_step=row.start_step)


def _pair(row: PairRow) -> Pair:
    method: Any = row.method
    return Pair(id=row.id, first=row.first, second=row.second, method=method, score=row.score, repeat_of=row.repeat_of)


def _question(row: PairRow, rater: str) -> Question:
    # Random, yet the same when the page is loaded again, and of its own for each rater.
    swapped = hashlib.sha256(f"{row.id} {row.created!r} {rater}".encode()).digest()[0] % 2 == 1
    left, right = (row.second, row.first) if swapped else (row.first, row.second)
    return Question(pair=row.id, left=left, right=right, swapped=swapped)


def _answer(row: AnswerRow) -> Answer:
    choice: Any = row.choice
    answer = Answer(
        key=row.key, pair=row.pair, rater=row.rater, choice=choice, swapped=row.swapped, latency_s=row.latency_s
    )
    require_answer(answer)
    return answer
