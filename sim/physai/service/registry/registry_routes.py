"""Stored files and the registry over HTTP."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse
from pydantic import Field

from physai.sdk.evidence.verdict import Sha256
from physai.service.auth.access import Caller, requires
from physai.service.registry.blobs import BlobStore
from physai.service.registry.registry import FileKind, Registry
from physai.service.sessions.session_routes import StrictBody


class Register(StrictBody):
    """A stored file to register."""

    sha256: Sha256
    golden: Annotated[Sha256 | None, Field(description="for a policy, its stored golden.npz")] = None
    robot: Annotated[Sha256 | None, Field(description="for a twin of an uploaded robot, that robot")] = None


def registry_routes(registry: Registry, blobs: BlobStore, *, body_limit: int) -> APIRouter:
    """The routes below `/v1/blobs` and `/v1/registry`."""
    router = APIRouter(prefix="/v1", tags=["registry"])

    @router.post("/blobs", status_code=201, dependencies=[requires("run")])
    async def upload(request: Request) -> dict[str, Any]:
        """Stores the request's body as it is; returns its SHA-256."""
        sha256, size = await blobs.put_stream(request.stream(), limit=body_limit)
        return {"sha256": sha256, "size": size}

    @router.get("/blobs/{sha256}", dependencies=[requires("read")], response_class=FileResponse)
    def download(sha256: Sha256) -> FileResponse:
        """A stored file."""
        # Never rendered: an uploaded page would run its scripts with the service's own origin.
        return FileResponse(
            blobs.path(sha256),
            media_type="application/octet-stream",
            headers={"content-security-policy": "sandbox", "x-content-type-options": "nosniff"},
        )

    @router.post("/registry/{kind}", status_code=201)
    async def register(kind: FileKind, body: Register, caller: Caller) -> dict[str, Any]:
        """Registers a stored file after checking it."""
        caller.require("run")
        return await asyncio.to_thread(
            registry.register, kind, body.sha256, golden=body.golden, robot=body.robot, by=caller.name
        )

    @router.get("/registry/{kind}", dependencies=[requires("read")])
    def list_entries(
        kind: FileKind,
        prefix: Annotated[str, Query(pattern=r"^[0-9a-f]{0,64}$", description="first digits of the SHA-256")] = "",
    ) -> list[dict[str, Any]]:
        """Entries, newest first."""
        return registry.all(kind, prefix=prefix)

    @router.get("/registry/{kind}/{sha256}", dependencies=[requires("read")])
    def get_entry(kind: FileKind, sha256: Sha256) -> dict[str, Any]:
        """One entry."""
        return registry.get(kind, sha256)

    return router
