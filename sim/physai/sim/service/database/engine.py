"""Opens the service's database: SQLite in a file, or PostgreSQL."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from physai.sdk.base.errors import PhysaiError
from physai.sim.database import connect

MIGRATIONS = Path(__file__).with_name("migrations")
_MIGRATION_LOCK = 0x70687973


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


def _cause(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
