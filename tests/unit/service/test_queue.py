"""A job ends exactly once, whatever its workers do and in whatever order."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from physai.service.database.engine import open_database
from physai.service.jobs import queue as queue_module
from physai.service.jobs.queue import ENDED, MAX_CRASHES, Artefact, ClaimedJob, JobQueue, Line
from physai.service.problems import ProblemError


class QueueMachine(RuleBasedStateMachine):
    """Workers claim, report, end, crash and die; clients submit, cancel and retry."""

    @initialize()
    def open(self) -> None:
        self._folder = TemporaryDirectory()
        self.queue = JobQueue(open_database(f"sqlite:///{self._folder.name}/queue.db"))
        self.jobs: list[str] = []
        self.claims: list[ClaimedJob] = []
        self.holder: dict[str, int] = {}
        """Attempt that may end a job."""
        self.ends: dict[str, list[str]] = {}
        """Ends of each job since it was last (re)submitted."""

    def teardown(self) -> None:
        self._folder.cleanup()

    @precondition(lambda self: len(self.jobs) < 4)
    @rule()
    def submit(self) -> None:
        job = self.queue.submit("train", {"number": len(self.jobs)})
        self.jobs.append(job)
        self.ends[job] = []

    @rule(worker=st.sampled_from(["a:1", "a:12", "b:2"]))
    def claim(self, worker: str) -> None:
        waiting = [job for job in reversed(self.queue.all()) if job["state"] == "queued"]
        claim = self.queue.claim(worker)
        assert (claim is None) == (not waiting)
        if claim is not None:
            assert claim.job_id == waiting[0]["id"], "the oldest comes first"
            assert claim.spec == waiting[0]["spec"]
            assert self.holder.get(claim.job_id, 0) < claim.attempt
            self.holder[claim.job_id] = claim.attempt
            self.claims.append(claim)

    def _holds(self, claim: ClaimedJob) -> bool:
        running = self.queue.get(claim.job_id)["state"] == "running"
        return running and self.holder[claim.job_id] == claim.attempt

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), state=st.sampled_from(ENDED))
    def end(self, data: st.DataObject, state: str) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        held = self._holds(claim)
        artefacts = [Artefact("output", "0" * 64, 1)]
        assert self.queue.end(claim, state, result={"attempt": claim.attempt}, artefacts=artefacts) == held
        if held:
            self.ends[claim.job_id].append(state)
            assert self.queue.get(claim.job_id)["result"] == {"attempt": claim.attempt}

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        held, cancel = self._holds(claim), self.queue.get(claim.job_id)["cancel_requested"]
        assert self.queue.report(claim, [Line("working", 1.0)]) == (cancel if held else None)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), crashed=st.booleans())
    def give_back(self, data: st.DataObject, crashed: bool) -> None:
        claim = data.draw(st.sampled_from(self.claims))
        held = self._holds(claim)
        self.queue.give_back(claim, crashed=crashed)
        after = self.queue.get(claim.job_id)["state"]
        if held and after in ENDED:
            self.ends[claim.job_id].append(after)

    @rule(dead=st.sampled_from([("a", "a:1", "a:12"), ("a:1",), ("b:2",), ("c",)]))
    def workers_die(self, dead: tuple[str, ...]) -> None:
        worker = dead[0]
        lost = [job["id"] for job in self.queue.all(state="running") if job["worker"] in dead]
        assert self.queue.release(worker) == len(lost)
        assert all(self.queue.get(job)["state"] == "queued" for job in lost)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        before = self.queue.get(job)["state"]
        after = self.queue.cancel(job)
        assert after == ("cancelled" if before == "queued" else before)
        if before == "queued":
            self.ends[job].append("cancelled")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs))
        if self.queue.get(job)["state"] in ("failed", "cancelled"):
            assert self.queue.retry(job) == "queued"
            self.ends[job] = []
        else:
            with pytest.raises(ProblemError, match="only failed or cancelled"):
                self.queue.retry(job)

    @invariant()
    def each_job_ends_at_most_once(self) -> None:
        for job in self.jobs:
            state = self.queue.get(job)["state"]
            assert self.ends[job] == ([state] if state in ENDED else [])


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    return JobQueue(open_database(f"sqlite:///{tmp_path}/queue.db"))


def test_a_worker_that_stops_reporting_loses_its_job(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.submit("train", {})
    first = queue.claim("a")
    assert first is not None
    assert queue.claim("b") is None
    later = time.time() + queue_module.LEASE_S + 1.0
    monkeypatch.setattr(queue_module.time, "time", lambda: later)
    second = queue.claim("b")
    assert second is not None
    assert (second.job_id, second.attempt) == (first.job_id, 2)
    assert queue.report(first, []) is None
    assert not queue.end(first, "succeeded")
    assert queue.end(second, "succeeded")


def test_a_job_whose_process_keeps_dying_fails(queue: JobQueue) -> None:
    job = queue.submit("train", {})
    for _ in range(MAX_CRASHES):
        claim = queue.claim("a")
        assert claim is not None
        queue.give_back(claim, crashed=True)
    assert queue.get(job)["state"] == "failed"
    assert queue.get(job)["error"] == f"its process died {MAX_CRASHES} times; see its log"
    assert queue.claim("a") is None


def test_a_request_sent_twice_is_one_job(queue: JobQueue) -> None:
    job = queue.submit("train", {"a": 1}, identifier="0" * 16)
    assert queue.submit("train", {"a": 1}, identifier="0" * 16) == job
    with pytest.raises(ProblemError, match="another specification"):
        queue.submit("train", {"a": 2}, identifier="0" * 16)
    assert len(queue.all()) == 1


def test_the_limit_of_waiting_jobs(queue: JobQueue) -> None:
    queue.submit("train", {}, limit=1)
    with pytest.raises(ProblemError, match="1 jobs are waiting, the limit is 1"):
        queue.submit("train", {}, limit=1)


def test_events_tell_a_jobs_story(queue: JobQueue) -> None:
    job = queue.submit("train", {})
    claim = queue.claim("a")
    assert claim is not None
    queue.report(claim, [Line("half way", 1.0)])
    queue.end(claim, "succeeded")
    events = queue.events(job)
    assert [event["text"] for event in events] == ["queued", "running, attempt 1", "half way", "succeeded"]
    assert queue.events(job, after=events[2]["id"]) == events[3:]


def test_lines_are_stored_once_though_the_answer_to_a_report_was_lost(queue: JobQueue) -> None:
    job = queue.submit("train", {})
    claim = queue.claim("a")
    assert claim is not None
    # Twice the same text is two lines, and what came before the report is not looked at.
    lines = [Line("step", 1.0), Line("step", 2.0), Line("x" * 3000, 3.0)]
    queue.report(claim, lines[:1])
    queue.report(claim, lines[1:])
    queue.report(claim, [*lines[1:], Line("end", 4.0)], again=True)
    texts = [event["text"] for event in queue.events(job) if event["kind"] == "progress"]
    assert texts == ["step", "step", "x" * 2000, "end"]


def test_all_jobs_are_listed_page_by_page_also_of_one_moment(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [queue.submit("play", {"number": number}) for number in range(3)]
    monkeypatch.setattr(queue_module.time, "time", lambda: 2e9)
    jobs += [queue.submit("play", {"number": number}) for number in range(4)]
    listed: list[str] = []
    while page := queue.all(before=listed[-1] if listed else None, limit=2):
        listed += [job["id"] for job in page]
    assert sorted(listed) == sorted(jobs)
    assert listed[4:] == jobs[2::-1]
    with pytest.raises(ProblemError, match="does not exist"):
        queue.all(before="0" * 16)


def test_a_policys_validation_is_found_whatever_came_after_it(queue: JobQueue) -> None:
    judged, other, never = ("a" * 64, "b" * 64, "c" * 64)

    def run(kind: str, policy: str, state: str) -> str:
        job = queue.submit(kind, {"policy": policy})
        claim = queue.claim("w")
        assert claim is not None
        assert queue.end(claim, state, result={"document": {"outcome": "PASS"}})
        return job

    run("validate", judged, "succeeded")
    latest, others = run("validate", judged, "succeeded"), run("validate", other, "succeeded")
    for state in ("failed", "cancelled"):
        run("validate", judged, state)
    for _ in range(5):
        run("play", judged, "succeeded")
    assert {job["id"] for job in queue.validations([judged, other, never])} == {latest, others}
    assert queue.validations([never]) == []
