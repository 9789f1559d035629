"""A service is not ready beside workers that hang or die at every start, or with a database that cannot be written."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from tests.support.outages import may_mount, small_disk
from tests.support.patience import until
from tests.support.service import job_pids

from physai.service.database.store import STORE_FILE
from physai.service.serving.process import ServiceProcess


def problem(service: ServiceProcess) -> str:
    """Why a service is not ready; empty if it is."""
    answer = httpx.get(f"{service.url}/readyz")
    assert answer.status_code in (200, 503)
    return answer.json().get("detail", "")


@pytest.fixture
def service(tmp_path: Path) -> Generator[ServiceProcess]:
    service = ServiceProcess(tmp_path / "data")
    service.start()
    yield service
    service.stop()


@pytest.mark.slow
def test_a_worker_that_hangs(service: ServiceProcess) -> None:
    (worker,) = job_pids(service.data)
    os.kill(worker, signal.SIGSTOP)
    until(lambda: f":{worker} has not been heard of for " in problem(service), said=lambda: problem(service))
    os.kill(worker, signal.SIGCONT)
    until(lambda: not problem(service), said=lambda: problem(service))


@pytest.mark.slow
def test_a_worker_that_dies_at_every_start(service: ServiceProcess) -> None:
    store = service.data / STORE_FILE
    identifier = store.read_bytes()
    store.unlink()
    (worker,) = job_pids(service.data)
    os.kill(worker, signal.SIGKILL)
    until(lambda: problem(service))
    seen: set[int] = set()

    def look() -> None:
        seen.update(job_pids(service.data))
        assert "1 of 1 workers are missing" in problem(service)

    until(lambda: len(seen) >= 4, look)
    store.write_bytes(identifier)
    until(lambda: not problem(service), said=lambda: problem(service))


@pytest.mark.slow
def test_a_full_disk_below_the_database_alone(tmp_path: Path) -> None:
    if not may_mount(tmp_path):
        pytest.skip("a small disk needs the right to mount a tmpfs, which this process has not")
    with small_disk(tmp_path) as store:
        service = ServiceProcess(tmp_path / "data", database=f"sqlite:///{store.data.parent}/service.db", workers=0)
        service.start()
        try:
            store.take()
            until(lambda: "whether its disk is full" in problem(service))
            store.give()
            until(lambda: not problem(service), said=lambda: problem(service))
        finally:
            service.stop()
