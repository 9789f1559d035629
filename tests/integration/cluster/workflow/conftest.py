"""A Ray cluster of several nodes on this computer, and an S3 server; see `tests.support.s3_server`."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.ray_nodes import RayNodes, ray_nodes
from tests.support.s3_server import s3_server, server
from tests.support.workflow_runs import StartRay

__all__ = ["s3_server", "server", "start_ray"]


@pytest.fixture
def start_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartRay]:
    """Starts nodes that ask for a token, which end with the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with ExitStack() as stack:

        def start(*cpus: int) -> RayNodes:
            nodes = stack.enter_context(ray_nodes(cpus, token=secrets.token_hex(32)))
            # Who joins has the token only, as on another computer.
            stack.enter_context(pytest.MonkeyPatch.context()).delenv("RAY_AUTH_MODE")
            return nodes

        yield start
