"""The promise: no token reads a job's key, and no other account of the computer the database or the log."""

import stat
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from physai.service.database.engine import open_database
from physai.service.database.hold import held_store
from physai.service.database.tables import ArtefactRow
from physai.service.jobs.kinds import OUTPUT
from physai.service.jobs.queue import Artefact, JobQueue
from physai.service.jobs.worker import Worker
from physai.service.observe.logs import log_requests
from physai.service.observe.requests import log
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore

OTHERS = 0o077


def others(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) & OTHERS


def run_folder(folder: Path) -> Path:
    """Files as `physai train` leaves them."""
    for name in ("policy.onnx", "run.key", ".lock", "seed-1/run.key", "seed-1/checkpoint.pt", ".hidden/x.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"" if name == ".lock" else name.encode())
    return folder


def test_a_jobs_keys_and_locks_are_no_artefacts(tmp_path: Path) -> None:
    jobs = JobQueue(open_database(f"sqlite:///{tmp_path}/service.db"))
    worker = Worker(jobs, BlobStore(tmp_path / "blobs"), tmp_path / "jobs", "here:1")
    run_folder(tmp_path / "jobs" / "a" / OUTPUT)
    found = worker._collect(tmp_path / "jobs" / "a")  # pyright: ignore[reportPrivateUsage]
    assert [artefact.name for artefact in found] == ["policy.onnx", "seed-1/checkpoint.pt"]


def test_what_earlier_versions_published_is_removed_at_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    url = f"sqlite:///{data}/service.db"
    with held_store(url, data):
        pass
    engine, blobs, output = open_database(url), BlobStore(data / "blobs"), run_folder(tmp_path / "run")
    jobs = JobQueue(engine)
    job, claim = jobs.submit("train", {"task": "cartpole-swingup"}), jobs.claim("here:1")
    assert claim is not None
    names = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    stored = {name: blobs.put_file(output / name) for name in names}
    stored["empty.txt"] = stored[".lock"]
    jobs.end(claim, "succeeded", artefacts=[Artefact(name, *found) for name, found in stored.items()])
    for _ in range(2):
        with held_store(url, data):
            pass
        with Session(engine) as session:
            left = set(session.scalars(select(ArtefactRow.name).where(ArtefactRow.job_id == job)))
        assert left == {"policy.onnx", "seed-1/checkpoint.pt", "empty.txt"}
        for name, (sha256, _) in stored.items():
            if name.endswith(".key"):
                with pytest.raises(ProblemError, match="no file has SHA-256"):
                    blobs.path(sha256)
            elif not name.startswith(".hidden"):
                assert blobs.path(sha256).is_file()


@pytest.mark.parametrize("earlier", [False, True])
def test_only_the_owner_reads_database_and_log(tmp_path: Path, earlier: bool) -> None:
    database, requests = tmp_path / "service.db", tmp_path / "requests.log"
    if earlier:
        for path in (database, requests, tmp_path / "requests.log.1"):
            path.touch(mode=0o644)
    engine = open_database(f"sqlite:///{database}")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE written (x)")
        written = [path for path in tmp_path.glob("service.db*") if path.suffix != ".service"]
        assert {others(path) for path in written} == {0}
    handlers = log.handlers[:]
    try:
        log_requests(requests)
        log.info("a request")
        rotating = log.handlers[0]
        assert isinstance(rotating, RotatingFileHandler)
        rotating.doRollover()
        assert {others(path) for path in tmp_path.glob("requests.log*")} == {0}
    finally:
        log.handlers[0].close()
        log.handlers[:] = handlers


def test_a_log_that_is_no_plain_file_is_left_alone() -> None:
    before = stat.S_IMODE(Path("/dev/null").stat().st_mode)
    handlers = log.handlers[:]
    try:
        log_requests(Path("/dev/null"))
        assert stat.S_IMODE(Path("/dev/null").stat().st_mode) == before
    finally:
        log.handlers[0].close()
        log.handlers[:] = handlers
