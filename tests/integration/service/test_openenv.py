"""Tasks in the OpenEnv protocol, as its messages say; `test_openenv_client.py` asks the real client."""

import base64
import contextlib
import json
from collections.abc import Generator
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from physai.service.serving.process import ServiceProcess, running_service
from physai.service.sessions.worlds import TargetWorlds, WorldsOptions

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as service:
        yield service


def open_socket(service: ServiceProcess, path: str) -> Connection:
    return connect(f"{service.url.replace('http', 'ws')}/openenv/{path}/ws")


def ask(socket: Connection, kind: str, **data: object) -> Answer:
    socket.send(json.dumps({"type": kind, "data": data}))
    answer = json.loads(socket.recv(timeout=60.0))
    assert set(answer) == {"type", "data"}
    return answer


def encode(values: np.ndarray) -> Answer:
    data = base64.b64encode(values.astype("<f4").tobytes()).decode()
    return {"dtype": "<f4", "shape": list(values.shape), "data": data}


def decode(value: Answer) -> np.ndarray:
    return np.frombuffer(base64.b64decode(value["data"]), value["dtype"]).reshape(value["shape"])


def test_a_seed_gives_the_numbers_of_the_task(service: ServiceProcess) -> None:
    worlds = TargetWorlds(WorldsOptions(task="cartpole-swingup", seed=7))
    first = worlds.reset(7)
    with open_socket(service, "single/cartpole-swingup") as socket:
        answer = ask(socket, "reset", seed=7)
        assert answer["type"] == "observation"
        assert answer["data"]["observation"]["joint_pos"] == first["joint_pos"][0].tolist()
        assert (answer["data"]["reward"], answer["data"]["done"]) == (None, False)
        for step in range(20):
            force = [0.1 * step]
            here = worlds.step({"joint_effort_target": np.array([force])})
            there = ask(socket, "step", joint_effort_target=force)["data"]
            assert there["reward"] == float(here["reward"][0])
            assert there["observation"]["joint_pos"] == here["observations"]["joint_pos"][0].tolist()
        state = ask(socket, "state")
        assert (state["type"], state["data"]["step_count"]) == ("state", 20)
        assert ask(socket, "reset")["data"]["observation"] != answer["data"]["observation"]
        assert ask(socket, "state")["data"]["step_count"] == 0


def test_an_episode_ends_and_must_be_reset(service: ServiceProcess) -> None:
    with open_socket(service, "single/cartpole-swingup") as socket:
        assert ask(socket, "step", joint_effort_target=[0.0])["data"]["code"] == "EXECUTION_ERROR"
        ask(socket, "reset", seed=1)
        last: Answer = {}
        for _ in range(2000):
            last = ask(socket, "step", joint_effort_target=[3.0])["data"]
            if last["done"]:
                break
        assert last["done"]
        assert last["metadata"]["terminated"] != last["metadata"]["truncated"]
        over = ask(socket, "step", joint_effort_target=[0.0])["data"]
        assert over == {"code": "EXECUTION_ERROR", "message": "no episode runs; send reset"}
        assert not ask(socket, "reset")["data"]["done"]


def test_connections_without_a_seed_see_different_episodes(service: ServiceProcess) -> None:
    with open_socket(service, "single/ur10e-reach") as one, open_socket(service, "single/ur10e-reach") as two:
        assert ask(one, "reset")["data"]["observation"] != ask(two, "reset")["data"]["observation"]


