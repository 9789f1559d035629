"""All sessions of a service: creation within its limits, use by token, and closing of those that are idle."""

import secrets
import threading
import time
from collections.abc import Mapping

from physai.compute.sandbox.reward import UserReward
from physai.sdk.base.errors import PhysaiError, UnknownNameError, unknown_name
from physai.sdk.base.plugins import contributions
from physai.service.problems import ProblemError, invalid
from physai.service.sessions.rewarded import RewardedWorlds
from physai.service.sessions.session import Session
from physai.service.sessions.worlds import ENGINE_ERRORS, SessionWorlds, WorldsOptions
from physai.service.settings import ServiceLimits

INTERFACES = "physai.session_interfaces"
"""Entry points, by name, that make `SessionWorlds` from `WorldsOptions`."""


class SessionManager:
    """Creates, finds and closes sessions. Every method may be called from any thread."""

    def __init__(self, limits: ServiceLimits, rewards: Mapping[str, UserReward] | None = None) -> None:
        """Takes the limits, and users' rewards by the task that they are for."""
        self._limits = limits
        self._rewards = rewards or {}
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._worlds_coming = 0
        self._closed_world_steps = 0
        self._coming = 0

    def create(self, options: WorldsOptions, interface: str = "targets", *, rewarded: bool = False) -> Session:
        """Builds the worlds of a new session.

        Args:
            options: which worlds.
            interface: what the client steps them by.
            rewarded: replace the task's reward by the user's, if there is one for the task.

        Raises:
            ProblemError: a limit is reached, or the options are invalid.
        """
        if not 1 <= options.worlds <= self._limits.worlds:
            raise invalid(f"worlds must lie in 1 to {self._limits.worlds}, got {options.worlds}")
        makers = contributions(INTERFACES)
        if interface not in makers:
            raise invalid(str(unknown_name("session interface", interface, makers)))
        # Places are taken before the worlds are built, which takes seconds, so that two requests cannot share the last.
        self._reserve(options.worlds)
        try:
            worlds: SessionWorlds = makers[interface].load()(options)
            if rewarded and options.task in self._rewards:
                worlds = RewardedWorlds(worlds, self._rewards[options.task])
            session = Session(secrets.token_hex(8), options, worlds, self._limits)
            with self._lock:
                self._sessions[session.identifier] = session
        except UnknownNameError as error:
            raise ProblemError(404, "unknown-name", str(error)) from error
        except ProblemError:
            raise
        except (PhysaiError, *ENGINE_ERRORS) as error:
            raise invalid(" ".join(str(error).split())) from error
        finally:
            with self._lock:
                self._coming -= 1
                self._worlds_coming -= options.worlds
        return session

    def _reserve(self, worlds: int) -> None:
        with self._lock:
            if len(self._sessions) + self._coming >= self._limits.sessions:
                raise ProblemError(
                    503, "capacity", f"all {self._limits.sessions} sessions are in use; close one or try again later"
                )
            used = self._worlds_coming + sum(session.options.worlds for session in self._sessions.values())
            if used + worlds > self._limits.total_worlds:
                raise ProblemError(
                    503,
                    "capacity",
                    f"{worlds} more worlds exceed the limit of {self._limits.total_worlds}, of which {used} are in use",
                )
            self._coming += 1
            self._worlds_coming += worlds

    def all(self) -> list[Session]:
        """Open sessions, oldest first."""
        with self._lock:
            return list(self._sessions.values())

    def get(self, identifier: str) -> Session:
        """A session by its public identifier.

        Raises:
            ProblemError: there is none; it may have been closed.
        """
        with self._lock:
            session = self._sessions.get(identifier)
        if session is None:
            raise ProblemError(
                404,
                "unknown-session",
                f"session {identifier[:40]!r} does not exist or was closed, which happens after "
                f"{self._limits.idle_s:g} s without use; create a new one",
            )
        return session

    def peek(self, identifier: str) -> Session | None:
        """A session by its public identifier, or None."""
        return self._sessions.get(identifier)

    def use(self, identifier: str, token: str) -> Session:
        """A session, for the holder of its token.

        Raises:
            ProblemError: there is no such session, or the token is another one's.
        """
        session = self.get(identifier)
        if not secrets.compare_digest(session.token.encode(), token.encode("utf-8", "surrogateescape")):
            raise ProblemError(
                403, "foreign-session", f"session {identifier} has another token; use the one from its creation"
            )
        return session

    def close(self, identifier: str) -> None:
        """Closes a session; a closed or unknown one is left as it is."""
        with self._lock:
            session = self._sessions.pop(identifier, None)
            if session is not None:
                self._closed_world_steps += session.world_steps

    def world_steps(self) -> int:
        """Steps of single worlds in all sessions so far."""
        with self._lock:
            return self._closed_world_steps + sum(session.world_steps for session in self._sessions.values())

    def reap(self) -> list[str]:
        """Closes the sessions that nobody uses; returns their identifiers."""
        now = time.monotonic()
        idle = [session for session in self.all() if self._is_idle(session, now)]
        for session in idle:
            self.close(session.identifier)
        return [session.identifier for session in idle]

    def _is_idle(self, session: Session, now: float) -> bool:
        if session.lost is not None and session.connections == 0 and now - session.lost > self._limits.resume_s:
            # Used over HTTP since its WebSocket broke off, it is not lost.
            return session.used <= session.lost or now - session.used > self._limits.idle_s
        return now - session.used > self._limits.idle_s
