"""What a service tells about itself: identifiers, metrics, logs, the audit log and traces."""

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.patience import until

from physai.service import RemoteSession, ServiceClient
from physai.service.auth.tokens import TokenStore
from physai.service.database.engine import open_database
from physai.service.serving.process import ServiceProcess
from physai.service.settings import default_database


@pytest.fixture
def service(tmp_path: Path) -> Generator[ServiceProcess]:
    service = ServiceProcess(tmp_path / "data", workers=0)
    service.start()
    yield service
    service.stop()


def metric(service: ServiceProcess, sample: str, **labels: str) -> float:
    text = httpx.get(f"{service.url}/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return sum(s.value for s in samples if s.name == sample and labels.items() <= s.labels.items())


def test_metrics_count_what_happened(service: ServiceProcess) -> None:
    with RemoteSession.create(service.url, "cartpole-swingup", worlds=3) as session:
        session.reset()
        for _ in range(5):
            session.step({name: np.zeros((3, *spec["shape"])) for name, spec in session.description["actions"].items()})
        assert metric(service, "physai_sessions") == 1
        assert metric(service, "physai_worlds") == 3
        assert metric(service, "physai_world_steps_total") == 15
    ServiceClient(service.url).submit("train", {"task": "cartpole-swingup"})
    assert metric(service, "physai_sessions") == 0
    assert metric(service, "physai_world_steps_total") == 15, "a closed session's steps stay counted"
    assert metric(service, "physai_jobs", state="queued") == 1
    assert metric(service, "physai_http_requests_total", route="/v1/sessions", method="POST", status="201") == 1


@pytest.mark.slow
def test_a_scanner_does_not_fill_the_metrics(service: ServiceProcess) -> None:
    for index in range(50):
        assert httpx.get(f"{service.url}/{index}.php").status_code == 404
    assert metric(service, "physai_http_requests_total", route="none", status="404") == 50


@pytest.mark.slow
def test_a_problem_is_found_in_the_log_by_its_identifier(service: ServiceProcess) -> None:
    answer = httpx.get(f"{service.url}/v1/jobs/none")
    identifier = answer.json()["request_id"]
    assert answer.headers["x-request-id"] == identifier
    log = service.data / "requests.log"
    # The line is written after the answer was sent.
    until(lambda: identifier in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (line,) = [line for line in lines if line["request_id"] == identifier]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/jobs/none", 404)
    assert 0.0 < line["ms"] < 10_000.0


@pytest.mark.slow
def test_changes_and_refusals_are_kept_for_audit(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    store = TokenStore(open_database(default_database(data)))
    run, admin = (store.create(scope, scope) for scope in ("run", "admin"))
    service = ServiceProcess(data, workers=0)
    service.start()
    try:
        job = ServiceClient(service.url, access_token=run).submit("train", {"task": "cartpole-swingup"})
        headers = {"authorization": f"Bearer {run}"}
        httpx.get(f"{service.url}/v1/jobs", headers=headers)
        assert httpx.get(f"{service.url}/v1/audit", headers=headers).status_code == 403
        codes = [
            httpx.get(f"{service.url}/v1/jobs", headers={"authorization": f"Bearer {i}"}).status_code for i in range(80)
        ]
        assert set(codes) == {401, 429}, "who guesses is slowed down"
        assert httpx.get(f"{service.url}/v1/jobs", headers=headers).status_code == 200, "others are not"
        entries = httpx.get(f"{service.url}/v1/audit", headers={"authorization": f"Bearer {admin}"}).json()
    finally:
        service.stop()
    kept = [(e["token"], e["method"], e["path"], e["status"]) for e in reversed(entries)]
    assert kept[:2] == [("run", "POST", "/v1/jobs", 201), ("run", "GET", "/v1/audit", 403)], job
    assert {entry[3] for entry in kept[2:]} == {401}
    assert len(kept) < 70, "guesses must not push out what happened"


@pytest.fixture
def collector() -> Generator[tuple[str, list[str]]]:
    """An OpenTelemetry collector: its address and the names of the spans that it was sent."""
    names: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                raise AssertionError("not compressed by default")
            request = ExportTraceServiceRequest.FromString(body)
            names.extend(s.name for r in request.resource_spans for scope in r.scope_spans for s in scope.spans)
            self.send_response(200)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", names
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_traces_reach_a_collector(
    collector: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, names = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    service = ServiceProcess(tmp_path / "data", workers=0)
    service.start()
    httpx.get(f"{service.url}/v1/jobs")
    service.stop()
    assert "GET /v1/jobs" in names
