"""One OpenEnv client's WebSocket: JSON messages, answered in order."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast

from fastapi import WebSocket, WebSocketDisconnect
from pydantic_core import from_json

from physai.service.problems import ProblemError, invalid
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.openenv.episodes import Episode, state
from physai.service.sessions.session import Message

Reply = tuple[str, Message]
"""Type and data of an answer."""


class EpisodeConnection:
    """An episode that begins with the first message, so that a silent connection holds no place."""

    def __init__(
        self, manager: SessionManager, make: Callable[[int], Episode], *, episode: Episode | None = None
    ) -> None:
        """Serves an existing episode, or the one that `make` creates for a number of worlds."""
        self._manager = manager
        self._make = make
        self._attached = episode is not None
        self.episode = episode

    def answer(self, text: str) -> Reply | None:
        """The reply to one message; None if it closes the connection."""
        try:
            # Unlike `json`, refuses what no answer could repeat: NaN and lone surrogates.
            message: Any = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            return _error("INVALID_JSON", f"invalid JSON: {error}")
        if not isinstance(message, dict):
            return _error("VALIDATION_ERROR", f"a message is an object, got {type(message).__name__}")
        fields = cast("Message", message)
        kind, data = fields.get("type"), fields.get("data", {})
        if not isinstance(data, dict):
            return _error("VALIDATION_ERROR", f"data must be an object, got {type(data).__name__}")
        if kind == "close":
            return None
        if kind not in ("reset", "step", "state"):
            return _error("UNKNOWN_TYPE", f"type must be reset, step, state or close, got {kind!r:.40}")
        try:
            return self._carry_out(kind, cast("Message", data))
        except ProblemError as problem:
            codes = {503: "CAPACITY_REACHED", 404: "SESSION_ERROR", 422: "VALIDATION_ERROR"}
            return _error(codes.get(problem.status, "EXECUTION_ERROR"), problem.detail)

    def _carry_out(self, kind: str, data: Message) -> Reply:
        episode = self._ready(data if kind == "reset" else {})
        if kind == "state":
            return "state", state(episode)
        return "observation", episode.reset(data) if kind == "reset" else episode.step(data)

    def _ready(self, data: Message) -> Episode:
        worlds = data.get("worlds")
        if worlds is not None and (type(worlds) is not int or worlds < 1):
            raise invalid(f"worlds must be an integer of at least 1, got {worlds!r:.40}")
        if self.episode is not None:
            self._manager.get(self.episode.session.identifier)
            if self._attached or worlds in (None, self.episode.session.options.worlds):
                return self.episode
        # If this fails, the episode before goes on.
        made = self._make(worlds or 1)
        self.close()
        self.episode = made
        made.session.connections += 1
        return made

    def close(self) -> None:
        """Closes the session that this connection began."""
        if self.episode is not None and not self._attached:
            self._manager.close(self.episode.session.identifier)
        self.episode = None


def _error(code: str, message: str) -> Reply:
    return "error", {"message": message[:1000], "code": code}


async def serve(socket: WebSocket, connection: EpisodeConnection, executor: Executor, *, idle_s: float) -> None:
    """Answers a client until it closes the connection or is silent for `idle_s` seconds."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            # A half-open connection would hold its place for ever.
            text = await asyncio.wait_for(socket.receive_text(), idle_s)
            reply = await loop.run_in_executor(executor, connection.answer, text)
            if reply is None:
                break
            await socket.send_text(json.dumps({"type": reply[0], "data": reply[1]}, separators=(",", ":")))
    except (WebSocketDisconnect, TimeoutError, KeyError):
        # KeyError: a binary message, which this protocol has none of.
        pass
    finally:
        await loop.run_in_executor(executor, connection.close)
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close()
