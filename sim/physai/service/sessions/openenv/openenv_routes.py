"""Every built-in task in the OpenEnv protocol, below `/openenv/{profile}/{task}`."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from physai.service.auth.access import admit, requires
from physai.service.problems import ProblemError
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.openenv import mcp
from physai.service.sessions.openenv.connection import EpisodeConnection, serve
from physai.service.sessions.openenv.episodes import Episode, Profile, open_episode, state
from physai.service.sessions.openenv.schemas import schemas
from physai.service.sessions.session import MAX_SEED
from physai.service.settings import ServiceLimits
from physai.sim.tasks.registry import load_task, task_names

PREFIX = "/openenv/{profile}/{task}"
# Task files are code and are not served; see `load_served_task`.
Task = Annotated[str, Path(max_length=128, json_schema_extra={"enum": [*task_names()]})]


class ResetBody(BaseModel):
    """Parameters of an episode; unknown ones are ignored, as the protocol wants."""

    model_config = ConfigDict(extra="allow")

    seed: Annotated[int | None, Field(ge=0, le=MAX_SEED, strict=True)] = None
    episode_id: Annotated[str | None, Field(max_length=255)] = None


class StepBody(BaseModel):
    """An action for a new episode."""

    model_config = ConfigDict(extra="allow")

    action: dict[str, Any]


def openenv_routes(manager: SessionManager, executor: Executor, limits: ServiceLimits) -> APIRouter:
    """The routes of the protocol."""
    router = APIRouter(prefix=PREFIX, tags=["openenv"])
    skill_sessions = mcp.SkillSessions(manager)
    may_run = [requires("run")]

    async def once(task: str, profile: Profile, use: Callable[[Episode], dict[str, Any]]) -> dict[str, Any]:
        """Over HTTP the protocol has no sessions: each request has an environment of its own."""

        def run() -> dict[str, Any]:
            episode = open_episode(manager, task, profile)
            try:
                return use(episode)
            finally:
                manager.close(episode.session.identifier)

        return await asyncio.get_running_loop().run_in_executor(executor, run)

    @router.get("/health")
    async def health(profile: Profile, task: Task) -> dict[str, str]:
        """Whether the task is served."""
        _require(task)
        return {"status": "healthy"}

    @router.get("/metadata", dependencies=[requires("read")])
    def metadata(profile: Profile, task: Task) -> dict[str, str]:
        """Name and description."""
        _require(task)
        return {"name": task, "description": load_task(task).summary, "version": "1", "author": "physai"}

    @router.get("/schema", dependencies=[requires("read")])
    async def schema(profile: Profile, task: Task) -> dict[str, Any]:
        """JSON Schemas of actions, observations and state."""
        _require(task)
        return await once(task, profile, lambda episode: schemas(episode, profile))

    @router.post("/reset", dependencies=may_run)
    async def reset(profile: Profile, task: Task, body: ResetBody) -> dict[str, Any]:
        """First observation of a new episode, which ends with this request; sessions live on `WS …/ws`."""
        return await once(task, profile, lambda episode: episode.reset(body.model_dump(exclude_none=True)))

    @router.post("/step", dependencies=may_run)
    async def step(profile: Profile, task: Task, body: StepBody) -> dict[str, Any]:
        """One step of a new episode; sessions live on `WS …/ws`."""

        def use(episode: Episode) -> dict[str, Any]:
            episode.reset({})
            return episode.step(body.action)

        return await once(task, profile, use)

    @router.get("/state", dependencies=may_run)
    async def get_state(profile: Profile, task: Task) -> dict[str, Any]:
        """State of a new episode; sessions live on `WS …/ws`."""
        return await once(task, profile, state)

    @router.post("/mcp", dependencies=may_run, response_model=None)
    async def call(
        profile: Profile,
        task: Task,
        request: Request,
        session: Annotated[str | None, Header(alias="mcp-session-id")] = None,
    ) -> Response:
        """Model Context Protocol: the tools of the skills profile."""
        _require(task)
        try:
            message: object = from_json(await request.body(), allow_inf_nan=False)
        except ValueError:
            return JSONResponse(mcp.error({}, mcp.PARSE_ERROR, "the body is no JSON"))
        loop = asyncio.get_running_loop()
        reply, created = await loop.run_in_executor(executor, mcp.answer, skill_sessions, task, message, session)
        headers = {"mcp-session-id": created} if created else None
        return Response(status_code=202) if reply is None else JSONResponse(reply, headers=headers)

    @router.get("/openapi.json", include_in_schema=False)
    def document(profile: Profile, task: Task, request: Request) -> dict[str, Any]:
        whole = request.app.openapi()
        paths = {path.removeprefix(PREFIX): item for path, item in whole["paths"].items() if path.startswith(PREFIX)}
        return whole | {"info": {"title": f"physai {task}", "version": "1.0"}, "paths": paths}

    @router.websocket("/ws")
    async def connect(socket: WebSocket, profile: Profile, task: str, session_id: str | None = None) -> None:
        if not await admit(socket, "run"):
            return
        try:
            # A tool client that made its session over HTTP steps it here too.
            attached = None if session_id is None else skill_sessions.get(session_id)
        except ProblemError as problem:
            await socket.close(1008, problem.detail[:120])
            return
        await socket.accept()

        def make(worlds: int) -> Episode:
            if profile != "batch" and worlds != 1:
                raise ProblemError(422, "invalid", f"profile {profile} has one world, got worlds={worlds}; use batch")
            return open_episode(manager, task, profile, worlds=worlds)

        connection = EpisodeConnection(manager, make, episode=attached)
        await serve(socket, connection, executor, idle_s=limits.idle_s)

    return router


def _require(task: str) -> None:
    if task not in task_names():
        raise ProblemError(404, "unknown-task", f"there is no task {task!r:.80}; there are {', '.join(task_names())}")
