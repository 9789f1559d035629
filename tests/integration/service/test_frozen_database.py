"""A PostgreSQL whose processes are stopped keeps connections and answers nothing: the service waits for it nowhere."""

import signal
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from tests.support.patience import nap, until
from tests.support.service import PostgresServer, postgres_folder, running_postgres

from physai.service.auth.access import CACHE_S
from physai.service.jobs.child import INTERRUPTED_FILE
from physai.service.serving.process import ServiceProcess


@pytest.fixture
def server() -> Generator[PostgresServer]:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    with tempfile.TemporaryDirectory(dir="/tmp") as home, running_postgres(Path(home), programs) as server:
        yield server


@pytest.mark.slow
def test_sessions_step_requests_are_refused_and_the_service_stops_in_order(
    tmp_path: Path, server: PostgresServer
) -> None:
    service = ServiceProcess(tmp_path / "data", database=server.url)
    service.start()
    assert service.process is not None
    try:
        with httpx.Client(base_url=service.url, timeout=60.0) as client:
            session = client.post("/v1/sessions", json={"task": "cartpole-swingup"}).json()
            address, token = f"/v1/sessions/{session['id']}", {"x-session-token": session["token"]}
            client.post(f"{address}/reset", json={}, headers=token)
            spec = {"task": "cartpole-swingup", "iterations": 1_000_000, "worlds": 16, "time_budget_s": 3000.0}
            folder = service.data / "jobs" / service.client.submit("train", spec)
            until(lambda: (folder / "output" / "checkpoint.pt").exists())
            server.freeze()
            # For longer than the service believes what it knows of its tokens.
            began, steps = time.monotonic(), 0
            while time.monotonic() - began < 2.0 * CACHE_S:
                body = {"actions": {"joint_effort_target": [[0.0]]}}
                steps += client.post(f"{address}/step", json=body, headers=token).is_success
                assert client.get(f"{address}/state", headers=token).json()["steps"] == steps
                nap()
            assert client.post("/v1/jobs", json={"kind": "train", "spec": spec}).status_code == 503
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(90.0)
        assert (folder / INTERRUPTED_FILE).exists(), "the job was told to save what it has"
    finally:
        server.thaw()
        service.stop()
