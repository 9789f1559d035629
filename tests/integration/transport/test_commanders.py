"""What runtimes tell each other on a topic that anybody may write to: no network, and the clock of a test."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
from tests.support.patience import until

from physai.sdk.transport.lease import EXPIRY_S, MAX_NUMBER, RENEW_S, TERM_S
from physai.sdk.transport.protocol import TransportError
from physai.transport.dds import commanders
from physai.transport.dds.codec.cdr import encode
from physai.transport.dds.codec.messages import dds_topic
from physai.transport.dds.commanders import (
    KIND,
    MAX_KNOWN,
    MAX_TEXT,
    NAME,
    Commanders,
    runtime_name,
)
from physai.transport.dds.wire import Endpoint, Middleware

TOPIC = "/joint_command"


@dataclass
class Domain:
    """Messages arrive at once, and everybody is known to everybody."""

    now_s: float = 1000.0
    born: int = 0
    wires: list["BusWire"] = field(default_factory=list["BusWire"])
    endpoints: list[Endpoint] = field(default_factory=list[Endpoint])

    def runtime(self, *topics: str) -> Commanders:
        self.born += 1
        wire = BusWire(self, f"{self.born:024x}")
        self.wires.append(wire)
        names = topics or (TOPIC,)
        for topic in names:
            self.publish(wire.owner, topic)
        return Commanders(cast(Middleware, wire), names)

    def forget_last(self) -> None:
        """The runtime that was started last has gone."""
        gone = self.wires.pop()
        self.endpoints = [one for one in self.endpoints if one.owner != gone.owner]

    def publish(self, owner: str, topic: str = TOPIC, companion_of: str = "") -> Endpoint:
        one = Endpoint(dds_topic(topic), "", True, "", owner=owner, companion_of=companion_of)
        self.endpoints.append(one)
        return one

    def tell(self, data: bytes, sender: object = None) -> None:
        for wire in self.wires:
            if wire is not sender:
                wire.inbox.append(data)

    def say(self, text: str) -> None:
        """A stranger's message."""
        self.tell(bytes(encode(KIND, {"data": text})[0]))

    def claim(self, name: object = "stranger", stage: str = "idle", number: object = 0, owner: str = "") -> None:
        record = {"name": name, "stage": stage, "number": number, "owner": owner, "topics": [TOPIC]}
        self.say(json.dumps(record))

    def live(self, seconds: float, *runtimes: Commanders, ask: Sequence[Commanders] = ()) -> None:
        for _ in range(round(seconds / RENEW_S)):
            self.now_s += RENEW_S
            for one in ask:
                one.claim()
            for one in runtimes:
                one.renew()


@dataclass
class BusWire:
    """Reader, writer and node at once."""

    bus: Domain
    owner: str
    domain: int = 0
    topic: str = ""
    full_name: str = ""
    inbox: list[bytes] = field(default_factory=list[bytes])

    def exchange(self, topic: str, kind: str) -> tuple["BusWire", "BusWire"]:
        del topic, kind
        return self, self

    def take(self) -> list[tuple[bytes, SimpleNamespace]]:
        found, self.inbox = self.inbox, []
        return [(data, SimpleNamespace(valid_data=True)) for data in found]

    def write(self, message: memoryview, stamp_ns: int) -> None:
        del stamp_ns
        self.bus.tell(bytes(message), self)

    def publishers(self, topic: str) -> list[Endpoint]:
        return [one for one in self.bus.endpoints if one.topic == dds_topic(topic)]


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Domain:
    made = Domain()
    monkeypatch.setattr(commanders, "clock_s", lambda: made.now_s)
    return made


def test_the_highest_number_is_no_way_around_the_others(bus: Domain) -> None:
    """A lease with a number above it would be one that the others do not take in."""
    first, second = bus.runtime(), bus.runtime()
    bus.live(2.0, first, second)
    bus.claim(number=MAX_NUMBER)
    bus.live(4.0, first, second, ask=[first])
    assert (first.claim(), first.number) == ("", MAX_NUMBER)
    bus.live(6.0, first, second, ask=[second])
    assert "the robot's lease, which the runtime" in second.claim()
    assert first.lost() == ""


def test_an_operator_is_told_which_runtime_is_in_the_way(bus: Domain) -> None:
    first, second = bus.runtime(), bus.runtime()
    bus.live(3.0, first, second, ask=[first])
    bus.live(1.0, first, second, ask=[second])
    assert f"/{os.getpid()}/" in second.claim()
    assert NAME.fullmatch(runtime_name())


@pytest.mark.parametrize("name", ["\ud800", "\x1b[2J", "two\nlines", "", "x" * 65, 3, None])
def test_a_name_that_no_terminal_could_show_is_not_taken_in(name: object, bus: Domain) -> None:
    runtime = bus.runtime()
    bus.live(2.0, runtime)
    bus.claim(name, stage="holds", number=3)
    bus.live(2.0, runtime, ask=[runtime])
    assert runtime.claim() == ""


