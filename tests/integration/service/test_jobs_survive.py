"""Kill -9 of the service, its workers and the jobs' own processes: every job ends once, with the right result."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.support.patience import until
from tests.support.service import job_pids

from physai.service.jobs.queue import ENDED
from physai.service.serving.process import ServiceProcess

TASK = {"task": "cartpole-swingup", "worlds": 32, "iterations": 3}


def kill_something(service: ServiceProcess, random_numbers: random.Random) -> None:
    victims = job_pids(service.data)
    if random_numbers.random() < 0.3 or not victims:
        service.kill()
        service.start()
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(random_numbers.choice(victims), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kills", [pytest.param(5, id="few"), pytest.param(200, marks=pytest.mark.exhaustive, id="200")]
)
def test_every_job_ends_once(tmp_path: Path, database: str | None, kills: int) -> None:
    service = ServiceProcess(tmp_path / "data", database=database, workers=2)
    service.start()
    random_numbers = random.Random(kills)
    try:
        jobs = [service.client.submit("train", {**TASK, "seed": seed}) for seed in range(2)]
        for _ in range(kills):
            time.sleep(random_numbers.uniform(0.1, 3.0))
            kill_something(service, random_numbers)
            if all(service.client.job(job)["state"] in ENDED for job in jobs):
                jobs.append(service.client.submit("train", {**TASK, "seed": len(jobs)}))
        deadline = time.monotonic() + 240.0
        while not all(service.client.job(job)["state"] in ENDED for job in jobs):
            assert time.monotonic() < deadline, [service.client.job(job) for job in jobs]
            time.sleep(0.5)
        assert any(service.client.job(job)["state"] == "succeeded" for job in jobs)
        for job in jobs:
            found = service.client.job(job)
            ends = [event["text"] for event in service.client.follow(job) if event["text"] in ENDED]
            assert ends == [found["state"]]
            if found["state"] == "failed":
                # Our own kills of the job's process count as crashes of the job.
                assert found["error"] == "its process died 3 times; see its log"
                continue
            assert found["result"]["document"]["iterations"] == 3
            assert {"checkpoint.pt", "config.json"} <= {artefact["name"] for artefact in found["artefacts"]}
    finally:
        service.stop()
    assert not job_pids(service.data)


@pytest.mark.slow
def test_a_killed_training_keeps_its_time_budget(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "data")
    service.start()
    try:
        client = service.client
        job = client.submit("train", {**TASK, "iterations": 10**6, "time_budget_s": 6.0})
        progress = service.data / "jobs" / job / "output" / "progress.csv"
        until(lambda: progress.is_file() and progress.read_bytes().count(b"\n") > 3)
        for pid in job_pids(service.data):
            if str(job).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        assert "running, attempt 2" in [event["text"] for event in client.follow(job)]
        found = client.job(job)
        assert (found["state"], found["result"]["document"]["reason"]) == ("succeeded", "time budget of 6 s used")
    finally:
        service.stop()


@pytest.mark.slow
def test_on_ray_a_killed_worker_is_replaced_and_its_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    service = ServiceProcess(tmp_path / "data", ray="local")
    service.start()
    try:
        job = service.client.submit("train", TASK)
        while service.client.job(job)["state"] == "queued":
            time.sleep(0.05)
        victims = job_pids(service.data)
        assert victims
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        texts = [event["text"] for event in service.client.follow(job)]
        assert "running, attempt 2" in texts
        assert [text for text in texts if text in ENDED] == ["succeeded"]
        assert service.client.job(job)["result"]["document"]["iterations"] == 3
    finally:
        service.stop()
    assert not job_pids(service.data)
