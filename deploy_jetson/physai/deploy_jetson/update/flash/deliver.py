"""Flashes one robot: connects, sends the missing members, has the bundle installed and activated, awaits the trial.

After a lost connection it reconnects and resumes the upload.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.connection import connect
from physai.deploy_jetson.update.flash.conversation import Conversation
from physai.deploy_jetson.update.flash.flash_errors import FlashError, LostError, UnreachableError
from physai.deploy_jetson.update.flash.protocol import (
    MAX_UPLOADS,
    SILENCE_S,
    Message,
    ProtocolError,
    digest,
    flag,
    is_digest,
    is_number,
    number,
    share,
    text,
)
from physai.deploy_jetson.update.flash.target import Target

FlashOutcome = Literal["unchanged", "on-trial", "committed", "rolled-back"]

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class FlashOptions:
    """Options of `flash`."""

    wait: bool = False
    """Whether to wait for the end of the trial."""
    unsafe_no_verdict: bool = False
    """Whether the robot accepts the bundle without a valid verdict; recorded and shown on the robot."""
    retry: bool = False
    """Whether to allow a bundle that the robot rolled back before."""
    time: str = ""
    """Signed time statement for the robot, `physai.sdk.signing.time_statement`; empty for none."""
    patience_s: float = 30.0
    """How long the robot waits for another flash or command to end [s]."""
    reconnects: int = 5
    """Maximum number of reconnects."""
    silence_s: float = SILENCE_S
    """Timeout for a silent robot [s]."""


@dataclass(frozen=True)
class FlashStep:
    """A progress report."""

    name: str
    """`connect`, `wait`, `send`, the robot's own stages (`verify`, `golden`, …), `watch`, `note`."""
    share: float = 0.0
    """Progress in [0, 1]."""
    text: str = ""


FlashProgress = Callable[[FlashStep], None]


