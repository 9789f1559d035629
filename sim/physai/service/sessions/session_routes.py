"""Sessions over HTTP with JSON, and over a WebSocket with msgpack."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field

from physai.sdk.base.plugins import contributions
from physai.sdk.evidence.verdict import Sha256
from physai.service.auth.access import Caller, admit, requires
from physai.service.client.wire import WireError, pack, unpack
from physai.service.problems import ProblemError, invalid
from physai.service.sessions.json_values import as_json
from physai.service.sessions.manager import INTERFACES, SessionManager
from physai.service.sessions.session import MAX_SEED, Message, Session
from physai.service.sessions.worlds import WorldsOptions
from physai.sim.tasks.registry import task_names

CLOSED_BY_SERVICE = 4404
"""WebSocket close code: the session does not exist (any more)."""
REFUSED = 4403
"""WebSocket close code: wrong token."""

Token = Annotated[str, Header(alias="x-session-token", max_length=128)]


class StrictBody(BaseModel):
    """A request body; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class CreateSession(StrictBody):
    """Worlds of one task."""

    task: Annotated[str, Field(max_length=256, json_schema_extra={"enum": [*task_names()]})]
    preset: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    robot: Annotated[Sha256 | None, Field(description="a registered robot instead of the task's own")] = None
    interface: Annotated[
        str,
        Field(
            description="targets: joint targets in, sensor fields out; policy: outputs and observations of the network",
            max_length=64,
            json_schema_extra={"enum": [*sorted(contributions(INTERFACES))]},
        ),
    ] = "targets"
    worlds: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    randomise: bool = True
    training: bool = False
    action_repeat: Annotated[int, Field(ge=1, le=100)] = 1


class Reset(StrictBody):
    """Start new episodes in all worlds."""

    seed: Annotated[int | None, Field(ge=0, le=MAX_SEED)] = None
    seq: int | None = None


class Step(StrictBody):
    """One action per world; nested lists of numbers by the names that the session's description gives."""

    actions: dict[str, list[Any]]
    seq: int | None = None


class Restore(StrictBody):
    """A snapshot taken before."""

    snapshot: Annotated[str, Field(max_length=64)]
    seq: int | None = None


def session_routes(manager: SessionManager, executor: Executor, *, robot_path: Callable[[str], Path]) -> APIRouter:
    """The routes below `/v1/sessions`; `robot_path` finds a registered robot by its hash."""
    router = APIRouter(prefix="/v1/sessions", tags=["sessions"])
    may_run = [requires("run")]

    async def run(session: Session, message: Message) -> Message:
        loop = asyncio.get_running_loop()
        return as_json(await loop.run_in_executor(executor, session.handle, message))

    @router.post("", status_code=201)
    async def create_session(body: CreateSession, caller: Caller) -> dict[str, Any]:
        """Creates a session. Its `token` is returned only here; each use of the session needs it."""
        caller.require("run")

        def create() -> Session:
            robot = robot_path(body.robot) if body.robot else None
            options = WorldsOptions(**body.model_dump(exclude={"interface", "robot"}), robot=robot)
            return manager.create(options, body.interface)

        session = await asyncio.get_running_loop().run_in_executor(executor, create)
        return session.describe() | {"token": session.token}

    @router.get("", dependencies=[requires("read")])
    async def list_sessions() -> list[dict[str, Any]]:
        """Open sessions, oldest first."""
        return [session.describe() for session in manager.all()]

    @router.get("/{identifier}", dependencies=[requires("read")])
    async def get_session(identifier: str) -> dict[str, Any]:
        """Task of a session, and the arrays that its steps take and return."""
        return manager.get(identifier).describe()

    @router.delete("/{identifier}", status_code=204, dependencies=may_run)
    async def close_session(identifier: str, token: Token) -> None:
        """Closes a session."""
        manager.use(identifier, token)
        manager.close(identifier)

    @router.post("/{identifier}/reset", dependencies=may_run)
    async def reset(identifier: str, body: Reset, token: Token) -> dict[str, Any]:
        """Starts a new episode in every world (`ResetSimulation`)."""
        return await run(manager.use(identifier, token), {"op": "reset", **body.model_dump(exclude_none=True)})

    @router.post("/{identifier}/step", dependencies=may_run)
    async def step(identifier: str, body: Step, token: Token) -> dict[str, Any]:
        """Advances every world by one step (`StepSimulation`)."""
        return await run(manager.use(identifier, token), _step_message("step", body))

    @router.post("/{identifier}/steps", dependencies=may_run)
    async def steps(identifier: str, body: Step, token: Token) -> dict[str, Any]:
        """Advances every world by one step per row of the actions (`SimulateSteps`)."""
        return await run(manager.use(identifier, token), _step_message("steps", body))

    @router.post("/{identifier}/play", dependencies=may_run)
    async def play(identifier: str, body: Step, token: Token) -> dict[str, Any]:
        """Steps in real time, holding the actions, until paused (`SetSimulationState` with PLAYING)."""
        return await run(manager.use(identifier, token), _step_message("play", body))

    @router.post("/{identifier}/pause", dependencies=may_run)
    async def pause(identifier: str, token: Token) -> dict[str, Any]:
        """Stops stepping in real time (`SetSimulationState` with PAUSED); sessions begin paused."""
        return await run(manager.use(identifier, token), {"op": "pause"})

    @router.get("/{identifier}/state", dependencies=may_run)
    async def state(identifier: str, token: Token) -> dict[str, Any]:
        """True state of every world (`GetSimulationState`)."""
        return await run(manager.use(identifier, token), {"op": "state"})

    @router.post("/{identifier}/snapshot", dependencies=may_run)
    async def snapshot(identifier: str, token: Token) -> dict[str, Any]:
        """Keeps the state of all worlds in the service."""
        return await run(manager.use(identifier, token), {"op": "snapshot"})

    @router.post("/{identifier}/restore", dependencies=may_run)
    async def restore(identifier: str, body: Restore, token: Token) -> dict[str, Any]:
        """Returns to a snapshot, bit for bit."""
        return await run(manager.use(identifier, token), {"op": "restore", **body.model_dump(exclude_none=True)})

    @router.websocket("/{identifier}/ws")
    async def stream(socket: WebSocket, identifier: str, token: str = "") -> None:
        await _serve(socket, manager, executor, identifier, token)

    return router


