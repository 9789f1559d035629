"""The control socket, and the lifecycle it is asked about."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S, until

from physai.deploy_jetson.runtime.commands.control_socket import ControlError, ControlSocket, tell
from physai.deploy_jetson.runtime.commands.queue import (
    MAX_WAITING,
    NO_LEVELS,
    Command,
    CommandError,
    CommandQueue,
    RequestTicket,
)
from physai.deploy_jetson.ticks.lifecycle import Lifecycle, LifecycleError, advance

STATUS = {"guard": "RUN"}

ask = partial(tell, timeout_s=PATIENCE_S)


def status() -> dict[str, Any]:
    return STATUS


@pytest.fixture
def queue() -> CommandQueue:
    return CommandQueue()


@pytest.fixture
def path(tmp_path: Path, queue: CommandQueue) -> Iterator[Path]:
    control = ControlSocket(tmp_path / "control", queue, status, clock_ns=lambda: 42)
    control.start()
    yield tmp_path / "control"
    control.close()
    assert not (tmp_path / "control").exists()


def ask_aside(path: Path, word: str) -> "Future[dict[str, Any]]":
    """Asks in a thread of its own: the answer waits for a loop."""
    return ThreadPoolExecutor(1).submit(ask, path, word)


def next_ticket(queue: CommandQueue) -> RequestTicket:
    until(lambda: len(queue) > 0)
    ticket = queue.take()
    assert ticket is not None
    return ticket


def test_a_reset_is_answered_by_the_loop(path: Path, queue: CommandQueue) -> None:
    queue.read_back = 7
    asked = ask_aside(path, "reset")
    ticket = next_ticket(queue)
    assert (ticket.command, ticket.read_back, ticket.levels) == (Command.RESET, 7, queue.levels)
    assert not asked.done()
    ticket.answer("done", obeyed=True)
    assert asked.result() == {"accepted": "reset", "answer": "done"}


def test_a_refused_start_is_an_error_that_says_why(path: Path, queue: CommandQueue) -> None:
    asked = ask_aside(path, "start")
    next_ticket(queue).answer("refused: reset first")
    with pytest.raises(ControlError, match="start: refused: reset first"):
        asked.result()


def test_a_stop_waits_behind_nothing(path: Path, queue: CommandQueue) -> None:
    """Finding 1: levels do not queue, and requests that wait for their answer do not hold them up."""
    waiting = [ask_aside(path, "reset") for _ in range(MAX_WAITING)]
    until(lambda: len(queue) == MAX_WAITING)
    for word in ("hold", "damp", "deactivate"):
        assert ask(path, word) == {"accepted": word}
    assert ask(path, "stop") == {"accepted": "stop", "durable": True}
    assert (queue.hold, queue.damp, queue.deactivate, queue.stop) == queue_order(queue)
    assert queue.stopped
    assert ask(path, "shutdown") == {"accepted": "shutdown"}
    assert queue.shutdown
    queue.refuse_all("refused: the policy has ended")
    for one in waiting:
        with pytest.raises(ControlError, match="reset: refused: the policy has ended"):
            one.result()


def queue_order(queue: CommandQueue) -> tuple[int, ...]:
    """Four numbers that grow."""
    return tuple(sorted({queue.hold, queue.damp, queue.deactivate, queue.stop}))


def test_a_full_queue_says_so(path: Path, queue: CommandQueue) -> None:
    """Finding 1: what was accepted is never dropped; what cannot be taken is refused at once."""
    for _ in range(MAX_WAITING):
        queue.put(Command.RESET)
    with pytest.raises(ControlError, match=f"start: refused, {MAX_WAITING} requests wait already"):
        ask(path, "start")
    assert len(queue) == MAX_WAITING


def test_a_sign_of_life_and_the_status(path: Path, queue: CommandQueue) -> None:
    ask(path, "heartbeat")
    assert 0 <= 42 - queue.heartbeat_ns < PATIENCE_S * 1e9  # less the way through the socket
    assert ask(path, "status") == STATUS


@pytest.mark.parametrize("word", ["", "explode", "ST\xf6P", "x" * 200])
def test_other_words_are_refused(path: Path, queue: CommandQueue, word: str) -> None:
    with pytest.raises(ControlError, match="no request named"):
        ask(path, word or " ")
    assert queue.levels == NO_LEVELS
    assert not len(queue)


def test_who_does_not_wait_for_an_answer_blocks_nobody(path: Path, queue: CommandQueue) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mute:
        mute.connect(str(path))
        for _ in range(50):
            mute.send(b"heartbeat")
    ask(path, "stop")
    assert queue.stopped


def test_a_status_that_fails_does_not_keep_stops_from_coming(tmp_path: Path, queue: CommandQueue) -> None:
    def fail() -> Any:
        raise RuntimeError("dictionary changed size")

    control = ControlSocket(tmp_path / "control", queue, fail, record=fail)
    control.start()
    for word in ("status", "record"):
        with pytest.raises(ControlError, match=f"{word}: RuntimeError: dictionary changed size"):
            ask(tmp_path / "control", word)
    assert ask(tmp_path / "control", "stop") == {"accepted": "stop", "durable": True}
    assert queue.stop == 1
    control.close()


def test_an_answer_that_is_too_long_says_so_and_is_not_cut(tmp_path: Path) -> None:
    queue = CommandQueue()
    control = ControlSocket(tmp_path / "control", queue, lambda: {"evidence": "x" * 100_000})
    control.start()
    with pytest.raises(ControlError, match=r"the answer has 100016 bytes, above 65536"):
        ask(tmp_path / "control", "status")
    control.close()


def test_a_socket_that_fails_for_a_while_is_heard_again(
    tmp_path: Path, queue: CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlSocket(tmp_path / "control", queue, status)
    channel = control._channels[1]  # pyright: ignore[reportPrivateUsage]
    real = channel._socket  # pyright: ignore[reportPrivateUsage]
    failures = iter([OSError(12, "Cannot allocate memory")] * 3)

    class Failing:
        def recvfrom(self, *arguments: int) -> Any:
            error = next(failures, None)
            if error is not None:
                raise error
            return real.recvfrom(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(channel, "_socket", Failing())
    control.start()
    assert ask(tmp_path / "control", "stop") == {"accepted": "stop", "durable": True}
    assert next(failures, None) is None
    control.close()


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="start it with `physai robot run`"):
        ask(tmp_path / "none", "status")


def test_two_runtimes_do_not_share_a_socket(path: Path) -> None:
    with pytest.raises(ControlError, match="another runtime listens there"):
        ControlSocket(path, CommandQueue(), status)


def test_the_socket_of_a_runtime_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_behind:
        left_behind.bind(str(tmp_path / "control"))
    ControlSocket(tmp_path / "control", CommandQueue(), status).close()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no control socket can be made there: No such file"):
        ControlSocket(tmp_path / "none" / "control", CommandQueue(), status)


def test_a_stop_that_another_thread_writes_late_is_still_seen() -> None:
    """Every request has a number of its own, so an older one that is stored after a newer one changes the level."""
    queue = CommandQueue()
    queue.put(Command.STOP)
    older = queue.stop
    queue.put(Command.STOP)
    seen = queue.levels
    queue.stop = older
    assert queue.levels != seen


def test_an_answer_that_does_not_come(queue: CommandQueue) -> None:
    ticket = queue.put(Command.RESET)
    assert ticket is not None
    with pytest.raises(CommandError, match=r"reset: no answer within 0\.01 s"):
        ticket.wait(0.01)
    # Whoever was told so does not expect it to be obeyed after all.
    newer = queue.put(Command.START)
    assert queue.take() is newer
    assert queue.take() is None


def waits_in(control: ControlSocket, channel: int = 0) -> None:
    """Waits until a request is in a socket whose thread does not run yet."""
    waiting = control._channels[channel]._socket  # pyright: ignore[reportPrivateUsage]
    assert select.select([waiting], [], [], PATIENCE_S)[0]


class Clock:
    """CLOCK_MONOTONIC that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_the_loop_did_not_answer_in_time_is_not_obeyed_later(
    tmp_path: Path, queue: CommandQueue, clock: Clock
) -> None:
    control = ControlSocket(tmp_path / "control", queue, status, clock_ns=clock)
    control.start()
    asked = ask_aside(tmp_path / "control", "start")
    until(lambda: len(queue) > 0)
    clock.pass_s(2.1)
    with pytest.raises(ControlError, match=r"start: the control loop did not answer within 2 s"):
        asked.result()
    assert len(queue)
    assert queue.take() is None
    control.close()


