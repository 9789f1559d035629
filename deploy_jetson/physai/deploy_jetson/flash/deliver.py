"""Flashes one robot: connect, ask what it lacks, send that, have it installed and activated, await its health window.

A connection that is lost is made again, and the upload goes on where it stopped.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from physai.deploy_jetson.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.flash.connection import connect
from physai.deploy_jetson.flash.conversation import Conversation
from physai.deploy_jetson.flash.errors import FlashError, LostError, UnreachableError
from physai.deploy_jetson.flash.protocol import (
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
from physai.deploy_jetson.flash.target import Target

FlashOutcome = Literal["unchanged", "on-trial", "committed", "rolled-back"]

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class FlashOptions:
    """What a caller chooses."""

    wait: bool = False
    """Whether to wait for the end of the trial."""
    unsafe_no_verdict: bool = False
    """Whether the robot is to take a bundle without a valid verdict; it remembers and shows it."""
    retry: bool = False
    """Whether the robot is to try a bundle that it went back from before."""
    time: str = ""
    """Signed statement of the time for the robot, `physai.sdk.signing.time_statement`; empty for none."""
    patience_s: float = 30.0
    """How long the robot waits for another flash or command to end [s]."""
    reconnects: int = 5
    """How often a lost connection is made again."""
    silence_s: float = SILENCE_S
    """How long the robot may say nothing [s]."""


@dataclass(frozen=True)
class FlashStep:
    """Something that goes on."""

    name: str
    """`connect`, `wait`, `send`, the robot's own stages (`verify`, `golden`, …), `watch`, `note`."""
    share: float = 0.0
    """How much of it is done, in [0, 1]."""
    text: str = ""


FlashProgress = Callable[[FlashStep], None]


@dataclass
class Flashed:
    """How it went."""

    outcome: FlashOutcome = "unchanged"
    reason: str = ""
    """Why the trial ended as it did, or why nothing was done."""
    slot: str | None = None
    runs: str | None = None
    """What computes the policy there: `policy.int8.onnx on onnxruntime`."""
    sent_bytes: int = 0
    """Of members; those sent twice are counted twice."""
    resumed_bytes: int = 0
    """Of members, found in unfinished uploads."""
    reconnects: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """By phase: connect, transfer (until the robot has every member), install, activate, watch."""
    notes: list[str] = field(default_factory=list[str])
    """What the robot found worth saying."""


def ignore(step: FlashStep) -> None:
    """Tells nobody."""


async def flash(
    target: Target, upload: BundleUpload, wishes: FlashOptions | None = None, tell: FlashProgress = ignore
) -> Flashed:
    """Brings a bundle onto a robot and activates it.

    Args:
        target: the robot.
        upload: the bundle.
        wishes: options; None for the usual ones.
        tell: hears of what goes on.

    Raises:
        FlashError: and its kinds; what the robot ran, it still runs.
        ProtocolError: the robot's physai speaks otherwise.
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
    """One bundle for one robot, over as many connections as it takes."""

    def __init__(self, target: Target, upload: BundleUpload, wishes: FlashOptions, tell: FlashProgress) -> None:
        self._target = target
        self._parcel = upload
        self._wishes = wishes
        self._tell = tell
        self._installing = self._activated = False
        self._wanted = self._arrived = 0
        self.flashed = Flashed()

    async def attempt(self) -> Flashed:
        clock = _Phases(self.flashed.seconds)
        self._tell(FlashStep("connect"))
        async with connect(self._target) as connection:
            clock.end("connect")
            talk = await Conversation.start(self._target, connection, silence_s=self._wishes.silence_s)
            try:
                # The offer does not wait for the greeting: a robot takes a moment to start.
                await talk.say(self._parcel.offer(wait_s=self._wishes.patience_s).encode())
                await talk.greet()
                await self._converse(talk, clock)
            finally:
                await talk.close()
        return self.flashed

    async def _converse(self, talk: Conversation, clock: "_Phases") -> None:
        holds = await self._expect(talk, "holds")
        active, trial = flag(holds, "active"), flag(holds, "trial")
        if active and not self._installing:
            self.flashed.reason = "it is on trial there already" if trial else "it runs there already"
            clock.end("transfer")
            if not (trial and self._wishes.wait):
                return
        elif not active and not self._activated:
            await self._send_members(talk, _needs(holds, self._parcel))
            clock.end("transfer")
            await self._install(talk, clock)
        if not self._wishes.wait:
            self.flashed.outcome = "on-trial"
            return
        await self._watch(talk)
        clock.end("watch")

    async def _send_members(self, talk: Conversation, needs: dict[str, int]) -> None:
        sizes = self._parcel.offer().sizes
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
        raise FlashError(f"{self._target}: what arrives is damaged, {MAX_UPLOADS} times: {', '.join(needs)}")

    async def _send(self, talk: Conversation, needs: dict[str, int]) -> None:
        for name, start in needs.items():
            await talk.send("put", sha256=name, start=start)
            content = self._parcel.content(name)[start:]
            await talk.write(content)

    async def _await_members(self, talk: Conversation, needs: dict[str, int]) -> dict[str, int]:
        """Waits until each member has arrived, and returns those that are to be sent from their start again."""
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
        if self._wishes.time:
            await talk.send("time", statement=self._wishes.time)
        await talk.send("install", unsafe_no_verdict=self._wishes.unsafe_no_verdict, retry=self._wishes.retry)
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
            raise FlashError(f"{self._target}: the trial ended, but not how it should: {self.flashed.reason}")
        self.flashed.outcome = cast("FlashOutcome", end)

    async def _expect(self, talk: Conversation, *whats: str) -> Message:
        """The next message of these; tells of the others before it."""
        while True:
            message = await talk.receive()
            what = message["say"]
            if what in whats:
                return message
            if what == "got":
                self._count(number(message, "bytes"))
            elif what == "stage":
                self._tell(FlashStep(text(message, "stage"), share(message, "share")))
            elif what == "health":
                self._tell(FlashStep("watch", share(message, "share"), text(message, "text")))
            elif what == "waiting":
                self._tell(FlashStep("wait", text=text(message, "text")))
            elif what == "note":
                self.flashed.notes.append(text(message, "text"))
                self._tell(FlashStep("note", text=text(message, "text")))
            else:
                raise ProtocolError(f"{self._target} says {what!r:.40}, expected {' or '.join(whats)}")

    def _count(self, arrived: int) -> None:
        self.flashed.sent_bytes += arrived
        self._arrived += arrived
        self._tell(
            FlashStep("send", min(1.0, self._arrived / max(1, self._wanted)), f"{self._arrived} of {self._wanted}")
        )


class _Phases:
    """Adds the time since the last phase ended."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._last_s = time.perf_counter()

    def end(self, phase: str) -> None:
        now_s = time.perf_counter()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now_s - self._last_s
        self._last_s = now_s


def _needs(holds: Message, upload: BundleUpload) -> dict[str, int]:
    """What the robot lacks, and how much of it is there already."""
    sizes = upload.offer().sizes
    listed: Any = holds.get("needs")
    if not isinstance(listed, list) or not len(cast("list[Any]", listed)) <= len(sizes):
        raise ProtocolError(f"the robot asks for {listed!r:.80}")
    needs: dict[str, int] = {}
    for item in cast("list[Any]", listed):
        pair = cast("list[Any]", item) if isinstance(item, list) else []
        name, start = pair if len(pair) == 2 else ("", 0)
        if not is_digest(name) or name not in sizes or not is_number(start, sizes[name]):
            raise ProtocolError(f"the robot asks for {item!r:.80}, which was not offered")
        needs[name] = start
    return needs
