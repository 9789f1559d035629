"""The flashing computer's end of the ssh channel: sends and receives messages and diagnoses failures."""

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

import asyncssh

from physai.deploy_jetson.update.flash.flash_errors import (
    FlashError,
    LostError,
    NoReceiverError,
    RefusedError,
    SilentError,
)
from physai.deploy_jetson.update.flash.protocol import (
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
from physai.deploy_jetson.update.flash.target import Target

WRITE_BYTES = 1 << 17
"""Size of each write to asyncssh, which copies its whole buffer for every packet it sends."""

_READ_BYTES = 1 << 16
_MAX_NOISE_LINES = 100
_STDERR_BYTES = 1 << 12
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_END_TIMEOUT_S = 2.0

MAX_STAGE_S = 3600.0
"""Timeout of a robot that sends only keepalives [s]; building an engine takes minutes."""


class Conversation:
    """A running `physai robot receive` on a robot."""

    def __init__(
        self, target: Target, process: "asyncssh.SSHClientProcess[bytes]", *, silence_s: float = SILENCE_S
    ) -> None:
        """Wraps a process; use `start` to create a conversation."""
        self._target = target
        self._process = process
        self._silence_s = silence_s
        self._buffer = bytearray()
        self._stderr = bytearray()
        self._stderr_reader = asyncio.create_task(self._collect_stderr())

    @classmethod
    async def start(
        cls, target: Target, connection: asyncssh.SSHClientConnection, *, silence_s: float = SILENCE_S
    ) -> Self:
        """Starts `physai robot receive` on the robot.

        Args:
            target: the robot.
            connection: ssh connection to it.
            silence_s: timeout for each message [s].

        Raises:
            SilentError: the command does not start in time.
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
        """Receives the robot's first message.

        Raises:
            NoReceiverError: the command does not speak the protocol.
            RefusedError, LostError, SilentError: as for `receive`.
        """
        # Login scripts may print lines before the first message.
        noise = b""
        for _ in range(_MAX_NOISE_LINES):
            line = await self._line()
            try:
                message = decode(line)
            except ProtocolError:
                noise = noise or line
                continue
            if message["say"] != "hello":
                self._raise_error(message)
                raise ProtocolError(f"{self._target} began with {message['say']!r:.40}")
            check_protocol(message)
            return message
        raise NoReceiverError(f"{self._target} sent {noise[:80]!r} instead of an answer of `{self._target.physai}`")

    async def receive(self) -> Message:
        """Receives the next message other than a keepalive.

        Raises:
            RefusedError: the robot reports an error.
            SilentError: the robot does not respond although the connection is up.
            LostError: the connection was lost, or another flash took the turn.
            ProtocolError: the line is not a message.
            NoReceiverError, FlashError: the command on the robot ended without an answer.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + MAX_STAGE_S
        while (message := decode(await self._line()))["say"] == "alive":
            if not loop.time() < end:
                raise SilentError(f"{self._target} has been busy for {MAX_STAGE_S:g} s; {_REMEDY}")
        self._raise_error(message)
        return message

    async def send(self, what: str, **fields: object) -> None:
        """Sends a message.

        Raises:
            SilentError: the robot does not read it in time.
        """
        await self.say(encode(what, **fields))

    async def say(self, line: bytes) -> None:
        """Sends an encoded message; raises as `send`."""
        try:
            async with asyncio.timeout(self._silence_s):
                await self.write(line)
        except TimeoutError:
            raise _silent(self._target, self._silence_s) from None

    async def write(self, data: bytes | memoryview) -> None:
        """Sends bytes."""
        view = memoryview(data)
        # Ignore write errors: the robot's last message, which is read next, explains them.
        with suppress(asyncssh.Error, OSError):
            for piece in _pieces(view):
                self._process.stdin.write(piece)
                await self._process.stdin.drain()

    async def close(self) -> None:
        """Ends the conversation."""
        self._stderr_reader.cancel()
        with suppress(asyncssh.Error, OSError):
            self._process.stdin.write_eof()
            self._process.close()

    def _raise_error(self, message: Message) -> None:
        if message["say"] == "error":
            if message.get("kind") == TURN_LOST:
                raise LostError(text(message, "text"))
            raise RefusedError(text(message, "kind"), text(message, "text"))

    async def _line(self) -> bytes:
        try:
            # The timeout covers the whole line: single bytes now and then do not extend it.
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
                raise await self._diagnose()
            self._buffer += data
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    async def _diagnose(self) -> FlashError:
        """Diagnoses the end of the robot's output."""
        with suppress(TimeoutError, asyncssh.Error):
            await asyncio.wait_for(self._process.wait_closed(), _END_TIMEOUT_S)
        status = self._process.exit_status
        if status is None and self._process.exit_signal is None:
            return LostError(f"{self._target}: the connection was lost")
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        if status in (_NOT_FOUND, _NOT_EXECUTABLE):
            return NoReceiverError(
                f"{self._target} has no command {self._target.physai!r} ({lines[-1]:.200}): pip install "
                "'physai-sdk[robot]' there, or name it with --physai /path/to/physai"
            )
        return NoReceiverError(f"{self._target.physai!r} on {self._target} ended ({status}): {lines[-1]:.400}")

    async def _collect_stderr(self) -> None:
        """Keeps the tail of the robot's standard error."""
        with suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(_READ_BYTES):
                self._stderr += data
                del self._stderr[:-_STDERR_BYTES]


_REMEDY = (
    "flash again, the upload resumes; if this repeats, check on the robot what keeps it busy, and run "
    "`physai robot status`"
)


def _silent(target: Target, silence_s: float) -> SilentError:
    return SilentError(f"{target} has not responded for {silence_s:g} s although the connection is up; {_REMEDY}")


def _pieces(view: memoryview) -> Iterator[bytes]:
    for start in range(0, len(view), WRITE_BYTES):
        yield bytes(view[start : start + WRITE_BYTES])
