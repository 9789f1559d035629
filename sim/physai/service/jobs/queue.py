"""The queue of jobs in the database.

A job ends exactly once: to end it, a worker must hold its latest attempt, and each claim is a new attempt. No lock
outlasts a transaction, so a killed process blocks nobody; its jobs return to the queue when their lease ends, or at
once if `release` is told that the worker is gone.
"""

import json
import math
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, and_, exists, func, or_, select, tuple_, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from physai.compute.database import reading
from physai.service.database.tables import ArtefactRow, JobEventRow, JobRow, StoreRow
from physai.service.problems import ProblemError

LEASE_S = 15.0
"""A worker that does not report for this long loses its job [s]."""
MAX_CRASHES = 3
"""A job whose own process died this often has failed."""
IDENTIFIER = re.compile("[0-9a-f]{16,32}")
MAX_EVENT_CHARACTERS = 2000
ENDED = ("succeeded", "failed", "cancelled")
_NEWEST = (JobRow.created.desc(), JobRow.id.desc())
STATES = ("queued", "running", *ENDED)


@dataclass(frozen=True)
class ClaimedJob:
    """A job as its worker holds it."""

    job_id: str
    attempt: int
    kind: str
    spec: dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A line of a job's progress, and when its worker read it [s since 1970]."""

    text: str
    time: float


@dataclass(frozen=True)
class Artefact:
    """A file that a job produced, stored under its hash."""

    name: str
    sha256: str
    size: int


