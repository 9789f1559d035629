"""Access tokens: shown once, stored as a hash."""

import re
import secrets
import time
from typing import Any, Literal, get_args

from sqlalchemy import Engine, delete, func, select
from sqlalchemy.orm import Session

from physai.compute.database import reading
from physai.sdk.base.formats.canonical import sha256_hex
from physai.service.database.tables import TokenRow
from physai.service.problems import ProblemError, invalid

Scope = Literal["read", "run", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""Each includes those before it."""

PREFIX = "physai_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN = re.compile(PREFIX + r"[A-Za-z0-9_-]{43,256}")


class TokenStore:
    """Tokens in the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, name: str, scope: Scope, *, days: float | None = None, token: str | None = None) -> str:
        """Creates a token and returns it; it cannot be read again.

        Args:
            name: letters, digits and `. _ @ -`, at most 64.
            scope: what it allows.
            days: days until it expires, None for never.
            token: the token to store, None for a new random one. It takes the place of another one of this name; if it
                is stored with this scope already, nothing changes, its expiry neither. So what deploys a service may
                say it again, and a changed secret changes the token.

        Raises:
            ProblemError: name or token is malformed or taken.
        """
        if not _NAME.fullmatch(name):
            raise invalid(f"token name {name!r:.80} is not allowed; use letters, digits and . _ @ -, at most 64")
        if token is not None and not _TOKEN.fullmatch(token):
            raise invalid(
                f"a token is {PREFIX!r} and 43 to 256 of the characters A-Z a-z 0-9 _ -: 32 random bytes in base64"
            )
        # 256 random bits: a plain hash cannot be searched, so no slow password hash is needed.
        given = token is not None
        token = token or PREFIX + secrets.token_urlsafe(32)
        now = time.time()
        with Session(self._engine) as session, session.begin():
            row = session.get(TokenRow, sha256_hex(token.encode()))
            if row is not None and (row.name, row.scope) == (name, scope):
                return token
            if row is not None and row.name != name:
                raise ProblemError(409, "token-taken", f"this token is stored as {row.name!r}; use another")
            if given:
                session.execute(delete(TokenRow).where(TokenRow.name == name))
            elif session.scalar(select(TokenRow).where(TokenRow.name == name)):
                raise ProblemError(
                    409, "name-taken", f"a token named {name!r} exists; revoke it or choose another name"
                )
            expires = None if days is None else now + days * 86400.0
            session.add(
                TokenRow(sha256=sha256_hex(token.encode()), name=name, scope=scope, created=now, expires=expires)
            )
        return token

    def find(self, token: str) -> tuple[str, Scope] | None:
        """Name and scope of a valid token, or None."""
        with Session(reading(self._engine)) as session:
            row = session.get(TokenRow, sha256_hex(token.encode("utf-8", "surrogateescape")))
            if row is None or (row.expires is not None and row.expires < time.time()):
                return None
            return row.name, next(scope for scope in SCOPES if scope == row.scope)

    def revoke(self, name: str) -> None:
        """Deletes a token.

        Raises:
            ProblemError: there is none of this name.
        """
        with Session(self._engine) as session, session.begin():
            if session.execute(delete(TokenRow).where(TokenRow.name == name).returning(TokenRow.name)).first() is None:
                raise ProblemError(404, "unknown-token", f"there is no token named {name!r:.80}")

    def all(self) -> list[dict[str, Any]]:
        """Tokens without their secrets, oldest first."""
        with Session(reading(self._engine)) as session:
            rows = session.scalars(select(TokenRow).order_by(TokenRow.created))
            return [{"name": r.name, "scope": r.scope, "created": r.created, "expires": r.expires} for r in rows]

    def count(self) -> int:
        """Number of tokens."""
        with Session(reading(self._engine)) as session:
            return session.scalar(select(func.count()).select_from(TokenRow)) or 0
