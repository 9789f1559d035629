"""Installations on robots, as reported by those who flash them: a log, and what follows from it for each unit.

A report is the word of whoever holds a token, not the robot's: a robot may have gone back since, or run something else.
"""

import threading
import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from sqlalchemy import Engine, ScalarSelect, delete, exists, func, select
from sqlalchemy.orm import Session, aliased

from physai.compute.database import reading
from physai.sdk.bundle.manifest import MAX_VERSION
from physai.sdk.contract.robot import Name
from physai.sdk.evidence.verdict import Sha256
from physai.service.database.tables import InstallationRow
from physai.service.sessions.session_routes import StrictBody

KEPT_PER_UNIT = 50
"""Reports of one unit that are kept, besides the one that says what it runs; the oldest go first."""
MAX_UNITS = 10_000
"""Units that are kept, as many as a fleet file may have; those without a report for the longest time go first."""

Outcome = Literal["unchanged", "on-trial", "committed", "rolled-back", "failed"]
RUNNING = ("unchanged", "on-trial", "committed")
"""Outcomes after which the unit runs the bundle."""


def _is_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has control characters; send one line of printable text")
    return text


Unit = Annotated[str, Field(pattern=r"^[!-~]{1,300}$", description="the robot's host and port, as for ssh")]


class InstallationReport(StrictBody):
    """The outcome of one flash of one robot."""

    unit: Unit
    bundle: Sha256
    policy: Annotated[Sha256, Field(description="the bundle's policy.onnx")]
    task: Name
    version: Annotated[int, Field(ge=0, le=MAX_VERSION)]
    outcome: Outcome
    reason: Annotated[str, Field(max_length=1000), AfterValidator(_is_printable)] = ""


class Installations:
    """All reports; may be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = threading.Lock()

    def add(self, report: InstallationReport, *, by: str) -> dict[str, Any]:
        """Stores a report; returns it with its time.

        Args:
            report: what happened.
            by: name of the token.
        """
        now = time.time()
        running = _running(report.unit)
        # One at a time: each says what the unit runs by those before it.
        with self._turn, Session(self._engine) as session, session.begin():
            if session.scalar(select(InstallationRow.id).where(InstallationRow.unit == report.unit).limit(1)) is None:
                _make_room(session)
            before = session.scalar(select(InstallationRow).where(InstallationRow.id == running))
            goes_on = before is not None and before.bundle == report.bundle and report.outcome in RUNNING
            since = before.since if before is not None and goes_on else now
            row = InstallationRow(**report.model_dump(), since=since, time=now, reported_by=by)
            session.add(row)
            session.flush()
            row.runs = session.scalar(select(running))
            _trim(session, row)
            return _as_json(row)

    def all(self, *, unit: str | None, limit: int) -> list[dict[str, Any]]:
        """Reports, newest first; of one unit, or of all."""
        wanted = select(InstallationRow).order_by(InstallationRow.id.desc()).limit(limit)
        if unit is not None:
            wanted = wanted.where(InstallationRow.unit == unit)
        with Session(reading(self._engine)) as session:
            return [_as_json(row) for row in session.scalars(wanted)]

    def units(self) -> list[dict[str, Any]]:
        """Each unit by name, its latest report, and the report of what it runs (None if there is none)."""
        latest = select(func.max(InstallationRow.id)).group_by(InstallationRow.unit)
        runs = aliased(InstallationRow)
        wanted = select(InstallationRow, runs).outerjoin(runs, InstallationRow.runs == runs.id)
        with Session(reading(self._engine)) as session:
            rows = session.execute(wanted.where(InstallationRow.id.in_(latest)).order_by(InstallationRow.unit))
            return [
                {"unit": row.unit, "latest": _as_json(row), "runs": _as_json(running) if row.runs else None}
                for row, running in rows
            ]


def _running(unit: str) -> ScalarSelect[Any]:
    """Number of the report of what a unit runs: the last that was not followed by the bundle's rollback."""
    row, back = aliased(InstallationRow), aliased(InstallationRow)
    undone = exists().where(
        back.unit == row.unit, back.bundle == row.bundle, back.id > row.id, back.outcome == "rolled-back"
    )
    wanted = select(func.max(row.id)).where(row.unit == unit, row.outcome.in_(RUNNING), ~undone)
    return wanted.scalar_subquery()


def _trim(session: Session, latest: InstallationRow) -> None:
    """Deletes a unit's oldest reports, but not that of what it runs."""
    of_unit = InstallationRow.unit == latest.unit
    newest = select(InstallationRow.id).where(of_unit).order_by(InstallationRow.id.desc()).limit(KEPT_PER_UNIT)
    kept = InstallationRow.id.in_(newest) | (InstallationRow.id == (latest.runs or 0))
    session.execute(delete(InstallationRow).where(of_unit, ~kept))


def _make_room(session: Session) -> None:
    """Deletes a unit if there are as many as may be."""
    if (session.scalar(select(func.count(InstallationRow.unit.distinct()))) or 0) < MAX_UNITS:
        return
    by_age = select(InstallationRow.unit).group_by(InstallationRow.unit).order_by(func.max(InstallationRow.id))
    session.execute(delete(InstallationRow).where(InstallationRow.unit == session.scalar(by_age.limit(1))))


def _as_json(row: InstallationRow) -> dict[str, Any]:
    names = ("unit", "bundle", "policy", "task", "version", "outcome", "reason", "since", "time", "reported_by")
    return {name: getattr(row, name) for name in names}
