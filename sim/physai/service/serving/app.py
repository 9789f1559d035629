"""The service as an ASGI application."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from physai.compute.sandbox.reward import UserReward
from physai.sdk.base.errors import PhysaiError
from physai.service.auth.access import Access, is_loopback
from physai.service.auth.bodies import GuardBodies
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.database.hold import StoreHold
from physai.service.database.store import bind_store
from physai.service.jobs.executor import JobExecutor, LocalExecutor
from physai.service.jobs.job_routes import job_routes
from physai.service.jobs.queue import JobQueue
from physai.service.observe.audit import AuditLog
from physai.service.observe.metrics import ServiceCollector
from physai.service.observe.observation_routes import observe_routes
from physai.service.observe.readiness import Readiness
from physai.service.observe.requests import ObserveRequests
from physai.service.problems import DOCUMENTED, ProblemError, answer, storage_away
from physai.service.registry.blobs import BlobStore
from physai.service.registry.installation_routes import installation_routes
from physai.service.registry.installations import Installations
from physai.service.registry.registry import Registry
from physai.service.registry.registry_routes import registry_routes
from physai.service.registry.robot_routes import robot_routes
from physai.service.registry.units.unit_log import UnitLog
from physai.service.registry.units.unit_recordings import UnitRecordings
from physai.service.registry.units.unit_routes import unit_routes
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.openenv.openenv_routes import openenv_routes
from physai.service.sessions.session_routes import session_routes
from physai.service.settings import ServiceSettings
from physai.service.view.page.page_routes import page_routes
from physai.service.view.preferences.preference_routes import preference_routes
from physai.service.view.recording_routes import recording_routes
from physai.service.view.view_routes import view_routes
from physai.service.view.views import Views

log = logging.getLogger("physai.service")

REAP_PERIOD_S = 1.0
PLAY_PERIOD_S = 0.01
CLEAR_PERIOD_S = 600.0


def create_app(
    settings: ServiceSettings,
    *,
    hold: StoreHold | None = None,
    executor: JobExecutor | None = None,
    rewards: Mapping[str, UserReward] | None = None,
) -> FastAPI:
    """Builds the application; it owns its threads, sessions and workers from startup to shutdown.

    Args:
        settings: see `ServiceSettings`.
        hold: the lock of the store, without which no jobs run; None if no other service can be there.
        executor: what runs the jobs; worker processes of this machine if None.
        rewards: rewards of OpenEnv's episodes in place of the task's, by its name; they stay the caller's.

    Raises:
        PhysaiError: database or data folder cannot be used, or do not belong together.
    """
    engine = open_database(settings.database)
    settings.data.mkdir(parents=True, exist_ok=True)
    bind_store(engine, settings.data)
    try:
        blobs = BlobStore(settings.data / "blobs")
        # Workers on other computers may be storing results.
        blobs.clear_incoming(uploads=True)
    except OSError as error:
        raise PhysaiError(
            f"{settings.data}/blobs cannot be used: {error}; make it a folder that this user can write"
        ) from error
    registry = Registry(engine, blobs)
    jobs = JobQueue(engine)
    tokens = TokenStore(engine)
    manager = SessionManager(settings.limits, rewards)
    threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="session")
    views = Views(limit=settings.limits.views)
    runner = executor or LocalExecutor(
        jobs, settings.database, settings.data, settings.workers, device=settings.device, hold=hold
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        runner.start()
        tasks = [
            asyncio.create_task(repeat(lambda: _reap(manager), REAP_PERIOD_S)),
            asyncio.create_task(repeat(lambda: _play(manager, threads), PLAY_PERIOD_S)),
            asyncio.create_task(repeat(lambda: asyncio.to_thread(blobs.clear_incoming, uploads=False), CLEAR_PERIOD_S)),
        ]
        yield
        for task in tasks:
            task.cancel()
        await views.close()
        threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(runner.stop)

    # The framework's own /docs runs scripts of another site, beside the token that the page keeps.
    quiet: dict[str, Any] = {"docs_url": None, "redoc_url": None}
    app = FastAPI(title="physai sim serve", version="1", lifespan=lifespan, responses=DOCUMENTED, **quiet)
    app.state.executor = runner
    access = app.state.access = Access(tokens, loopback=is_loopback(settings.host), limits=settings.limits)
    app.add_middleware(GuardBodies, access=access, limit=settings.limits.body_bytes)
    metrics = CollectorRegistry()
    metrics.register(ServiceCollector(manager, jobs))
    audit = AuditLog(engine)
    app.add_middleware(ObserveRequests, metrics=metrics, audit=audit)
    _answer_with_problems(app)
    app.include_router(page_routes())
    app.include_router(session_routes(manager, threads, robot_path=registry.robot_path))
    app.include_router(view_routes(views, manager, jobs, blobs))
    app.include_router(recording_routes(manager))
    app.include_router(registry_routes(registry, blobs, body_limit=settings.limits.body_bytes))
    # Before the robots, one of which would else be called `units`.
    app.include_router(unit_routes(UnitLog(engine), UnitRecordings(engine, blobs), trust=settings.trust))
    app.include_router(robot_routes(registry, blobs, body_limit=settings.limits.body_bytes))
    app.include_router(installation_routes(Installations(engine)))
    app.include_router(job_routes(jobs, blobs, registry, limit=settings.limits.waiting_jobs))
    app.include_router(openenv_routes(manager, threads, settings.limits))
    app.include_router(preference_routes(settings.preferences, settings.preferences_robot))
    app.include_router(observe_routes(Readiness(engine, blobs, runner), metrics, audit))
    return app


async def _play(manager: SessionManager, threads: ThreadPoolExecutor) -> None:
    loop = asyncio.get_running_loop()
    playing = [session for session in manager.all() if session.playing]
    await asyncio.gather(*(loop.run_in_executor(threads, session.advance) for session in playing))


async def _reap(manager: SessionManager) -> None:
    manager.reap()


async def repeat(step: Callable[[], Awaitable[None]], period_s: float) -> None:
    """Takes a step again and again until it is cancelled; an error of one does not end it."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await step()
        except Exception:
            log.exception("an error in the background; the service goes on")


def _answer_with_problems(app: FastAPI) -> None:
    @app.exception_handler(ProblemError)
    async def problem(_: Request, error: ProblemError) -> JSONResponse:
        return answer(error)

    @app.exception_handler(SQLAlchemyError)
    @app.exception_handler(OSError)
    async def unusable(_: Request, error: Exception) -> JSONResponse:
        return answer(storage_away(error))

    @app.exception_handler(ClientDisconnect)
    async def hung_up(_: Request, __: Exception) -> JSONResponse:
        # Nobody reads this but the log.
        return answer(ProblemError(400, "disconnected", "the client hung up before its request was complete"))

    @app.exception_handler(Exception)
    async def defect(_: Request, error: Exception) -> JSONResponse:
        # The server logs the traceback; a client sees no part of it.
        return answer(ProblemError(500, "defect", f"{type(error).__name__} in the service; please report its log"))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return answer(ProblemError(422, "invalid", f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["allow"] = ", ".join(_methods(app, request))
        kind = "too-large" if error.status_code == 413 else "http"
        return answer(ProblemError(error.status_code, kind, str(error.detail)), headers)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Methods of all routes with the request's path; Starlette's own header names those of the first one only."""
    path = request.url.path
    operations: dict[str, dict[str, object]] = app.openapi()["paths"]
    patterns = {re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)): methods for template, methods in operations.items()}
    return sorted(
        {method.upper() for pattern, methods in patterns.items() if re.fullmatch(pattern, path) for method in methods}
    )
