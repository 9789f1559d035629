"""A unit test starts no process and opens no socket; what does so is an integration test."""

import multiprocessing.process
import os
import platform
import socket
import subprocess
from collections.abc import Generator
from typing import Any

import pytest
from tests.support.fixtures_sliders import slider_task, sliders

from physai.sdk.base.process.software import running_software

__all__ = ["slider_task", "sliders"]

# Asks `uname` the first time, and keeps the answer; Warp asks it when it starts.
platform.processor()
# Asks git the first time; twins and verdicts name the commit.
running_software()


@pytest.fixture(autouse=True)
def no_process_and_no_socket() -> Generator[None]:
    """Fails a test that starts a process or opens a socket."""

    def refuse(*_: Any, **__: Any) -> Any:
        pytest.fail("a unit test starts a process or opens a socket; move it to tests/integration")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", refuse)
        patch.setattr(multiprocessing.process.BaseProcess, "start", refuse)
        patch.setattr(os, "fork", refuse)
        patch.setattr(os, "posix_spawn", refuse)
        patch.setattr(socket.socket, "bind", refuse)
        patch.setattr(socket.socket, "connect", refuse)
        yield
