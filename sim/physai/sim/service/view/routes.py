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

from physai.sim.service.auth.access import requires
from physai.sim.service.problems import ProblemError
from physai.sim.service.view.live import HOST
from physai.sim.service.view.views import View, Views

PAGE = Path(viser.__file__).parent / "client" / "build" / "index.html"
MAX_FRAME_BYTES = 64 * 2**20
HEADERS = {"referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}


def view_routes(views: Views) -> APIRouter:
    """The routes of 3-D views."""
    router = APIRouter(tags=["views"])

    @router.post("/v1/sessions/{identifier}/view", dependencies=[requires("read")])
    async def open_view(identifier: str) -> dict[str, Any]:
        """Begins a live 3-D view. Whoever has its address may look, until nobody has for a while."""
        view = await views.open(identifier)
        return {"url": f"/v1/views/{view.ticket}/", "worlds": view.live.worlds}

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
        view.watchers += 1
        try:
            await _pass_on(socket, view)
        finally:
            view.watchers -= 1

    return router


async def _pass_on(socket: WebSocket, view: View) -> None:
    """Sends a browser what the viewer's server sends; nothing goes the other way."""
    protocols = [Subprotocol(name) for name in socket.scope.get("subprotocols", [])]
    address = f"ws://{HOST}:{view.live.port}"
    try:
        async with connect(address, subprotocols=protocols, max_size=MAX_FRAME_BYTES, compression=None) as server:
            await socket.accept(subprotocol=server.subprotocol)
            tasks = [asyncio.create_task(_forward(server, socket)), asyncio.create_task(_discard(socket))]
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


async def _discard(socket: WebSocket) -> None:
    # What browsers send could move things for everybody, or ask viser to share the view over the internet.
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
