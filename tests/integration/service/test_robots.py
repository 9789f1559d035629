"""Whatever is uploaded as a robot, the service answers with a robot or a reason, and goes on serving."""

import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.support.robot_zips import (
    ARM,
    GOOD_MJCF,
    GOOD_URDF,
    TETRAHEDRON,
    URDF,
    arm_with_mesh,
    mjcf,
    stl_of,
    with_mode,
    zeros_bomb,
    zipped,
)

from physai.service import RemoteSession, ServiceClient, ServiceError
from physai.service.serving.process import ServiceProcess, running_service
from physai.sim.robots import load_robot

pytestmark = pytest.mark.slow

BODY = '<body><joint name="j"/><geom size=".1"/></body>'
MESH = '<body><joint name="j"/><geom type="mesh" mesh="a"/></body>'
SLOW = mjcf(
    BODY,
    before='<compiler><lengthrange inttotal="1e9" interval="1" timestep="1e-4" mode="all" uselimit="false" '
    'useexisting="false" tolrange="1e-30"/></compiler>',
).replace(b"</mujoco>", b'<actuator><motor name="m" joint="j"/></actuator></mujoco>')
"""MuJoCo simulates 10^13 steps to find the range of its actuator."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data", workers=0) as running:
        yield running


def upload(service: ServiceProcess, data: bytes, **query: str) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/robots", params=query, content=data, timeout=300.0)


def added(service: ServiceProcess, data: bytes, **query: str) -> dict[str, Any]:
    answer = upload(service, data, **query)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_robot_is_listed_and_read(service: ServiceProcess) -> None:
    entry = added(service, zipped(GOOD_MJCF))
    assert (entry["robot"], entry["main"], entry["bodies"]) == ("arm", "bot/arm.xml", ["upper"])
    assert entry["mass_kg"] == pytest.approx(2.0)
    assert entry["actuators"] == [joint["name"] for joint in entry["joints"]] == ["shoulder"]
    assert entry["files"] == [{"path": path, "size": len(GOOD_MJCF[path])} for path in sorted(GOOD_MJCF)]
    assert entry["compile_s"] > 0.0
    assert httpx.get(f"{service.url}/v1/robots/{entry['sha256']}").json() == entry
    listed = httpx.get(f"{service.url}/v1/robots").json()
    assert entry["sha256"] in [other["sha256"] for other in listed]
    assert all("joints" not in other for other in listed)
    assert httpx.get(f"{service.url}/v1/robots/{'0' * 64}").status_code == 404


def test_a_urdf_with_a_mesh_is_a_robot(service: ServiceProcess) -> None:
    entry = added(service, zipped(GOOD_URDF))
    assert (entry["robot"], entry["actuators"], entry["joints"][0]["effort_limit"]) == ("swing", ["hinge"], 5.0)
    assert entry["mass_kg"] == pytest.approx(1.5)


def test_the_same_files_have_the_same_digest(service: ServiceProcess) -> None:
    first = added(service, zipped(GOOD_MJCF))
    backwards = zipped(dict(reversed(GOOD_MJCF.items())) | {"README.md": b"?"}, method=zipfile.ZIP_STORED, year=1999)
    assert added(service, backwards) == first
    changed = added(service, zipped(GOOD_MJCF | {"bot/parts/arm.xml": ARM.replace(b'mass="2"', b'mass="3"')}))
    assert changed["sha256"] != first["sha256"]
    assert changed["version"] > first["version"]


BOMBS: dict[str, tuple[bytes, str]] = {
    "replicate": (mjcf(f'<replicate count="1000000">{BODY}</replicate>'), "more than 20000 elements"),
    "nested": (mjcf('<replicate count="1000">' * 6 + BODY + "</replicate>" * 6), "more than 20000 elements"),
    "zip": (zeros_bomb("a.xml", 10 * 1024), "unpacks to more than"),
    "zip-lying": (zeros_bomb("a.xml", 10 * 1024, declared=100), "cannot be read"),
    "laughs": (b'<!DOCTYPE m [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><mujoco model="&b;"/>', "remove the declaration"),
    "zip-name": (zipped({"../arm.xml": mjcf(BODY)}), "is no path inside the zip"),
    "include": (mjcf('<include file="/etc/passwd"/>'), "name it relative to the model"),
    "include-up": (mjcf('<include file="../../../../../../etc/passwd"/>'), "is not in the upload"),
    "mesh": (mjcf(MESH, before='<asset><mesh name="a" file="/CANARY.obj"/></asset>'), "name it relative"),
    "meshdir": (
        mjcf(MESH, before='<compiler meshdir="/CANARY"/><asset><mesh name="a" file="a.obj"/></asset>'),
        "name it relative",
    ),
    "urdf-mesh": (URDF.replace(b"package://swing/meshes/link.obj", b"/CANARY.obj"), "no path inside the upload"),
    "symlink": (with_mode("a.xml", b"/etc/passwd", 0o120777), "is a link or device"),
    "plugin": (mjcf('<plugin plugin="mujoco.sdf.bolt"/>' + BODY), "it loads native code"),
    "flexcomp": (mjcf('<flexcomp name="f" type="grid" count="999 999 999"/>'), "robots are rigid here"),
    "hfield": (mjcf(BODY, before='<asset><hfield name="h" nrow="99999" ncol="99999" size="1 1 1 1"/></asset>'), "1024"),
    "faces": (
        zipped({"a.xml": mjcf(MESH, before='<asset><mesh file="a.stl"/></asset>'), "a.stl": stl_of(10**9)}),
        "number of faces",
    ),
    "nan": (mjcf('<body><inertial pos="0 0 0" mass="nan" diaginertia="1 1 1"/></body>'), "is not a finite number"),
    "mass": (mjcf(BODY + '<body><geom size=".1" mass="1e308"/></body>' * 2), "the robot's mass is inf kg"),
    "memory": (
        mjcf(
            BODY,
            before="<asset>"
            + "".join(f'<texture name="t{i}" type="cube" builtin="flat" width="2048"/>' for i in range(60))
            + "</asset>",
        ),
        "Could not allocate memory",
    ),
    "bodies": (
        mjcf("<body>" + BODY + "<body><geom size='.1'/></body>" * 1200 + "</body>"),
        "nbody 1203, at most 1000 is served",
    ),
    "empty": (b"", "neither a zip nor an MJCF or URDF file, but 0 bytes"),
    "noise": (bytes(range(256)), "not well-formed XML"),
    "time": (SLOW, "it may take 20 s of processor time"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_crafted_robot_is_refused_and_sessions_go_on(service: ServiceProcess, tmp_path: Path, name: str) -> None:
    data, reason = BOMBS[name]
    (tmp_path / "canary.obj").write_bytes(TETRAHEDRON)
    data = data.replace(b"/CANARY", f"{tmp_path}/canary".encode())
    before = len(httpx.get(f"{service.url}/v1/robots").json())
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(upload(service, data)))
    steps = 0
    with RemoteSession.create(service.url, "cartpole-swingup") as session:
        (action,) = session.description["actions"]
        thread.start()
        while thread.is_alive() or steps < 3:
            session.step({action: np.zeros((1, 1))})
            steps += 1
            time.sleep(0.01)  # leaves the processor to what is refused by its processor time
    (answer,) = answers
    assert answer.status_code == 422, answer.text
    assert reason in answer.json()["detail"]
    assert str(service.data) not in answer.text
    assert len(httpx.get(f"{service.url}/v1/robots").json()) == before
    assert os.listdir(service.data / "blobs" / "incoming") == []


def test_the_compiling_process_opens_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(mjcf(BODY))
    program = """
