"""What a session did, in files and live: other programs' own libraries read where MuJoCo says the bodies were."""

import json
import struct
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import mujoco
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mcap.reader import make_reader
from pxr import Usd, UsdGeom
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from physai.service import RemoteSession
from physai.service.serving.process import ServiceProcess, running_service
from physai.service.view.scene import BodyPoses, Floats, shapes
from physai.sim.tasks.registry import load_task

TASK = "ur10e-reach"
STEPS = 25


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as service:
        yield service


@pytest.fixture
def session(service: ServiceProcess) -> Generator[RemoteSession]:
    with RemoteSession.create(service.url, TASK, worlds=2, seed=3) as session:
        session.reset(seed=3)
        yield session


def drive(session: RemoteSession) -> list[Floats]:
    """Moves the arms; returns the first world's positions before and after each step."""
    positions = [session.state()["qpos"][0]]
    start = session.reset(seed=3)["joint_pos"]
    for step in range(STEPS):
        session.step({"joint_pos_target": start + 0.02 * step})
        positions.append(session.state()["qpos"][0])
    return positions


def use(session: RemoteSession) -> tuple[str, dict[str, str]]:
    return f"/v1/sessions/{session.description['id']}", {"x-session-token": session.description["token"]}


def record(service: ServiceProcess, session: RemoteSession, folder: Path, suffix: str) -> tuple[Path, list[Floats]]:
    path, token = use(session)
    begun = httpx.post(f"{service.url}{path}/recording", json={"seconds": 60.0}, headers=token)
    assert begun.status_code == 200, begun.text
    positions = drive(session)
    answer = httpx.get(f"{service.url}{path}/recording.{suffix}", headers=token)
    assert answer.status_code == 200, answer.text
    file = folder / f"motion.{suffix}"
    file.write_bytes(answer.content)
    return file, positions


def test_mcap_holds_where_the_bodies_were(service: ServiceProcess, session: RemoteSession, tmp_path: Path) -> None:
    file, positions = record(service, session, tmp_path, "mcap")
    model = load_task(TASK).model
    poses = BodyPoses(model)
    times: list[int] = []
    with file.open("rb") as stream:
        reader = make_reader(stream)
        classes: dict[int, Any] = {}
        for schema, channel, message in reader.iter_messages():
            assert schema is not None
            if schema.id not in classes:
                files = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
                pool = descriptor_pool.DescriptorPool()
                for entry in files.file:
                    pool.Add(entry)
                classes[schema.id] = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))
            decoded = classes[schema.id].FromString(message.data)
            if channel.topic == "/scene":
                assert schema.name == "foxglove.SceneUpdate"
                assert len(decoded.entities) == len(shapes(model))
                continue
            assert schema.name == "foxglove.FrameTransforms"
            expected, orientations = poses.at(positions[len(times)])
            times.append(message.log_time)
            for body, transform in enumerate(decoded.transforms, start=1):
                assert transform.child_frame_id == model.body(body).name
                at, turn = transform.translation, transform.rotation
                assert (at.x, at.y, at.z) == pytest.approx(tuple(expected[body]))
                assert (turn.w, turn.x, turn.y, turn.z) == pytest.approx(tuple(orientations[body]))
    assert times == [round(1e9 * 0.032 * step) for step in range(STEPS + 1)]


@pytest.mark.parametrize("suffix", ["usda", "usdc"])
def test_a_stage_is_read_back(service: ServiceProcess, session: RemoteSession, tmp_path: Path, suffix: str) -> None:
    file, positions = record(service, session, tmp_path, suffix)
    model = load_task(TASK).model
    stage = Usd.Stage.Open(str(file))
    assert UsdGeom.GetStageUpAxis(stage) == UsdGeom.Tokens.z
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (0.0, STEPS)
    assert stage.GetTimeCodesPerSecond() == pytest.approx(1.0 / 0.032)
    poses = BodyPoses(model)
    for step, qpos in enumerate(positions):
        expected, orientations = poses.at(qpos)
        for body in range(model.nbody):
            prim = UsdGeom.Xformable(stage.GetPrimAtPath(f"/World/body{body}"))
            # USD multiplies row vectors from the left.
            transform = np.array(prim.ComputeLocalToWorldTransform(Usd.TimeCode(step))).T
            matrix = np.zeros(9)
            mujoco.mju_quat2Mat(matrix, orientations[body])
            assert transform[:3, 3] == pytest.approx(expected[body], abs=1e-9)
            assert transform[:3, :3] == pytest.approx(matrix.reshape(3, 3), abs=1e-6)
    for number, shape in enumerate(shapes(model)):
        mesh = UsdGeom.Mesh.Get(stage, f"/World/body{shape.body}/shape{number}")
        assert np.array(mesh.GetPointsAttr().Get()) == pytest.approx(shape.vertices, abs=1e-6)
        assert list(mesh.GetFaceVertexIndicesAttr().Get()) == shape.faces.ravel().tolist()


@pytest.mark.slow
def test_only_the_latest_is_kept_and_only_for_the_owner(
    service: ServiceProcess, session: RemoteSession, tmp_path: Path
) -> None:
    path, token = use(session)
    nothing = httpx.get(f"{service.url}{path}/recording.mcap", headers=token)
    assert (nothing.status_code, nothing.json()["type"]) == (409, "urn:physai:problem:not-recorded")
    assert httpx.post(f"{service.url}{path}/recording", json={}, headers={"x-session-token": "no"}).status_code == 403
    for seconds in (0.0, -1.0, 1e9):
        answer = httpx.post(f"{service.url}{path}/recording", json={"seconds": seconds}, headers=token)
        assert answer.status_code == 422
    assert httpx.get(f"{service.url}{path}/recording.exe", headers=token).status_code == 422
    # 0.32 s are ten steps, between eleven moments.
    assert httpx.post(f"{service.url}{path}/recording", json={"seconds": 0.32}, headers=token).json() == {"moments": 11}
    drive(session)
    file = tmp_path / "motion.usda"
    file.write_bytes(httpx.get(f"{service.url}{path}/recording.usda", headers=token).content)
    stage = Usd.Stage.Open(str(file))
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (STEPS - 10, STEPS)


@pytest.mark.slow
def test_foxglove_follows_a_session(service: ServiceProcess, session: RemoteSession) -> None:
    path, _ = use(session)
    address = service.url.replace("http", "ws") + httpx.post(f"{service.url}{path}/view").json()["foxglove"]
    with connect(address, subprotocols=[Subprotocol("foxglove.sdk.v1")]) as socket:
        assert socket.subprotocol == "foxglove.sdk.v1"
        channels: dict[str, int] = {}
        while len(channels) < 2:
            message = socket.recv(timeout=20.0)
            if isinstance(message, str) and (decoded := json.loads(message))["op"] == "advertise":
                channels |= {channel["topic"]: channel["id"] for channel in decoded["channels"]}
        subscriptions = [{"id": index, "channelId": channels[topic]} for index, topic in enumerate(("/scene", "/tf"))]
        socket.send(json.dumps({"op": "subscribe", "subscriptions": subscriptions}))
        seen: set[int] = set()
        deadline = time.monotonic() + 30.0
        while seen != {0, 1} and time.monotonic() < deadline:
            message = socket.recv(timeout=20.0)
            if isinstance(message, bytes) and message[0] == 1:
                seen.add(struct.unpack("<I", message[1:5])[0])
        assert seen == {0, 1}
