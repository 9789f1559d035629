"""Robots that fall silent, and senders that are slow, deaf or gone: through a real ssh server."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.harness.fixtures.ssh_robot import SshRobot

from physai.deploy_jetson.update.flash import conversation
from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.connection import connect
from physai.deploy_jetson.update.flash.conversation import Conversation
from physai.deploy_jetson.update.flash.deliver import FlashOptions, flash
from physai.deploy_jetson.update.flash.flash_errors import LostError, SilentError
from physai.deploy_jetson.update.flash.protocol import PROTOCOL, TURN_LOST, Message, encode
from physai.deploy_jetson.update.slots.lock import locked
from physai.sdk.policy.header import POLICY_FILE

HELLO = encode("hello", protocol=PROTOCOL, robot="pendulum").decode()
HOLDS = encode("holds", active=False, trial=False, needs=[]).decode()
ALIVE = encode("alive").decode()
SILENT_ROBOTS = {
    "after the login": "",
    "after the greeting": "say({hello!r})",
    "in the middle of the upload": "say({hello!r}); say({needs!r}); sys.stdin.buffer.read(100_000)",
    "when it should install": "say({hello!r}); say({holds!r}); sys.stdin.buffer.readline()",
    "but for a byte now and then": "[(say('x'), time.sleep(0.1)) for _ in range(6000)]",
    "but for a byte now and then later": "say({hello!r}); [(say(' '), time.sleep(0.1)) for _ in range(6000)]",
}


def silent_robot(robot: SshRobot, folder: Path, words: str, upload: BundleUpload) -> SshRobot:
    """A robot that says some words, and then sleeps."""
    needs = encode("holds", active=False, trial=False, needs=[[upload.members.sha256(POLICY_FILE), 0]]).decode()
    program = folder / "robot.py"
    program.write_text(
        "import sys, time\ndef say(text):\n    sys.stdout.write(text)\n    sys.stdout.flush()\n"
        f"{words.format(hello=HELLO, holds=HOLDS, needs=needs, alive=ALIVE)}\ntime.sleep(600)\n"
    )
    return replace(robot, target=replace(robot.target, physai=f"{sys.executable} {program}"))


@pytest.mark.parametrize("words", SILENT_ROBOTS.values(), ids=SILENT_ROBOTS.keys())
def test_a_robot_that_falls_silent_is_given_up(
    pendulum: SshRobot, tmp_path: Path, large: BundleUpload, words: str
) -> None:
    silent = silent_robot(pendulum, tmp_path, words, large)
    with pytest.raises(SilentError, match=r"has not responded for 1 s although .*; flash again, .* robot status"):
        asyncio.run(asyncio.wait_for(flash(silent.target, large, FlashOptions(silence_s=1.0)), 60.0))


def test_a_robot_that_is_alive_and_does_nothing(
    pendulum: SshRobot, tmp_path: Path, small: BundleUpload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "MAX_STAGE_S", 1.0)
    words = "say({hello!r}); [(say({alive!r}), time.sleep(0.1)) for _ in range(6000)]"
    busy = silent_robot(pendulum, tmp_path, words, small)
    with pytest.raises(SilentError, match="has been busy for 1 s; flash again"):
        asyncio.run(asyncio.wait_for(flash(busy.target, small, FlashOptions(silence_s=5.0)), 60.0))


@pytest.mark.slow
def test_a_robot_that_works_for_longer_than_silence_lasts_says_so(pendulum: SshRobot, small: BundleUpload) -> None:
    """It waits for another command of its own to end, as it would for an engine to be built, without a word of that."""

    async def scenario() -> None:
        with locked(pendulum.root, "a test"):
            flashing = asyncio.create_task(flash(pendulum.target, small, FlashOptions(silence_s=4.0, patience_s=60.0)))
            await asyncio.sleep(9.0)
            assert not flashing.done()
        assert (await flashing).outcome == "on-trial"

    asyncio.run(scenario())


@asynccontextmanager
async def sender(robot: SshRobot, upload: BundleUpload) -> AsyncGenerator[Conversation]:
    """A sender who has offered a bundle, has the turn, and is gone without a word at the end."""
    async with connect(robot.target) as connection:
        talk = await Conversation.start(robot.target, connection, silence_s=60.0)
        await talk.say(upload.offer(wait_s=30.0).encode())
        await talk.greet()
        assert (await receive(talk, "holds"))["active"] is False
        yield talk


async def receive(talk: Conversation, what: str) -> Message:
    while (message := await talk.receive())["say"] != what:
        pass
    return message


def put_line(upload: BundleUpload, start: int = 0) -> bytes:
    return encode("put", sha256=upload.members.sha256(POLICY_FILE), start=start)


@pytest.mark.slow
def test_a_slow_sender_is_put_out_when_another_waits_and_nothing_is_lost(
    pendulum: SshRobot, large: BundleUpload
) -> None:
    content = bytes(large.members.view(POLICY_FILE))
    brought = 500_000

    async def trickle(talk: Conversation) -> None:
        for start in range(brought, len(content)):
            await talk.write(content[start : start + 1])
            await asyncio.sleep(1.0)

    async def scenario() -> None:
        async with sender(pendulum, large) as talk:
            await talk.say(put_line(large))
            await talk.write(content[:brought])
            slow = asyncio.create_task(trickle(talk))
            other = asyncio.create_task(flash(pendulum.target, large, FlashOptions(patience_s=120.0)))
            with pytest.raises(LostError, match=r"the robot receives .* below 64 KiB/s it goes first"):
                await receive(talk, "stored")
            slow.cancel()
            flashed = await other
        assert flashed.outcome == "on-trial"
        assert brought <= flashed.resumed_bytes < len(content)
        assert flashed.reconnects == 0

    asyncio.run(asyncio.wait_for(scenario(), 180.0))
    assert pendulum.active_version == 1


def test_a_flash_that_lost_its_turn_queues_again(pendulum: SshRobot, tmp_path: Path, small: BundleUpload) -> None:
    lost = encode("error", kind=TURN_LOST, text="another flash waits").decode()
    program = tmp_path / "physai"
    program.write_text(
        f"#!/bin/sh\nif mkdir {tmp_path}/once 2>/dev/null; then\n"
        f"printf '%s' '{HELLO}' '{lost}'\nexec sleep 1\nfi\nexec physai \"$@\"\n"
    )
    program.chmod(0o755)
    target = replace(pendulum.target, physai=str(program))
    flashed = asyncio.run(asyncio.wait_for(flash(target, small), 60.0))
    assert (flashed.outcome, flashed.reconnects) == ("on-trial", 1)


@pytest.mark.slow
def test_a_slow_sender_takes_its_time_where_nobody_waits(pendulum: SshRobot, small: BundleUpload) -> None:
    content = bytes(small.members.view(POLICY_FILE))

    async def scenario() -> None:
        async with sender(pendulum, small) as talk:
            await talk.say(put_line(small))
            for start in range(12):
                await talk.write(content[start : start + 1])
                await asyncio.sleep(1.0)
            await talk.write(content[12:])
            await receive(talk, "stored")

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


def test_a_sender_that_never_reads_is_served_and_keeps_nobody_out(pendulum: SshRobot, small: BundleUpload) -> None:
    async def scenario() -> None:
        async with connect(pendulum.target) as connection:
            talk = await Conversation.start(pendulum.target, connection)
            await talk.say(small.offer(wait_s=30.0).encode())
            for member in small.members:
                digest = small.members.sha256(member)
                await talk.say(encode("put", sha256=digest, start=0))
                await talk.write(small.members.view(member))
            await talk.send("install", unsafe_no_verdict=False, retry=False)
            flashed = await flash(pendulum.target, small, FlashOptions(patience_s=120.0))
        assert flashed.outcome in ("unchanged", "on-trial")

    asyncio.run(asyncio.wait_for(scenario(), 120.0))
    assert pendulum.active_version == 1


@pytest.mark.parametrize("messages", range(6))
def test_a_sender_that_is_gone_after_some_messages(pendulum: SshRobot, small: BundleUpload, messages: int) -> None:
    content = bytes(small.members.view(POLICY_FILE))
    rest = [(name, bytes(small.members.view(name))) for name in small.members if name != POLICY_FILE]
    said = [
        small.offer(wait_s=30.0).encode(),
        put_line(small),
        content[: len(content) // 2],
        content[len(content) // 2 :],
        b"".join(encode("put", sha256=small.members.sha256(name), start=0) + data for name, data in rest),
        encode("install", unsafe_no_verdict=False, retry=False),
    ]

    async def scenario() -> None:
        async with connect(pendulum.target) as connection:
            talk = await Conversation.start(pendulum.target, connection)
            await talk.greet()
            for what in said[: messages + 1]:
                await talk.say(what)
                await asyncio.sleep(0.1)
        flashed = await flash(pendulum.target, small, FlashOptions(patience_s=120.0))
        assert flashed.outcome == ("on-trial" if messages < 5 else flashed.outcome)

    asyncio.run(asyncio.wait_for(scenario(), 120.0))
    assert pendulum.active_version == 1
