"""A Ray cluster of several nodes on this computer, and an S3 server; see `tests.support.s3_server`."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.s3_server import s3_server, server
from tests.support.workflow_runs import StartRay

__all__ = ["s3_server", "server", "start_ray"]


@pytest.fixture
def start_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartRay]:
    """Starts nodes, which end with the test."""
    cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's default of 15 lets every other program go first.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    with ExitStack() as stack:

        def start(head: int, *others: int) -> Any:
            cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": head})
            stack.callback(cluster.shutdown)
            for processors in others:
                cluster.add_node(num_cpus=processors)
            # Who joins has the token only, as on another computer.
            os.environ.pop("RAY_AUTH_MODE", None)
            return cluster

        yield start
