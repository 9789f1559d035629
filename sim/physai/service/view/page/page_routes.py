"""The page: static files, which fetch everything else with the reader's own token."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from physai.service.problems import ProblemError

FOLDER = Path(__file__).parent
SCRIPTS = ("app.js", "docs.js", "elements.js", "forms.js", "motion.js", "prefer.js", "service.js")
FILES = {"style.css": "text/css"} | dict.fromkeys(SCRIPTS, "text/javascript")
HEADERS = {
    # Only this service's own script runs, so that text from uploads can never act for the reader.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page_routes() -> APIRouter:
    """`/`, `/docs` and `/page/…`; not part of the OpenAPI document."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index() -> FileResponse:
        return FileResponse(FOLDER / "index.html", media_type="text/html", headers=HEADERS)

    @router.get("/docs")
    async def docs() -> FileResponse:
        return FileResponse(FOLDER / "docs.html", media_type="text/html", headers=HEADERS)

    @router.get("/prefer")
    async def prefer() -> FileResponse:
        return FileResponse(FOLDER / "prefer.html", media_type="text/html", headers=HEADERS)

    @router.get("/page/{name}")
    async def asset(name: str) -> FileResponse:
        if name not in FILES:
            raise ProblemError(404, "unknown-file", f"the page has no file {name[:80]!r}")
        return FileResponse(FOLDER / name, media_type=FILES[name], headers=HEADERS)

    return router
