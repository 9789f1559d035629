"""A session's 3-D view: who may look, that looking changes nothing, and that views end."""

import contextlib
import time
from collections.abc import Generator

import httpx
import pytest
import viser
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.typing import Subprotocol

from physai.service import RemoteSession
from physai.service.serving.process import ServiceProcess, running_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as service:
        yield service


@pytest.fixture
def session(service: ServiceProcess) -> Generator[RemoteSession]:
    with RemoteSession.create(service.url, "cartpole-swingup", worlds=2) as session:
        session.reset()
        yield session


def open_view(service: ServiceProcess, session: RemoteSession) -> str:
    answer = httpx.post(f"{service.url}/v1/sessions/{session.description['id']}/view")
    assert answer.status_code == 200, answer.text
    return answer.json()["url"]


def watch(service: ServiceProcess, url: str) -> Connection:
    protocol = Subprotocol(f"viser-v{viser.__version__}")
    return connect(service.url.replace("http", "ws") + url, subprotocols=[protocol], max_size=None)


def bytes_within(socket: Connection, seconds: float) -> int:
    end, received = time.monotonic() + seconds, 0
    with contextlib.suppress(TimeoutError):
        while True:
            received += len(socket.recv(timeout=max(0.0, end - time.monotonic())))
    return received


def test_the_scene_comes_first_and_motion_follows(service: ServiceProcess, session: RemoteSession) -> None:
    url = open_view(service, session)
    assert httpx.get(service.url + url).text.startswith("<!doctype html>")
    with watch(service, url) as socket:
        assert bytes_within(socket, 3.0) > 10_000, "geometry"
        assert bytes_within(socket, 0.5) < 2_000, "nothing moves, nothing is sent"
        session.steps({"joint_effort_target": [[[5.0], [5.0]]] * 20})
        assert bytes_within(socket, 1.0) > 100, "poses"


def test_who_looks_cannot_act(service: ServiceProcess, session: RemoteSession) -> None:
    url = open_view(service, session)
    with watch(service, url) as one, watch(service, url) as two:
        bytes_within(two, 2.0)
        for message in (b"\x81\xa4type\xb9ShareUrlRequestMessage", b"x" * 100_000, b""):
            one.send(message)
        one.send("text")
        assert bytes_within(two, 0.5) < 2_000, "another one sees nothing of it"
        session.step({"joint_effort_target": [[5.0], [5.0]]})
        session.steps({"joint_effort_target": [[[5.0], [5.0]]] * 20})
        assert bytes_within(one, 1.0) > 100, "and the view goes on"
    assert session.state()["steps"] == 21


def test_only_with_the_address(service: ServiceProcess, session: RemoteSession) -> None:
    open_view(service, session)
    assert httpx.get(f"{service.url}/v1/views/guess/").status_code == 404
    with pytest.raises(InvalidStatus, match="403"), connect(f"{service.url.replace('http', 'ws')}/v1/views/guess/"):
        pass
    assert httpx.post(f"{service.url}/v1/sessions/none/view").status_code == 404


@pytest.mark.slow
def test_the_same_session_has_one_view(service: ServiceProcess, session: RemoteSession) -> None:
    assert open_view(service, session) == open_view(service, session)


@pytest.mark.slow
def test_a_view_ends_with_its_session(service: ServiceProcess) -> None:
    with RemoteSession.create(service.url, "cartpole-swingup") as session:
        session.reset()
        url = open_view(service, session)
        socket = watch(service, url)
        with socket:
            bytes_within(socket, 1.0)
            session.close()
            with contextlib.suppress(ConnectionClosed):
                bytes_within(socket, 10.0)
            with pytest.raises(ConnectionClosed):
                socket.recv(timeout=1.0)
    assert httpx.get(service.url + url).status_code == 404
