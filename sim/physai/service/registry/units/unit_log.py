"""Log of the signed documents about each robot, and what follows from it: what the robot runs and how it fares."""

import json
import threading
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, delete, func, select, union
from sqlalchemy.orm import Session

from physai.compute.database import reading
from physai.sdk.signing.verify import parse_utc
from physai.service.database.tables import UnitDocumentRow, UnitRecordingRow
from physai.service.problems import ProblemError
from physai.service.registry.units.unit_documents import DocumentKind, UnitDocument

KEPT: dict[DocumentKind, int] = {"state": 500, "drift": 1000, "shadow": 50, "word": 50}
"""Documents of a kind, about one robot and of one role, that are kept; the oldest go first.

Words for the robot's model and for the unit are counted apart.
"""
MAX_UNITS = 10_000
"""Robots that are known at most."""
AHEAD_S = 300.0
"""How far a document may be issued after now, and a word's serial be ahead, by the service's clock [s]."""
SHOWN_SHADOWS = 10
"""Runs of shadows in an overview."""


class UnitLog:
    """All documents; may be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = threading.Lock()

    def add(self, robot: str, document: UnitDocument, data: bytes, *, by: str) -> int:
        """Store a verified document and return its number; the same claim is stored once.

        Args:
            robot: the unit.
            document: what was verified.
            data: its bytes.
            by: name of the token.

        Raises:
            ProblemError: it is from the future, older than all that are kept, or of one robot too many.
        """
        now = time.time()
        if not document.issued <= now + AHEAD_S:
            raise ProblemError(
                422,
                "refused",
                f"the document was issued {document.issued - now:.0f} s after now, by the clock of the service: set "
                "the clock of its signer",
            )
        # The serial of a word is the time of its issue.
        if document.kind == "word" and not document.rank <= now + AHEAD_S:
            raise ProblemError(
                422,
                "refused",
                f"the status document has serial {document.rank}, and serials are seconds since 1970, now {now:.0f}: "
                "issue it with `physai bundle revoke`",
            )
        row = UnitDocumentRow(
            robot=robot,
            kind=document.kind,
            role=document.role,
            signer=document.signer,
            issued=document.issued,
            rank=document.rank,
            digest=document.digest,
            facts=json.dumps(document.facts),
            document=data,
            received=now,
            received_by=by,
        )
        of_robot = UnitDocumentRow.robot == robot
        of_kind = [of_robot, UnitDocumentRow.kind == document.kind]
        # One at a time, so that none is added twice.
        with self._turn, Session(self._engine) as session, session.begin():
            same = select(UnitDocumentRow.id).where(*of_kind, UnitDocumentRow.digest == document.digest)
            known = session.scalar(same)
            if known is not None:
                return known
            require_known_or_place(session, robot)
            session.add(row)
            session.flush()
            kept = KEPT[document.kind]
            # JSON escapes quotes in texts, so that none of them holds this.
            named = UnitDocumentRow.facts.contains(
                json.dumps({"robot": document.facts["robot"]})[1:-1], autoescape=True
            )
            newest = select(UnitDocumentRow.id).where(*of_kind, UnitDocumentRow.role == document.role, named)
            newest = newest.order_by(UnitDocumentRow.rank.desc(), UnitDocumentRow.id.desc())
            surplus = session.scalars(newest.offset(kept)).all()
            if row.id in surplus:
                raise ProblemError(
                    409, "outdated", f"the document is older than the {kept} of its kind that are kept of {robot}"
                )
            session.execute(delete(UnitDocumentRow).where(UnitDocumentRow.id.in_(surplus)))
            return row.id

    def document(self, robot: str, entry: int) -> bytes:
        """The bytes of a document, which anyone can verify; raises ProblemError if there is none."""
        wanted = select(UnitDocumentRow).where(UnitDocumentRow.robot == robot, UnitDocumentRow.id == entry)
        with Session(reading(self._engine)) as session:
            row = session.scalar(wanted)
            if row is None:
                raise ProblemError(404, "unknown-document", f"no document {entry} of {robot} is kept")
            return row.document

    def drift(self, robot: str, *, before: int | None, limit: int) -> list[dict[str, Any]]:
        """Drift reports, newest first; only those of a smaller rank than `before` [s since 1970]."""
        with Session(reading(self._engine)) as session:
            return [_as_json(row) for row in _newest(session, robot, "drift", limit, before=before)]

    def names(self, *, after: str, limit: int) -> list[str]:
        """Robots of which there is anything, by name."""
        wanted = select(_KNOWN.c.robot).where(_KNOWN.c.robot > after).order_by(_KNOWN.c.robot).limit(limit)
        with Session(reading(self._engine)) as session:
            return list(session.scalars(wanted))

    def overview(self, robot: str) -> dict[str, Any]:
        """Overview of a robot: active bundle, verdict, drift, shadows and last recording.

        Raises:
            ProblemError: nothing is known of it.
        """
        with Session(reading(self._engine)) as session:
            states = _newest(session, robot, "state", 1)
            drifts = _newest(session, robot, "drift", 1)
            shadows = _newest(session, robot, "shadow", KEPT["shadow"])
            words = _newest(session, robot, "word", 2 * KEPT["word"])
            of_robot = select(UnitRecordingRow).where(UnitRecordingRow.robot == robot)
            recording = session.scalar(of_robot.order_by(UnitRecordingRow.id.desc()).limit(1))
            if not (states or drifts or shadows or words or recording):
                raise ProblemError(
                    404, "unknown-robot", f"nothing is known of {robot}: it has filed nothing; see /v1/robots/units"
                )
            state = _as_json(states[0]) if states else None
            active = state["active"] if state else None
            return {
                "robot": robot,
                "state": state and {name: state[name] for name in (*_ABOUT, "stand_in")},
                "active": active,
                "verdict": active and _verdict(active, words),
                "drift": _as_json(drifts[0]) if drifts else None,
                "shadows": _runs(shadows),
                "last_recording": recording and recording_json(recording),
            }


_KNOWN = union(select(UnitDocumentRow.robot), select(UnitRecordingRow.robot)).subquery()


def require_known_or_place(session: Session, robot: str) -> None:
    """Check that a robot is known, or that there is place for another one; raises ProblemError."""
    for row in (UnitDocumentRow, UnitRecordingRow):
        if session.scalar(select(row.id).where(row.robot == robot).limit(1)) is not None:
            return
    if (session.scalar(select(func.count()).select_from(_KNOWN)) or 0) >= MAX_UNITS:
        raise ProblemError(409, "capacity", f"{MAX_UNITS} robots are known already, as many as one service keeps")


def recording_json(row: UnitRecordingRow) -> dict[str, Any]:
    """A recording as JSON object."""
    return {name: getattr(row, name) for name in ("name", "sha256", "size", "received", "received_by")}


_ABOUT = ("entry", "issued", "role", "signer", "received", "received_by")


def _as_json(row: UnitDocumentRow) -> dict[str, Any]:
    # The time as the document says it.
    about = {name: getattr(row, name) for name in _ABOUT if name not in ("entry", "issued")}
    return {"issued": row.issued, **json.loads(row.facts), "entry": row.id, **about}


def _newest(
    session: Session, robot: str, kind: DocumentKind, limit: int, *, before: int | None = None
) -> Sequence[UnitDocumentRow]:
    wanted = select(UnitDocumentRow).where(UnitDocumentRow.robot == robot, UnitDocumentRow.kind == kind)
    if before is not None:
        wanted = wanted.where(UnitDocumentRow.rank < before)
    return session.scalars(wanted.order_by(UnitDocumentRow.rank.desc(), UnitDocumentRow.id.desc()).limit(limit)).all()


def _verdict(active: dict[str, Any], words: Sequence[UnitDocumentRow]) -> dict[str, Any] | None:
    """The verdict on the active bundle, its age, and what validators said of it since."""
    said = {"revoked": _said("revoked", active, words), "narrowed": _said("narrowed", active, words)}
    verdict = active["verdict"]
    if verdict is None:
        return None
    now = time.time()
    age_s = now - parse_utc(verdict["created"]).timestamp()
    return {**verdict, "age_s": round(age_s), "expired": now >= parse_utc(verdict["expires"]).timestamp(), **said}


def _said(which: str, active: dict[str, Any], words: Sequence[UnitDocumentRow]) -> dict[str, Any] | None:
    """The entry on the active bundle in the newest word for the robot's model, or in that for the unit."""
    newest: dict[str, dict[str, Any]] = {}
    for row in words:
        word = json.loads(row.facts)
        newest.setdefault(word["robot"], word)
    entries = (entry for word in newest.values() for entry in word[which])
    return next((entry for entry in entries if entry["bundle"] in (active["sha256"], active["manifest"])), None)


def _runs(shadows: Sequence[UnitDocumentRow]) -> list[dict[str, Any]]:
    """The newest evidence of each run, newest first."""
    runs: dict[str, dict[str, Any]] = {}
    for row in shadows:
        evidence = _as_json(row)
        known = runs.setdefault(evidence["run"], evidence)
        if evidence["ticks"] > known["ticks"]:
            runs[evidence["run"]] = evidence
    return list(runs.values())[:SHOWN_SHADOWS]