import json, os, socket, sys, mujoco
from physai.service.registry import robot_trial
robot_trial._import_everything()
robot_trial._confine()
def fails(work):
    try: work()
    except (OSError, ValueError): return True
    return False
print(json.dumps([fails(lambda: open(sys.argv[1])), fails(lambda: mujoco.MjModel.from_xml_path(sys.argv[1])),
    fails(socket.socket), fails(os.pipe), fails(lambda: os.listdir("/"))]))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a.xml")]
    run = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert json.loads(run.stdout) == [True] * 5
    assert os.listdir(tmp_path) == ["a.xml"]


def test_a_session_simulates_the_robot(service: ServiceProcess) -> None:
    entry = added(service, arm_with_mesh())
    hold = {"joint_pos_target": np.zeros((2, 6))}
    with (
        RemoteSession.create(service.url, "ur10e-reach", robot=entry["sha256"], worlds=2, seed=1) as mine,
        RemoteSession.create(service.url, "ur10e-reach", worlds=2, seed=1) as known,
    ):
        assert mine.description["robot"] == entry["sha256"]
        # The mesh neither weighs nor touches anything, so both arms move alike.
        for _ in range(5):
            assert np.array_equal(mine.step(hold).observations["joint_pos"], known.step(hold).observations["joint_pos"])


def test_a_session_takes_only_a_registered_robot_that_fits(service: ServiceProcess) -> None:
    client = ServiceClient(service.url)
    stored = client.upload(arm_with_mesh() + b"\0")
    entry = added(service, zipped(GOOD_MJCF))
    # Servos so soft that no following error is finite.
    soft = load_robot("ur10e").path.read_bytes().replace(b'kp="216"', b'kp="1e-320"')
    weak = added(service, soft, name="weak")["sha256"]
    for task, robot, status, reason in (
        ("ur10e-reach", weak, 422, "following_error_limit"),
        ("ur10e-reach", stored, 404, "is registered; see /v1/robots"),
        ("ur10e-reach", entry["sha256"], 422, "no site named 'ee'"),
        ("cartpole-swingup", entry["sha256"], 422, "has no robots to choose from"),
    ):
        body = {"task": task, "robot": robot}
        answer = httpx.post(f"{service.url}/v1/sessions", json=body, timeout=60.0)
        assert (answer.status_code, reason in answer.text) == (status, True), answer.text
        assert str(service.data) not in answer.text
    answer = httpx.post(
        f"{service.url}/v1/jobs", json={"kind": "train", "spec": {"task": "ur10e-reach", "robot": stored}}
    )
    assert (answer.status_code, "see /v1/robots" in answer.text) == (404, True)