@dataclass
class Flashed:
    """Result of a flash."""

    outcome: FlashOutcome = "unchanged"
    reason: str = ""
    """Why the trial ended, or why nothing was done."""
    slot: str | None = None
    runs: str | None = None
    """Policy and backend on the robot: `policy.int8.onnx on onnxruntime`."""
    sent_bytes: int = 0
    """Bytes of members sent, including repeats."""
    resumed_bytes: int = 0
    """Bytes of members found in partial uploads."""
    reconnects: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Duration by phase: connect, transfer (until the robot has every member), install, activate, watch."""
    notes: list[str] = field(default_factory=list[str])
    """Warnings from the robot."""


def ignore(step: FlashStep) -> None:
    """Discards progress reports."""


async def flash(
    target: Target, upload: BundleUpload, wishes: FlashOptions | None = None, tell: FlashProgress = ignore
) -> Flashed:
    """Sends a bundle to a robot and activates it.

    Args:
        target: the robot.
        upload: the bundle.
        wishes: options; None means the defaults.
        tell: receives progress reports.

    Raises:
        FlashError: the robot was not flashed; its active policy is unchanged.
        ProtocolError: the robot violates the protocol.
    """
    wishes = wishes or FlashOptions()
    delivery = _Delivery(target, upload, wishes, tell)
    while True:
        try:
            return await delivery.attempt()
        except (LostError, UnreachableError) as error:
            flashed = delivery.flashed
            first = isinstance(error, UnreachableError) and not flashed.reconnects
            if first or flashed.reconnects >= wishes.reconnects:
                raise
            pause_s = _PAUSES_S[min(flashed.reconnects, len(_PAUSES_S) - 1)]
            flashed.reconnects += 1
            tell(FlashStep("connect", text=f"{error}; trying again in {pause_s:g} s"))
            await asyncio.sleep(pause_s)


class _Delivery:
    """Delivery of one bundle to one robot, over one or more connections."""

    def __init__(self, target: Target, upload: BundleUpload, wishes: FlashOptions, tell: FlashProgress) -> None:
        self._target = target
        self._upload = upload
        self._options = wishes
        self._report = tell
        self._installing = self._activated = False
        self._wanted = self._arrived = 0
        self.flashed = Flashed()

    async def attempt(self) -> Flashed:
        clock = _Phases(self.flashed.seconds)
        self._report(FlashStep("connect"))
        async with connect(self._target) as connection:
            clock.end("connect")
            talk = await Conversation.start(self._target, connection, silence_s=self._options.silence_s)
            try:
                # Send the offer without waiting for the greeting: it saves a round trip while the robot starts up.
                await talk.say(self._upload.offer(wait_s=self._options.patience_s).encode())
                await talk.greet()
                await self._converse(talk, clock)
            finally:
                await talk.close()
        return self.flashed

    async def _converse(self, talk: Conversation, clock: "_Phases") -> None:
        holds = await self._expect(talk, "holds")
        active, trial = flag(holds, "active"), flag(holds, "trial")
        if active and not self._installing:
            self.flashed.reason = "already on trial on the robot" if trial else "already running on the robot"
            clock.end("transfer")
            if not (trial and self._options.wait):
                return
        elif not active and not self._activated:
            await self._send_members(talk, _needs(holds, self._upload))
            clock.end("transfer")
            await self._install(talk, clock)
        if not self._options.wait:
            self.flashed.outcome = "on-trial"
            return
        await self._watch(talk)
        clock.end("watch")

    async def _send_members(self, talk: Conversation, needs: dict[str, int]) -> None:
        sizes = self._upload.offer().sizes
        self._wanted = sum(sizes[name] - start for name, start in needs.items())
        self._arrived = 0
        self.flashed.resumed_bytes += sum(needs.values())
        for _ in range(MAX_UPLOADS):
            sender = asyncio.create_task(self._send(talk, needs))
            try:
                needs = await self._await_members(talk, needs)
            finally:
                sender.cancel()
            if not needs:
                return
            self._wanted += sum(sizes[name] for name in needs)
        raise FlashError(f"{self._target}: the upload arrived damaged {MAX_UPLOADS} times: {', '.join(needs)}")

    async def _send(self, talk: Conversation, needs: dict[str, int]) -> None:
        for name, start in needs.items():
            await talk.send("put", sha256=name, start=start)
            content = self._upload.content(name)[start:]
            await talk.write(content)

    async def _await_members(self, talk: Conversation, needs: dict[str, int]) -> dict[str, int]:
        """Waits until every member has arrived; returns those that arrived damaged."""
        damaged: dict[str, int] = {}
        for name in needs:
            message = await self._expect(talk, "stored", "damaged")
            if digest(message, "sha256") != name:
                raise ProtocolError(f"{self._target} received {message['sha256'][:12]}, expected {name[:12]}")
            if message["say"] == "damaged":
                damaged[name] = 0
        return damaged

    async def _install(self, talk: Conversation, clock: "_Phases") -> None:
        self._installing = True
        if self._options.time:
            await talk.send("time", statement=self._options.time)
        await talk.send("install", unsafe_no_verdict=self._options.unsafe_no_verdict, retry=self._options.retry)
        installed = await self._expect(talk, "installed")
        clock.end("install")
        self.flashed.slot, self.flashed.runs = text(installed, "slot"), text(installed, "runs")
        await self._expect(talk, "trial")
        self._activated = True
        clock.end("activate")

    async def _watch(self, talk: Conversation) -> None:
        await talk.send("watch")
        message = await self._expect(talk, "end")
        self.flashed.reason = text(message, "text")
        end = text(message, "end")
        if end not in ("committed", "rolled-back"):
            raise FlashError(f"{self._target}: the trial ended unexpectedly: {self.flashed.reason}")
        self.flashed.outcome = cast("FlashOutcome", end)

    async def _expect(self, talk: Conversation, *whats: str) -> Message:
        """Waits for one of these messages; reports progress messages before it."""
        while True:
            message = await talk.receive()
            what = message["say"]
            if what in whats:
                return message
            if what == "got":
                self._count(number(message, "bytes"))
            elif what == "stage":
                self._report(FlashStep(text(message, "stage"), share(message, "share")))
            elif what == "health":
                self._report(FlashStep("watch", share(message, "share"), text(message, "text")))
            elif what == "waiting":
                self._report(FlashStep("wait", text=text(message, "text")))
            elif what == "note":
                self.flashed.notes.append(text(message, "text"))
                self._report(FlashStep("note", text=text(message, "text")))
            else:
                raise ProtocolError(f"{self._target} sent {what!r:.40}, expected {' or '.join(whats)}")

    def _count(self, arrived: int) -> None:
        self.flashed.sent_bytes += arrived
        self._arrived += arrived
        self._report(
            FlashStep("send", min(1.0, self._arrived / max(1, self._wanted)), f"{self._arrived} of {self._wanted}")
        )


class _Phases:
    """Accumulates the duration of each phase."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last_s = time.perf_counter()

    def end(self, phase: str) -> None:
        now_s = time.perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now_s - self._last_s
        self._last_s = now_s


def _needs(holds: Message, upload: BundleUpload) -> dict[str, int]:
    """Missing members by SHA-256, and how many bytes of each the robot already has."""
    sizes = upload.offer().sizes
    listed: Any = holds.get("needs")
    if not isinstance(listed, list) or not len(cast("list[Any]", listed)) <= len(sizes):
        raise ProtocolError(f"the robot requests {listed!r:.80}")
    needs: dict[str, int] = {}
    for item in cast("list[Any]", listed):
        pair = cast("list[Any]", item) if isinstance(item, list) else []
        name, start = pair if len(pair) == 2 else ("", 0)
        if not is_digest(name) or name not in sizes or not is_number(start, sizes[name]):
            raise ProtocolError(f"the robot requests {item!r:.80}, which was not offered")
        needs[name] = start
    return needs
