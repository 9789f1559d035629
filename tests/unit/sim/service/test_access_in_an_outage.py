"""Whether requests need a token is known during an outage, if it was known before."""

import time
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from physai.sim.service.auth.access import CACHE_S, Access
from physai.sim.service.auth.tokens import TokenStore
from physai.sim.service.database.engine import open_database
from physai.sim.service.settings import Limits


def test_sessions_go_on_while_the_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/service.db")
    tokens = TokenStore(engine)
    access = Access(tokens, loopback=True, limits=Limits())
    assert not access.required
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE tokens RENAME TO elsewhere"))
    with pytest.raises(OperationalError):
        tokens.count()
    later = time.monotonic() + CACHE_S + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert not access.required
    fresh = Access(tokens, loopback=True, limits=Limits())
    for _ in range(2):
        with pytest.raises(OperationalError):
            _ = fresh.required
