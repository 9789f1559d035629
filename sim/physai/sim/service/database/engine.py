"""Opens the service's database: SQLite in a file, or PostgreSQL."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, event, func, select
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from physai.sdk.base.errors import PhysaiError

MIGRATIONS = Path(__file__).with_name("migrations")
DIALECTS = ("sqlite", "postgresql")
_MIGRATION_LOCK = 0x70687973
BUSY_S = 30.0
"""How long a writer waits for another one in SQLite [s]."""


def open_database(url: str) -> Engine:
    """Connects to the database and brings its tables up to date.

    Args:
        url: SQLAlchemy URL, `sqlite:///FILE` or `postgresql+psycopg://USER@HOST/NAME`.

    Raises:
        PhysaiError: the URL is malformed, of another kind of database, or nothing answers there.
    """
    engine = connect(url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # Two services that start at once must not both create the tables.
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        raise PhysaiError(f"database {engine.url.render_as_string()} cannot be used: {_cause(error)}") from error
    return engine


def connect(url: str) -> Engine:
    """Returns an engine for a database whose tables exist; see `open_database` for the errors."""
    try:
        engine = create_engine(url, pool_pre_ping=True)
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
    # read before. SQLAlchemy's `begin` below takes the write lock first.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")


def _begin_immediate(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _cause(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
