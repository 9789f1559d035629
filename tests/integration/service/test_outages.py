"""Database or disk go away under a working service and come back: no job, upload or session suffers."""

from pathlib import Path

import pytest
from tests.support.outages import STORES, may_mount, play_outages, small_disk
from tests.support.patience import until
from tests.support.service import job_pids, postgres_folder

from physai.service.jobs.queue import MAX_CRASHES
from physai.service.serving.process import ServiceProcess

FEW = {"postgresql-ends": 7, "postgresql-hangs": 6, "disk-full": 7}
MANY = {"postgresql-ends": 67, "postgresql-hangs": 67, "disk-full": 66}


def require(kind: str, folder: Path) -> None:
    if kind == "disk-full" and not may_mount(folder):
        pytest.skip("a small disk needs the right to mount a tmpfs, which this process has not")
    if kind != "disk-full" and postgres_folder() is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")


@pytest.mark.slow
@pytest.mark.parametrize("kind", STORES)
def test_outages_cost_nothing(tmp_path: Path, kind: str) -> None:
    require(kind, tmp_path)
    assert len(play_outages(tmp_path, kind, FEW[kind], longest_s=20.0, seed=1)) == FEW[kind]


@pytest.mark.slow
def test_short_full_disks_that_end_a_jobs_process_are_not_its_crashes(tmp_path: Path) -> None:
    """Each in time to end it: after three crashes a job fails."""
    require("disk-full", tmp_path)
    with small_disk(tmp_path) as store:
        service = ServiceProcess(store.data, workers=1)
        service.start()
        try:
            spec = {"task": "cartpole-swingup", "iterations": 1_000_000, "worlds": 64, "time_budget_s": 3000.0}
            job = service.client.submit("train", spec)
            checkpoint = store.data / "jobs" / job / "output" / "checkpoint.pt"
            for _ in range(MAX_CRASHES):
                until(lambda: checkpoint.exists() and processes(store.data))
                before = processes(store.data)
                store.take()
                until(lambda ended=before: not set(ended) & set(processes(store.data)))
                store.give()
                until(lambda ended=before: set(processes(store.data)) - set(ended))
            assert service.client.job(job)["state"] == "running"
            service.client.cancel(job)
        finally:
            service.stop()


def processes(data: Path) -> list[int]:
    """Processes that compute a job, not its worker."""
    return [pid for pid in job_pids(data) if b"jobs.child" in command_of(pid)]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", STORES)
def test_200_outages_of_up_to_a_minute_cost_nothing(tmp_path: Path, kind: str) -> None:
    require(kind, tmp_path)
    assert len(play_outages(tmp_path, kind, MANY[kind], longest_s=60.0, seed=2)) == MANY[kind]
