"""The service as an ASGI application."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from physai.sim.service.problems import MEDIA_TYPE, Problem
from physai.sim.service.sessions.manager import SessionManager
from physai.sim.service.sessions.routes import session_routes
from physai.sim.service.settings import ServiceSettings

REAP_PERIOD_S = 1.0


def create_app(settings: ServiceSettings) -> FastAPI:
    """Builds the application; it owns its threads and sessions from startup to shutdown."""
    manager = SessionManager(settings.limits)
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="session")

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        reaper = asyncio.create_task(_reap(manager))
        yield
        reaper.cancel()
        executor.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(title="physai sim serve", version="1", lifespan=lifespan)
    _answer_with_problems(app)
    app.include_router(session_routes(manager, executor))

    @app.get("/healthz", tags=["service"])
    async def healthz() -> dict[str, str]:
        """Answers as long as the process does."""
        return {"status": "ok"}

    return app


async def _reap(manager: SessionManager) -> None:
    while True:
        await asyncio.sleep(REAP_PERIOD_S)
        manager.reap()


def _answer_with_problems(app: FastAPI) -> None:
    def respond(problem: Problem) -> JSONResponse:
        request_id = secrets.token_hex(8)
        return JSONResponse(problem.document(request_id), problem.status, media_type=MEDIA_TYPE)

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> JSONResponse:
        return respond(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return respond(Problem(422, "invalid", f"{where}: {first['msg']}"))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return respond(Problem(error.status_code, "http", str(error.detail)))
