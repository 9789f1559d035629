"""The Model Context Protocol over HTTP and WebSocket: the tools of skill sessions.

Clients name their session as OpenEnv's do (`openenv/session/create`, then `session_id` in the parameters) or as MCP's
do (`initialize`, then the header `Mcp-Session-Id`).
"""

import threading
from typing import Any, cast

from physai.service.problems import ProblemError
from physai.service.sessions.manager import SessionManager
from physai.service.sessions.openenv.episodes import SkillEpisode, open_episode
from physai.service.sessions.openenv.tools import as_text
from physai.service.sessions.session import Message

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, SERVER_ERROR = -32700, -32600, -32601, -32602, -32000
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")


class SkillSessions:
    """Skill sessions that outlive one connection, by their secret token; may be used from any thread."""

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._episodes: dict[str, SkillEpisode] = {}

    def create(self, task: str) -> str:
        """Opens a session and begins an episode; returns its token.

        Raises:
            ProblemError: there is no such task, or the service is full.
        """
        episode = cast("SkillEpisode", open_episode(self._manager, task, "skills"))
        episode.reset({})
        with self._lock:
            # Those that were reaped or closed elsewhere are forgotten here.
            alive = {t: e for t, e in self._episodes.items() if self._manager.peek(e.session.identifier) is e.session}
            self._episodes = alive | {episode.session.token: episode}
        return episode.session.token

    def get(self, token: object) -> SkillEpisode:
        """The session of a token.

        Raises:
            ProblemError: there is none (any more).
        """
        with self._lock:
            episode = self._episodes.get(token) if isinstance(token, str) else None
        if episode is None or self._manager.peek(episode.session.identifier) is None:
            raise ProblemError(
                404, "unknown-session", "unknown session_id, or closed for lack of use; create a session"
            )
        return episode

    def close(self, token: object) -> None:
        """Closes a session; see `get` for the errors."""
        episode = self.get(token)
        self._manager.close(episode.session.identifier)
        with self._lock:
            self._episodes.pop(episode.session.token, None)


def error(request: Message, code: int, message: str) -> Message:
    """A JSON-RPC error."""
    return {"jsonrpc": "2.0", "id": request.get("id"), "error": {"code": code, "message": message}}


def answer(
    sessions: SkillSessions, task: str, request: object, session_id: str | None
) -> tuple[Message | None, str | None]:
    """Carries out one JSON-RPC request.

    Returns:
        The response, None to a notification; and the token of a session that the request created.
    """
    message = cast("Message", request) if isinstance(request, dict) else {}
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return error(message, INVALID_REQUEST, "send a JSON-RPC 2.0 request: jsonrpc, method, params and id"), None
    method, params = message["method"], message.get("params", {})
    if not isinstance(params, dict):
        return error(message, INVALID_PARAMS, "params must be an object"), None
    if method.startswith("notifications/"):
        return None, None
    created: str | None = None
    try:
        if method == "initialize":
            created = sessions.create(task)
        result = _result(sessions, task, method, cast("Message", params), session_id)
    except ProblemError as problem:
        code = SERVER_ERROR if problem.status == 503 else INVALID_PARAMS
        return error(message, METHOD_NOT_FOUND if problem.status == 405 else code, problem.detail), None
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}, created


def _result(sessions: SkillSessions, task: str, method: str, params: Message, session_id: str | None) -> Message:
    token = params.get("session_id") or session_id
    match method:
        case "initialize":
            wanted = params.get("protocolVersion")
            version = wanted if wanted in VERSIONS else VERSIONS[0]
            server = {"name": f"physai {task}", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "ping":
            return {}
        case "openenv/session/create":
            return {"session_id": sessions.create(task)}
        case "openenv/session/close":
            sessions.close(token)
            return {"session_id": token, "closed": True}
        case "tools/list":
            # Listing needs a session only to know the joints; a client may look before it begins.
            if token is not None:
                return {"tools": sessions.get(token).tools.describe()}
            token = sessions.create(task)
            try:
                return {"tools": sessions.get(token).tools.describe()}
            finally:
                sessions.close(token)
        case "tools/call":
            return _call(sessions.get(token), params)
        case _:
            raise ProblemError(405, "unknown-method", f"there is no method {method!r:.80}")


def _call(episode: SkillEpisode, params: Message) -> Message:
    name: Any = params.get("name")
    try:
        state, reward = episode.tools.call(str(name), params.get("arguments") or {})
    except ProblemError as problem:
        if problem.status == 404:
            raise
        # A language model reads what was wrong with its call and tries again.
        return {"content": [{"type": "text", "text": problem.detail}], "isError": True}
    result = state | {"reward": reward}
    content = [{"type": "text", "text": as_text(result)}]
    return {"content": content, "structuredContent": result, "data": result, "isError": False}
