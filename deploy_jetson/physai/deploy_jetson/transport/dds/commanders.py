"""One commander per robot on ROS 2 topics: runtimes agree on a lease, and foreign publishers are seen.

Each runtime tells its claim (`physai.sdk.transport.lease`) on one topic. A driver of ROS 2 knows nothing of it and
obeys whoever
publishes its commands; so a publisher that belongs to no runtime counts as a commander, too: beside it the robot is
neither asked for nor kept.
"""

import json
import math
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, cast

from physai.deploy_jetson.transport.dds.cdr import decode, encode
from physai.deploy_jetson.transport.dds.discovery_diagnostics import DISCOVERY_S
from physai.deploy_jetson.transport.dds.wire import COMMANDERS, Endpoint, Middleware
from physai.sdk.transport.lease import MAX_NUMBER, TERM_S, Lease, LeaseClaim, LeaseStage
from physai.sdk.transport.protocol import TransportError

KIND = "std_msgs/msg/String"
MAX_TEXT = 1 << 15
"""Longest claim as it is told; room for the topics of a robot that has one for each of a hundred joints."""

NAME = re.compile(r"[!-~]{1,64}")
"""What names a runtime: nothing that a terminal would obey, or that cannot be shown."""

LOOK_S = 0.5
"""Time between two looks at who publishes the commands, while the robot is held [s]."""

MAX_KNOWN = 256
"""Runtimes and other publishers that are remembered."""


@dataclass(frozen=True, slots=True)
class Told:
    """A claim, and whose."""

    claim: LeaseClaim
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
            TransportError: it is none.
        """
        if len(text) > MAX_TEXT:
            raise TransportError(f"a claim of {len(text)} characters, at most {MAX_TEXT} are expected")
        try:
            return cls._of(json.loads(text))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TransportError(f"no claim of a runtime: {error}") from None

    @classmethod
    def _of(cls, record: Any) -> "Told":
        name, number = record["name"], record["number"]
        if not (isinstance(name, str) and NAME.fullmatch(name) and isinstance(record["owner"], str)):
            raise ValueError(f"no name of a runtime: {name!r}")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_NUMBER:
            raise ValueError(f"no number of a lease: {number!r}")
        if not isinstance(record["topics"], list):
            raise ValueError(f"no topics: {record['topics']!r}")
        topics = frozenset(map(str, cast(list[object], record["topics"])))
        return cls(LeaseClaim(name, LeaseStage(record["stage"]), number), record["owner"], topics)


def clock_s() -> float:
    """CLOCK_BOOTTIME [s]: it goes on while this computer is suspended, and another runtime may have the robot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def runtime_name() -> str:
    """A name of its own for this runtime, by which an operator finds it: host, process, and a number at random."""
    host = re.sub(r"[^!-~]", "?", socket.gethostname())[:32]
    return f"{host}/{os.getpid()}/{secrets.token_hex(4)}"


class Commanders:
    """One runtime's part; `lost` is for the control loop, the rest for other threads."""

    def __init__(self, wire: Middleware, topics: Collection[str]) -> None:
        """Begins to listen.

        Args:
            wire: what carries the messages.
            topics: full names of those that the runtime commands.

        Raises:
            TransportError: the topic cannot be had.
        """
        self._wire, self._topics = wire, frozenset(topics)
        self._reader, self._writer = wire.exchange(COMMANDERS, KIND)
        self._lease = Lease(runtime_name())
        self._lock = threading.Lock()
        self._owner = ""
        self._opened_s = clock_s()
        self._looked_s = -math.inf
        self._known: dict[str, str] = {}
        """Names of runtimes that have told a claim, by their owners; who was heard last comes last."""
        self._met: dict[str, float] = {}
        """When other publishers were first seen, by their owners."""
        self.number = 0
        """Of the lease that is held, or was held last."""

    def claim(self) -> str:
        """See `Exclusive.claim`."""
        with self._lock:
            lease, now_s = self._lease, clock_s()
            if lease.holds:
                return "" if lease.had else "the robot's lease"
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
            lease, now_s = self._lease, clock_s()
            self._hear(now_s)
            if lease.claim.stage is LeaseStage.ASKS and self._other_publisher(now_s, patience_s=0.0):
                # `claim`, which says who it is and asks again, is not called while something else is in the way.
                lease.release()
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
        if lease.overdue(clock_s()):
            return f"the lease was not renewed for {TERM_S:g} s"
        return lease.lost

    def release(self) -> None:
        """See `Exclusive.release`."""
        with self._lock:
            # A runtime that stands by calls this with every sample.
            if self._lease.claim.stage is not LeaseStage.IDLE:
                self._lease.release()
                self._tell()

    def _tell(self) -> None:
        self._owner = self._owner or self._wire.owner
        text = Told(self._lease.claim, self._owner, self._topics).encode()
        try:
            self._writer.write(memoryview(encode(KIND, {"data": text})[0]), time.time_ns())
        except TransportError:
            self._lease.unpublished()

    def _hear(self, now_s: float) -> None:
        for data, info in self._reader.take():
            if not info.valid_data:
                continue
            try:
                told = Told.decode(decode(KIND, data)[0]["data"])
            except TransportError:
                continue
            if told.claim.name == self._lease.claim.name or not told.topics & self._topics:
                continue
            if told.owner:
                self._known.pop(told.owner, None)
                self._known[told.owner] = told.claim.name
                if len(self._known) > MAX_KNOWN:
                    # Many have come and gone: those that are heard are never the oldest.
                    del self._known[next(iter(self._known))]
            self._lease.hear(told.claim, now_s)

    def _other_publisher(self, now_s: float, *, patience_s: float) -> str:
        """Other publishers of the command topics that are no known runtimes; empty for none.

        Args:
            now_s: `clock_s`.
            patience_s: time that a publisher gets to tell a claim [s].
        """
        owner = self._owner or self._wire.owner
        names = self._lease.alive(now_s)
        alive = {owner for owner, name in self._known.items() if name in names}
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
            # It never publishes while a runtime holds the robot.
            return "" if self._lease.holds else f"the watchdog{node} of a runtime that has gone silent, on {topic}"
        return "" if endpoint.owner in self._known else f"another publisher{node} of {topic}; stop it"
