"""Joining a cluster that does not answer as it should: one line, after a bounded time."""

import os
import secrets
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.ray_nodes import ray_nodes

from physai.train.cli.verb import verb_command


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


@pytest.mark.exhaustive
def test_something_else_than_ray_listens(tmp_path: Path) -> None:
    """Ray tries for about 40 s."""
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert f"--ray {address}: cannot join this cluster" in refusal(tmp_path / "run", address, {})
