"""The flashing computer's end of the ssh channel: messages out, messages in, and why the robot fell silent."""

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

import asyncssh

from physai.deploy_jetson.flash.errors import FlashError, LostError, NoReceiverError, RefusedError, SilentError
from physai.deploy_jetson.flash.protocol import (
    MAX_LINE_BYTES,
    SILENCE_S,
    TURN_LOST,
    Message,
    ProtocolError,
    check_protocol,
    decode,
    encode,
    text,
)
from physai.deploy_jetson.flash.target import Target

WRITE_BYTES = 1 << 17
"""Handed to ssh at a time; it cuts packets from the front of what it holds."""

_READ_BYTES = 1 << 16
_MAX_NOISE_LINES = 100
_STDERR_BYTES = 1 << 12
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_END_TIMEOUT_S = 2.0

MAX_STAGE_S = 3600.0
"""Longest time in which a robot may say nothing but that it is alive [s]; an engine takes minutes to build."""


class Conversation:
    """One `physai robot receive` on a robot."""

    def __init__(
        self, target: Target, process: "asyncssh.SSHClientProcess[bytes]", *, silence_s: float = SILENCE_S
    ) -> None:
        """Prepares to listen; `start` makes one."""
        self._target = target
        self._process = process
        self._silence_s = silence_s
        self._buffer = bytearray()
        self._complaints = bytearray()
        self._listener = asyncio.create_task(self._collect_complaints())

    @classmethod
    async def start(
        cls, target: Target, connection: asyncssh.SSHClientConnection, *, silence_s: float = SILENCE_S
    ) -> Self:
        """Starts the robot's side.

        Args:
            target: the robot.
            connection: to it.
            silence_s: how long to wait for anything it has to say or to take [s].

        Raises:
            SilentError: it starts nothing in that time.
            LostError: the connection was lost.
            FlashError: the robot allows no commands.
        """
        root = [] if target.root is None else ["--root", str(target.root)]
        command = shlex.join([*shlex.split(target.physai), "robot", "receive", *root])
        try:
            async with asyncio.timeout(silence_s):
                process = await connection.create_process(command, encoding=None)
            return cls(target, process, silence_s=silence_s)
        except TimeoutError:
            raise _silent(target, silence_s) from None
        except asyncssh.ChannelOpenError as error:
            raise FlashError(f"{target} allows no commands: {error.reason}") from None
        except (asyncssh.Error, OSError) as error:
            raise LostError(f"{target}: the connection was lost: {error}") from None

    async def greet(self) -> Message:
        """The robot's first message. What a login script prints before it is passed over.

        Raises:
            NoReceiverError: nothing there speaks as agreed.
            RefusedError, LostError, SilentError: as `receive`.
        """
        noise = b""
        for _ in range(_MAX_NOISE_LINES):
            line = await self._line()
            try:
                message = decode(line)
            except ProtocolError:
                noise = noise or line
                continue
            if message["say"] != "hello":
                self._heed(message)
                raise ProtocolError(f"{self._target} began with {message['say']!r:.40}")
            check_protocol(message)
            return message
        raise NoReceiverError(f"{self._target} says {noise[:80]!r} where `{self._target.physai}` should answer")

    async def receive(self) -> Message:
        """The next message that says more than that the robot is alive.

        Raises:
            RefusedError: the robot ends the conversation, and says why.
            SilentError: nothing comes, although the connection holds.
            LostError: the connection was lost, or the robot let another one first.
            ProtocolError: it is no message.
            NoReceiverError, FlashError: the robot's side ended without a word.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + MAX_STAGE_S
        while (message := decode(await self._line()))["say"] == "alive":
            if not loop.time() < end:
                raise SilentError(f"{self._target} has been busy for {MAX_STAGE_S:g} s; {_WAY_OUT}")
        self._heed(message)
        return message

    async def send(self, what: str, **fields: object) -> None:
        """Says something.

        Raises:
            SilentError: the robot does not take it.
        """
        await self.say(encode(what, **fields))

    async def say(self, line: bytes) -> None:
        """Says a line; raises as `send`."""
        try:
            async with asyncio.timeout(self._silence_s):
                await self.write(line)
        except TimeoutError:
            raise _silent(self._target, self._silence_s) from None

    async def write(self, data: bytes | memoryview) -> None:
        """Sends bytes. Where the robot listens no longer, what it said last explains it."""
        view = memoryview(data)
        with suppress(asyncssh.Error, OSError):
            for piece in _pieces(view):
                self._process.stdin.write(piece)
                await self._process.stdin.drain()

    async def close(self) -> None:
        """Leaves."""
        self._listener.cancel()
        with suppress(asyncssh.Error, OSError):
            self._process.stdin.write_eof()
            self._process.close()

    def _heed(self, message: Message) -> None:
        if message["say"] == "error":
            if message.get("kind") == TURN_LOST:
                raise LostError(text(message, "text"))
            raise RefusedError(text(message, "kind"), text(message, "text"))

    async def _line(self) -> bytes:
        try:
            # For the whole line: a byte now and then is no sign of life.
            async with asyncio.timeout(self._silence_s):
                return await self._read_line()
        except TimeoutError:
            raise _silent(self._target, self._silence_s) from None

    async def _read_line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if not len(self._buffer) <= MAX_LINE_BYTES:
                raise ProtocolError(f"{self._target} says a line of more than {MAX_LINE_BYTES} bytes")
            try:
                data = await self._process.stdout.read(_READ_BYTES)
            except (asyncssh.Error, OSError) as error:
                raise LostError(f"{self._target}: the connection was lost: {error}") from None
            if not data:
                raise await self._silence()
            self._buffer += data
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    async def _silence(self) -> FlashError:
        """Why nothing comes any more."""
        with suppress(TimeoutError, asyncssh.Error):
            await asyncio.wait_for(self._process.wait_closed(), _END_TIMEOUT_S)
        status = self._process.exit_status
        if status is None and self._process.exit_signal is None:
            return LostError(f"{self._target}: the connection was lost")
        lines = self._complaints.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        if status in (_NOT_FOUND, _NOT_EXECUTABLE):
            return NoReceiverError(
                f"{self._target} has no command {self._target.physai!r} ({lines[-1]:.200}): pip install "
                "'physai-sdk[robot]' there, or name it with --physai /path/to/physai"
            )
        return NoReceiverError(f"{self._target.physai!r} on {self._target} ended ({status}): {lines[-1]:.400}")

    async def _collect_complaints(self) -> None:
        """Keeps the end of what the robot writes to its standard error."""
        with suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(_READ_BYTES):
                self._complaints += data
                del self._complaints[:-_STDERR_BYTES]


_WAY_OUT = (
    "flash again, what has arrived is not sent again; if this repeats, see on the robot what keeps it busy, and "
    "`physai robot status`"
)


def _silent(target: Target, silence_s: float) -> SilentError:
    return SilentError(f"{target} has said nothing for {silence_s:g} s, although the connection holds; {_WAY_OUT}")


def _pieces(view: memoryview) -> Iterator[bytes]:
    for start in range(0, len(view), WRITE_BYTES):
        yield bytes(view[start : start + WRITE_BYTES])
