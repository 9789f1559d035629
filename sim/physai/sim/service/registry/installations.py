"""What robots run, as reported by those who flash them: a log, and what follows from it for each unit.

A report is the word of whoever holds a token, not the robot's: a robot may have gone back since, or run something else.
"""

import time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from sqlalchemy import Engine, Select, delete, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from physai.sdk.bundle.manifest import MAX_VERSION
from physai.sdk.contract.robot import Name
from physai.sdk.evidence.verdict import Sha256
from physai.sim.service.database.tables import InstallationRow
from physai.sim.service.sessions.routes import Strict

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


class Report(Strict):
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

    def add(self, report: Report, *, by: str) -> dict[str, Any]:
        """Stores a report; returns it with its time.

        Args:
            report: what happened.
            by: name of the token.
        """
        now = time.time()
        of_unit = InstallationRow.unit == report.unit
        with Session(self._engine) as session, session.begin():
            if session.scalar(select(InstallationRow.id).where(of_unit).limit(1)) is None:
                _make_room(session)
            running = session.scalar(select(InstallationRow).where(InstallationRow.id.in_(_running().where(of_unit))))
            is_known = running is not None and running.bundle == report.bundle and report.outcome in RUNNING
            since = running.since if running is not None and is_known else now
            row = InstallationRow(**report.model_dump(), since=since, time=now, reported_by=by)
            session.add(row)
            session.flush()
            _trim(session, report.unit)
            return _as_json(row)

    def all(self, *, unit: str | None, limit: int) -> list[dict[str, Any]]:
        """Reports, newest first; of one unit, or of all."""
        wanted = select(InstallationRow).order_by(InstallationRow.id.desc()).limit(limit)
        if unit is not None:
            wanted = wanted.where(InstallationRow.unit == unit)
        with Session(self._engine) as session:
            return [_as_json(row) for row in session.scalars(wanted)]

    def units(self) -> list[dict[str, Any]]:
        """Each unit by name, its latest report, and the report of what it runs (None if there is none)."""
        latest = select(func.max(InstallationRow.id)).group_by(InstallationRow.unit)
        with Session(self._engine) as session:
            running = set(session.scalars(_running()))
            wanted = or_(InstallationRow.id.in_(latest), InstallationRow.id.in_(_running()))
            units: dict[str, dict[str, Any]] = {}
            for row in session.scalars(select(InstallationRow).where(wanted).order_by(InstallationRow.id)):
                unit = units.setdefault(row.unit, {"unit": row.unit, "runs": None})
                unit["latest"] = _as_json(row)
                if row.id in running:
                    unit["runs"] = unit["latest"]
        return [units[name] for name in sorted(units)]


def _running() -> Select[Any]:
    """Number of the report of what each unit runs: the last that was not followed by the bundle's rollback."""
    back = aliased(InstallationRow)
    is_same = (back.unit == InstallationRow.unit) & (back.bundle == InstallationRow.bundle)
    undone = exists().where(is_same, back.id > InstallationRow.id, back.outcome == "rolled-back")
    wanted = select(func.max(InstallationRow.id)).where(InstallationRow.outcome.in_(RUNNING), ~undone)
    return wanted.group_by(InstallationRow.unit)


def _trim(session: Session, unit: str) -> None:
    """Deletes a unit's oldest reports, but not that of what it runs."""
    of_unit = InstallationRow.unit == unit
    newest = select(InstallationRow.id).where(of_unit).order_by(InstallationRow.id.desc()).limit(KEPT_PER_UNIT)
    ids = InstallationRow.id.in_(newest) | InstallationRow.id.in_(_running().where(of_unit))
    session.execute(delete(InstallationRow).where(of_unit, ~ids))


def _make_room(session: Session) -> None:
    """Deletes a unit if there are as many as may be."""
    if (session.scalar(select(func.count(InstallationRow.unit.distinct()))) or 0) < MAX_UNITS:
        return
    by_age = select(InstallationRow.unit).group_by(InstallationRow.unit).order_by(func.max(InstallationRow.id))
    session.execute(delete(InstallationRow).where(InstallationRow.unit == session.scalar(by_age.limit(1))))


def _as_json(row: InstallationRow) -> dict[str, Any]:
    names = ("unit", "bundle", "policy", "task", "version", "outcome", "reason", "since", "time", "reported_by")
    return {name: getattr(row, name) for name in names}
