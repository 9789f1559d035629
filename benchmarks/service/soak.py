"""Parts of `python -m benchmarks service`: many sessions at once, and clients that mean no good."""

import asyncio
import contextlib
import os
import random
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import numpy as np
from websockets.sync.client import ClientConnection, connect

from benchmarks.measure import WorkloadError
from physai.service.client.remote_session import AsyncRemoteSession, RemoteSession
from physai.service.client.service import request
from physai.service.client.wire import pack, unpack
from physai.service.serving.process import ServiceProcess
from physai.service.sessions.session import Message

TASK = "cartpole-swingup"
SESSIONS, WORLDS = 200, 8
FUZZED = 100_000
HALF_OPEN = 10_000
SLOW = 50


def memory_bytes(pid: int) -> int:
    """Resident memory of a process [bytes]."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Soak:
    """Results of many sessions at once."""

    steps: list[int] = field(default_factory=list[int])
    """Steps of each session."""
    memory_growth: float = 0.0
    """Memory at the end over that after the first fifth, less 1."""

    @property
    def fairness(self) -> float:
        """The slowest session's steps over the median's."""
        return min(self.steps) / float(np.median(self.steps))


async def soak(service: ServiceProcess, *, sessions: int, seconds: float) -> Soak:
    """Steps many sessions at once, each as fast as it is answered.

    Raises:
        WorkloadError: a session's numbers differ from those of another one with its seed, or it lost steps.
    """
    assert service.process is not None
    opened = [
        await AsyncRemoteSession.create(service.url, TASK, worlds=WORLDS, seed=index % 10) for index in range(sessions)
    ]
    result = Soak()
    firsts: dict[int, bytes] = {}
    end = time.monotonic() + seconds
    actions = {"joint_effort_target": np.full((WORLDS, 1), 0.5, np.float32)}

    async def drive(index: int, session: AsyncRemoteSession) -> int:
        await session.reset()
        count = 0
        while time.monotonic() < end:
            reply = await session.step(actions)
            count += 1
            if count == 5 and firsts.setdefault(index % 10, reply.reward.tobytes()) != reply.reward.tobytes():
                raise WorkloadError(f"session {index} differs from another one with seed {index % 10}")
        state = await session.state()
        if state["steps"] != count:
            raise WorkloadError(f"session {index} took {state['steps']} steps, was sent {count}")
        return count

    async def measure(pid: int) -> float:
        await asyncio.sleep(0.2 * seconds)
        before = memory_bytes(pid)
        await asyncio.sleep(0.75 * seconds)
        return memory_bytes(pid) / before - 1.0

    growth = asyncio.create_task(measure(service.process.pid))
    result.steps = await asyncio.gather(*(drive(index, session) for index, session in enumerate(opened)))
    result.memory_growth = await growth
    for session in opened:
        await session.close()
    return result


def healthy_rate(service: ServiceProcess, seconds: float) -> float:
    """Steps per second of one well-behaved client.

    Raises:
        WorkloadError: the session lost steps.
    """
    with RemoteSession.create(service.url, TASK, worlds=WORLDS) as session:
        session.reset()
        actions = {"joint_effort_target": np.zeros((WORLDS, 1), np.float32)}
        count, start = 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            session.step(actions)
            count += 1
        rate = count / (time.perf_counter() - start)
        if session.state()["steps"] != count:
            raise WorkloadError(f"the session took {session.state()['steps']} steps, was sent {count}")
        return rate


class HalfOpen:
    """Sockets that connect and say little or nothing; opened again as the service closes them."""

    def __init__(self, port: int, count: int) -> None:
        """Opens them."""
        self._port = port
        self._sockets: list[socket.socket] = []
        for index in range(count):
            opened = socket.create_connection(("127.0.0.1", port), timeout=30.0)
            if index % 3 == 1:
                opened.sendall(b"POST /v1/blobs HTTP/1.1\r\nhost: 127.0.0.1\r\n")
            elif index % 3 == 2:
                opened.sendall(b"POST /v1/blobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n\r\nabc")
            self._sockets.append(opened)

    def close(self) -> None:
        """Closes them."""
        for opened in self._sockets:
            opened.close()


def disturb(url: str, messages: int, seed: int) -> int:
    """Sends malformed messages to a session of its own while other clients read no answers; for another process.

    Returns:
        Number of answers.

    Raises:
        WorkloadError: the session does not work afterwards.
    """
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(_open(url)) for _ in range(SLOW)]
        for index in range(200):
            slow[index % SLOW].send(pack({"op": "state"}))
        choose, answered = random.Random(seed), 0
        with _open(url) as socket:
            for _ in range(messages):
                socket.send(_mangle(choose))
                answered += bool(socket.recv())
            socket.send(pack({"op": "reset"}))
            if "observations" not in unpack(bytes(socket.recv(decode=False))):
                raise WorkloadError("the session that got malformed messages no longer works")
        return answered


def _open(url: str) -> ClientConnection:
    session: Message = request("POST", url, "/v1/sessions", json={"task": TASK})
    address = url.replace("http", "ws", 1) + f"/v1/sessions/{session['id']}/ws?token={quote(session['token'])}"
    return connect(address, compression=None)


def _mangle(choose: random.Random) -> bytes:
    good = pack({"op": "step", "actions": {"joint_effort_target": np.zeros((1, 1), np.float32)}})
    match choose.randrange(4):
        case 0:
            return choose.randbytes(choose.randrange(200))
        case 1:
            return good[: choose.randrange(len(good))]
        case 2:
            changed = bytearray(good)
            for _ in range(choose.randrange(1, 6)):
                changed[choose.randrange(len(changed))] = choose.randrange(256)
            return bytes(changed)
        case _:
            value: Message = {"op": choose.choice(["step", "reset", "restore", "steps", "x"])}
            value["actions"] = choose.choice([None, 1, [], {"a": [1]}, {"joint_effort_target": [[float("nan")]]}])
            return pack(value)