def crowded_arm() -> bytes:
    """An arm of two joints that sweeps many boxes into many others, with too little memory for their contacts."""
    boxes = "".join(f'<geom type="box" size=".05 .05 .05" pos="0.{i:02} 0 0"/>' for i in range(60))
    return f"""<mujoco><compiler angle="radian"/><size memory="64K"/><option gravity="0 0 0"/><worldbody>
      <body name="wall" pos="-1 0 0">{boxes}</body>
      <body><joint name="a" axis="0 0 1" range="-3.2 3.2"/><geom size=".1" contype="0" conaffinity="0"/>
        <body pos="0.4 0 0"><joint name="b" axis="0 1 0" range="-3 3"/>{boxes}<site name="ee"/></body></body>
      </worldbody><actuator>
      <position name="a" joint="a" kp="90000" kv="9000" ctrlrange="-3.2 3.2" forcerange="-90000 90000"/>
      <position name="b" joint="b" kp="90000" kv="9000" ctrlrange="-3 3" forcerange="-90000 90000"/>
      </actuator></mujoco>""".encode()


def test_a_model_that_exceeds_its_own_memory_is_refused_while_it_steps(service: ServiceProcess) -> None:
    entry = added(service, crowded_arm())
    with RemoteSession.create(service.url, "ur10e-reach", robot=entry["sha256"], randomise=False) as session:
        with pytest.raises(ServiceError, match="mj_stackAlloc: out of memory") as refusal:
            turn(session, steps=300)
        assert refusal.value.status == 422
        assert session.reset()


def turn(session: RemoteSession, *, steps: int) -> None:
    for _ in range(steps):
        session.step({"joint_pos_target": np.array([[3.14, 0.0]])})


def test_a_job_trains_with_the_robot(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with running_service(tmp_path / "data") as service:
        entry = added(service, arm_with_mesh())
        client = ServiceClient(service.url)
        job = client.submit("train", {"task": "ur10e-reach", "robot": entry["sha256"], "iterations": 1, "worlds": 16})
        assert [event["text"] for event in client.follow(job)][-1] == "succeeded"
        client.download(job, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "contract.json").read_bytes())["robot"]["name"] == "my_arm"


def test_a_name_and_a_main_file_are_chosen(service: ServiceProcess) -> None:
    one = added(service, mjcf(BODY), name="lonely")
    assert (one["robot"], one["main"]) == ("lonely", "lonely.xml")
    two = zipped({"a.xml": mjcf(BODY), "b.xml": mjcf(BODY.replace('"j"', '"k"'))})
    assert "say which is the robot with ?main=PATH" in upload(service, two).text
    assert added(service, two, main="b.xml")["joints"][0]["name"] == "k"
    assert upload(service, mjcf(BODY), name="../a").status_code == 422


def test_an_upload_is_bounded(service: ServiceProcess) -> None:
    answer = upload(service, bytes(64 * 2**20 + 1))
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:physai:problem:too-large")
    assert os.listdir(service.data / "blobs" / "incoming") == []


def heavy_robot(meshes: int) -> bytes:
    """A robot whose convex hulls take seconds to compute."""
    random_numbers = np.random.default_rng(0)
    files: dict[str, bytes] = {}
    for mesh in range(meshes):
        points = random_numbers.normal(size=(100_000, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        lines = [f"v {x:.5f} {y:.5f} {z:.5f}" for x, y, z in points]
        lines += [f"f {first} {first + 1} {first + 2}" for first in range(1, len(points) - 1)]
        files[f"m{mesh}.obj"] = "\n".join(lines).encode()
    asset = "".join(f'<mesh name="m{mesh}" file="m{mesh}.obj" scale="0.01 0.01 0.01"/>' for mesh in range(meshes))
    geoms = "".join(f'<geom type="mesh" mesh="m{mesh}" mass="1"/>' for mesh in range(meshes))
    body = f'<body name="arm"><joint name="hinge" axis="0 1 0"/>{geoms}</body>'
    return zipped(files | {"arm.xml": mjcf(body, before=f"<asset>{asset}</asset>")})


def test_a_robot_that_takes_long_lets_others_pass(service: ServiceProcess) -> None:
    """It is tried briefly, then in a turn of its own."""
    answers: list[httpx.Response] = []
    slow = threading.Thread(target=lambda: answers.append(upload(service, heavy_robot(5))))
    slow.start()
    passed = 0
    while slow.is_alive():
        added(service, mjcf(BODY))
        passed += not answers
    # Small enough to be stored, it would be so on a fast processor before the others had their turn.
    assert "the compiled robot has nbuffer" in answers[0].text
    assert passed >= 2