@pytest.mark.parametrize("set_s", [-60.0, 0.0, 60.0], ids=["clock set back", "clock kept", "clock set ahead"])
@pytest.mark.parametrize("word", ["activate", "reset", "start", "heartbeat", "stop"])
def test_what_was_sent_to_a_runtime_that_stood_still(
    tmp_path: Path, queue: CommandQueue, clock: Clock, monkeypatch: pytest.MonkeyPatch, word: str, set_s: float
) -> None:
    """Its sender has given up long ago: only what makes the robot safer is obeyed when the runtime goes on.

    A clock that was set back made old requests fresh, because negative ages counted as 0.
    """
    now_ns = time.time_ns
    control = ControlSocket(tmp_path / "control", queue, status, clock_ns=clock)
    asked = ask_aside(tmp_path / "control", word)
    waits_in(control, int(word == "stop"))
    clock.pass_s(60.0)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + round(set_s * 1e9))
    control.start()
    if word in ("heartbeat", "stop"):
        asked.result()
    else:
        with pytest.raises(ControlError, match=rf"{word}: refused: it may have been sent 60 s ago; ask again"):
            asked.result()
    control.close()
    assert not len(queue)
    assert queue.stopped == (word == "stop")
    assert (queue.heartbeat_ns != 0) == (word == "heartbeat")
    assert clock() - queue.heartbeat_ns >= 60_000_000_000


