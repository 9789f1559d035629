"""One service at a time uses a store: it holds a lock of the store's database while it runs."""

import contextlib
import fcntl
import hashlib
import math
import os
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from pathlib import Path

from sqlalchemy import Connection, Engine, func, select, update
from sqlalchemy.exc import SQLAlchemyError

from physai.compute.database import connect, reading
from physai.sdk.base.errors import PhysaiError
from physai.service.database.engine import open_database
from physai.service.database.private import remove_private
from physai.service.database.store import bind_store
from physai.service.database.tables import StoreRow

CHECK_S = 1.0
"""How often a service looks whether it still has its lock [s]."""
START_S = 3.0
"""How long a service that starts waits for the lock of one that was killed a moment ago [s]."""
LOCK_SUFFIX = ".service"
"""Of the file beside an SQLite database that is locked."""
# A computer that vanishes, or is cut off, loses its lock after 20 s.
_SESSION = """SELECT set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '5', false),
set_config('tcp_keepalives_count', '3', false)"""


class StoreHold(ABC):
    """The lock of a store, which this process has while `trouble` is empty."""

    def __init__(self, engine: Engine, identifier: str, data: Path) -> None:
        """Holds nothing yet.

        Args:
            engine: the database.
            identifier: of the store.
            data: the service's folder, for messages.
        """
        self.engine = engine
        self.identifier = identifier
        self.name = f"{secrets.token_hex(8)} {socket.gethostname()}:{data}"
        """In the database while this service has the lock: workers of another one take no jobs."""
        self._trouble = ""

    def trouble(self) -> str:
        """The other service that has the lock; empty if this one has it, or cannot know because the database is
        away.
        """
        return self._trouble

    def take(self, patience_s: float) -> None:
        """Takes the lock; tries for so long [s].

        Raises:
            PhysaiError: another service has it.
            SQLAlchemyError: the database does not answer.
        """
        end = time.monotonic() + patience_s
        while not self._try():
            if time.monotonic() > end:
                raise PhysaiError(
                    f"the store {self.identifier[:12]} of the database {self.engine.url.render_as_string()} is used by "
                    f"the service {_place(self._holder())}, so this one, {_place(self.name)}, does not start; stop the "
                    "other one, or give this one an empty folder and a new database"
                )
            time.sleep(0.1)
        self._sign()

    @abstractmethod
    def _try(self) -> bool:
        """Tries to take the lock; returns whether this service has it."""

    def _sign(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(update(StoreRow).values(holder=self.name))

    def _holder(self) -> str:
        with reading(self.engine).connect() as connection:
            return connection.scalar(select(StoreRow.holder)) or ""

    @abstractmethod
    def close(self) -> None:
        """Returns the lock."""


class _FileHold(StoreHold):
    """The lock of a file beside an SQLite database."""

    def _try(self) -> bool:
        self._file = os.open(f"{self.engine.url.database}{LOCK_SUFFIX}", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            return False
        return True

    def close(self) -> None:
        """Returns the lock."""
        os.close(self._file)


class _ServerHold(StoreHold):
    """An advisory lock of a connection with PostgreSQL; taken again when the connection broke off."""

    def __init__(self, engine: Engine, identifier: str, data: Path) -> None:
        super().__init__(engine, identifier, data)
        digest = hashlib.sha256(f"physai store {identifier}".encode()).digest()
        # PostgreSQL's bigint.
        self._key = int.from_bytes(digest[:8], "big", signed=True)
        self._connection: Connection | None = None
        self._lost = False
        """Whether the lock has to be taken again; this service's own broken connection may have it for a while."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="store", daemon=True)

    def take(self, patience_s: float) -> None:
        """Takes the lock, and watches it from then on."""
        super().take(patience_s)
        self._thread.start()

    def _try(self) -> bool:
        if self._connection is None:
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            connection.detach()
            self._connection = connection
            connection.exec_driver_sql(_SESSION)
        return bool(self._connection.scalar(select(func.pg_try_advisory_lock(self._key))))

    def _watch(self) -> None:
        while not self._stopping.wait(CHECK_S):
            try:
                self._check()
            except SQLAlchemyError:
                # Whoever has the lock when the database is back is the service.
                self._drop()

    def _check(self) -> None:
        if self._connection is not None and not self._lost:
            self._connection.exec_driver_sql("SELECT 1")
        elif self._try():
            self._sign()
            self._trouble, self._lost = "", False
        elif (other := self._holder()) != self.name:
            self._trouble = (
                f"the service {_place(other)} took over the store {self.identifier[:12]} while the database was away, "
                "so this one runs no jobs; stop one of the two"
            )

    def _drop(self) -> None:
        connection, self._connection, self._lost = self._connection, None, True
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()
            with contextlib.suppress(SQLAlchemyError):
                connection.close()

    def close(self) -> None:
        """Returns the lock; a database that does not answer gets it when this process ends."""
        self._stopping.set()
        self._thread.join(CHECK_S)
        if not self._thread.is_alive():
            self._drop()


def _place(name: str) -> str:
    return name.partition(" ")[2] or "of another computer"


@contextlib.contextmanager
def held_store(url: str, data: Path) -> Generator[StoreHold]:
    """The lock of the store of a database and a data folder, for as long as the block lasts.

    Raises:
        PhysaiError: another service has it, the two do not belong together, or the database cannot be used.
    """
    identifier = bind_store(open_database(url), data)
    # A lock is not given up because its database is slow.
    engine = connect(url, answer_s=math.inf)
    hold = (_ServerHold if engine.dialect.name == "postgresql" else _FileHold)(engine, identifier, data)
    try:
        hold.take(START_S)
        remove_private(engine, data)
    except (SQLAlchemyError, OSError) as error:
        raise PhysaiError(f"{data} and {engine.url.render_as_string()} cannot be used: {error}") from error
    try:
        yield hold
    finally:
        hold.close()
        engine.dispose()
