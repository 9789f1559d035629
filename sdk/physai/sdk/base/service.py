"""Requests to a service of `physai sim serve` with the standard library alone, for machines without a simulator.

What a service answers is not trusted: answers are bounded, and redirections are not followed, because urllib would
send the token on to wherever they lead.
"""

import http.client
import json
import os
import re
from dataclasses import dataclass, field
from typing import IO, Any, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from physai.sdk.base.errors import PhysaiError

TOKEN_VARIABLE = "PHYSAI_TOKEN"
MAX_JSON_BYTES = 1 << 20
TIMEOUT_S = 30.0


class ServiceRequestError(PhysaiError):
    """A service cannot be reached, refuses a request, or gives an answer that is none."""


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> None:
        """Follows none; the answer is then an error."""


@dataclass(frozen=True)
class Service:
    """The address of a service, and the token that it asks for."""

    url: str
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str) -> "Service":
        """The service at an address, with the token in PHYSAI_TOKEN.

        Raises:
            ServiceRequestError: the address or the token is malformed.
        """
        try:
            parts = urlsplit(url)
            # Reading the port checks it.
            is_service = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_service = False
        if not (is_service and re.fullmatch(r"[!-~]+", url)) or set(url) & set("?#@"):
            raise ServiceRequestError(f"{url!r:.200} is no address of a service, such as http://127.0.0.1:8800")
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token.isascii() or not token.isprintable():
            # Without the token itself: messages end up in logs.
            raise ServiceRequestError(f"{TOKEN_VARIABLE} has characters that no token has; copy it again")
        return cls(url.rstrip("/"), token)

    def get(self, path: str) -> Any:
        """The JSON at a path; raises ServiceRequestError."""
        return _parsed(self.read(path, limit=MAX_JSON_BYTES), self.url + path)

    def post(self, path: str, body: bytes | dict[str, Any], *, timeout_s: float = TIMEOUT_S) -> Any:
        """Sends a file, or an object as JSON; returns the JSON of the answer.

        Raises:
            ServiceRequestError: the service cannot be reached or refuses the request.
        """
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        answer = self._send(Request(self.url + path, data, {"content-type": kind}), MAX_JSON_BYTES, timeout_s)
        return _parsed(answer, self.url + path)

    def read(self, path: str, *, limit: int) -> bytes:
        """The content at a path.

        Raises:
            ServiceRequestError: the service cannot be reached, has no such content, or sends more than `limit` bytes.
        """
        return self._send(Request(self.url + path), limit, TIMEOUT_S)

    def _send(self, request: Request, limit: int, timeout_s: float) -> bytes:
        if self.token:
            request.add_header("authorization", f"Bearer {self.token}")
        try:
            with build_opener(_NoRedirects).open(request, timeout=timeout_s) as answer:
                content: bytes = answer.read(limit + 1)
                is_cut = len(content) <= limit and bool(answer.length)
        except HTTPError as error:
            raise ServiceRequestError(f"{self.url}: {_detail(error)}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # urllib wraps most causes in an error of its own; a host with an empty label is a ValueError.
            cause = getattr(error, "reason", None) or error
            text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
            if isinstance(request.data, bytes) and isinstance(cause, (BrokenPipeError, ConnectionResetError)):
                # What a service does that refuses a large file before its end.
                text += f"; it may not take {len(request.data)} bytes"
            raise ServiceRequestError(f"{self.url} cannot be reached: {text}") from None
        if len(content) > limit:
            raise ServiceRequestError(f"{request.full_url}: the answer has more than {limit} bytes")
        if is_cut:
            raise ServiceRequestError(f"{request.full_url}: the answer broke off; try again")
        return content


def _parsed(content: bytes, source: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ServiceRequestError(f"{source}: the answer is not JSON; is it a service of `physai sim serve`?") from None


def _detail(error: HTTPError) -> str:
    """The detail of a problem document, or the status of another answer."""
    try:
        with error:
            document: Any = json.loads(error.read(MAX_JSON_BYTES))
        detail = cast("dict[str, Any]", document).get("detail") if isinstance(document, dict) else None
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        detail = None
    text = f"{detail!s:.1000}" if detail else "it is not a service of `physai sim serve`, or not a current one"
    return f"{text} (HTTP {error.code})"
