"""Connections that say nothing are closed, and those that are used are not."""

import socket
import time
from collections.abc import Generator

import httpx
import numpy as np
import pytest

from physai.sim.client import RemoteSession
from physai.sim.service.connections import HEADERS_S
from physai.sim.service.process import ServiceProcess, running_service


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
