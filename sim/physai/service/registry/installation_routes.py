"""Reports of what robots run, over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from physai.service.auth.access import Caller, requires
from physai.service.registry.installations import InstallationReport, Installations, Unit


def installation_routes(installations: Installations) -> APIRouter:
    """The routes below `/v1/installations`."""
    router = APIRouter(prefix="/v1/installations", tags=["installations"])

    @router.post("", status_code=201)
    def report(body: InstallationReport, caller: Caller) -> dict[str, Any]:
        """Stores what a flash did to a robot: the caller's word, not the robot's."""
        caller.require("run")
        return installations.add(body, by=caller.name)

    @router.get("", dependencies=[requires("read")])
    def list_reports(
        unit: Annotated[Unit | None, Query()] = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> list[dict[str, Any]]:
        """Reports, newest first."""
        return installations.all(unit=unit, limit=limit)

    @router.get("/latest", dependencies=[requires("read")])
    def list_units() -> list[dict[str, Any]]:
        """Each unit's latest report, and the one that says what it runs."""
        return installations.units()

    return router