def _step_message(operation: str, body: Step) -> Message:
    actions: dict[str, Any] = {}
    for name, rows in body.actions.items():
        try:
            actions[name] = np.array(rows, np.float64)
        except (ValueError, TypeError, OverflowError):
            raise invalid(f"action {name[:80]!r} is no rectangular array of numbers") from None
    return {"op": operation, "actions": actions} | ({} if body.seq is None else {"seq": body.seq})


async def _serve(socket: WebSocket, manager: SessionManager, executor: Executor, identifier: str, token: str) -> None:
    """One client's WebSocket: a request per binary message, answered in order."""
    if not await admit(socket, "run"):
        return
    await socket.accept()
    try:
        session = manager.use(identifier, token)
    except ProblemError as problem:
        await socket.close(CLOSED_BY_SERVICE if problem.status == 404 else REFUSED, problem.detail[:120])
        return
    session.connections += 1
    session.lost = None
    loop = asyncio.get_running_loop()
    closed = False
    try:
        while True:
            data = await socket.receive_bytes()
            if session is not manager.peek(identifier):
                await socket.close(CLOSED_BY_SERVICE, "the session was closed")
                closed = True
                return
            reply, closed = await loop.run_in_executor(executor, _answer, session, data)
            await socket.send_bytes(reply)
            if closed:
                manager.close(identifier)
                await socket.close()
                return
    except (WebSocketDisconnect, KeyError):
        # KeyError: a text message, which this protocol has none of.
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(1003, "send msgpack maps as binary messages")
    finally:
        session.connections -= 1
        session.lost = None if closed else time.monotonic()


def _answer(session: Session, data: bytes) -> tuple[bytes, bool]:
    """The reply to one message, and whether it closes the session."""
    sequence: object = None
    try:
        message = unpack(data)
        sequence = message.get("seq")
        if message.get("op") == "close":
            return pack({"seq": sequence}), True
        return pack({"seq": sequence, **session.handle(message)}), False
    except WireError as error:
        problem = ProblemError(400, "malformed", str(error))
    except ProblemError as refused:
        problem = refused
    return pack({"seq": sequence if isinstance(sequence, int) else None, "problem": problem.document("")}), False
