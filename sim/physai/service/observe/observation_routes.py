"""Health, metrics and the audit log over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from physai.service.auth.access import requires
from physai.service.observe.audit import AuditLog
from physai.service.observe.readiness import Readiness


def observe_routes(readiness: Readiness, metrics: CollectorRegistry, audit: AuditLog) -> APIRouter:
    """The routes by which a service is watched."""
    router = APIRouter(tags=["service"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Answers as long as the process does."""
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Answers with success while the database answers, the disk has room and workers take jobs."""
        await readiness.require()
        return {"status": "ready"}

    @router.get("/metrics", dependencies=[requires("read")], response_class=Response)
    def prometheus() -> Response:
        """Requests, sessions, steps and jobs for Prometheus."""
        return Response(generate_latest(metrics), headers={"content-type": CONTENT_TYPE_LATEST})

    @router.get("/v1/audit", dependencies=[requires("admin")])
    def list_audit(
        before: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        """Requests that changed something, and refused ones, newest first."""
        return audit.entries(before=before, limit=limit)

    return router
