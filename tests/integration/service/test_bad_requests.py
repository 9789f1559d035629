"""No request, however malformed, is answered with a server error, and none costs memory before its sender is known."""

import resource
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import httpx
import pytest
from tests.support.patience import PATIENCE_S

from physai.sdk.cli.main import main
from physai.service.serving.process import ServiceProcess, running_service

pytestmark = pytest.mark.slow

POLICY = Path(__file__).parents[2] / "data" / "policies" / "cartpole-00" / "policy.onnx"
CARTPOLE = Path(__file__).parents[3] / "sim" / "physai" / "sim" / "robots" / "cartpole.xml"
MCP = "/openenv/skills/ur10e-reach/mcp"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


def exchange(service: ServiceProcess, request: bytes) -> bytes:
    """What the service answers to raw bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        answer = b""
        while received := connection.recv(65536):
            answer += received
    return answer


@pytest.mark.parametrize(
    "header", [b"Host: [", b"Host: [::1", b"Origin: http://[", b"Origin: http://[::1", b"Host: \xff"]
)
def test_a_malformed_address_is_a_foreign_one(service: ServiceProcess, header: bytes) -> None:
    host = b"" if header.startswith(b"Host") else f"Host: 127.0.0.1:{service.port}\r\n".encode()
    answer = exchange(service, b"GET /v1/jobs HTTP/1.1\r\nConnection: close\r\n" + host + header + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403"), answer
    assert b"urn:physai:problem:foreign-" in answer


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/jobs", b'{"kind": "train", "spec": {"\\ud800": 1}}', 422, "a valid string"),
        ("/v1/sessions", b'{"\\ud800": 1}', 422, "a valid string"),
        ("/v1/sessions", b'{"task": "\\ud800"}', 422, "a valid string"),
        ("/v1/sessions", b"[" * 100_000, 400, "parsing the body"),
        (MCP, b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "tools/list"}', 200, "no JSON"),
        (MCP, b'{"jsonrpc": "2.0", "id": NaN, "method": "tools/list"}', 200, "no JSON"),
    ],
)
def test_text_that_no_answer_could_repeat(
    service: ServiceProcess, path: str, body: bytes, status: int, said: str
) -> None:
    answer = httpx.post(service.url + path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, said in answer.text) == (status, True), answer.text


def test_a_body_is_bounded(service: ServiceProcess) -> None:
    for path in ("/v1/jobs", MCP):
        answer = httpx.post(service.url + path, content=bytes(64 * 2**20 + 1), timeout=PATIENCE_S)
        assert (answer.status_code, answer.json()["type"]) == (413, "urn:physai:problem:too-large")


def test_json_that_would_be_parsed_for_long_is_refused(service: ServiceProcess) -> None:
    """Two million entries took half a minute, in which nobody else was answered."""
    logs = ",".join(f'"a{number}.csv":"x"' for number in range(100_000))
    body = f'{{"kind":"calibrate","spec":{{"robot":"x","logs":{{{logs}}}}}}}'.encode()
    assert len(body) > 1 << 20
    answer = httpx.post(f"{service.url}/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert "exceeds 1048576 bytes" in answer.json()["detail"]


def test_a_body_is_not_read_before_its_sender_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "tokens", "create", "ci", "--scope", "run", "--data", str(tmp_path / "data")]) == 0
    token = next(word for word in capsys.readouterr().out.split() if word.startswith("physai_"))
    head = "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 1000000\r\n"
    with running_service(tmp_path / "data", workers=0) as service:
        # The body never comes; the answer does.
        assert exchange(service, f"{head}\r\n".encode()).startswith(b"HTTP/1.1 401")
        with socket.create_connection(("127.0.0.1", service.port)) as known:
            known.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
            known.settimeout(1.0)
            with pytest.raises(TimeoutError):
                known.recv(1)


def together(work: Callable[[], httpx.Response], count: int = 12) -> list[int]:
    """Status codes of requests that are sent at the same time."""
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(work().status_code)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


def check_shared_entries(service: ServiceProcess) -> None:
    sha256 = service.client.upload(POLICY)
    timeout = PATIENCE_S

    def post(path: str, body: Mapping[str, object]) -> Callable[[], httpx.Response]:
        return lambda: httpx.post(service.url + path, json=body, timeout=timeout)

    assert together(post("/v1/registry/policy", {"sha256": sha256})) == [201] * 12
    assert [entry["version"] for entry in service.client.entries("policy")] == [1]
    job = {"kind": "train", "spec": {"task": "cartpole-swingup"}, "id": "ab" * 10}
    assert together(post("/v1/jobs", job)) == [201] * 12
    robot = CARTPOLE.read_bytes()
    assert together(lambda: httpx.post(f"{service.url}/v1/robots", content=robot, timeout=timeout), 3) == [201] * 3
    assert len(httpx.get(f"{service.url}/v1/robots").json()) == 1
    # PostgreSQL has no text with a NUL.
    for path in ("/v1/jobs/%00", "/v1/jobs/%00/events", "/v1/sessions/%00", "/%00"):
        assert httpx.get(service.url + path).status_code == 404
    foreign = httpx.get(f"{service.url}/v1/jobs/%00", headers={"origin": "http://elsewhere"})
    assert foreign.status_code == 403
    assert "/v1/jobs/\\x00" in [entry["path"] for entry in httpx.get(f"{service.url}/v1/audit").json()]


def test_the_same_request_many_times_at_once(tmp_path: Path, database: str | None) -> None:
    service = ServiceProcess(tmp_path / "data", database=database, workers=0)
    service.start()
    try:
        check_shared_entries(service)
    finally:
        service.stop()


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    with running_service(tmp_path / "data", workers=0) as service:
        assert service.process is not None
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (2**20, most))
        answer = httpx.post(f"{service.url}/v1/blobs", content=bytes(2**21))
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:physai:problem:storage")
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert httpx.post(f"{service.url}/v1/blobs", content=bytes(2**21)).status_code == 201
        assert list((tmp_path / "data" / "blobs" / "incoming").iterdir()) == []


def test_jobs_are_listed_page_by_page(tmp_path: Path) -> None:
    with running_service(tmp_path / "data", workers=0) as service:
        jobs = [service.client.submit("train", {"task": "cartpole-swingup", "seed": seed}) for seed in range(5)]
        assert [job["id"] for job in service.client.jobs(state="queued")] == jobs[::-1]
        assert list(service.client.jobs(state="running")) == []
        path, listed = "/v1/jobs?limit=2&state=queued", list[str]()
        while path:
            answer = httpx.get(service.url + path)
            listed += [job["id"] for job in answer.json()]
            path = answer.links.get("next", {}).get("url", "")
        assert listed == jobs[::-1]
        assert httpx.get(f"{service.url}/v1/jobs?before={'0' * 16}").status_code == 404
        assert httpx.get(f"{service.url}/v1/jobs/validations?policy={'0' * 64}").json() == []
        assert httpx.get(f"{service.url}/v1/jobs/validations?policy=x").status_code == 422
