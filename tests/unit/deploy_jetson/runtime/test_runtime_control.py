"""The control socket, and the lifecycle it is asked about."""

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from physai.deploy_jetson.runtime.control import ControlError, ControlSocket, tell
from physai.deploy_jetson.runtime.lifecycle import Lifecycle, LifecycleError, advance
from physai.deploy_jetson.runtime.orders import Mailbox, Order

STATUS = {"guard": "RUN"}

ask = partial(tell, timeout_s=PATIENCE_S)


def status() -> dict[str, Any]:
    return STATUS


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def path(tmp_path: Path, mailbox: Mailbox) -> Iterator[Path]:
    control = ControlSocket(tmp_path / "control", mailbox, status, clock_ns=lambda: 42)
    control.start()
    yield tmp_path / "control"
    control.close()
    assert not (tmp_path / "control").exists()


def test_orders_wait_for_the_loop_in_their_order(path: Path, mailbox: Mailbox) -> None:
    assert ask(path, "hold") == {"accepted": "hold"}
    ask(path, "reset")
    assert list(mailbox.orders) == [Order.HOLD, Order.RESET]


def test_a_stop_waits_behind_nothing(path: Path, mailbox: Mailbox) -> None:
    ask(path, "hold")
    ask(path, "stop")
    assert mailbox.stop
    assert list(mailbox.orders) == [Order.HOLD]


def test_a_sign_of_life_and_the_status(path: Path, mailbox: Mailbox) -> None:
    ask(path, "heartbeat")
    assert mailbox.heartbeat_ns == 42
    assert ask(path, "status") == STATUS


@pytest.mark.parametrize("word", ["", "explode", "ST\xf6P", "x" * 200])
def test_other_words_are_refused(path: Path, mailbox: Mailbox, word: str) -> None:
    with pytest.raises(ControlError, match="no request named"):
        ask(path, word or " ")
    assert not mailbox.orders
    assert not mailbox.stop


def test_who_does_not_wait_for_an_answer_blocks_nobody(path: Path, mailbox: Mailbox) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mute:
        mute.connect(str(path))
        for _ in range(50):
            mute.send(b"heartbeat")
    ask(path, "stop")
    assert mailbox.stop


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="start it with `physai robot run`"):
        ask(tmp_path / "none", "status")


def test_two_runtimes_do_not_share_a_socket(path: Path) -> None:
    with pytest.raises(ControlError, match="another runtime listens there"):
        ControlSocket(path, Mailbox(), status)


def test_the_socket_of_a_runtime_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
        left_behind.bind(str(tmp_path / "control"))
    ControlSocket(tmp_path / "control", Mailbox(), status).close()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no control socket can be made there: No such file"):
        ControlSocket(tmp_path / "none" / "control", Mailbox(), status)


def test_orders_are_bounded() -> None:
    mailbox = Mailbox()
    for _ in range(1000):
        mailbox.put(Order.HOLD)
    assert len(mailbox.orders) == 64


def test_the_lifecycle_of_ros2_control() -> None:
    state = Lifecycle.UNCONFIGURED
    path = (Lifecycle.INACTIVE, Lifecycle.ACTIVE, Lifecycle.INACTIVE, Lifecycle.ACTIVE, Lifecycle.INACTIVE)
    for to in (*path, Lifecycle.FINALIZED):
        state = advance(state, to)
    assert state is Lifecycle.FINALIZED


@pytest.mark.parametrize(
    ("state", "to"),
    [
        (Lifecycle.UNCONFIGURED, Lifecycle.ACTIVE),
        (Lifecycle.ACTIVE, Lifecycle.FINALIZED),
        (Lifecycle.FINALIZED, Lifecycle.INACTIVE),
    ],
)
def test_what_the_lifecycle_does_not_allow(state: Lifecycle, to: Lifecycle) -> None:
    with pytest.raises(LifecycleError, match=f"a runtime that is {state} cannot become {to}"):
        advance(state, to)
