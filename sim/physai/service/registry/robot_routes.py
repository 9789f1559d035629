"""Robots over HTTP: upload, list, read."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from physai.sdk.evidence.verdict import Sha256
from physai.service.auth.access import Caller, requires
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore
from physai.service.registry.registry import Registry
from physai.service.registry.robot_trial import CPU_S, QUICK_CPU_S, SlowRobotError
from physai.sim.robots.files.archive import MAX_NAME_CHARACTERS

WAIT_S = 60.0
"""Longest time that an upload waits for the compilation of others [s]."""

DETAILS = ("joints", "bodies", "actuators", "files")
"""What only a robot's own page shows."""


def robot_routes(registry: Registry, blobs: BlobStore, *, body_limit: int) -> APIRouter:
    """The routes below `/v1/robots`."""
    router = APIRouter(prefix="/v1/robots", tags=["robots"])
    # One at a time: each may take a processor and gigabytes, which the sessions need. A robot that takes long has a
    # turn of its own, so that others need not wait for it.
    turns = {QUICK_CPU_S: asyncio.Lock(), CPU_S: asyncio.Lock()}

    async def compiled(cpu_s: int, upload: Path, **options: Any) -> dict[str, Any]:
        turn = turns[cpu_s]
        try:
            await asyncio.wait_for(turn.acquire(), WAIT_S)
        except TimeoutError:
            raise ProblemError(503, "capacity", "other robots are being compiled; try again in a minute") from None
        try:
            return await asyncio.to_thread(registry.add_robot, upload, cpu_s=cpu_s, **options)
        finally:
            turn.release()

    @router.post("", status_code=201)
    async def add_robot(
        request: Request,
        caller: Caller,
        name: Annotated[
            str, Query(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$", description="of the robot in a single file")
        ] = "robot",
        main: Annotated[
            str | None, Query(max_length=MAX_NAME_CHARACTERS, description="path of the model in a zip with several")
        ] = None,
    ) -> dict[str, Any]:
        """Stores a robot: the body is an MJCF, a URDF, or a zip of one with its meshes and pictures."""
        caller.require("run")
        async with blobs.received(request.stream(), limit=body_limit) as upload:
            options = {"name": name, "main": main, "by": caller.name}
            try:
                return await compiled(QUICK_CPU_S, upload, **options)
            except SlowRobotError:
                return await compiled(CPU_S, upload, **options)

    @router.get("", dependencies=[requires("read")])
    def list_robots() -> list[dict[str, Any]]:
        """Robots, newest first."""
        return [{key: entry[key] for key in entry if key not in DETAILS} for entry in registry.all("robot")]

    @router.get("/{digest}", dependencies=[requires("read")])
    def get_robot(digest: Sha256) -> dict[str, Any]:
        """A robot's joints, bodies, actuators, mass and files."""
        return registry.get("robot", digest)

    return router