class JobQueue:
    """Jobs in a database; every method is one transaction and may be called from any process."""

    def __init__(self, engine: Engine, *, holder: str | None = None) -> None:
        """A queue.

        Args:
            engine: the database.
            holder: see `StoreHold.name`; jobs are taken while that service has the lock. None: by any.
        """
        self._engine = engine
        self._holder = holder

    def submit(
        self, kind: str, spec: dict[str, Any], *, by: str = "", limit: int = 1000, identifier: str | None = None
    ) -> str:
        """Adds a job and returns its identifier.

        Args:
            kind: what to do.
            spec: with what.
            by: name of the token.
            limit: greatest number of waiting jobs.
            identifier: chosen by the client, so that it may send a request again whose answer it lost.

        Raises:
            ProblemError: `limit` jobs are waiting already, or the identifier is another job's.
        """
        try:
            return self._submit(kind, spec, by, limit, identifier)
        except IntegrityError:
            # The same request came in twice at once, and the other one was first.
            return self._submit(kind, spec, by, limit, identifier)

    def _submit(self, kind: str, spec: dict[str, Any], by: str, limit: int, identifier: str | None) -> str:
        with Session(self._engine) as session, session.begin():
            known = None if identifier is None else session.get(JobRow, identifier)
            if known is not None:
                if (known.kind, json.loads(known.spec)) != (kind, spec):
                    raise ProblemError(409, "id-taken", f"job {identifier} exists with another specification")
                return known.id
            waiting = session.scalar(select(func.count()).select_from(JobRow).where(JobRow.state == "queued")) or 0
            if waiting >= limit:
                raise ProblemError(
                    503, "capacity", f"{waiting} jobs are waiting, the limit is {limit}; try again later"
                )
            row = JobRow(
                id=identifier or secrets.token_hex(8),
                kind=kind,
                spec=json.dumps(spec),
                policy=spec.get("policy"),
                state="queued",
                created=time.time(),
                submitted_by=by,
            )
            session.add(row)
            session.flush()
            _note(session, row.id, "state", "queued")
            return row.id

    def claim(self, worker: str, *, silent: bool = True) -> ClaimedJob | None:
        """Takes the oldest job that waits; None if there is none.

        Args:
            worker: who takes it.
            silent: also take a job whose worker stopped reporting. It may be unable to, as others, while the database
                is away.
        """
        with Session(self._engine) as session, session.begin():
            now = _now(session)
            free = JobRow.state == "queued"
            if silent:
                free = or_(free, and_(JobRow.state == "running", JobRow.lease_until < now))
            if self._holder is not None:
                free = and_(free, exists(select(StoreRow).where(StoreRow.holder == self._holder)))
            # Other workers of PostgreSQL skip the row instead of waiting; SQLite has one writer at a time anyway.
            wanted = select(JobRow).where(free).order_by(JobRow.created).limit(1).with_for_update(skip_locked=True)
            row = session.scalar(wanted)
            if row is None:
                return None
            row.state, row.worker, row.lease_until = "running", worker, now + LEASE_S
            row.attempt += 1
            row.started = row.started or time.time()
            _note(session, row.id, "state", f"running, attempt {row.attempt}")
            return ClaimedJob(row.id, row.attempt, row.kind, json.loads(row.spec))

    def report(self, claim: ClaimedJob, lines: Sequence[Line], *, again: bool = False) -> bool | None:
        """Renews the lease and stores lines of progress.

        Args:
            claim: the job.
            lines: its new lines.
            again: whether some may be stored already, because the answer to an earlier report was lost.

        Returns:
            Whether the job shall be cancelled; None if the worker no longer holds the job and must stop it.
        """
        with Session(self._engine) as session, session.begin():
            lease_until = _now(session) + LEASE_S
            held = session.execute(
                update(JobRow).where(_held(claim)).values(lease_until=lease_until).returning(JobRow.cancel)
            ).first()
            if held is None:
                return None
            stored: set[tuple[float, str]] = set()
            if again and lines:
                since = and_(JobEventRow.job_id == claim.job_id, JobEventRow.time >= lines[0].time)
                stored = {(row.time, row.text) for row in session.scalars(select(JobEventRow).where(since))}
            for line in lines:
                if (line.time, line.text[:MAX_EVENT_CHARACTERS]) not in stored:
                    _note(session, claim.job_id, "progress", line.text, line.time)
            return bool(held[0])

    def end(
        self,
        claim: ClaimedJob,
        state: str,
        *,
        result: dict[str, Any] | None = None,
        error: str | None = None,
        artefacts: list[Artefact] | None = None,
    ) -> bool:
        """Ends a job, with its artefacts, in one transaction; returns False if the worker no longer holds it."""
        with Session(self._engine) as session, session.begin():
            values = {
                "state": state,
                "ended": time.time(),
                "result": None if result is None else json.dumps(result),
                "error": error,
                "worker": None,
                "lease_until": None,
            }
            if not _changed(session.execute(update(JobRow).where(_held(claim)).values(**values))):
                return False
            for artefact in artefacts or ():
                session.merge(
                    ArtefactRow(job_id=claim.job_id, name=artefact.name, sha256=artefact.sha256, size=artefact.size)
                )
            _note(session, claim.job_id, "state", state)
            return True

    def give_back(self, claim: ClaimedJob, *, crashed: bool) -> None:
        """Returns a job to the queue; one that crashed too often fails instead."""
        with Session(self._engine) as session, session.begin():
            row = session.scalar(select(JobRow).where(_held(claim)).with_for_update())
            if row is None:
                return
            row.crashes += crashed
            row.worker = row.lease_until = None
            if row.cancel:
                row.state, row.ended = "cancelled", time.time()
            elif row.crashes < MAX_CRASHES:
                row.state = "queued"
            else:
                row.state, row.ended = "failed", time.time()
                row.error = f"its process died {row.crashes} times; see its log"
            _note(session, row.id, "state", row.state)

    def release(self, worker: str) -> int:
        """Returns the jobs of workers that are known to be dead to the queue; returns their number.

        Args:
            worker: name of the worker, or its beginning up to a colon.
        """
        with Session(self._engine) as session, session.begin():
            # Worker 12 is not worker 123.
            named = or_(JobRow.worker == worker, JobRow.worker.startswith(f"{worker}:", autoescape=True))
            gone = and_(JobRow.state == "running", named)
            released = update(JobRow).where(gone).values(state="queued", worker=None, lease_until=None)
            return _changed(session.execute(released))

    def cancel(self, job_id: str) -> str:
        """Cancels a job: at once if it waits, else as soon as its worker hears of it; returns its state."""
        with Session(self._engine) as session, session.begin():
            row = _find(session, job_id)
            if row.state == "queued":
                row.state, row.ended, row.cancel = "cancelled", time.time(), True
                _note(session, job_id, "state", "cancelled")
            elif row.state == "running":
                row.cancel = True
            return row.state

    def retry(self, job_id: str) -> str:
        """Puts a failed or cancelled job back into the queue; it goes on from what it had stored.

        Raises:
            ProblemError: the job has not ended, or has succeeded.
        """
        with Session(self._engine) as session, session.begin():
            row = _find(session, job_id)
            if row.state not in ("failed", "cancelled"):
                raise ProblemError(
                    409, "not-retryable", f"job {job_id} is {row.state}; only failed or cancelled jobs retry"
                )
            row.state, row.ended, row.cancel, row.crashes, row.error = "queued", None, False, 0, None
            _note(session, job_id, "state", "queued")
            return row.state

    def get(self, job_id: str) -> dict[str, Any]:
        """A job as JSON object, with its artefacts.

        Raises:
            ProblemError: there is no such job.
        """
        with Session(reading(self._engine)) as session:
            row = _find(session, job_id, lock=False)
            found = session.scalars(select(ArtefactRow).where(ArtefactRow.job_id == job_id).order_by(ArtefactRow.name))
            artefacts = [{"name": a.name, "sha256": a.sha256, "size": a.size} for a in found]
            return _as_json(row) | {"artefacts": artefacts}

    def all(self, *, state: str | None = None, before: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Jobs as JSON objects, newest first.

        Args:
            state: of these only.
            before: jobs that were submitted before this one.
            limit: greatest number of them.

        Raises:
            ProblemError: there is no job `before`.
        """
        wanted = select(JobRow).order_by(*_NEWEST).limit(limit)
        if state is not None:
            wanted = wanted.where(JobRow.state == state)
        with Session(reading(self._engine)) as session:
            if before is not None:
                row = _find(session, before, lock=False)
                wanted = wanted.where(tuple_(JobRow.created, JobRow.id) < tuple_(row.created, row.id))
            return [_as_json(row) for row in session.scalars(wanted)]

    def validations(self, policies: Sequence[str]) -> list[dict[str, Any]]:
        """The latest finished validation of each of these policies, as JSON objects; of some there may be none."""
        place = func.row_number().over(partition_by=JobRow.policy, order_by=_NEWEST).label("place")
        finished = (JobRow.kind == "validate", JobRow.state == "succeeded", JobRow.policy.in_(policies))
        ranked = select(JobRow.id, place).where(*finished).subquery()
        wanted = select(JobRow).join(ranked, JobRow.id == ranked.c.id).where(ranked.c.place == 1)
        with Session(reading(self._engine)) as session:
            return [_as_json(row) for row in session.scalars(wanted)]

    def counts(self) -> dict[str, int]:
        """Number of jobs by state."""
        with Session(reading(self._engine)) as session:
            counted = session.execute(select(JobRow.state, func.count()).group_by(JobRow.state)).all()
            return dict.fromkeys(STATES, 0) | dict(row.tuple() for row in counted)

    def events(self, job_id: str, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Progress of a job after an event's number, oldest first."""
        with Session(reading(self._engine)) as session:
            wanted = select(JobEventRow).where(JobEventRow.job_id == job_id, JobEventRow.id > after)
            rows = session.scalars(wanted.order_by(JobEventRow.id).limit(limit))
            return [{"id": row.id, "time": row.time, "kind": row.kind, "text": row.text} for row in rows]


def _held(claim: ClaimedJob) -> Any:
    return and_(JobRow.id == claim.job_id, JobRow.attempt == claim.attempt, JobRow.state == "running")


def _changed(result: Any) -> int:
    assert isinstance(result, CursorResult)
    return result.rowcount


def _find(session: Session, job_id: str, *, lock: bool = True) -> JobRow:
    wanted = select(JobRow).where(JobRow.id == job_id)
    wanted = wanted.with_for_update() if lock else wanted
    # Not every text is one that PostgreSQL can look for.
    row = session.scalar(wanted) if IDENTIFIER.fullmatch(job_id) else None
    if row is None:
        raise ProblemError(404, "unknown-job", f"job {job_id[:40]!r} does not exist; see /v1/jobs")
    return row


def _note(session: Session, job_id: str, kind: str, text: str, at: float | None = None) -> None:
    when = time.time() if at is None else at
    session.add(JobEventRow(job_id=job_id, time=when, kind=kind, text=text[:MAX_EVENT_CHARACTERS]))


def _now(session: Session) -> float:
    """Time by which leases end [s since 1970]: that of PostgreSQL, for clocks of several computers may differ."""
    if session.get_bind().dialect.name != "postgresql":
        return time.time()
    return float(session.scalar(select(func.extract("epoch", func.clock_timestamp()))) or math.nan)


def _as_json(row: JobRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "spec": json.loads(row.spec),
        "state": row.state,
        "attempt": row.attempt,
        "worker": row.worker,
        "cancel_requested": row.cancel,
        "created": row.created,
        "started": row.started,
        "ended": row.ended,
        "result": None if row.result is None else json.loads(row.result),
        "error": row.error,
        "submitted_by": row.submitted_by,
    }
