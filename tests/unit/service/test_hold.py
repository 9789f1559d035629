"""One service at a time uses a store, and only its workers take jobs."""

import shutil
import socket
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from tests.support.patience import until
from tests.unit.service.test_supervisor import Brittle

from physai.sdk.base.errors import PhysaiError
from physai.service.database import hold as hold_module
from physai.service.database.engine import open_database
from physai.service.database.hold import StoreHold, held_store
from physai.service.database.tables import StoreRow
from physai.service.jobs import executor as executor_module
from physai.service.jobs.queue import JobQueue


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(hold_module, "START_S", 0.0)
    (tmp_path / "data").mkdir()
    return f"sqlite:///{tmp_path}/service.db"


def test_a_copy_of_the_folder_cannot_use_the_database_meanwhile(tmp_path: Path, url: str) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with held_store(url, data) as first:
        assert not first.trouble()
        shutil.copytree(data, copy)
        host = socket.gethostname()
        with pytest.raises(PhysaiError) as refused, held_store(url, copy):
            pass
        assert str(refused.value) == (
            f"the store {first.identifier[:12]} of the database {url} is used by the service {host}:{data}, so this "
            f"one, {host}:{copy}, does not start; stop the other one, or give this one an empty folder and a new "
            "database"
        )
    with held_store(url, copy) as second, Session(open_database(url)) as session:
        assert session.scalar(select(StoreRow.holder)) == second.name != first.name


def test_workers_of_another_service_take_no_jobs(tmp_path: Path, url: str) -> None:
    with held_store(url, tmp_path / "data") as hold:
        engine = open_database(url)
        job = JobQueue(engine).submit("play", {})
        assert JobQueue(engine, holder="0" * 16).claim("other:1") is None
        claim = JobQueue(engine, holder=hold.name).claim("this:1")
        assert claim is not None
        assert claim.job_id == job


class Contested(StoreHold):
    """A lock that another service may take."""

    other: str | None = None

    def _try(self) -> bool:
        return self.other is None

    def trouble(self) -> str:
        return self.other or ""

    def close(self) -> None:
        pass


def test_a_service_that_lost_its_lock_ends_its_workers_until_it_has_it_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "RESTART_S", 0.01)
    engine = open_database(url)
    hold = Contested(engine, "0" * 32, tmp_path)
    supervisor = Brittle(JobQueue(engine), tmp_path, 1, hold)
    supervisor.start()
    try:
        until(lambda: not supervisor.trouble())
        hold.other = "another service has it"
        until(lambda: supervisor.trouble() == "another service has it")
        assert len(supervisor.ended) == 1
        hold.other = None
        until(lambda: not supervisor.trouble())
        assert supervisor.begun == 2
    finally:
        supervisor.stop()