def test_an_answer_counts_from_when_it_was_asked(tmp_path: Path, queue: CommandQueue, clock: Clock) -> None:
    """A request that was read 1.5 s late was obeyed 3 s after its sender had asked, and given up."""
    control = ControlSocket(tmp_path / "control", queue, status, clock_ns=clock)
    asked = ask_aside(tmp_path / "control", "start")
    waits_in(control)
    clock.pass_s(1.5)
    control.start()
    until(lambda: len(queue) > 0)
    clock.pass_s(0.6)
    with pytest.raises(ControlError, match=r"start: the control loop did not answer within 2 s"):
        asked.result()
    control.close()


def test_a_stop_does_not_wait_for_a_slow_status(tmp_path: Path, queue: CommandQueue) -> None:
    """One process that sent `status` and read no answer left every stop without an answer for 3 to 4 s."""
    free = threading.Event()

    def slow() -> dict[str, Any]:
        free.wait(PATIENCE_S)
        return STATUS

    control = ControlSocket(tmp_path / "control", queue, slow)
    control.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mute:
        mute.bind("")
        mute.connect(str(tmp_path / "control"))
        mute.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(1000):
                mute.send(b"status")
        for word in ("hold", "damp", "stop"):
            assert ask(tmp_path / "control", word)["accepted"] == word
        assert not free.is_set()
        free.set()
    control.close()


def test_a_sender_is_limited_and_others_are_not(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as greedy:
        greedy.bind("")
        greedy.settimeout(PATIENCE_S)
        greedy.connect(str(path))
        answered = 0
        # The clock of this socket stands still, so all of it is one second.
        for _ in range(300):
            greedy.send(b"status")
            greedy.settimeout(0.2 if answered == 200 else PATIENCE_S)
            try:
                greedy.recv(1 << 16)
            except TimeoutError:
                break
            answered += 1
        assert answered == 200
        assert ask(path, "status") == STATUS


@pytest.mark.parametrize(("settled", "durable"), [("", True), ("NOT DURABLE: disk full", False)])
def test_the_answer_to_a_stop_says_whether_it_is_durable(
    tmp_path: Path, queue: CommandQueue, settled: str, durable: bool
) -> None:
    written = threading.Event()
    control = ControlSocket(
        tmp_path / "control", queue, status, settled=lambda number: settled if written.is_set() else None
    )
    control.start()
    asked = ask_aside(tmp_path / "control", "stop")
    until(lambda: queue.stopped)
    assert not asked.done()
    written.set()
    answer = asked.result()
    assert (answer["accepted"], answer["durable"]) == ("stop", durable)
    assert ("NOT DURABLE: disk full" in answer.get("warning", "")) == (not durable)
    control.close()


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
