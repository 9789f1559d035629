"""Sessions of a service, stepped over a WebSocket; a lost connection is resumed without repeating a step."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import numpy as np
import numpy.typing as npt
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from physai.service.client.errors import ServiceError
from physai.service.client.service import request
from physai.service.client.wire import Message, WireError, pack, unpack

Array = npt.NDArray[Any]

RESUME_S = 50.0
"""How long to try to resume a lost connection [s]; the service keeps the session for a minute."""
CLOSE_S = 1.0
"""How long a connection may take to say goodbye; one that broke off never will [s]."""
RETRY_S = 0.5
LOST = (ConnectionClosed, OSError, TimeoutError)


@dataclass(frozen=True)
class StepReply:
    """Result of a step; first axis the world, or the step and then the world for `steps`."""

    observations: dict[str, Array]
    """By name, shape (worlds, …); where an episode ended, those of the next one."""
    reward: Array
    terminated: Array
    """Ended by failure."""
    truncated: Array
    """Ended by time."""
    judged: Array
    """Command or episode ended."""
    succeeded: Array
    """Judged, and met the task's criterion."""
    final: Any
    """Last observations of the episodes that ended, shape (ended, …), or None; for `steps`, a list of these."""


class _Protocol:
    """Numbers the requests of one session and reads its replies."""

    def __init__(self, base_url: str, description: Mapping[str, Any], access_token: str | None) -> None:
        self.description = dict(description)
        self.identifier: str = description["id"]
        self.token: str = description["token"]
        self._sequence = 0
        scheme, host, path, *_ = urlsplit(base_url)
        query = {"token": self.token} | ({"access_token": access_token} if access_token else {})
        path = f"{path.rstrip('/')}/v1/sessions/{quote(self.identifier)}/ws"
        self.url = urlunsplit(("wss" if scheme == "https" else "ws", host, path, urlencode(query), ""))

    def encode(self, operation: str, **fields: Any) -> bytes:
        self._sequence += 1
        return pack({"op": operation, "seq": self._sequence, **fields})

    def decode(self, data: bytes | str) -> Message | None:
        """The reply to the latest request; None for the reply to an earlier one, which a retry brought twice."""
        # Learners write into what an environment returns.
        reply = unpack(data if isinstance(data, bytes) else data.encode(), writable=True)
        if reply.get("seq") != self._sequence:
            return None
        if "problem" in reply:
            raise ServiceError.from_document(reply["problem"])
        return reply

    def closed(self, error: Exception) -> Exception:
        """The error for a connection that cannot be resumed."""
        code = error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else 0
        if code in (4403, 4404):
            kind = "unknown-session" if code == 4404 else "foreign-session"
            return ServiceError(f"session {self.identifier}: {error}", status=code - 4000, kind=kind)
        return ServiceError(f"session {self.identifier} lost its connection: {error or type(error).__name__}")

    def fatal(self, error: Exception) -> bool:
        """Whether connecting again cannot help."""
        return isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code in (4403, 4404, 1003)


def _step_reply(reply: Message) -> StepReply:
    names = ("observations", "reward", "terminated", "truncated", "judged", "succeeded")
    return StepReply(**{name: reply[name] for name in names}, final=reply.get("final"))


