"""One commander per robot on ROS 2 topics: the runtimes tell each other who has it, and others' publishers are seen.

Each runtime tells its claim (`physai.sdk.lease`) on one topic. A driver of ROS 2 knows nothing of it and obeys whoever
publishes its commands; so a publisher that belongs to no runtime counts as a commander, too: beside it the robot is
neither asked for nor kept.
"""

import json
import math
import secrets
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from physai.deploy_jetson.transport.dds.cdr import decode, encode
from physai.deploy_jetson.transport.dds.surroundings import DISCOVERY_S
from physai.deploy_jetson.transport.dds.wire import COMMANDERS, Endpoint, Wire
from physai.sdk.lease import TERM_S, Claim, Lease, Stage
from physai.sdk.wire import TransportError

KIND = "std_msgs/msg/String"
MAX_TEXT, MAX_TOPICS = 4096, 16
MAX_NUMBER = 1 << 53
"""Bounds of a claim as it is told."""

LOOK_S = 0.5
"""Time between two looks at who publishes the commands, while the robot is held [s]."""

MAX_KNOWN = 256
"""Runtimes and other publishers that are remembered."""


@dataclass(frozen=True, slots=True)
class Told:
    """A claim, and whose."""

    claim: Claim
    owner: str
    """See `Endpoint.owner`."""
    topics: frozenset[str]
    """Full names of the topics that it commands."""

    def encode(self) -> str:
        """As JSON."""
        claim = self.claim
        record = {"name": claim.name, "stage": claim.stage.value, "number": claim.number}
        return json.dumps({**record, "owner": self.owner, "topics": sorted(self.topics)})

    @classmethod
    def decode(cls, text: str) -> "Told":
        """From JSON.

        Raises:
            ValueError: it is none.
        """
        if len(text) > MAX_TEXT:
            raise ValueError(f"{len(text)} characters, at most {MAX_TEXT} are expected")
        record: Any = json.loads(text)
        name, number = record["name"], record["number"]
        if not (isinstance(name, str) and 0 < len(name) <= 64 and isinstance(record["owner"], str)):
            raise ValueError(f"no name of a runtime: {name!r}")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_NUMBER:
            raise ValueError(f"no number of a lease: {number!r}")
        if not isinstance(record["topics"], list):
            raise ValueError(f"no topics: {record['topics']!r}")
        topics = cast(list[object], record["topics"])[:MAX_TOPICS]
        return cls(Claim(name, Stage(record["stage"]), number), record["owner"], frozenset(map(str, topics)))


class Commanders:
    """One runtime's part; `lost` is for the control loop, the rest for other threads."""

    def __init__(self, wire: Wire, topics: Collection[str]) -> None:
        """Begins to listen.

        Args:
            wire: what carries the messages.
            topics: full names of those that the runtime commands.

        Raises:
            TransportError: the topic cannot be had.
        """
        self._wire, self._topics = wire, frozenset(topics)
        self._reader, self._writer = wire.exchange(COMMANDERS, KIND)
        self._lease = Lease(secrets.token_hex(8))
        self._lock = threading.Lock()
        self._owner = ""
        self._opened_s = time.monotonic()
        self._looked_s = -math.inf
        self._known: set[str] = set()
        """Owners of runtimes that have told a claim."""
        self._names: dict[str, str] = {}
        """The same by the names of those whose claims may still count."""
        self._met: dict[str, float] = {}
        """When other publishers were first seen, by their owners."""
        self.number = 0
        """Of the lease that is held, or was held last."""

    def claim(self) -> str:
        """See `Exclusive.claim`."""
        with self._lock:
            lease, now_s = self._lease, time.monotonic()
            if lease.holds:
                return ""
            # Before the others are discovered nothing that they say is heard.
            settling = now_s - self._opened_s <= DISCOVERY_S
            other = self._other_publisher(now_s, patience_s=0.0)
            if settling or other:
                lease.release()
                return other or "the robot's lease"
            lease.ask(now_s)
            rival = lease.rival
            return "the robot's lease" + (f", which the runtime {rival.name} has" if rival and rival.number else "")

    def renew(self) -> None:
        """See `Exclusive.renew`."""
        with self._lock:
            lease, now_s = self._lease, time.monotonic()
            self._hear(now_s)
            lease.renew(now_s)
            if lease.holds and now_s - self._looked_s > LOOK_S:
                self._looked_s = now_s
                other = self._other_publisher(now_s, patience_s=DISCOVERY_S)
                if other:
                    lease.lose(f"the robot has another commander: {other}")
            self.number = lease.claim.number or self.number
            self._tell()

    def lost(self) -> str:
        """See `Exclusive.lost`."""
        lease = self._lease
        if lease.overdue(time.monotonic()):
            return f"the lease was not renewed for {TERM_S:g} s"
        return lease.lost

    def release(self) -> None:
        """See `Exclusive.release`."""
        with self._lock:
            self._lease.release()
            self._tell()

    def _tell(self) -> None:
        self._owner = self._owner or self._wire.owner
        text = Told(self._lease.claim, self._owner, self._topics).encode()
        with suppress(TransportError):  # untold for long enough, the others have their answer
            self._writer.write(memoryview(encode(KIND, {"data": text})[0]), time.time_ns())

    def _hear(self, now_s: float) -> None:
        for data, info in self._reader.take():
            if not info.valid_data:
                continue
            try:
                told = Told.decode(decode(KIND, data)[0]["data"])
            except (TransportError, ValueError, KeyError, TypeError, RecursionError):
                continue
            if told.claim.name == self._lease.claim.name or not told.topics & self._topics:
                continue
            if told.owner and len(self._known) < MAX_KNOWN:
                self._known.add(told.owner)
                self._names[told.claim.name] = told.owner
            self._lease.hear(told.claim, now_s)

    def _other_publisher(self, now_s: float, *, patience_s: float) -> str:
        """Who else publishes the commands, and is no runtime whose claim is known; empty for nobody.

        Args:
            now_s: CLOCK_MONOTONIC [s].
            patience_s: time that a publisher gets to tell a claim [s].
        """
        owner = self._owner or self._wire.owner
        alive = {self._names.get(name) for name in self._lease.alive(now_s)}
        present: set[str] = set()
        found = ""
        for topic in sorted(self._topics):
            for endpoint in self._wire.publishers(topic):
                if endpoint.speaker == owner or endpoint.speaker in alive:
                    continue
                present.add(endpoint.owner)
                if endpoint.owner not in self._met and len(self._met) < MAX_KNOWN:
                    self._met[endpoint.owner] = now_s
                long = now_s - self._met.get(endpoint.owner, -math.inf) >= patience_s
                found = found or (self._described(endpoint, topic) if long else "")
        self._met = {one: since for one, since in self._met.items() if one in present}
        return found

    def _described(self, endpoint: Endpoint, topic: str) -> str:
        node = f" ({endpoint.node})" if endpoint.node else ""
        if endpoint.companion_of:
            # It never speaks beside a runtime that holds the robot.
            return "" if self._lease.holds else f"the watchdog{node} of a runtime that has gone silent, on {topic}"
        return "" if endpoint.owner in self._known else f"another publisher{node} of {topic}; stop it"
