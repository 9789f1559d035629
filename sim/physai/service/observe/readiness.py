"""Whether a service can do its work: the database can be written, the disk has room, and workers take jobs."""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path

from sqlalchemy import Engine, update

from physai.service.database.tables import StoreRow
from physai.service.jobs.executor import JobExecutor
from physai.service.problems import STORAGE_ERRORS, ProblemError, storage_away
from physai.service.registry.blobs import BlobStore, require_room

ANSWER_S = 3.0
"""How long the database may take to answer [s]."""


class Readiness:
    """Looks at what a service needs; belongs to its event loop."""

    def __init__(self, engine: Engine, blobs: BlobStore, executor: JobExecutor) -> None:
        """Of a service that stores its data in these two and runs jobs by that executor."""
        self._engine = engine
        self._blobs = blobs
        self._executor = executor
        # One look at a time, in a thread of its own: a database that hangs takes no more than that one.
        self._look: Future[None] | None = None

    async def require(self) -> None:
        """Returns if the service can do its work.

        Raises:
            ProblemError: it cannot; the message says why.
        """
        if self._look is None or self._look.done():
            self._look = Future()
            threading.Thread(target=self._touch, args=(self._look,), name="readiness", daemon=True).start()
        look = asyncio.wrap_future(self._look)
        done, _ = await asyncio.wait({look}, timeout=ANSWER_S)
        if not done:
            raise ProblemError(503, "storage", f"the database has not answered for {ANSWER_S:g} s; look at its log")
        try:
            look.result()
        except STORAGE_ERRORS as error:
            raise storage_away(error) from error
        trouble = self._executor.trouble()
        if trouble:
            raise ProblemError(503, "workers", trouble)

    def _touch(self, look: "Future[None]") -> None:
        try:
            self._blobs.require_room()
            database = self._engine.url.database
            if self._engine.dialect.name == "sqlite" and database:
                # A write may find room in what the database has already, and a job's submission then find none.
                require_room(Path(database).parent)
            with self._engine.begin() as connection:
                connection.execute(update(StoreRow).values(holder=StoreRow.holder))
        except BaseException as error:
            look.set_exception(error)
        else:
            look.set_result(None)
