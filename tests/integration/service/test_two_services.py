"""Two services with different data folders do not share a database, not even if one folder is a copy of the other."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from tests.support.patience import until
from tests.support.service import PostgresServer, postgres_folder, resting_policy, running_postgres

from physai.sdk.base.errors import PhysaiError
from physai.service.database.engine import open_database
from physai.service.database.store import bind_store
from physai.service.jobs import queue as queue_module
from physai.service.jobs.queue import JobQueue
from physai.service.serving.process import ServiceProcess


@pytest.fixture
def server() -> Generator[PostgresServer]:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as home, running_postgres(Path(home), programs) as server:
        yield server


@pytest.mark.slow
def test_in_postgresql_the_second_folder_is_refused(tmp_path: Path, server: PostgresServer) -> None:
    engine = open_database(server.url)
    (tmp_path / "one").mkdir()
    bind_store(engine, tmp_path / "one")
    bind_store(engine, tmp_path / "one")
    with pytest.raises(PhysaiError, match=r"belongs to the store .* to none: .* start with the --data and the --db"):
        ServiceProcess(tmp_path / "two", database=server.url).start()
    engine.dispose()


@pytest.mark.slow
def test_in_postgresql_a_copied_folder_waits_for_the_death_of_the_first(tmp_path: Path, server: PostgresServer) -> None:
    first = ServiceProcess(tmp_path / "one", database=server.url, workers=0)
    second = ServiceProcess(tmp_path / "two", database=server.url, workers=0)
    first.start()
    try:
        shutil.copytree(first.data, second.data)
        with pytest.raises(PhysaiError, match=rf"used by the service \S+:{first.data}, so .*:{second.data}, does not"):
            second.start()
        first.kill()
        second.start()
    finally:
        first.kill()
        second.stop()


def why_not(service: ServiceProcess) -> str:
    return httpx.get(f"{service.url}/readyz", timeout=30.0).json().get("detail", "")


@pytest.mark.slow
def test_who_loses_the_store_in_an_outage_takes_no_jobs_and_says_why(tmp_path: Path, server: PostgresServer) -> None:
    first = ServiceProcess(tmp_path / "one", database=server.url)
    second = ServiceProcess(tmp_path / "two", database=server.url, workers=0)
    first.start()
    assert first.process is not None
    try:
        shutil.copytree(first.data, second.data)
        policy = first.client.upload(resting_policy())
        # The first one does not see that its database breaks off and comes back; its worker does.
        os.kill(first.process.pid, signal.SIGSTOP)
        server.stop()
        server.start()
        second.start()
        assert second.client.upload(resting_policy()) == policy
        job = second.client.submit("play", {"policy": policy, "duration_s": 0.1})
        os.kill(first.process.pid, signal.SIGCONT)
        until(lambda: f":{second.data} took over the store" in why_not(first), said=lambda: why_not(first))
        assert second.client.job(job)["state"] == "queued"
        second.stop()
        until(lambda: not why_not(first), said=lambda: why_not(first))
        assert [event["text"] for event in first.client.follow(job)][-1] == "succeeded"
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
        first.stop()
        second.stop()


@pytest.mark.slow
def test_a_clock_that_is_ahead_does_not_take_a_job_from_its_worker(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = JobQueue(open_database(server.url))
    job = jobs.submit("play", {})
    claim = jobs.claim("here:1")
    assert claim is not None
    now = time.time()
    monkeypatch.setattr(queue_module.time, "time", lambda: now + 3600.0)
    assert jobs.claim("ahead:1") is None
    assert jobs.report(claim, []) is False
    monkeypatch.setattr(queue_module.time, "time", lambda: now - 3600.0)
    assert jobs.report(claim, []) is False
    with open_database(server.url).begin() as connection:
        # Its lease ends by the server's clock.
        connection.exec_driver_sql("UPDATE jobs SET lease_until = extract(epoch FROM clock_timestamp()) - 0.1")
    again = jobs.claim("behind:1")
    assert again is not None
    assert (again.job_id, again.attempt) == (job, 2)
