"""Opens the service's database: SQLite in a file, or PostgreSQL."""

import contextlib
import math
from importlib import metadata
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from physai.compute.database import connect
from physai.sdk.base.errors import PhysaiError
from physai.service.database.private import keep_private

MIGRATIONS = Path(__file__).with_name("migrations")
_MIGRATION_LOCK = 0x70687973


def open_database(url: str) -> Engine:
    """Connects to the database and brings its tables up to date.

    Args:
        url: SQLAlchemy URL, `sqlite:///FILE` or `postgresql+psycopg://USER@HOST/NAME`.

    Raises:
        PhysaiError: the URL is malformed, of another kind of database, nothing answers there, or its tables are those
            of a newer version.
    """
    # To bring many rows up to date, or to wait for another service that does, may take long.
    engine = connect(url, answer_s=math.inf)
    _keep_private(engine)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                # Two services that start at once must not both create the tables.
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            _require_known(connection, config)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        raise PhysaiError(f"database {engine.url.render_as_string()} cannot be used: {_cause(error)}") from error
    finally:
        engine.dispose()
    return connect(url)


def _keep_private(engine: Engine) -> None:
    """Has only its owner read an SQLite database; files beside it get the permissions that it has."""
    file = engine.url.database
    if engine.dialect.name != "sqlite" or file is None or file == ":memory:":
        return
    for path in (Path(file), *(existing for suffix in ("-wal", "-shm") if (existing := Path(file + suffix)).exists())):
        # What cannot be made, the connection explains.
        with contextlib.suppress(OSError):
            keep_private(path)


def _require_known(connection: Connection, config: Config) -> None:
    script = ScriptDirectory.from_config(config)
    known = [revision.revision for revision in script.walk_revisions()]
    for found in MigrationContext.configure(connection).get_current_heads():
        if found not in known:
            raise PhysaiError(
                f"database {connection.engine.url.render_as_string()} has tables of version {found[:40]}, and physai "
                f"{metadata.version('physai-sdk')} knows those up to version {max(known)}: a newer physai has used it; "
                "install that one again, or restore a backup of database and data folder from before it"
            )


def _cause(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
