"""Recordings of sessions over HTTP: begin one, and download it as MCAP or OpenUSD."""

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import FileResponse
from pydantic import Field
from starlette.background import BackgroundTask

from physai.service.auth.access import requires
from physai.service.problems import ProblemError
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.session import Session
from physai.service.sessions.session_routes import StrictBody, Token
from physai.service.view.views import missing

if TYPE_CHECKING:
    from physai.service.view.motion import MotionRecorder

Format = Literal["mcap", "usdc", "usda"]
MAX_SECONDS = 600.0
MAX_MOMENTS = 60_000


class RecordingLength(StrictBody):
    """Amount to keep."""

    seconds: Annotated[float, Field(gt=0.0, le=MAX_SECONDS)] = 60.0


class Recordings:
    """Recorders of open sessions."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._recorders: dict[str, tuple[Session, MotionRecorder]] = {}

    def begin(self, session: Session, seconds: float) -> int:
        """Records the latest seconds of a session's first world, in place of a recording before.

        Returns:
            Number of moments that are kept at most.

        Raises:
            ProblemError: the service lacks the packages.
        """
        try:
            from physai.service.view.motion import MotionRecorder
        except ModuleNotFoundError as error:
            raise missing(error) from error
        step_dt: float = session.describe()["step_dt"]
        moments = min(MAX_MOMENTS, 1 + round(seconds / step_dt))
        recorder = MotionRecorder(moments, step_dt=step_dt)
        session.record(recorder.add)
        alive = {key: kept for key, kept in self._recorders.items() if self._manager.peek(key) is kept[0]}
        self._recorders = alive | {session.identifier: (session, recorder)}
        return moments

    def write(self, session: Session, path: Path) -> None:
        """Writes what is kept of a session; the file's suffix says how.

        Raises:
            ProblemError: the session is not recorded.
        """
        kept = self._recorders.get(session.identifier)
        if kept is None:
            raise ProblemError(
                409, "not-recorded", "nothing is recorded; POST …/recording first, then step the session"
            )
        from physai.service.view.motion import write_mcap, write_usd

        moments = kept[1].moments()
        if path.suffix == ".mcap":
            write_mcap(path, session.model, moments)
        else:
            write_usd(path, session.model, moments, step_dt=session.describe()["step_dt"])


def recording_routes(manager: SessionManager) -> APIRouter:
    """The routes of recordings."""
    router = APIRouter(prefix="/v1/sessions", tags=["views"], dependencies=[requires("run")])
    recordings = Recordings(manager)

    @router.post("/{identifier}/recording")
    def begin(identifier: str, body: RecordingLength, token: Token) -> dict[str, Any]:
        """Records the latest seconds of the first world from now on."""
        moments = recordings.begin(manager.use(identifier, token), body.seconds)
        return {"moments": moments}

    @router.get("/{identifier}/recording.{suffix}", response_class=FileResponse)
    async def download(identifier: str, suffix: Format, token: Token) -> FileResponse:
        """The recording, as MCAP for Foxglove or as an OpenUSD stage."""
        session = manager.use(identifier, token)
        folder = tempfile.TemporaryDirectory(prefix="physai-recording-")
        path = Path(folder.name) / f"{session.options.task}.{suffix}"
        try:
            await asyncio.to_thread(recordings.write, session, path)
        except BaseException:
            folder.cleanup()
            raise
        done = BackgroundTask(folder.cleanup)
        return FileResponse(path, media_type="application/octet-stream", filename=path.name, background=done)

    return router
