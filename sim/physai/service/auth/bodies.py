"""Nothing of a request's body is read before its sender is known, and no more of it than the limit."""

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from physai.service.auth.access import Access
from physai.service.problems import STORAGE_ERRORS, ProblemError, answer, storage_away

READING = frozenset({"GET", "HEAD", "OPTIONS"})
SMALL_BYTES = 1 << 20
SMALL = ("/v1/jobs", "/v1/installations", "/v1/registry", "/v1/robots/")
"""Paths of which no request needs more than `SMALL_BYTES`; their JSON is parsed while all other requests wait."""


class GuardBodies:
    """ASGI middleware: the framework reads a whole body into memory before it asks who sent it."""

    def __init__(self, app: ASGIApp, *, access: Access, limit: int) -> None:
        """Wraps an application; `limit` is in bytes."""
        self._app = app
        self._access = access
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, with a body that ends in an error if it is too large."""
        if scope["type"] != "http" or scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        try:
            # In a thread: it may ask the database, which may not answer.
            await run_in_threadpool(self._access.identify, HTTPConnection(scope))
        except ProblemError as error:
            await answer(error)(scope, receive, send)
            return
        except STORAGE_ERRORS as error:
            await answer(storage_away(error))(scope, receive, send)
            return
        received, limit = 0, self._limit
        if scope["path"].startswith(SMALL):
            limit = min(limit, SMALL_BYTES)

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                # The one exception that the framework lets through while it reads.
                raise HTTPException(413, f"the body exceeds {limit} bytes, the limit of such a request")
            return message

        await self._app(scope, bounded, send)
