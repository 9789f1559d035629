"""Connections that say nothing are closed, and those that are used are not."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tests.support.patience import nap, until
from tests.support.service import self_signed

from physai.service import RemoteSession
from physai.service.serving import connections
from physai.service.serving.connections import HEADERS_S, PatientProtocol
from physai.service.serving.process import ServiceProcess, free_port, running_service
from physai.service.serving.server import prepare
from physai.service.settings import ServiceSettings, default_database


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as service:
        yield service


@pytest.mark.slow
def test_who_sends_no_request_is_put_out_and_others_are_served(service: ServiceProcess) -> None:
    silent = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(300)]
    for index, opened in enumerate(silent):
        opened.settimeout(HEADERS_S + 10.0)
        if index % 2:
            opened.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
    with RemoteSession.create(service.url, "cartpole-swingup") as session, httpx.Client(base_url=service.url) as client:
        session.reset()
        end = time.monotonic() + HEADERS_S + 2.0
        steps = 0
        while time.monotonic() < end:
            session.step({"joint_effort_target": np.zeros((1, 1))})
            steps += 1
            if steps % 50 == 0:
                assert client.get("/healthz").status_code == 200
        assert session.state()["steps"] == steps
    for opened in silent:
        assert opened.recv(100) == b"", "closed without an answer"
        opened.close()


@pytest.mark.slow
def test_who_hangs_up_during_an_upload_is_no_defect_of_the_service(service: ServiceProcess) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as client:
        client.sendall(b"POST /v1/blobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n\r\n" + bytes(5000))
        incoming = service.data / "blobs" / "incoming"
        until(lambda: list(incoming.iterdir()))
    log = service.data / "requests.log"
    until(lambda: '"/v1/blobs"' in log.read_text("utf-8"))
    (line,) = [json.loads(line) for line in log.read_text("utf-8").splitlines() if '"/v1/blobs"' in line]
    assert line["status"] == 400
    assert "Traceback" not in service.log.read_text("utf-8")
    assert not list(incoming.iterdir())


@pytest.mark.slow
def test_a_tls_connection_that_says_nothing_is_put_out(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    data = tmp_path / "data"
    settings = ServiceSettings(
        data=data, database=default_database(data), port=free_port(), workers=0, tls_cert=certificate, tls_key=key
    )
    with prepare(settings) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until(lambda: server.started)
            for begun in (b"", b"\x16\x03\x01\x02\x00\x01"):
                with socket.create_connection(("127.0.0.1", settings.port)) as client:
                    # asyncio's own limit is 60 s.
                    client.settimeout(HEADERS_S + 30.0)
                    client.sendall(begun)
                    assert client.recv(100) == b""
        finally:
            server.should_exit = True
            thread.join()


BIG = bytes(2**16)


async def counts_bodies(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the request's body; to a GET, with many zeros."""
    if scope["type"] != "http":
        return
    if scope["method"] == "GET":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": BIG, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    text = str(size).encode()
    head = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": text})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Generator[uvicorn.Server]:
    """A small server of this process with short limits."""
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    monkeypatch.setattr(connections, "BODY_S", 0.5)
    monkeypatch.setattr(connections, "READ_S", 0.5)
    config = uvicorn.Config(counts_bodies, port=free_port(), http=PatientProtocol, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    yield server
    server.should_exit = True
    thread.join()


@pytest.fixture
def port(small: uvicorn.Server) -> int:
    return small.config.port


ASK = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\nx: ", ASK[:-1]], ids=["idle", "word", "head", "body"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_every_request_of_a_connection_has_a_limit(port: int, begun: bytes, before: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.settimeout(90.0)
        for _ in range(before):
            client.sendall(ASK)
            answer = b""
            while not answer.endswith(b"\r\n\r\n3"):
                answer += client.recv(1000)
        client.sendall(begun)
        # Drop by drop it is too slow as well.
        with contextlib.suppress(ConnectionError, TimeoutError):
            client.settimeout(0.05)
            for _ in range(1000):
                with contextlib.suppress(TimeoutError):
                    assert client.recv(1000) == b"", "closed without an answer"
                    return
                if b"x: " in begun:
                    client.sendall(b"y")
        pytest.fail("the connection stays open")


def test_who_is_quick_enough_is_served_for_as_long_as_it_takes(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            assert client.post("/", content=b"abcd").text == "4"


def asking_for_much(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.settimeout(90.0)
    client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    return client


def test_who_does_not_read_its_answer_is_put_out(small: uvicorn.Server) -> None:
    with asking_for_much(small.config.port):
        until(lambda: small.server_state.connections)
        until(lambda: not small.server_state.connections)


def test_who_reads_slowly_gets_all(small: uvicorn.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_S", 1.0)
    with asking_for_much(small.config.port) as client:
        size, began = 0, time.monotonic()
        while chunk := client.recv(2**16):
            size += len(chunk)
            if time.monotonic() - began < 4.0:
                nap()
    assert size > 200 * len(BIG)