def test_a_batch_gives_the_numbers_of_the_task(service: ServiceProcess) -> None:
    worlds = TargetWorlds(WorldsOptions(task="ur10e-reach", worlds=5, seed=3))
    first = worlds.reset(3)
    with open_socket(service, "batch/ur10e-reach") as socket:
        observed = ask(socket, "reset", worlds=5, seed=3)["data"]["observation"]
        assert np.array_equal(decode(observed["joint_pos"]), first["joint_pos"].astype(np.float32))
        targets = first["joint_pos"].astype(np.float32)
        here = worlds.step({"joint_pos_target": targets})
        there = ask(socket, "step", joint_pos_target=encode(targets))["data"]["observation"]
        assert np.array_equal(decode(there["reward"]), here["reward"].astype(np.float32))
        for name in ("terminated", "truncated", "succeeded"):
            assert np.array_equal(decode(there[name]), here[name])
        heres = [worlds.step({"joint_pos_target": targets})["reward"] for _ in range(3)]
        there = ask(socket, "step", joint_pos_target=encode(np.stack([targets] * 3)))["data"]["observation"]
        assert np.array_equal(decode(there["reward"]), np.stack(heres).astype(np.float32))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ("[1]", "VALIDATION_ERROR"),
        ('{"type": "step", "data": 3}', "VALIDATION_ERROR"),
        ('{"type": "jump"}', "UNKNOWN_TYPE"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"seed": 1.5}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"worlds": 2}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"joint_effort_target": [NaN]}}', "INVALID_JSON"),
        ('{"type": "step", "data": {"joint_effort_target": [[1.0]]}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"joint_effort_target": "a"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"joint_effort_target": [1e400]}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {}}', "VALIDATION_ERROR"),
    ],
)
def test_bad_messages_get_the_protocols_codes(service: ServiceProcess, text: str, code: str) -> None:
    with open_socket(service, "single/cartpole-swingup") as socket:
        ask(socket, "reset", seed=1)
        socket.send(text)
        answer = json.loads(socket.recv(timeout=60.0))
        assert (answer["type"], answer["data"]["code"]) == ("error", code), answer
        assert answer["data"]["message"]
        assert ask(socket, "step", joint_effort_target=[0.0])["type"] == "observation", "the episode goes on"


def test_a_full_service_says_so_and_silent_connections_hold_no_place(service: ServiceProcess) -> None:
    with contextlib.ExitStack() as silent, open_socket(service, "batch/cartpole-swingup") as socket:
        for _ in range(20):
            silent.enter_context(open_socket(service, "single/cartpole-swingup"))
        assert httpx.get(f"{service.url}/v1/sessions").json() == []
        answer = ask(socket, "reset", worlds=10**6)["data"]
        assert answer["code"] == "VALIDATION_ERROR"
        assert "4096" in answer["message"]
        assert ask(socket, "reset", worlds=2)["type"] == "observation"
        assert len(httpx.get(f"{service.url}/v1/sessions").json()) == 1
        assert ask(socket, "reset", worlds=3)["type"] == "observation"
        assert [s["worlds"] for s in httpx.get(f"{service.url}/v1/sessions").json()] == [3], "the old one is closed"


def test_what_is_served_over_http(service: ServiceProcess) -> None:
    base = f"{service.url}/openenv/single/cartpole-swingup"
    assert httpx.get(f"{base}/health").json() == {"status": "healthy"}
    assert httpx.get(f"{base}/metadata").json()["name"] == "cartpole-swingup"
    action = httpx.get(f"{base}/schema").json()["action"]["properties"]["joint_effort_target"]
    assert (action["minItems"], action["items"]) == (1, {"type": "number"})
    assert httpx.post(f"{base}/reset", json={"seed": 3}).json() == httpx.post(f"{base}/reset", json={"seed": 3}).json()
    assert isinstance(httpx.post(f"{base}/step", json={"action": {"joint_effort_target": [0]}}).json()["reward"], float)
    assert httpx.post(f"{base}/step", json={"action": {}}).status_code == 422
    assert httpx.get(f"{service.url}/openenv/single/nothing/health").status_code == 404
    assert httpx.get(f"{service.url}/openenv/none/cartpole-swingup/health").status_code == 422
    assert httpx.get(f"{service.url}/v1/sessions").json() == [], "HTTP leaves no session behind"


