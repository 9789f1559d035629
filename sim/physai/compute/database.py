"""Engines for databases: SQLite in a file, or PostgreSQL."""

import functools
import math
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    import psycopg

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
ANSWER_S = 10.0
"""How long a PostgreSQL may be silent before a statement fails [s]; libpq waits for ever for one that is stopped."""
HURRY_S = 1.0
"""The same in a process that ends [s]."""
_ending = threading.Event()


def hurry() -> None:
    """Has statements of this process, which ends, fail soon if the database is silent."""
    _ending.set()


def connect(url: str, *, answer_s: float = ANSWER_S) -> Engine:
    """Returns an engine; SQLite gets a write-ahead log that is flushed with every commit.

    Args:
        url: SQLAlchemy URL, `sqlite:///FILE` or `postgresql+psycopg://USER@HOST/NAME`.
        answer_s: how long PostgreSQL may be silent before a statement fails [s].

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
    else:
        event.listen(engine, "do_connect", functools.partial(_connect_server, answer_s))
    return engine


def _connect_server(answer_s: float, _: object, __: object, words: list[Any], options: dict[str, Any]) -> Any:
    # libpq's least is 2 s.
    limit = {"connect_timeout": 2} if _ending.is_set() else {}
    connection = _impatient().connect(*words, **options | limit)
    connection.answer_s = answer_s
    return connection


@functools.cache
def _impatient() -> Any:
    """The connection class of psycopg, with a limit for the silence of the server."""
    import psycopg

    class Impatient(psycopg.Connection[Any]):
        answer_s = math.inf

        def wait(self, gen: Generator[Any, Any, Any], *words: Any, **options: Any) -> Any:
            return super().wait(_answered(self, gen), *words, **options)

    return Impatient


def _answered(connection: Any, statement: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Waits for psycopg, and fails when nothing comes for too long."""
    heard = time.monotonic()
    try:
        ready: Any = None
        while True:
            # psycopg sends nothing that is ready every 0.1 s, and after an interruption asks again.
            ready = yield statement.send(ready)
            now = time.monotonic()
            if ready:
                heard = now
            limit = min(connection.answer_s, HURRY_S) if _ending.is_set() else connection.answer_s
            if not now - heard <= limit:
                connection.pgconn.finish()
                raise _silent(limit)
    except StopIteration as end:
        return end.value


def _silent(limit_s: float) -> "psycopg.OperationalError":
    import psycopg

    return psycopg.OperationalError(f"PostgreSQL has not answered for {limit_s:g} s")


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
