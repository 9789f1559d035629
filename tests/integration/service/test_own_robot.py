"""A robot that physai does not know walks the whole chain in a service: calibrate, train, validate, quantise, play."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.robot_zips import arm_with_mesh

from physai.sdk.cli.main import main
from physai.service import ServiceClient, ServiceError
from physai.service.serving.process import ServiceProcess, running_service
from physai.sim.robots import load_robot
from physai.twin.model.twin import load_twin, nominal_twin, save_twin

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

QUICK_GATES = """
parity: {probes: 64, visited_states: 64}
success: {max_episodes: 64}
safety: {max_episodes: 128}
engine: {episodes: 8}
falsification: {generations: 2, population: 4, seeds: 1, confirmations: 8}
"""
"""Too few episodes for a conclusion."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The robot and recordings of it."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "arm.zip").write_bytes(arm_with_mesh())
    record = ["sim", "record", str(folder / "arm.zip"), "-o", str(folder / "logs")]
    assert main([*record, "--recordings", "2", "--duration-s", "2"]) == 0
    return folder


def finished(client: ServiceClient, folder: Path, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    job = client.submit(kind, spec)
    events = [event["text"] for event in client.follow(job)]
    found = client.job(job)
    assert found["state"] == "succeeded", events
    client.download(job, folder / kind)
    return found


def test_the_whole_chain(
    service: ServiceProcess, arm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = ServiceClient(service.url)
    robot = client.add_robot(arm / "arm.zip")["sha256"]
    logs = {path.name: client.upload(path) for path in sorted((arm / "logs").glob("*.csv"))}
    columns = client.upload(arm / "logs" / "columns.yaml")

    spec = {"robot": robot, "logs": logs, "columns": columns, "time_budget_s": 5.0}
    finished(client, tmp_path, "calibrate", spec)
    twin = client.upload(tmp_path / "calibrate" / "twin.json")
    # The file names a path in the folder of the job, which nobody else has.
    with pytest.raises(ServiceError, match="upload the robot to /v1/robots and register the twin with its hash"):
        client.register("twin", twin)
    entry = client.register("twin", twin, robot=robot)
    assert (entry["name"], entry["robot"], entry["robot_sha256"]) == ("my_arm", "my_arm", robot)

    spec = {"task": "ur10e-reach", "twin": twin, "iterations": 1, "worlds": 16}
    assert finished(client, tmp_path, "train", spec)["spec"]["robot"] == robot
    policy = client.upload(tmp_path / "train" / "export" / "policy.onnx")
    assert client.register("policy", policy)["robot"] == "my_arm"

    play = {"policy": policy, "robot": robot, "duration_s": 0.5}
    assert finished(client, tmp_path, "play", play)["artefacts"]
    states = {"policy": policy, "twin": twin, "variants": ["int8"]}
    assert finished(client, tmp_path, "quantize", states)["spec"]["robot"] == robot

    run, robot_file = str(tmp_path / "train"), str(arm / "arm.zip")
    twin_file = str(tmp_path / "calibrate" / "twin.json")
    validate = ["sim", "validate", run, "--twin", twin_file, "--model", robot_file, "--json"]
    (tmp_path / "gates.yaml").write_text(QUICK_GATES)
    validate += ["--gates", str(tmp_path / "gates.yaml"), "--server", service.url]
    capsys.readouterr()
    # Nothing is conclusive in so short recordings; robot and twin fit the policy all the same.
    code, output = main([*validate, "--report", str(tmp_path / "report")]), capsys.readouterr()
    assert (code, output.out != "") == (2, True), output.err
    verdict = json.loads(output.out)
    (contract,) = [gate for gate in verdict["gates"] if gate["gate"] == "contract"]
    assert contract["outcome"] == "PASS", contract
    assert verdict["twin_hash"] == load_twin(twin_file).hash

    (first, *_) = [gate["counterexample"] for gate in verdict["gates"] if gate["counterexample"]]
    play = ["play", "--counterexample", str(first["index"]), str(tmp_path / "report"), "--json"]
    play += ["--video", str(tmp_path / "case.mp4"), "--width", "32", "--height", "32", "--fps", "1"]
    assert main(play) == 2
    assert "name the recorded one's file with --model FILE" in capsys.readouterr().err
    assert main([*play, "--model", robot_file]) == 0, capsys.readouterr().err


def test_a_twin_belongs_to_its_robot(service: ServiceProcess, arm: Path, tmp_path: Path) -> None:
    client = ServiceClient(service.url)
    robot = client.add_robot(arm / "arm.zip")["sha256"]
    other = client.add_robot(Path(__file__).parents[3] / "sim" / "physai" / "sim" / "robots" / "cartpole.xml")["sha256"]
    save_twin(nominal_twin(load_robot(str(arm / "arm.zip"))), tmp_path / "twin.json")
    twin = client.upload(tmp_path / "twin.json")
    with pytest.raises(ServiceError, match="robot cartpole has changed since this twin was fitted, or is another one"):
        client.register("twin", twin, robot=other)
    spec = {"task": "ur10e-reach", "twin": twin}
    # Not registered, a twin could name any path of the service's computer as its robot.
    answer = httpx.post(f"{service.url}/v1/jobs", json={"kind": "train", "spec": spec})
    assert (answer.status_code, "see /v1/registry/twin" in answer.text) == (404, True)
    client.register("twin", twin, robot=robot)
    with pytest.raises(ServiceError, match="is of the robot"):
        client.submit("train", spec | {"robot": other})


def test_a_folder_is_uploaded_with_its_meshes(service: ServiceProcess, tmp_path: Path) -> None:
    from physai.sim.robots.files.archive import unpack

    for name, content in unpack(arm_with_mesh()).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "thesis.pdf").write_bytes(b"not part of the robot")
    client = ServiceClient(service.url)
    assert client.add_robot(tmp_path / "my_arm.xml")["files"] == [
        {"path": name, "size": (tmp_path / name).stat().st_size} for name in ("link.obj", "my_arm.xml")
    ]


def test_a_failed_job_runs_again_when_it_is_retried(service: ServiceProcess) -> None:
    client = ServiceClient(service.url)
    job = client.submit("play", {"policy": client.upload(b"nonsense")})
    for attempt in (1, 2):
        events = [event["text"] for event in client.follow(job)]
        assert client.job(job)["state"] == "failed"
        assert len([text for text in events if "policy.onnx" in text]) == attempt, events
        httpx.post(f"{service.url}/v1/jobs/{job}/retry").raise_for_status()
