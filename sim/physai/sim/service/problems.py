"""Errors of the service as RFC 9457 problem documents: every answer says what was wrong and what to do."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from physai.sdk.base.errors import PhysaiError

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
            "detail": self.detail,
            "request_id": request_id,
        }


def invalid(detail: str) -> ProblemError:
    """The request's content cannot be used."""
    return ProblemError(422, "invalid", detail)
