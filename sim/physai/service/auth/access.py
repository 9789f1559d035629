"""Access control: tokens with scopes, and on loopback protection from web pages of other sites."""

import ipaddress
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from fastapi import Depends, WebSocket
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from physai.service.auth.rates import KeyedBuckets
from physai.service.auth.tokens import SCOPES, Scope, TokenStore
from physai.service.problems import STORAGE_ERRORS, ProblemError, storage_away
from physai.service.settings import ServiceLimits

CACHE_S = 5.0
"""How long a revoked token may still work, and a service without tokens overlook the first one [s]."""
SOON_S = 1.0
"""How long a request waits for the database to confirm what is known from before [s]."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Identity:
    """Sender of a request."""

    name: str
    scope: Scope

    def require(self, scope: Scope) -> None:
        """Checks the scope.

        Raises:
            ProblemError: the caller's token has a lesser one.
        """
        if SCOPES.index(self.scope) < SCOPES.index(scope):
            raise ProblemError(
                403, "scope", f"this needs a token of scope {scope}; the token {self.name!r} has {self.scope}"
            )


LOCAL = Identity("local", "admin")
"""Anyone who reaches a service that listens on loopback and has no tokens."""


class Access:
    """Identifies callers by their token; without tokens, requests must come from this machine's own programs."""

    def __init__(self, tokens: TokenStore, *, loopback: bool, limits: ServiceLimits) -> None:
        self._tokens = tokens
        self._loopback = loopback
        self._counted_at = -math.inf
        self._has_tokens = False
        self._requests = KeyedBuckets(limits.requests_per_s, burst=2.0 * limits.requests_per_s)
        self._failures = KeyedBuckets(limits.failures_per_s, burst=20.0)
        self._cache: dict[str, tuple[float, Identity]] = {}

    def identify(self, connection: HTTPConnection) -> Identity:
        """Sender of this request.

        Raises:
            ProblemError: the token is missing or invalid, a page of another site sent the request, or there were too
                many.
        """
        # Once per request, or it would count twice.
        if hasattr(connection.state, "identity"):
            return connection.state.identity
        self._refuse_other_sites(connection)
        try:
            identity = self._find(connection) if self.required else LOCAL
        except ProblemError:
            address = connection.client.host if connection.client else ""
            if not self._failures.take(address):
                raise ProblemError(429, "too-many-failures", "too many requests without a valid token; wait") from None
            raise
        connection.state.identity = identity
        # Without tokens all callers are one, and a program of this machine needs no service to slow it down.
        if self.required and not self._requests.take(identity.name):
            raise ProblemError(429, "too-many-requests", "too many requests; wait, or step over the WebSocket")
        return identity

    @property
    def required(self) -> bool:
        """Whether requests need a token: off loopback always, and as soon as there is one."""
        now = time.monotonic()
        if self._loopback and not self._has_tokens and now - self._counted_at > CACHE_S:
            known, self._counted_at = self._counted_at > -math.inf, now
            try:
                count = _soon(self._tokens.count) if known else self._tokens.count()
                self._has_tokens = count > 0
            except STORAGE_ERRORS:
                # Sessions go on in an outage. A token that is created meanwhile counts once the database answers.
                if not known:
                    self._counted_at = -math.inf
                    raise
        return self._has_tokens or not self._loopback

    def _find(self, connection: HTTPConnection) -> Identity:
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            # A browser cannot set headers on a WebSocket.
            token = connection.query_params.get("access_token", "")
        if not token:
            raise ProblemError(401, "no-token", "send a token: Authorization: Bearer physai_…")
        now = time.monotonic()
        cached = self._cache.get(token)
        if cached and now - cached[0] < CACHE_S:
            return cached[1]
        try:
            found = _soon(lambda: self._tokens.find(token)) if cached else self._tokens.find(token)
        except STORAGE_ERRORS:
            if cached is None:
                raise
            # Nobody can revoke a token while the database is away.
            found = cached[1].name, cached[1].scope
        if found is None:
            self._cache.pop(token, None)
            raise ProblemError(401, "bad-token", "the token is unknown, revoked or expired; ask an administrator")
        if len(self._cache) > 10000:
            self._cache.clear()
        self._cache[token] = now, Identity(*found)
        return self._cache[token][1]

    def _refuse_other_sites(self, connection: HTTPConnection) -> None:
        host = connection.headers.get("host", "")
        origin = connection.headers.get("origin")
        if origin is not None and _address(origin).netloc != host:
            raise ProblemError(403, "foreign-origin", f"a page of {origin[:200]!r} must not use this service")
        if not self.required and not is_loopback(_address(f"//{host}").hostname or ""):
            # A name of another site that resolves to 127.0.0.1 (DNS rebinding).
            raise ProblemError(
                403, "foreign-host", f"host {host[:200]!r} is not this machine; use 127.0.0.1 or localhost"
            )


def _soon(ask: Callable[[], Answer]) -> Answer:
    """Asks the database what is known from before.

    Raises:
        TimeoutError: it does not answer soon.
    """
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="access", daemon=True).start()
    return answer.result(SOON_S)


def _address(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # a bracket without its partner
        return urlsplit("")


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine and no other."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def identify(connection: HTTPConnection) -> Identity:
    """Sender of a request to the application; see `Access.identify`."""
    access: Access = connection.app.state.access
    return access.identify(connection)


async def admit(socket: WebSocket, scope: Scope) -> bool:
    """Whether who opens a WebSocket may; if not, its handshake is refused."""
    try:
        # In a thread: it may ask the database, which may not answer.
        (await run_in_threadpool(identify, socket)).require(scope)
    except ProblemError as problem:
        await socket.close(1008, problem.detail[:120])
        return False
    except STORAGE_ERRORS as error:
        await socket.close(1013, storage_away(error).detail[:120])
        return False
    return True


Caller = Annotated[Identity, Depends(identify)]
"""Parameter of a route: who sent the request."""


def requires(scope: Scope) -> Any:
    """Dependency of a route: its callers need this scope."""

    def check(caller: Caller) -> None:
        caller.require(scope)

    return Depends(check)
