"""Robot units over HTTP: signed documents about them, what follows from these, and recordings that they upload."""

import asyncio
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.verdict import Sha256
from physai.sdk.signing.status.robot_state import MAX_LABEL
from physai.service.auth.access import Caller, requires
from physai.service.problems import ProblemError, invalid
from physai.service.registry.units.unit_documents import load_trust, read_unit_document
from physai.service.registry.units.unit_log import UnitLog
from physai.service.registry.units.unit_recordings import MAX_RECORDING_BYTES, UnitRecordings

_Model = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=MAX_LABEL)]
_Unit = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", max_length=MAX_LABEL)]


def _named(model: _Model, unit: _Unit) -> str:
    """The name of a unit in a path."""
    robot = f"{model}/{unit}"
    # The label of its key has no more characters, so that a longer name could be another robot's.
    if len(robot) > MAX_LABEL:
        raise invalid(f"the robot's name has {len(robot)} characters, at most {MAX_LABEL} are known here")
    return robot


Robot = Annotated[str, Depends(_named)]


def unit_routes(log: UnitLog, recordings: UnitRecordings, *, trust: FilePath | None) -> APIRouter:
    """The routes of robot units below `/v1/robots`.

    Args:
        log: signed documents.
        recordings: uploaded recordings.
        trust: trust file, read again for each document; None refuses all.
    """
    router = APIRouter(prefix="/v1/robots", tags=["units"])

    @router.get("/units", dependencies=[requires("read")])
    def list_units(
        after: Annotated[str, Query(max_length=MAX_LABEL, description="name of the last one before")] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        """Overviews of robots by name."""
        return [log.overview(robot) for robot in log.names(after=after, limit=limit)]

    @router.get("/{model}/{unit}", dependencies=[requires("read")])
    def get_unit(robot: Robot) -> dict[str, Any]:
        """Overview of a robot: active bundle, verdict, drift, shadows and last recording."""
        return log.overview(robot)

    @router.get("/{model}/{unit}/drift", dependencies=[requires("read")])
    def list_drift(
        robot: Robot,
        before: Annotated[int | None, Query(ge=0, le=2**53, description="issued before then [s since 1970]")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        """Reports of monitors on a robot, the one that was issued last first."""
        return log.drift(robot, before=before, limit=limit)

    @router.get("/{model}/{unit}/reports/{entry}", dependencies=[requires("read")], response_class=Response)
    def get_document(robot: Robot, entry: Annotated[int, Path(ge=1, le=2**53)]) -> Response:
        """A signed document, as it was filed."""
        headers = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}
        return Response(log.document(robot, entry), media_type="application/octet-stream", headers=headers)

    @router.post("/{model}/{unit}/reports")
    async def file_document(robot: Robot, request: Request, caller: Caller) -> dict[str, Any]:
        """Stores a signed document about a robot: its state, a drift report, shadow evidence or a validator's word."""
        caller.require("run")
        if trust is None:
            raise ProblemError(
                409, "no-trust", "this service has no trust file to verify documents by: start it with --trust FILE"
            )
        data = await request.body()
        entry = await asyncio.to_thread(_file, log, robot, data, trust, caller.name)
        return {"accepted": True, "entry": entry}

    @router.get("/{model}/{unit}/recordings", dependencies=[requires("read")])
    def list_recordings(robot: Robot, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[dict[str, Any]]:
        """Recordings of a robot, the one that arrived last first; `/v1/blobs` has their content."""
        return recordings.all(robot, limit=limit)

    @router.get("/{model}/{unit}/recordings/{sha256}", dependencies=[requires("run")])
    def get_progress(robot: Robot, sha256: Sha256) -> dict[str, Any]:
        """Progress of an upload: the bytes of a recording that have arrived."""
        return recordings.progress(robot, sha256)

    @router.post("/{model}/{unit}/recordings/{sha256}")
    async def append(
        robot: Robot,
        sha256: Sha256,
        request: Request,
        caller: Caller,
        name: Annotated[str, Query(max_length=128, description="file name of the recording")],
        size: Annotated[int, Query(ge=1, le=MAX_RECORDING_BYTES, description="bytes of the whole recording")],
        offset: Annotated[int, Query(ge=0, le=MAX_RECORDING_BYTES, description="where this part begins")],
    ) -> dict[str, Any]:
        """Adds the part of a recording that is the request's body; the last one stores it."""
        caller.require("run")
        data = await request.body()
        return await asyncio.to_thread(
            recordings.append, robot, sha256, data, name=name, size=size, offset=offset, by=caller.name
        )

    return router


def _file(log: UnitLog, robot: str, data: bytes, trust: FilePath, by: str) -> int:
    try:
        known = load_trust(trust)
    except PhysaiError as error:
        raise ProblemError(503, "no-trust", f"the service cannot use its trust file: {error}") from error
    try:
        document = read_unit_document(data, known, robot=robot)
    except PhysaiError as error:
        raise ProblemError(422, "refused", str(error)) from error
    return log.add(robot, document, data, by=by)
