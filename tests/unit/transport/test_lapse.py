"""Commands of an operator who falls silent, read from real messages."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from physai.sdk.transport.protocol import TransportError
from physai.transport.binding import TopicBinding
from physai.transport.dds import command_timeout as lapse
from physai.transport.dds import feed
from physai.transport.dds.codec.cdr import encode
from physai.transport.dds.codec.field_layout import MessageReader, Vector, topic_layout
from physai.transport.dds.command_timeout import CommandTimeout
from physai.transport.dds.feed import Subscription
from physai.transport.dds.wire import Endpoint
from physai.transport.notices import Notices

TWIST = "geometry_msgs/msg/Twist"
SPEED = {"speed": Vector("speed", 2, None)}
SILENCE_S = 0.4
SILENCE_NS = 400_000_000


class Clock:
    """In place of the module `time`: it goes on where a test says so."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return 10**18 + self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (feed, lapse):
        monkeypatch.setattr(module, "time", made)
    return made


@dataclass
class Info:
    """What DDS tells of a message."""

    source_timestamp: int
    valid_data: bool = True
    publication_handle: int = 7


class Waiting:
    """A topic whose messages are put into it here."""

    topic = full_name = "/cmd_vel"

    def __init__(self, clock: Clock) -> None:
        self.messages: deque[tuple[bytes, Any]] = deque()
        self._clock = clock

    def say(self, x: float, y: float) -> None:
        data = bytes(encode(TWIST, {"linear": {"x": x, "y": y}})[0])
        self.messages.append((data, Info(self._clock.time_ns())))

    def take(self) -> list[tuple[bytes, Any]]:
        found = list(self.messages)
        self.messages.clear()
        return found

    def publisher(self, handle: int) -> Endpoint | None:
        del handle
        return None

    def mismatch(self) -> str:
        return ""


class Operator:
    """A topic of commands, and the field of the sample they go to."""

    def __init__(self, clock: Clock, **more: Any) -> None:
        binding = TopicBinding(topic="/cmd_vel", type=TWIST, fields={"speed": ("linear.x", "linear.y")}, **more)
        layout = topic_layout(binding, SPEED)
        assert layout is not None
        self.notices, self.waiting = Notices(), Waiting(clock)
        self.feed = Subscription(self.waiting, MessageReader(layout, ()), self.notices, ahead_s=1.0, silence_s=1.0)
        self.fields = {"speed": np.full(2, math.nan)}
        self.lapse = CommandTimeout(self.feed, self.fields, {"joint_pos"}, self.notices)

    def poll(self) -> list[float]:
        if self.feed.poll():
            self.fields["speed"][:] = self.feed.parts[0][1]
        self.lapse.look()
        return self.fields["speed"].tolist()


def test_a_velocity_counts_as_zero_before_the_first_and_after_the_last(clock: Clock) -> None:
    operator = Operator(clock, timeout_s=SILENCE_S, at_timeout="zero")
    assert operator.poll() == [0.0, 0.0]
    operator.waiting.say(0.5, -0.25)
    assert operator.poll() == [0.5, -0.25]
    clock.now_ns += SILENCE_NS
    assert operator.poll() == [0.5, -0.25]
    clock.now_ns += 1
    assert operator.poll() == [0.0, 0.0]
    operator.poll()
    assert operator.notices.told() == ("/cmd_vel: silent for 0.4 s; it counts as zero",)
    operator.waiting.say(0.125, 0.0)
    assert operator.poll() == [0.125, 0.0]


def test_without_a_zero_it_is_no_command_any_more(clock: Clock) -> None:
    operator = Operator(clock, timeout_s=SILENCE_S)
    assert all(math.isnan(value) for value in operator.poll())
    operator.waiting.say(0.5, -0.25)
    assert operator.poll() == [0.5, -0.25]
    clock.now_ns += SILENCE_NS
    assert operator.poll() == [0.5, -0.25]
    clock.now_ns += 1
    assert all(math.isnan(value) for value in operator.poll())
    assert operator.notices.told() == ("/cmd_vel: silent for 0.4 s; the robot holds",)


def test_a_sensor_has_its_limit_elsewhere(clock: Clock) -> None:
    operator = Operator(clock, timeout_s=SILENCE_S)
    with pytest.raises(TransportError, match="timeout_s is for commands; speed is a sensor"):
        CommandTimeout(operator.feed, operator.fields, {"speed"}, operator.notices)
