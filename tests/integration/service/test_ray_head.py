"""The head of Ray's cluster dies: the service and its sessions go on, and it says that it is not ready."""

import os
import signal
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.support.patience import nap, until

from physai.service import RemoteSession
from physai.service.serving.process import ServiceProcess

RAYS_OWN_S = 60
"""After this long Ray's library ends a process whose head is gone."""


def heads(service: ServiceProcess) -> list[int]:
    """Ray's servers that the service started."""
    assert service.process is not None
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            program = (status.parent / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if parent == service.process.pid and program.endswith(b"gcs_server"):
            found.append(int(status.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "seconds", [pytest.param(3, id="soon"), pytest.param(RAYS_OWN_S + 15, marks=pytest.mark.exhaustive, id="later")]
)
def test_sessions_outlive_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    service = ServiceProcess(tmp_path / "data", ray="local")
    service.start()
    try:
        with RemoteSession.create(service.url, "cartpole-swingup") as session:
            session.reset()
            (head,) = heads(service)
            os.kill(head, signal.SIGKILL)
            said: list[str] = []

            def silent_s() -> int:
                said[:] = [httpx.get(f"{service.url}/readyz").json().get("detail", "")]
                return int(said[0].split()[5]) if said[0].startswith("Ray has not answered for ") else 0

            for moment in range(1, seconds, 5):
                until(lambda least=moment: silent_s() >= least, nap, lambda: said)
                session.step({"joint_effort_target": np.zeros((1, 1))})
    finally:
        service.stop()
    assert service.process is not None
    assert service.process.returncode == 130, "it ends as by Ctrl-C"
