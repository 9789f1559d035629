"""Sessions over the wire step as in process, over lost connections too, and refuse what is wrong."""

import asyncio
import hashlib
import time
from collections.abc import Generator
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.typing import Origin

from physai.sdk.base.errors import PhysaiError
from physai.service import AsyncRemoteSession, RemoteSession, RemoteVectorEnv, ServiceError
from physai.service.client.wire import pack, unpack
from physai.service.serving.process import ServiceProcess, running_service
from physai.service.sessions.worlds import TargetWorlds, WorldsOptions

TASK = "cartpole-swingup"
EMPTY = hashlib.sha256().hexdigest()
"""Hash of a file without content."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


@pytest.fixture
def session(service: ServiceProcess) -> Generator[RemoteSession]:
    with RemoteSession.create(service.url, TASK, worlds=3, seed=5) as created:
        yield created


def actions(steps: int, worlds: int = 3) -> np.ndarray:
    return np.random.default_rng(0).uniform(-5.0, 5.0, (steps, worlds, 1))


def receive(socket: Connection) -> dict[str, Any]:
    data = socket.recv()
    assert isinstance(data, bytes)
    return unpack(data)


def lose_connection(session: RemoteSession) -> None:
    socket = session._socket  # pyright: ignore[reportPrivateUsage]
    assert socket is not None
    # As a network does: closing the file itself would leave the library's reader asleep.
    socket.socket.shutdown(SHUT_RDWR)


def test_a_session_steps_as_in_process(session: RemoteSession) -> None:
    worlds = TargetWorlds(WorldsOptions(task=TASK, worlds=3, seed=5))
    assert session.description["actions"] == worlds.describe()["actions"]
    (name,) = worlds.describe()["actions"]
    for action in actions(200):
        here, there = worlds.step({name: action}), session.step({name: action})
        for field in ("reward", "terminated", "truncated", "judged", "succeeded"):
            assert np.array_equal(here[field], getattr(there, field))
        for field, values in here["observations"].items():
            assert np.array_equal(values, there.observations[field])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lost=st.sets(st.integers(0, 39), max_size=6))
def test_no_step_is_repeated_or_left_out_when_connections_break(session: RemoteSession, lost: set[int]) -> None:
    (name,) = session.description["actions"]
    session.reset(seed=9)
    before = session.snapshot()
    expected = [session.step({name: action}) for action in actions(40)]
    session.restore(before)
    for index, action in enumerate(actions(40)):
        if index in lost:
            lose_connection(session)
        reply = session.step({name: action})
        assert np.array_equal(reply.reward, expected[index].reward)
        for field, values in expected[index].observations.items():
            assert np.array_equal(values, reply.observations[field])
    assert session.state()["steps"] == 40


def test_a_request_that_was_carried_out_is_answered_from_memory(
    service: ServiceProcess, session: RemoteSession
) -> None:
    (name,) = session.description["actions"]
    url = session._protocol.url  # pyright: ignore[reportPrivateUsage]
    request = pack({"op": "step", "seq": 1, "actions": {name: actions(1)[0]}})
    with connect(url) as one, connect(url) as other:
        one.send(request)
        first = receive(one)
        other.send(request)
        other_reply = receive(other)
        assert np.array_equal(first["reward"], other_reply["reward"])
        other.send(pack({"op": "step", "seq": 3, "actions": {name: actions(1)[0]}}))
        assert "seq is 3, expected 2" in receive(other)["problem"]["detail"]
    found = httpx.get(f"{service.url}/v1/sessions/{session.description['id']}").json()
    assert found["steps"] == 1


def test_many_steps_in_one_request(session: RemoteSession) -> None:
    (name,) = session.description["actions"]
    before = session.snapshot()
    one_by_one = [session.step({name: action}) for action in actions(30)]
    session.restore(before)
    together = session.steps({name: actions(30)})
    assert together.reward.shape == (30, 3)
    assert np.array_equal(together.reward, np.stack([reply.reward for reply in one_by_one]))
    for field, values in one_by_one[-1].observations.items():
        assert np.array_equal(values, together.observations[field])


EFFORT = "joint_effort_target"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({EFFORT: np.zeros((3, 2))}, r"shape \[3, 2\], expected \[3, 1\]"),
        ({EFFORT: np.full((3, 1), np.nan)}, r"is nan at \[0, 0\]; send finite numbers"),
        ({}, "must be an array of numbers"),
        ({EFFORT: np.zeros((3, 1)), "other": np.zeros(1)}, "the task takes"),
    ],
)
def test_a_bad_action_steps_nothing(session: RemoteSession, bad: dict[str, np.ndarray], message: str) -> None:
    (name,) = session.description["actions"]
    before = session.state()
    with pytest.raises(ServiceError, match=message):
        session.step(bad)
    after = session.state()
    assert np.array_equal(before["qpos"], after["qpos"])
    assert after["steps"] == before["steps"]
    session.step({name: np.zeros((3, 1))})


def test_steps_beyond_the_limit_of_simulated_time(session: RemoteSession) -> None:
    (name,) = session.description["actions"]
    count = int(61.0 / session.description["step_dt"])
    with pytest.raises(ServiceError, match="exceed 60 simulated seconds; send at most"):
        session.steps({name: np.zeros((count, 3, 1))})


def test_json_says_the_same(service: ServiceProcess, session: RemoteSession) -> None:
    created = httpx.post(f"{service.url}/v1/sessions", json={"task": TASK, "worlds": 3, "seed": 5}).json()
    (name,) = created["actions"]
    headers = {"x-session-token": created["token"]}
    path = f"{service.url}/v1/sessions/{created['id']}"
    answer = httpx.post(f"{path}/step", json={"actions": {name: actions(1)[0].tolist()}}, headers=headers).json()
    reply = session.step({name: actions(1)[0]})
    assert np.array_equal(np.float32(answer["reward"]), reply.reward)
    snapshot = httpx.post(f"{path}/snapshot", headers=headers).json()["snapshot"]
    assert httpx.post(f"{path}/restore", json={"snapshot": snapshot}, headers=headers).status_code == 200
    assert httpx.delete(path, headers=headers).status_code == 204
    gone = httpx.post(f"{path}/step", json={"actions": {}}, headers=headers)
    assert gone.status_code == 404
    assert gone.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "detail"),
    [
        ("POST", "/v1/sessions", {"task": "nope"}, 404, "no task named 'nope'"),
        ("POST", "/v1/sessions", {"task": "/etc/task.py"}, 422, "is a file"),
        ("POST", "/v1/sessions", {"task": TASK, "worlds": 10**9}, 422, "worlds must lie in 1 to 4096"),
        ("POST", "/v1/sessions", {"task": TASK, "interface": "x"}, 422, "no session interface named 'x'"),
        ("POST", "/v1/sessions", {"task": TASK, "more": 1}, 422, "Extra inputs"),
        ("GET", "/v1/sessions/x", None, 404, "does not exist or was closed"),
        ("POST", "/v1/sessions/x/step", {"actions": {}}, 422, "x-session-token"),
        ("GET", "/v1/blobs/..%2f..%2fetc%2fpasswd", None, 404, "Not Found"),
        ("GET", "/v1/blobs/xyz", None, 422, "should match pattern"),
        ("POST", "/v1/jobs", {"kind": "validate", "spec": {"policy": "../../x"}}, 422, "body.validate.spec.policy"),
        ("POST", "/v1/jobs", {"kind": "validate", "spec": {"policy": "0" * 64}}, 404, "no file has SHA-256"),
        ("POST", "/v1/jobs", {"kind": "train", "spec": {"task": "--help"}}, 422, "body.train.spec.task"),
        ("POST", "/v1/jobs", {"kind": "train", "spec": {"task": "cartpole"}}, 422, "did you mean cartpole-swingup"),
        ("POST", "/v1/jobs", {"kind": "train", "spec": {"task": "x9"}}, 422, "no task named 'x9'; known: acrobot-s"),
        (
            *("POST", "/v1/jobs", {"kind": "train", "spec": {"task": "ur10e-reach", "preset": "x9"}}, 422),
            "no preset of ur10e-reach named 'x9'; known: position",
        ),
        ("POST", "/v1/jobs", {"kind": "train", "spec": {"task": TASK, "preset": "x"}}, 422, "has no presets to choose"),
        (
            *("POST", "/v1/jobs", {"kind": "train", "spec": {"task": "cartpoles-tethered", "preset": "x"}}, 422),
            "is a team, which takes no preset",
        ),
        (
            *("POST", "/v1/jobs", {"kind": "calibrate", "spec": {"robot": "ur10", "logs": {"a.csv": EMPTY}}}, 422),
            "no robot named 'ur10'; did you mean ur10e?",
        ),
        (
            *("POST", "/v1/jobs"),
            {"kind": "calibrate", "spec": {"robot": "go2", "logs": {"a.csv": EMPTY}, "recorded_on": "go1/7"}},
            *(422, "recorded_on go1/7: the robot is a go2; give go2/7"),
        ),
        ("POST", "/v1/jobs", {"kind": "play", "spec": {"policy": EMPTY, "task": "x9"}}, 422, "no task named 'x9'"),
        ("POST", "/v1/jobs", {"kind": "play", "spec": {"policy": EMPTY, "robot": "0" * 64}}, 404, "no robot '00000"),
        ("POST", "/v1/jobs", {"kind": "shell", "spec": {}}, 422, "does not match any of the expected tags"),
        ("GET", "/v1/nothing", None, 404, "Not Found"),
    ],
)
def test_bad_requests(service: ServiceProcess, method: str, path: str, body: Any, status: int, detail: str) -> None:
    assert service.client.upload(b"") == EMPTY
    answer = httpx.request(method, service.url + path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert detail in answer.json()["detail"]


def test_another_sessions_token(service: ServiceProcess, session: RemoteSession) -> None:
    with RemoteSession.create(service.url, TASK) as other:
        path = f"{service.url}/v1/sessions/{session.description['id']}/snapshot"
        answer = httpx.post(path, headers={"x-session-token": other.description["token"]})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:physai:problem:foreign-session")


def test_pages_of_other_sites_are_refused(service: ServiceProcess) -> None:
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        answer = httpx.post(f"{service.url}/v1/sessions", json={"task": TASK}, headers=headers)
        assert answer.status_code == 403
    socket_url = f"{service.url.replace('http', 'ws')}/v1/sessions/x/ws"
    with pytest.raises(InvalidStatus, match="403"), connect(socket_url, origin=Origin("http://evil.example")):
        pass


def test_asyncio(service: ServiceProcess) -> None:
    async def drive() -> list[float]:
        async with await AsyncRemoteSession.create(service.url, TASK, worlds=2) as session:
            (name,) = session.description["actions"]
            replies = await asyncio.gather(*(session.step({name: np.zeros((2, 1))}) for _ in range(5)))
            assert (await session.state())["steps"] == 5
            return [float(reply.reward[0]) for reply in replies]

    assert len(asyncio.run(drive())) == 5


def test_a_vector_environment_over_the_wire(service: ServiceProcess) -> None:
    environment = RemoteVectorEnv(service.url, TASK, 4, training=True)
    observation, infos = environment.reset(seed=3)
    assert infos["critic"].shape[0] == 4
    assert observation.shape == (4, 5)
    before = environment.session.snapshot()
    chosen = np.random.default_rng(1).uniform(-1.0, 1.0, (150, 4, 1)).astype(np.float32)
    first = [environment.step(action) for action in chosen]
    environment.session.restore(before)
    second = [environment.step(action) for action in chosen]
    for one, other in zip(first, second, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one[:4], other[:4], strict=True))
    ended = [infos for *_, infos in first if "final_obs" in infos]
    assert ended
    assert all(
        infos["final_obs"][world].shape == (5,) for infos in ended for world in np.flatnonzero(infos["_final_obs"])
    )
    environment.close()


@pytest.mark.slow
def test_a_second_service_cannot_take_the_folder(service: ServiceProcess, tmp_path: Path) -> None:
    second = ServiceProcess(service.data)
    with pytest.raises(PhysaiError, match=r"another service uses .*; stop it, or choose another --data"):
        second.start()


@pytest.mark.slow
def test_a_session_plays_in_real_time_until_paused(service: ServiceProcess) -> None:
    with RemoteSession.create(service.url, TASK, seed=4) as session:
        session.reset(seed=4)
        (name,) = session.description["actions"]
        held = {name: np.full((1, 1), 0.3)}
        session.play(held)
        with pytest.raises(ServiceError, match="pause it before you step it"):
            session.step(held)
        time.sleep(1.0)
        session.pause()
        state = session.state()
        time.sleep(0.2)
        assert session.state()["steps"] == state["steps"], "paused"
        dt = session.description["step_dt"]
        # A busy computer leaves time out, and never adds any.
        assert 0.3 / dt < state["steps"] < 1.5 / dt
        worlds = TargetWorlds(WorldsOptions(task=TASK, seed=4))
        worlds.reset(4)
        for _ in range(state["steps"]):
            worlds.step(held)
        assert np.array_equal(worlds.state()["qpos"], state["qpos"])
        assert session.step(held)
        with pytest.raises(ServiceError, match="finite"):
            session.play({name: np.full((1, 1), np.nan)})
        assert session.step(held), "what cannot be played changes nothing"
