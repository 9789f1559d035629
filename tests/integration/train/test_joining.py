"""Joining a cluster that does not answer as it should: one line, after a bounded time."""

import os
import secrets
import shutil
import socket
import socketserver
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.contract_workflows import show, write_contract, write_workflow
from tests.support.ray_nodes import ray_nodes

from physai.compute.ray import cluster
from physai.compute.ray.cluster import ClusterError, connected
from physai.sdk.cli.main import main
from physai.train.api.demo_drive import verb_command


def refusal(run: Path, address: str, environment: dict[str, str]) -> str:
    """What `physai train` says on one line; in a process of its own, because Ray reads a token once."""
    words = ["train", "cartpole-swingup", "--num-envs", "32", "--generators", "1", "--device", "cpu"]
    command = verb_command([*words, "--out", str(run), "--ray", address], torch=True)
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120.0, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_cluster_that_refuses_the_token(tmp_path: Path) -> None:
    with ray_nodes((1,), token=secrets.token_hex(32)) as nodes:
        other = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        said = refusal(tmp_path / "other", nodes.address, other)
        assert (
            f"--ray {nodes.address}: the cluster refuses this computer, which has a token that is not its own" in said
        )
        nothing = {"RAY_AUTH_TOKEN": "", "RAY_AUTH_MODE": "", "HOME": str(tmp_path)}
        said = refusal(tmp_path / "nothing", nodes.address, nothing)
        assert "the cluster refuses this computer, which has no token; copy ~/.ray/auth_token of the cluster's" in said
        # `ray.init` would have repeated this each second for 20 s.
        assert said.count("Failed to get cluster ID") <= 1


@pytest.mark.slow
def test_a_cluster_without_a_token_for_who_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's tasks run there, and its actors die before they begin."""
    monkeypatch.setattr("tests.support.ray_nodes._token_of_this_process", lambda: None)
    # Within the nodes' own patch: undone after it, this would leave the mode set for all tests that follow.
    with ray_nodes((1,)) as nodes, pytest.MonkeyPatch.context() as patched:
        patched.delenv("RAY_AUTH_MODE")
        said = refusal(tmp_path / "run", nodes.address, {"RAY_AUTH_TOKEN": secrets.token_hex(32)})
        assert f"--ray {nodes.address}: the cluster asks for no token, and this computer presents one" in said


@pytest.mark.slow
def test_a_node_with_another_physai_computes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "physai_sdk-9.9.dist-info").mkdir()
    (tmp_path / "physai_sdk-9.9.dist-info" / "METADATA").write_text("Name: physai-sdk\nVersion: 9.9\n")
    (tmp_path / "robots").mkdir()
    for name in ("one", "two"):
        (tmp_path / "robots" / f"{name}.xml").write_text(f"<mujoco model='{name}'>{ARM}</mujoco>")
    write_contract(tmp_path / "a.json", "one")
    write_workflow(tmp_path / "workflow.yaml", {"a": show({"path": "a.json"})})
    (tmp_path / "sweep.yaml").write_text(
        "{parameters: {learning_rate: {choice: [0.01]}}, trials: 1, budget: {iterations: 1}}"
    )
    out = ["--out", str(tmp_path / "run")]
    with ray_nodes((0,)) as nodes:
        nodes.start(cpus=1, environment={"PYTHONPATH": str(tmp_path)})
        nodes.await_all()
        with connected(nodes.address, processors=1):
            for words, code, says in (
                (["train", "cartpole-swingup", "--generators", "1", "--device", "cpu"], 2, "has physai-sdk 9.9"),
                (["robots", "import", str(tmp_path / "robots")], 2, "has physai-sdk 9.9"),
                (["runs", "sweep", "cartpole-swingup", "--over", str(tmp_path / "sweep.yaml")], 1, "this computer 9.9"),
            ):
                assert main([*words, *out, "--ray", nodes.address]) == code
                said = " ".join(capsys.readouterr().err.split())
                assert says in said, said
                shutil.rmtree(tmp_path / "run", ignore_errors=True)
            words = ["workflow", "run", str(tmp_path / "workflow.yaml"), "--folder", str(tmp_path / "run")]
            assert main([*words, "--ray", nodes.address]) == 2
            assert "has physai 9.9, this computer" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_left_of_a_cluster_that_was_killed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is still found on this computer; port 1 is reserved."""
    services: Any = pytest.importorskip("ray._private.services")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = ["127.0.0.1:1"]

    def address_here(_address: str, _folder: str | None) -> str:
        return found[-1]

    monkeypatch.setattr(services, "get_ray_address_from_environment", address_here)
    with connected("auto", processors=1) as ray:
        assert len(ray.nodes()) == 1
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        found.append(address)
        monkeypatch.setattr(cluster, "ANSWER_S", 0.5)
        with pytest.raises(ClusterError, match=f"{address}: no cluster answers there"), connected("auto", processors=1):
            pass


ARM = """<worldbody><body><joint name="j" axis="0 1 0" range="-1 1"/><geom size="0.1" mass="1"/></body></worldbody>
<actuator><position joint="j" kp="10" kv="1"/></actuator>"""


@pytest.mark.exhaustive
def test_something_else_than_ray_listens(tmp_path: Path) -> None:
    """It answers in another protocol. Ray tries for about 40 s."""
    pytest.importorskip("ray")
    with socketserver.TCPServer(("127.0.0.1", 0), Greeter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        assert f"--ray {address}: cannot join this cluster" in refusal(tmp_path / "run", address, {})
        server.shutdown()


class Greeter(socketserver.BaseRequestHandler):
    """A server that speaks first, as sshd does."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-other\r\n")
