"""A worker whose data folder is away for a while, as when its volume is unmounted, fails no job."""

import json
import threading
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from tests.support.patience import until

from physai.service.database.engine import open_database
from physai.service.jobs import worker as worker_module
from physai.service.jobs.child import EXIT_FILE
from physai.service.jobs.queue import ClaimedJob, JobQueue, Line
from physai.service.jobs.worker import JOB_FILE, Unsaid, Worker
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore


class Unmounted(JobQueue):
    """The volume goes away when a job is taken."""

    data: Path

    def claim(self, worker: str, *, silent: bool = True) -> ClaimedJob | None:
        claim = super().claim(worker, silent=silent)
        if claim is not None:
            self.data.rename(self.data.with_name("gone"))
            self.data.mkdir()
        return claim


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(worker_module, "POLL_S", 0.01)
    (tmp_path / "data" / "jobs").mkdir(parents=True)
    return tmp_path / "data"


def test_its_job_waits(data: Path) -> None:
    blobs = BlobStore(data / "blobs")
    jobs = Unmounted(open_database(f"sqlite:///{data.parent}/service.db"))
    jobs.data = data
    policy = blobs.put(b"a policy")
    job = jobs.submit("play", {"policy": policy})
    worker = Worker(jobs, blobs, data / "jobs", "here:1")
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        until(lambda: jobs.get(job)["attempt"] == 1 and jobs.get(job)["state"] != "running")
        refused: set[float] = set()
        until(lambda: len(refused) > 3, lambda: refused.add(worker._away))  # pyright: ignore[reportPrivateUsage]
    finally:
        worker.stopping = True
        thread.join()
    found = jobs.get(job)
    assert (found["state"], found["error"], found["attempt"]) == ("queued", None, 1), "and none is taken meanwhile"
    assert not list(data.iterdir()), "nothing is put in the place of the volume"
    with pytest.raises(OSError, match="the data folder is away"):
        blobs.path(policy)
    data.rmdir()
    data.with_name("gone").rename(data)
    with pytest.raises(ProblemError, match="no file has SHA-256"):
        blobs.path("0" * 64)


def test_lines_of_a_lost_answer_are_said_once(data: Path) -> None:
    class Losing(JobQueue):
        lose = True

        def report(self, claim: ClaimedJob, lines: "list[Line]", *, again: bool = False) -> bool | None:  # type: ignore[override]
            answer = super().report(claim, lines, again=again)
            if self.lose:
                raise OperationalError("COMMIT", {}, Exception("server closed the connection"))
            return answer

    jobs = Losing(open_database(f"sqlite:///{data.parent}/service.db"))
    job, claim = jobs.submit("train", {"task": "cartpole-swingup"}), jobs.claim("here:1")
    assert claim is not None
    worker, unsaid = Worker(jobs, BlobStore(data / "blobs"), data / "jobs", "here:1"), Unsaid()
    unsaid.lines.append(Line("iteration 7", 1.0))
    worker._report(claim, unsaid)  # pyright: ignore[reportPrivateUsage]
    jobs.lose = False
    unsaid.lines.append(Line("iteration 8", 2.0))
    worker._report(claim, unsaid)  # pyright: ignore[reportPrivateUsage]
    texts = [event["text"] for event in jobs.events(job) if event["kind"] == "progress"]
    assert texts == ["iteration 7", "iteration 8"]


def test_a_jobs_folder_says_what_its_job_is(data: Path) -> None:
    blobs = BlobStore(data / "blobs")
    jobs = JobQueue(open_database(f"sqlite:///{data.parent}/service.db"))
    spec = {"policy": blobs.put(b"a policy"), "seed": 3}
    job, claim = jobs.submit("play", spec, by="the token's name"), jobs.claim("here:1")
    assert claim is not None
    worker = Worker(jobs, blobs, data / "jobs", "here:1")
    worker._prepare(claim, data / "jobs" / job)  # pyright: ignore[reportPrivateUsage]
    said = json.loads((data / "jobs" / job / JOB_FILE).read_text("utf-8"))
    assert said == {"job": job, "kind": "play", "spec": spec}


def test_a_folder_of_another_job_of_the_same_name_is_moved_aside(data: Path) -> None:
    """As after the restoration of an older database: its result is not that of the new job."""
    blobs = BlobStore(data / "blobs")
    worker = Worker(JobQueue(open_database(f"sqlite:///{data.parent}/service.db")), blobs, data / "jobs", "here:1")
    name = "0123456789abcdef"
    before = ClaimedJob(name, 1, "play", {"policy": blobs.put(b"a policy")})
    folder = data / "jobs" / name
    worker._prepare(before, folder)  # pyright: ignore[reportPrivateUsage]
    (folder / EXIT_FILE).write_text('{"code": 0}')
    worker._prepare(before, folder)  # pyright: ignore[reportPrivateUsage]
    assert (folder / EXIT_FILE).exists(), "the same job goes on"
    worker._prepare(ClaimedJob(name, 1, "train", {"task": "cartpole-swingup"}), folder)  # pyright: ignore[reportPrivateUsage]
    assert not (folder / EXIT_FILE).exists()
    (aside,) = data.glob("jobs/*.other")
    assert (aside / EXIT_FILE).exists()
