"""Views of sessions and their viewers: a view begins on request and ends with its last viewer."""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import mujoco
import numpy as np
import numpy.typing as npt

from physai.service.problems import ProblemError
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.session import Session
from physai.service.view.live import LiveView

if TYPE_CHECKING:
    from physai.service.view.foxglove_live import FoxgloveView

FRAME_S = 1.0 / 30.0
"""Time between two pictures [s]."""
UNWATCHED_S = 15.0
"""A view that nobody looks at ends after this time [s]."""
WORLDS = 9
"""Worlds of a session that are drawn at most."""


class ViewSource(Protocol):
    """Subject of a view."""

    @property
    def model(self) -> mujoco.MjModel:
        """The drawn model, once for each world."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """A name for each world, or the empty string."""
        ...

    def alive(self) -> bool:
        """Whether there is anything left to show."""
        ...

    def positions(self) -> npt.NDArray[np.float64]:
        """Generalised positions of the worlds now, shape (worlds, nq)."""
        ...


@dataclass(frozen=True)
class SessionSource:
    """The first worlds of a session."""

    session: Session
    manager: SessionManager

    @property
    def model(self) -> mujoco.MjModel:
        """The session's model."""
        return self.session.model

    @property
    def labels(self) -> Sequence[str]:
        """No names, for as many worlds as are drawn."""
        return [""] * min(WORLDS, self.session.options.worlds)

    def alive(self) -> bool:
        """Whether the session is open."""
        return self.manager.peek(self.session.identifier) is self.session

    def positions(self) -> npt.NDArray[np.float64]:
        """Positions of the worlds now."""
        return self.session.positions(WORLDS)


@dataclass
class View:
    """A 3-D view."""

    key: str
    source: ViewSource
    live: LiveView
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """Secret in the view's address: a browser cannot send a token with a frame or a WebSocket."""
    watchers: int = 0
    foxglove: "FoxgloveView | None" = None
    """Server for Foxglove, once somebody asked for it."""
    task: "asyncio.Task[None] | None" = None


class Views:
    """Begins, finds and ends views; belongs to the service's event loop."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._lock = asyncio.Lock()
        self._views: dict[str, View] = {}

    async def open(self, key: str, source: ViewSource) -> View:
        """The view with a key, begun if there is none.

        Raises:
            ProblemError: there are too many views.
        """
        async with self._lock:
            view = self._views.get(key)
            if view is None or view.task is None or view.task.done():
                if len(self._views) >= self._limit:
                    raise ProblemError(503, "capacity", f"{self._limit} views are open; close one, or wait")
                live = await asyncio.to_thread(LiveView, source.model, source.labels)
                view = self._views[key] = View(key, source, live)
                view.task = asyncio.create_task(self._run(view))
            return view

    def find(self, ticket: str) -> View:
        """The view with a ticket.

        Raises:
            ProblemError: there is none (any more).
        """
        for view in self._views.values():
            if secrets.compare_digest(view.ticket.encode(), ticket.encode("utf-8", "surrogateescape")):
                return view
        raise ProblemError(404, "unknown-view", "this view has ended; open the session again")

    async def foxglove(self, view: View) -> "FoxgloveView":
        """A view's server for Foxglove, begun if there is none.

        Raises:
            ProblemError: Foxglove's SDK is not installed.
        """
        try:
            from physai.service.view.foxglove_live import FoxgloveView
        except ModuleNotFoundError as error:
            raise missing(error) from error
        async with self._lock:
            if view.foxglove is None:
                view.foxglove = await asyncio.to_thread(FoxgloveView, f"physai {view.key}", view.source.model)
            return view.foxglove

    async def _run(self, view: View) -> None:
        unwatched = 0.0
        try:
            while unwatched < UNWATCHED_S and view.source.alive():
                unwatched = 0.0 if view.watchers else unwatched + FRAME_S
                if view.watchers:
                    await asyncio.to_thread(_show, view)
                await asyncio.sleep(FRAME_S)
        finally:
            if self._views.get(view.key) is view:
                del self._views[view.key]
            await asyncio.shield(asyncio.to_thread(_stop, view))

    async def close(self) -> None:
        """Ends all views."""
        tasks = [view.task for view in self._views.values() if view.task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _show(view: View) -> None:
    qpos = view.source.positions()
    view.live.show(list(qpos))
    if view.foxglove is not None:
        view.foxglove.show(qpos[0])


def _stop(view: View) -> None:
    view.live.stop()
    if view.foxglove is not None:
        view.foxglove.stop()


def missing(error: ModuleNotFoundError) -> ProblemError:
    """Answer where an optional package is not installed."""
    return ProblemError(503, "missing-extra", f"the service lacks {error.name}; install 'physai-sdk[viewers]' there")
