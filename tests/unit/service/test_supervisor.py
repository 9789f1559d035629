"""The thread that looks after workers outlives every error of its work, and says when workers are missing."""

import asyncio
import io
import queue
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError
from tests.support.patience import until

from physai.service.database.engine import open_database
from physai.service.jobs import executor as executor_module
from physai.service.jobs import worker as worker_module
from physai.service.jobs.executor import Supervisor
from physai.service.jobs.queue import JobQueue, Line
from physai.service.jobs.worker import node_name
from physai.service.serving.app import repeat


class Brittle(Supervisor[str]):
    """Workers that are names, and fail in each way on demand."""

    broken = ""
    begun = 0
    ended: tuple[str, ...] = ()
    alive = True
    heard = True
    looked = 0
    silent_s = 0.0

    def _begin(self) -> str:
        self._fail("begin")
        self.begun += 1
        self.alive = True
        return f"{self._node}:{self.begun}"

    def _lives(self, member: str) -> bool:
        self._fail("look")
        return self.alive

    def _hear(self, member: str) -> tuple[bool, float]:
        self.looked += 1
        return self.heard, self.silent_s

    def _name(self, member: str) -> str:
        return member

    def _bury(self, member: str) -> None:
        self._fail("bury")

    def _end(self, members: list[str]) -> None:
        self.ended = tuple(members)

    def _fail(self, what: str) -> None:
        if self.broken == what:
            raise OSError(f"{what} does not work")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(executor_module, "RESTART_S", 0.01)
    return tmp_path


@pytest.mark.parametrize("broken", ["begin", "look", "bury"])
def test_an_error_is_reported_and_outlived(folder: Path, broken: str) -> None:
    supervisor = Brittle(JobQueue(open_database(f"sqlite:///{folder}/queue.db")), folder, 1)
    assert "has ended" in supervisor.trouble()
    supervisor.start()
    try:
        until(lambda: not supervisor.trouble())
        supervisor.broken, supervisor.alive = broken, False
        if broken == "bury":  # which is tried once
            until(lambda: supervisor.begun == 2)
        else:
            until(lambda: supervisor.trouble() == "1 of 1 workers are missing; the service's log says why")
        supervisor.broken = ""
        until(lambda: not supervisor.trouble())
        assert supervisor.begun >= 2
    finally:
        supervisor.stop()
    assert supervisor.ended == (f"{node_name(folder)}:{supervisor.begun}",)
    assert "has ended" in supervisor.trouble()


def test_a_worker_that_takes_a_dead_ones_place_is_missing_until_it_is_heard_of(folder: Path) -> None:
    supervisor = Brittle(JobQueue(open_database(f"sqlite:///{folder}/queue.db")), folder, 1)
    supervisor.heard = False
    supervisor.start()
    try:
        until(lambda: not supervisor.trouble())
        supervisor.alive = False
        until(lambda: supervisor.trouble() == "1 of 1 workers are missing; the service's log says why")
        looked = supervisor.looked
        until(lambda: supervisor.looked > looked + 3)
        assert supervisor.trouble()
        supervisor.heard = True
        until(lambda: not supervisor.trouble())
    finally:
        supervisor.stop()


def test_a_worker_that_says_nothing_for_long_is_named(folder: Path) -> None:
    supervisor = Brittle(JobQueue(open_database(f"sqlite:///{folder}/queue.db")), folder, 1)
    supervisor.start()
    try:
        until(lambda: not supervisor.trouble())
        supervisor.silent_s = 11.0
        until(lambda: f"{node_name(folder)}:1 has not been heard of for 11 s" in supervisor.trouble())
        supervisor.silent_s = 0.0
        until(lambda: not supervisor.trouble())
        assert supervisor.begun == 1, "a worker that hangs is not killed: it may only wait for the database"
    finally:
        supervisor.stop()


def test_jobs_of_an_earlier_run_are_returned_once_the_database_is_there(folder: Path) -> None:
    """Its absence at the start ends nothing."""
    engine = open_database(f"sqlite:///{folder}/queue.db")
    jobs = JobQueue(engine)
    job = jobs.submit("play", {})
    assert jobs.claim(f"{node_name(folder)}:1:2") is not None
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE jobs RENAME TO away")
    supervisor = Brittle(jobs, folder, 1)
    supervisor.start()
    try:
        until(lambda: "jobs of an earlier run cannot be returned" in supervisor.trouble())
        assert supervisor.begun == 0
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO jobs")
        until(lambda: not supervisor.trouble())
        assert jobs.get(job)["state"] == "queued"
    finally:
        supervisor.stop()


def test_a_dead_workers_job_is_returned_as_soon_as_the_database_is_back(folder: Path) -> None:
    engine = open_database(f"sqlite:///{folder}/queue.db")
    jobs = JobQueue(engine)
    supervisor = Brittle(jobs, folder, 1)
    job = jobs.submit("play", {})
    supervisor.start()
    try:
        until(lambda: supervisor.begun == 1)
        assert jobs.claim(f"{node_name(folder)}:1") is not None
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE jobs RENAME TO away")
        supervisor.alive = False
        until(lambda: supervisor.begun == 2)
        with pytest.raises(SQLAlchemyError):
            jobs.get(job)
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO jobs")
        until(lambda: jobs.get(job)["state"] == "queued")
    finally:
        supervisor.stop()


def test_what_is_repeated_goes_on_after_an_error() -> None:
    taken: list[int] = []

    async def step() -> None:
        taken.append(len(taken))
        if len(taken) < 3:
            raise ZeroDivisionError

    async def run() -> None:
        task = asyncio.create_task(repeat(step, 0.001))
        while len(taken) < 5:
            assert not task.done()
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(run())


def test_lines_of_a_job_are_read_though_its_log_cannot_be_written(tmp_path: Path) -> None:
    lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
    worker_module._read_lines(io.BytesIO(b"one\ntwo\n"), tmp_path / "missing" / "log", lines)  # pyright: ignore[reportPrivateUsage]
    worker_module._read_lines(io.BytesIO(b"three\n"), Path("/dev/full"), lines)  # pyright: ignore[reportPrivateUsage]
    assert [lines.get().text for _ in range(3)] == ["one", "two", "three"]
