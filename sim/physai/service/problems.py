"""Errors of the service as RFC 9457 problem documents: every answer says what was wrong and what to do."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError

from physai.sdk.base.errors import PhysaiError

log = logging.getLogger("physai.service")

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Identifier of the request that is being answered."""
STORAGE = "storage"
"""Kind of the problem that database or disk is away."""
RETRY_AFTER_S = "2"
"""When to send a request again that was refused for now [s]."""
MEDIA_TYPE = "application/problem+json"


@dataclass
class ProblemError(PhysaiError):
    """An answer other than success.

    Attributes:
        status: HTTP status code.
        kind: stable name for programs, such as `unknown-session`.
        detail: what was wrong, with both values, and the way out.
    """

    status: int
    kind: str
    detail: str

    def __str__(self) -> str:
        return self.detail

    def document(self, request_id: str) -> dict[str, Any]:
        """The problem as JSON object."""
        return {
            "type": f"urn:physai:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            # A lone surrogate, which JSON may quote and UTF-8 cannot hold, is shown escaped.
            "detail": self.detail.encode("utf-8", "backslashreplace").decode(),
            "request_id": request_id,
        }


def answer(problem: ProblemError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A problem as response."""
    document = problem.document(REQUEST_ID.get())
    again = {"retry-after": RETRY_AFTER_S} if problem.status in (429, 503) else {}
    return JSONResponse(document, problem.status, headers=again | dict(headers or {}), media_type=MEDIA_TYPE)


STORAGE_ERRORS = (SQLAlchemyError, OSError)
"""What database and disk raise while they are away."""


def storage_away(error: Exception) -> ProblemError:
    """The answer to a request that needed the database or the disk while they are away; the log says which."""
    log.error("request %s: %s", REQUEST_ID.get(), error)
    text = "the service cannot store or read its data now; its log says why, and whether its disk is full; try again"
    return ProblemError(503, STORAGE, text)


_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "urn:physai:problem: and a stable name"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what was wrong, and the way out"},
        "request_id": {"type": "string"},
    },
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
    for status in (400, 401, 403, 404, 405, 409, 413, 422, 429, 503)
}
"""Answers that any request may get, for the OpenAPI document."""


def invalid(detail: str) -> ProblemError:
    """The request's content cannot be used."""
    return ProblemError(422, "invalid", detail)