DAMAGED = (
    *("", "null", "3", "[]", "{}", "NaN", "1e999", '"holds"', '"\\ud800"', "[" * MAX_TEXT, '{"a":' * 5000, "9" * 30000),
    "x" * (MAX_TEXT + 1),
    '{"name":"x","stage":[],"number":1,"owner":"","topics":["/joint_command"]}',
    '{"name":"x","stage":"holds","number":1e3,"owner":"","topics":["/joint_command"]}',
    '{"name":"x","stage":"holds","number":true,"owner":"","topics":["/joint_command"]}',
    '{"name":"x","stage":"holds","number":-1,"owner":"","topics":["/joint_command"]}',
    '{"name":"x","stage":"holds","number":9007199254740993,"owner":"","topics":["/joint_command"]}',
    '{"name":"x","stage":"holds","number":1,"owner":7,"topics":["/joint_command"]}',
    '{"name":"x","stage":"holds","number":1,"owner":"","topics":"/joint_command"}',
    '{"name":"x","stage":"holds","number":1,"owner":"","topics":[["/joint_command"]]}',
)


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_what_is_no_claim_is_passed_over(text: str, bus: Domain) -> None:
    runtime = bus.runtime()
    for _ in range(10):
        bus.say(text)
        bus.tell(text.encode())
        bus.live(0.4, runtime, ask=[runtime])
    assert runtime.claim() == ""
    assert runtime.lost() == ""


def test_a_spare_that_is_started_again_and_again_does_not_end_the_drive(bus: Domain) -> None:
    runtime = bus.runtime()
    bus.live(3.0, runtime, ask=[runtime])
    assert runtime.claim() == ""
    for _ in range(MAX_KNOWN + 4):
        bus.live(2.0, runtime, bus.runtime())
        bus.forget_last()
        assert runtime.lost() == ""


def test_a_watchdog_keeps_the_robot_from_a_runtime_that_waits_for_something_else(bus: Domain) -> None:
    """Its claim goes on settling while nobody asks `claim` who else publishes."""
    first, second = bus.runtime(), bus.runtime()
    bus.publish("f" * 24, companion_of=bus.wires[0].owner)
    bus.live(3.0, first, second, ask=[first])
    bus.live(1.0, first, second, ask=[second])
    # The first one is killed, its watchdog brakes, and the second one has an obstacle of its own.
    bus.live(EXPIRY_S + 2.0, second)
    assert "the watchdog of a runtime that has gone silent" in second.claim()
    del bus.endpoints[-1]
    bus.live(1.0, second, ask=[second])
    assert second.claim() == ""


@pytest.mark.parametrize("common", [1, 20])
def test_all_topics_of_a_robot_of_many_count(common: int, bus: Domain) -> None:
    shared = [f"/z/joint_{number}_of_a_robot_of_many/position_controller/commands" for number in range(common)]
    first = bus.runtime(*(f"/a{number}" for number in range(60)), *shared)
    second = bus.runtime(*(f"/b{number}" for number in range(60)), *shared)
    bus.live(3.0, first, second, ask=[first])
    assert first.claim() == ""
    bus.live(3.0, first, second, ask=[second])
    assert "the robot's lease" in second.claim()
    assert first.lost() == ""


def test_runtimes_of_two_robots_do_not_disturb_each_other(bus: Domain) -> None:
    first, second = bus.runtime("/one/joint_command"), bus.runtime("/two/joint_command")
    bus.live(3.0, first, second, ask=[first, second])
    assert (first.claim(), second.claim()) == ("", "")
    assert (first.lost(), second.lost()) == ("", "")


def test_who_stands_by_does_not_talk_more_than_needed(bus: Domain) -> None:
    """It gives up what it does not have with every sample, and the others' claims must not be crowded out."""
    runtime, other = bus.runtime(), bus.runtime()
    for _ in range(500):
        runtime.release()
    assert bus.wires[1].inbox == []
    bus.live(3.0, runtime, other, ask=[runtime])
    bus.wires[1].inbox.clear()
    runtime.release()
    assert len(bus.wires[1].inbox) == 1


def test_a_computer_that_was_suspended_has_lost_the_robot(bus: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its CLOCK_MONOTONIC stood still, and the robot is another's already."""
    monkeypatch.undo()
    slept_s = 0.0

    def tell(clock: int) -> float:
        return time.monotonic() + (slept_s if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(commanders.time, "clock_gettime", tell)
    runtime = bus.runtime()
    until(lambda: runtime.claim() == "", runtime.renew)
    assert runtime.lost() == ""
    slept_s = 2.0 * TERM_S
    assert "not renewed" in runtime.lost()


def test_who_cannot_tell_its_claim_has_lost_the_robot(bus: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have it after a while."""
    runtime = bus.runtime()
    bus.live(3.0, runtime, ask=[runtime])
    assert runtime.claim() == ""

    def fail(*_: object) -> None:
        raise TransportError("no network")

    monkeypatch.setattr(BusWire, "write", fail)
    bus.live(TERM_S - RENEW_S, runtime)
    assert runtime.lost() == ""
    bus.live(2.0 * RENEW_S, runtime)
    assert "this process did not publish its claim" in runtime.lost()
    assert runtime.claim() == "the robot's lease"
    bus.live(2.0, runtime, ask=[runtime])
    assert runtime.claim() != ""
