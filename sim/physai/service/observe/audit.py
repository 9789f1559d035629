"""Record of changes and refusals, with their authors, in the database."""

import threading
import time
from typing import Any

from sqlalchemy import Engine, delete, func, select
from sqlalchemy.orm import Session

from physai.compute.database import reading
from physai.service.auth.rates import TokenBucket
from physai.service.database.tables import AuditRow

KEPT = 100_000
"""Entries that are kept; the oldest go first."""
TRIM_EVERY = 1000
REFUSALS_PER_S = 1.0
"""Refused requests that are kept on average; whoever guesses tokens must not push out the other entries."""


class AuditLog:
    """Requests that changed something, and refused ones; may be used from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._refusals = TokenBucket(REFUSALS_PER_S, burst=60)
        self._added = 0

    def add(self, entry: dict[str, Any]) -> None:
        """Stores `time`, `request_id`, `token`, `method`, `path` and `status` of a request."""
        with self._lock:
            if entry["status"] >= 400 and not self._refusals.take():
                return
            self._added += 1
            trim = self._added % TRIM_EVERY == 0
        with Session(self._engine) as session, session.begin():
            session.add(AuditRow(**entry))
            if trim:
                newest = session.scalar(select(func.max(AuditRow.id))) or 0
                session.execute(delete(AuditRow).where(AuditRow.id <= newest - KEPT))

    def entries(self, *, before: float | None, limit: int) -> list[dict[str, Any]]:
        """Entries older than a time [s since 1970], newest first."""
        with Session(reading(self._engine)) as session:
            wanted = select(AuditRow).where(AuditRow.time < (time.time() + 1.0 if before is None else before))
            rows = session.scalars(wanted.order_by(AuditRow.id.desc()).limit(limit))
            return [
                {name: getattr(row, name) for name in ("time", "request_id", "token", "method", "path", "status")}
                for row in rows
            ]
