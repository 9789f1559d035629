"""Every request gets an identifier, a line in the log, and counts; those that change something are kept for audit."""

import json
import logging
import secrets
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from physai.sdk.base.terminal import printable
from physai.service.auth.bodies import READING
from physai.service.observe.audit import AuditLog
from physai.service.problems import REQUEST_ID, STORAGE_ERRORS

HEADER = b"x-request-id"
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
MAX_PATH = 512

log = logging.getLogger("physai.service")


_STEPS = ("/v1/sessions/{identifier}/", "/openenv/", "/v1/robots/{model}/{unit}/recordings/")
"""Begins of the routes of requests that are parts of something."""


class ObserveRequests:
    """ASGI middleware around the application; what passes an open WebSocket is not looked at."""

    def __init__(self, app: ASGIApp, *, metrics: CollectorRegistry, audit: AuditLog) -> None:
        """Wraps an application and registers its metrics."""
        self._app = app
        self._audit = audit
        labels = ("method", "route", "status")
        self._count = Counter("physai_http_requests", "Requests answered.", labels, registry=metrics)
        self._seconds = Histogram(
            "physai_http_request_seconds",
            "Time to the end of an answer.",
            labels[:2],
            buckets=BUCKETS_S,
            registry=metrics,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and records its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        REQUEST_ID.set(request_id)
        # Where nothing is sent, the application failed.
        status = 500
        start = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (HEADER, request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            await self._record(scope, request_id, status, time.perf_counter() - start)

    async def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        # All unknown paths share a label: a scanner must not fill the memory with new ones.
        template = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._count.labels(method, template, str(status)).inc()
        self._seconds.labels(method, template).observe(seconds)
        entry: dict[str, Any] = {
            "time": time.time(),
            "request_id": request_id,
            "token": getattr(scope.get("state", {}).get("identity"), "name", ""),
            "method": scope["method"][:8],
            # PostgreSQL refuses text with a NUL.
            "path": printable(scope["path"])[:MAX_PATH],
            "status": status,
        }
        log.info(json.dumps(entry | {"ms": round(1000.0 * seconds, 3)}))
        # Steps change nothing that lasts, and there are thousands per second; a recording is listed with its sender.
        lasting = method not in READING and not template.startswith(_STEPS)
        if (lasting and status < 400) or status in (401, 403):
            try:
                await run_in_threadpool(self._audit.add, entry)
            except STORAGE_ERRORS as error:
                # The answer is out already; what it was stands in the log, too.
                log.error("request %s is not in the audit log: %s", request_id, error)
