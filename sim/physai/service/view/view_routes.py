"""3-D views over HTTP: a ticket for a session, and below it the viewer's page and WebSocket."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import viser
from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from physai.service.auth.access import requires
from physai.service.jobs.queue import JobQueue
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore
from physai.service.sessions.manager import SessionManager
from physai.service.view.live import HOST
from physai.service.view.replay import OpenReplay, load_replay
from physai.service.view.views import SessionSource, View, Views

PAGE = Path(viser.__file__).parent / "client" / "build" / "index.html"
MAX_FRAME_BYTES = 64 * 2**20
HEADERS = {"referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}


def view_routes(views: Views, manager: SessionManager, jobs: JobQueue, blobs: BlobStore) -> APIRouter:
    """The routes of 3-D views."""
    router = APIRouter(tags=["views"])

    @router.post("/v1/sessions/{identifier}/view", dependencies=[requires("read")])
    async def open_view(identifier: str) -> dict[str, Any]:
        """Begins a live 3-D view. Whoever has its address may look, until nobody has for a while."""
        return _describe(await views.open(identifier, SessionSource(manager.get(identifier), manager)))

    @router.post("/v1/replays", dependencies=[requires("read")])
    async def open_replay(body: OpenReplay) -> dict[str, Any]:
        """Shows what `play` jobs recorded, side by side and in step, again and again."""
        replay = await asyncio.to_thread(load_replay, body.jobs, jobs, blobs)
        return _describe(await views.open(" ".join(body.jobs), replay)) | {"outcomes": replay.outcomes}

    @router.get("/v1/views/{ticket}/", include_in_schema=False)
    async def page(ticket: str) -> FileResponse:
        views.find(ticket)
        return FileResponse(PAGE, media_type="text/html", headers=HEADERS)

    @router.websocket("/v1/views/{ticket}/")
    @router.websocket("/v1/views/{ticket}")
    async def stream(socket: WebSocket, ticket: str) -> None:
        try:
            view = views.find(ticket)
        except ProblemError as problem:
            await socket.close(1008, problem.detail)
            return
        # What browsers send could move things for everybody, or ask viser to share the view over the internet.
        await _pass_on(socket, view, view.live.port, both_ways=False)

    @router.websocket("/v1/views/{ticket}/foxglove")
    async def foxglove(socket: WebSocket, ticket: str) -> None:
        try:
            view = views.find(ticket)
            server = await views.foxglove(view)
        except ProblemError as problem:
            await socket.close(1008, problem.detail[:120])
            return
        await _pass_on(socket, view, server.port, both_ways=True)

    return router


def _describe(view: View) -> dict[str, Any]:
    url = f"/v1/views/{view.ticket}/"
    return {"url": url, "foxglove": f"{url}foxglove", "worlds": view.live.worlds}


async def _pass_on(socket: WebSocket, view: View, port: int, *, both_ways: bool) -> None:
    """Sends a client what a viewer's server sends, and the server what the client sends if both ways are open."""
    view.watchers += 1
    try:
        await _bridge(socket, port, both_ways)
    finally:
        view.watchers -= 1


async def _bridge(socket: WebSocket, port: int, both_ways: bool) -> None:
    protocols = [Subprotocol(name) for name in socket.scope.get("subprotocols", [])]
    address = f"ws://{HOST}:{port}"
    try:
        async with connect(address, subprotocols=protocols, max_size=MAX_FRAME_BYTES, compression=None) as server:
            await socket.accept(subprotocol=server.subprotocol)
            back = _receive(socket, server if both_ways else None)
            tasks = [asyncio.create_task(_forward(server, socket)), asyncio.create_task(back)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    except (OSError, WebSocketException):
        # The view ended.
        pass
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close()


async def _forward(server: ClientConnection, socket: WebSocket) -> None:
    async for message in server:
        await (socket.send_text(message) if isinstance(message, str) else socket.send_bytes(message))


async def _receive(socket: WebSocket, server: ClientConnection | None) -> None:
    while (message := await socket.receive())["type"] != "websocket.disconnect":
        if server is not None:
            await server.send(message.get("bytes") or message.get("text") or b"")