def _action_arrays(actions: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    arrays = {name: np.asarray(value) for name, value in actions.items()}
    return {name: v if v.dtype == np.float32 else v.astype(np.float64) for name, v in arrays.items()}


class RemoteSession:
    """Worlds of one task in a service. Not thread-safe; use one session per thread."""

    def __init__(self, base_url: str, description: Mapping[str, Any], *, access_token: str | None = None) -> None:
        """Connects to a session from its description, as returned at its creation.

        Raises:
            ServiceError: the service cannot be reached, or does not have the session.
        """
        self._protocol = _Protocol(base_url, description, access_token)
        self._socket: Connection | None = None
        self._connect()

    @classmethod
    def create(cls, base_url: str, task: str, *, access_token: str | None = None, **options: Any) -> Self:
        """Creates a session.

        Options are `worlds`, `seed`, `randomise`, `training`, `action_repeat`, `preset`, `robot` and `interface`.

        Raises:
            ServiceError: the service refuses the options, or cannot be reached.
        """
        body = {"task": task, **options}
        description = request("POST", base_url, "/v1/sessions", access_token=access_token, json=body, timeout=120.0)
        return cls(base_url, description, access_token=access_token)

    @property
    def description(self) -> dict[str, Any]:
        """The session as the service describes it: `actions`, `observations`, `step_dt` [s] and more."""
        return self._protocol.description

    def reset(self, seed: int | None = None) -> dict[str, Array]:
        """Starts a new episode in every world; returns its first observations by name."""
        return self._call("reset", **({} if seed is None else {"seed": seed}))["observations"]

    def step(self, actions: Mapping[str, npt.ArrayLike]) -> StepReply:
        """Advances every world by one step; actions have shape (worlds, …)."""
        return _step_reply(self._call("step", actions=_action_arrays(actions)))

    def steps(self, actions: Mapping[str, npt.ArrayLike]) -> StepReply:
        """Advances every world by several steps in one request; actions have shape (steps, worlds, …)."""
        return _step_reply(self._call("steps", actions=_action_arrays(actions)))

    def state(self) -> dict[str, Any]:
        """True state: `qpos`, `qvel` and `time` [s], first axis the world."""
        return self._call("state")

    def play(self, actions: Mapping[str, npt.ArrayLike]) -> StepReply:
        """Steps in real time from now on, holding these actions; call it again to replace them."""
        return _step_reply(self._call("play", actions=_action_arrays(actions)))

    def pause(self) -> dict[str, Array]:
        """Stops playing; returns the latest observations."""
        return self._call("pause")["observations"]

    def snapshot(self) -> str:
        """Keeps the state of all worlds in the service; returns its name."""
        return self._call("snapshot")["snapshot"]

    def restore(self, snapshot: str) -> dict[str, Array]:
        """Returns to a snapshot, bit for bit; returns the observations at that time."""
        return self._call("restore", snapshot=snapshot)["observations"]

    def close(self) -> None:
        """Closes the session; a closed one stays closed."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        try:
            socket.send(self._protocol.encode("close"))
            socket.recv(timeout=5.0)
        except LOST:
            pass
        socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> None:
        deadline = time.monotonic() + RESUME_S
        while True:
            try:
                # Entered, not only opened: some versions of websockets connect on entry.
                self._socket = connect(
                    self._protocol.url, compression=None, max_size=None, open_timeout=10.0, close_timeout=CLOSE_S
                ).__enter__()
            except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
                if self._socket is None or time.monotonic() > deadline:
                    raise self._protocol.closed(error) from error
                time.sleep(RETRY_S)
            else:
                return

    def _call(self, operation: str, **fields: Any) -> Message:
        if self._socket is None:
            raise ServiceError("the session is closed; create a new one", kind="closed")
        data = self._protocol.encode(operation, **fields)
        deadline = time.monotonic() + RESUME_S
        while True:
            try:
                # Sent again after a lost connection, the service answers from memory if it had carried it out.
                self._socket.send(data)
                while (reply := self._protocol.decode(self._socket.recv())) is None:
                    pass
            except LOST as error:
                if self._protocol.fatal(error) or time.monotonic() > deadline:
                    raise self._protocol.closed(error) from error
                self._connect()
            except WireError as error:
                raise ServiceError(str(error), kind="malformed") from error
            else:
                return reply


class AsyncRemoteSession:
    """`RemoteSession` for asyncio; same names and errors."""

    def __init__(self, base_url: str, description: Mapping[str, Any], *, access_token: str | None = None) -> None:
        """A session from its description; call `connect`, or use `create`."""
        self._protocol = _Protocol(base_url, description, access_token)
        self._socket: AsyncConnection | None = None
        self._lock = asyncio.Lock()

    @classmethod
    async def create(cls, base_url: str, task: str, *, access_token: str | None = None, **options: Any) -> Self:
        """See `RemoteSession.create`."""
        body = {"task": task, **options}
        description = await asyncio.to_thread(
            request, "POST", base_url, "/v1/sessions", access_token=access_token, json=body, timeout=120.0
        )
        session = cls(base_url, description, access_token=access_token)
        await session.connect()
        return session

    @property
    def description(self) -> dict[str, Any]:
        """See `RemoteSession.description`."""
        return self._protocol.description

    async def reset(self, seed: int | None = None) -> dict[str, Array]:
        """See `RemoteSession.reset`."""
        return (await self._call("reset", **({} if seed is None else {"seed": seed})))["observations"]

    async def step(self, actions: Mapping[str, npt.ArrayLike]) -> StepReply:
        """See `RemoteSession.step`."""
        return _step_reply(await self._call("step", actions=_action_arrays(actions)))

    async def steps(self, actions: Mapping[str, npt.ArrayLike]) -> StepReply:
        """See `RemoteSession.steps`."""
        return _step_reply(await self._call("steps", actions=_action_arrays(actions)))

    async def state(self) -> dict[str, Any]:
        """See `RemoteSession.state`."""
        return await self._call("state")

    async def play(self, actions: Mapping[str, npt.ArrayLike]) -> StepReply:
        """See `RemoteSession.play`."""
        return _step_reply(await self._call("play", actions=_action_arrays(actions)))

    async def pause(self) -> dict[str, Array]:
        """See `RemoteSession.pause`."""
        return (await self._call("pause"))["observations"]

    async def snapshot(self) -> str:
        """See `RemoteSession.snapshot`."""
        return (await self._call("snapshot"))["snapshot"]

    async def restore(self, snapshot: str) -> dict[str, Array]:
        """See `RemoteSession.restore`."""
        return (await self._call("restore", snapshot=snapshot))["observations"]

    async def close(self) -> None:
        """See `RemoteSession.close`."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        try:
            await socket.send(self._protocol.encode("close"))
            await asyncio.wait_for(socket.recv(), 5.0)
        except LOST:
            pass
        await socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connects, or connects again.

        Raises:
            ServiceError: the service cannot be reached.
        """
        deadline = time.monotonic() + RESUME_S
        while True:
            try:
                self._socket = await connect_async(
                    self._protocol.url, compression=None, max_size=None, open_timeout=10.0, close_timeout=CLOSE_S
                )
            except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
                if self._socket is None or time.monotonic() > deadline:
                    raise self._protocol.closed(error) from error
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _call(self, operation: str, **fields: Any) -> Message:
        # Tasks that share a session take turns, because replies come in the order of the requests.
        async with self._lock:
            if self._socket is None:
                raise ServiceError("the session is closed; create a new one", kind="closed")
            data = self._protocol.encode(operation, **fields)
            deadline = time.monotonic() + RESUME_S
            while True:
                try:
                    await self._socket.send(data)
                    while (reply := self._protocol.decode(await self._socket.recv())) is None:
                        pass
                except LOST as error:
                    if self._protocol.fatal(error) or time.monotonic() > deadline:
                        raise self._protocol.closed(error) from error
                    await self.connect()
                except WireError as error:
                    raise ServiceError(str(error), kind="malformed") from error
                else:
                    return reply
