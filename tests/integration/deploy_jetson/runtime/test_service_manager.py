"""What a service manager hears through sd_notify's socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from physai.deploy_jetson.runtime.system.service_manager import ServiceManager

SECOND = 1_000_000_000


@pytest.fixture(params=["/", "@"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Its socket, in a file system or abstract, and NOTIFY_SOCKET."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(path if request.param == "/" else "\0" + path)
        made.setblocking(False)
        yield made, path if request.param == "/" else "@" + path


def heard(by: socket.socket) -> list[bytes]:
    found = list[bytes]()
    while True:
        try:
            found.append(by.recv(64))
        except BlockingIOError:
            return found


def test_start_signs_of_life_and_end(manager: tuple[socket.socket, str]) -> None:
    ours, address = manager
    told = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())})
    told.ready()
    for tenths in range(31):
        told.progress(tenths * SECOND // 10)
    told.stopping()
    assert heard(ours) == [b"READY=1", *[b"WATCHDOG=1"] * 4, b"STOPPING=1"]


@pytest.mark.parametrize("limit", [{}, {"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_nobody_watches(manager: tuple[socket.socket, str], limit: dict[str, str]) -> None:
    ours, address = manager
    told = ServiceManager({"NOTIFY_SOCKET": address, **limit})
    told.ready()
    told.progress(SECOND)
    assert heard(ours) == [b"READY=1"]


def test_one_that_does_not_read_holds_nothing(manager: tuple[socket.socket, str]) -> None:
    ours, address = manager
    told = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "4"})
    for count in range(10_000):
        told.progress(count * SECOND)
    ours.close()
    told.progress(20_000 * SECOND)
    told.ready()


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "nonsense", "WATCHDOG_USEC": "4"}])
def test_without_one_nothing_is_sent(environment: dict[str, str]) -> None:
    told = ServiceManager(environment)
    told.ready()
    told.progress(SECOND)
    told.sleep(0.0)
    told.stopping()
