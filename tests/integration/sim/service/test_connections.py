"""Connections that say nothing are closed, and those that are used are not."""

import contextlib
import socket
import threading
import time
from collections.abc import Generator

import httpx
import numpy as np
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tests.support.patience import until

from physai.sim.client import RemoteSession
from physai.sim.service import connections
from physai.sim.service.connections import HEADERS_S, PatientProtocol
from physai.sim.service.process import ServiceProcess, free_port, running_service


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


async def counts_bodies(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the request's body."""
    if scope["type"] != "http":
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
def port(monkeypatch: pytest.MonkeyPatch) -> Generator[int]:
    """A small server of this process with short limits."""
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    monkeypatch.setattr(connections, "BODY_S", 0.5)
    config = uvicorn.Config(counts_bodies, port=free_port(), http=PatientProtocol, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    yield config.port
    server.should_exit = True
    thread.join()


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