def test_an_agent_moves_the_arm_with_tools(service: ServiceProcess) -> None:
    with open_socket(service, "skills/ur10e-reach") as socket:
        tools = ask(socket, "step", type="list_tools")["data"]["observation"]["tools"]
        assert [tool["name"] for tool in tools] == ["read_state", "act", "move_to"]
        begin = ask(socket, "reset", seed=5)["data"]["observation"]
        elbow = begin["joints"].index("elbow_joint")
        goal = begin["observations"]["joint_pos"][elbow] + 0.2
        arguments = {"targets": {"elbow_joint": goal}, "seconds": 2.0}
        answer = ask(socket, "step", type="call_tool", tool_name="move_to", arguments=arguments)["data"]
        result = answer["observation"]["result"]
        assert answer["observation"]["error"] is None
        assert result["observations"]["joint_pos"][elbow] == pytest.approx(goal, abs=0.02)
        others = [i for i in range(6) if i != elbow]
        before, after = (np.array(s["observations"]["joint_pos"])[others] for s in (begin, result))
        assert np.abs(after - before).max() < 0.02
        # 2 s of steps of 32 ms are 62 or 63.
        assert result["time"] == pytest.approx(2.0, abs=0.032)
        assert isinstance(answer["reward"], float)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("fly", {}, "tool_not_found"),
        ("act", {"targets": {"elbow": 1.0}}, "invalid_args"),
        ("act", {"targets": {"elbow_joint": "up"}}, "invalid_args"),
        ("act", {"targets": {"elbow_joint": True}}, "invalid_args"),
        ("act", {"seconds": 1e9}, "invalid_args"),
        ("act", {"seconds": 0}, "invalid_args"),
        ("act", {"speed": 1}, "invalid_args"),
        ("move_to", [1], "invalid_args"),
    ],
)
def test_a_wrong_call_is_answered_and_moves_nothing(
    service: ServiceProcess, name: str, arguments: object, error: str
) -> None:
    with open_socket(service, "skills/ur10e-reach") as socket:
        ask(socket, "reset", seed=5)
        answer = ask(socket, "step", type="call_tool", tool_name=name, arguments=arguments)["data"]
        assert answer["observation"]["error"]["error_type"] == error
        assert answer["observation"]["error"]["message"]
        state = ask(socket, "step", type="call_tool", tool_name="read_state", arguments={})["data"]["observation"]
        assert state["result"]["time"] == 0.0


def rpc(url: str, method: object, session: str | None = None, **params: object) -> httpx.Response:
    headers = {"mcp-session-id": session} if session else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.post(f"{url}/mcp", json=body, headers=headers)


def test_tools_over_mcp_keep_their_session(service: ServiceProcess) -> None:
    url = f"{service.url}/openenv/skills/ur10e-reach"
    begun = rpc(url, "initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={})
    assert begun.json()["result"]["protocolVersion"] == "2025-03-26"
    session = begun.headers["mcp-session-id"]
    assert rpc(url, "notifications/initialized", session).status_code == 202
    assert len(rpc(url, "tools/list", session).json()["result"]["tools"]) == 3
    times = [
        rpc(url, "tools/call", session, name="act", arguments={"seconds": 0.32}).json()["result"]["structuredContent"][
            "time"
        ]
        for _ in range(3)
    ]
    assert times == pytest.approx([0.32, 0.64, 0.96])
    wrong = rpc(url, "tools/call", session, name="act", arguments={"seconds": -1}).json()["result"]
    assert wrong["isError"]
    assert "seconds must be" in wrong["content"][0]["text"]
    assert rpc(url, "openenv/session/close", session).json()["result"]["closed"]
    assert "closed for lack of use" in rpc(url, "tools/call", session, name="act").json()["error"]["message"]
    assert httpx.get(f"{service.url}/v1/sessions").json() == []


def test_a_session_over_http_is_stepped_over_a_socket_too(service: ServiceProcess) -> None:
    url = f"{service.url}/openenv/skills/ur10e-reach"
    session = rpc(url, "openenv/session/create").json()["result"]["session_id"]
    with connect(f"{url.replace('http', 'ws')}/ws?session_id={session}") as socket:
        ask(socket, "step", type="call_tool", tool_name="act", arguments={"seconds": 0.32})
    state = rpc(url, "tools/call", name="read_state", session_id=session).json()["result"]["data"]
    assert state["time"] == pytest.approx(0.32), "closing the socket leaves the session"
    rpc(url, "openenv/session/close", session_id=session)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{", -32700),
        ("{}", -32600),
        ("[]", -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', -32601),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}', -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"session_id": "other"}}', -32602),
    ],
)
def test_bad_requests_get_json_rpc_errors(service: ServiceProcess, body: str, code: int) -> None:
    answer = httpx.post(f"{service.url}/openenv/skills/ur10e-reach/mcp", content=body)
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == code
