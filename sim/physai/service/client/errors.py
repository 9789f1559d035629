"""Errors that the service answers refused requests with."""

from typing import Any, cast

from physai.sdk.base.errors import PhysaiError

PROBLEM_PREFIX = "urn:physai:problem:"


class ServiceError(PhysaiError):
    """The service refused a request, or cannot be reached.

    Attributes:
        status: HTTP status code; 0 if there was no answer.
        kind: stable name of the problem, such as `unknown-session`.
    """

    def __init__(self, message: str, *, status: int = 0, kind: str = "unreachable") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    @classmethod
    def from_document(cls, document: object) -> "ServiceError":
        """The error that a problem document describes."""
        if not isinstance(document, dict):
            return cls(f"the service sent no problem document: {document!r:.200}", kind="malformed")
        fields = cast("dict[str, Any]", document)
        kind = str(fields.get("type", "")).removeprefix(PROBLEM_PREFIX)
        status = fields.get("status")
        detail = str(fields.get("detail", fields.get("title", "refused")))
        return cls(detail, status=status if isinstance(status, int) else 0, kind=kind)
