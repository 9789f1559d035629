"""Whether requests need a token is known during an outage, if it was known before."""

import time
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from starlette.requests import HTTPConnection

from physai.service.auth.access import CACHE_S, Access, Identity
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.problems import ProblemError
from physai.service.settings import ServiceLimits


def test_sessions_go_on_while_the_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/service.db")
    tokens = TokenStore(engine)
    access = Access(tokens, loopback=True, limits=ServiceLimits())
    assert not access.required
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE tokens RENAME TO elsewhere"))
    with pytest.raises(OperationalError):
        tokens.count()
    later = time.monotonic() + CACHE_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert not access.required
    fresh = Access(tokens, loopback=True, limits=ServiceLimits())
    for _ in range(2):
        with pytest.raises(OperationalError):
            _ = fresh.required


def test_a_token_that_was_known_before_is_known_while_the_database_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/service.db")
    tokens = TokenStore(engine)
    token = tokens.create("ci", "run")
    access = Access(tokens, loopback=False, limits=ServiceLimits())
    assert access.identify(request(token)) == Identity("ci", "run")
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE tokens RENAME TO elsewhere"))
    later = time.monotonic() + CACHE_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert access.identify(request(token)) == Identity("ci", "run")
    with pytest.raises(OperationalError):
        access.identify(request("physai_unknown"))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO tokens"))
        connection.execute(text("DELETE FROM tokens"))
    monkeypatch.setattr(time, "monotonic", lambda: later + CACHE_S + 1.0)
    with pytest.raises(ProblemError, match="unknown, revoked or expired"):
        access.identify(request(token))


def request(token: str) -> HTTPConnection:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return HTTPConnection({"type": "http", "headers": headers, "query_string": b"", "client": None})
