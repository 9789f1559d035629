"""Engines for databases: SQLite in a file, or PostgreSQL."""

from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from physai.sdk.base.errors import PhysaiError

DIALECTS = ("sqlite", "postgresql")
_PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""libpq's limits: 5 s to connect, and 20 s until a server that went away without a word counts as gone."""
_READING = "physai_reading"
BUSY_S = 30.0
"""How long a writer waits for another one in SQLite [s]."""


def connect(url: str) -> Engine:
    """Returns an engine; SQLite gets a write-ahead log that is flushed with every commit.

    Args:
        url: SQLAlchemy URL, `sqlite:///FILE` or `postgresql+psycopg://USER@HOST/NAME`.

    Raises:
        PhysaiError: the URL is malformed, or of another kind of database.
    """
    try:
        server = make_url(url).get_backend_name() == "postgresql"
        engine = create_engine(url, pool_pre_ping=True, connect_args=_PATIENCE if server else {})
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        ways = "sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"
        raise PhysaiError(f"database URL {url!r:.200} cannot be used: {error}; give {ways}") from error
    if engine.dialect.name not in DIALECTS:
        raise PhysaiError(f"database {engine.dialect.name} is not supported; use {' or '.join(DIALECTS)}")
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    # The driver's own transactions begin with the first write, by when another process may have written what was
    # read before. SQLAlchemy's `begin` below takes the write lock first, unless it is only for reading.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")


def reading(engine: Engine) -> Engine:
    """The same database for transactions that only read: in SQLite they neither wait for writers nor hold them up."""
    return engine.execution_options(**{_READING: True})


def _begin_immediate(connection: Any) -> None:
    read = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if read else "BEGIN IMMEDIATE")
