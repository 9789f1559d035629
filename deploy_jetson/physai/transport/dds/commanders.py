"""One commander per robot on ROS 2 topics: each runtime publishes its claim, see `physai.sdk.transport.lease`."""

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

from physai.sdk.transport.lease import EXPIRY_S, MAX_NUMBER, TERM_S, Lease, LeaseClaim, LeaseStage
from physai.sdk.transport.protocol import TransportError
from physai.transport.dds.codec.cdr import decode, encode
from physai.transport.dds.discovery_diagnostics import DISCOVERY_S
from physai.transport.dds.wire import COMMANDERS, Endpoint, Middleware

KIND = "std_msgs/msg/String"
# Longest encoded claim; enough for a robot with a topic for each of a hundred joints.
MAX_TEXT = 1 << 15

# Valid names of runtimes: printable ASCII, so without terminal control sequences.
NAME = re.compile(r"[!-~]{1,64}")

# Polling period for other publishers of the command topics, while the lease is held [s].
LOOK_S = 0.5

# Bound of the remembered runtimes and other publishers.
MAX_KNOWN = 256


@dataclass(frozen=True, slots=True)
class ClaimMessage:
    """A claim with its owner."""

    claim: LeaseClaim
    owner: str
    """See `Endpoint.owner`."""
    topics: frozenset[str]
    """Full names of the command topics."""
    stopped: bool = False
    """Whether a stop at this runtime was not reset."""

    def encode(self) -> str:
        """Encode as JSON."""
        claim = self.claim
        record = {"name": claim.name, "stage": claim.stage.value, "number": claim.number, "stopped": self.stopped}
        return json.dumps({**record, "owner": self.owner, "topics": sorted(self.topics)})

    @classmethod
    def decode(cls, text: str) -> "ClaimMessage":
        """Decode from JSON.

        Raises:
            TransportError: the text is not a valid claim.
        """
        # Before parsing: a claim comes from the network, and anyone may publish there.
        if len(text) > MAX_TEXT:
            raise TransportError(f"a claim of {len(text)} characters, at most {MAX_TEXT} are expected")
        try:
            return cls._of(json.loads(text))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TransportError(f"no claim of a runtime: {error}") from None

    @classmethod
    def _of(cls, record: Any) -> "ClaimMessage":
        name, number = record["name"], record["number"]
        if not (isinstance(name, str) and NAME.fullmatch(name) and isinstance(record["owner"], str)):
            raise ValueError(f"no name of a runtime: {name!r}")
        # In Python True is an int.
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_NUMBER:
            raise ValueError(f"no number of a lease: {number!r}")
        if not isinstance(record["topics"], list):
            raise ValueError(f"no topics: {record['topics']!r}")
        topics = frozenset(map(str, cast(list[object], record["topics"])))
        claim = LeaseClaim(name, LeaseStage(record["stage"]), number)
        # Absent in claims of older versions.
        return cls(claim, record["owner"], topics, record.get("stopped") is True)


def clock_s() -> float:
    """Return CLOCK_BOOTTIME [s], which advances during suspend, when another runtime may take the robot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def runtime_name() -> str:
    """Return a unique name for this runtime: host, process id and a random number."""
    # Claims are shown on terminals, so a host's name is reduced to printable ASCII.
    host = re.sub(r"[^!-~]", "?", socket.gethostname())[:32]
    return f"{host}/{os.getpid()}/{secrets.token_hex(4)}"


class Commanders:
    """A runtime's side of the lease; `lost` is for the control loop, the rest for other threads."""

    def __init__(self, wire: Middleware, topics: Collection[str]) -> None:
        """Join the topic of claims.

        Args:
            wire: the middleware.
            topics: full names of the command topics.

        Raises:
            TransportError: the topic cannot be joined.
        """
        self._wire, self._topics = wire, frozenset(topics)
        self._reader, self._writer = wire.exchange(COMMANDERS, KIND)
        self._lease = Lease(runtime_name())
        self._lock = threading.Lock()
        self._owner = ""
        self._opened_s = clock_s()
        self._looked_s = -math.inf
        # Names of runtimes that published a claim by owner, least recent first.
        self._known: dict[str, str] = {}
        # Time at which other publishers were first seen, by owner.
        self._met: dict[str, float] = {}
        self.number = 0
        """Number of the current or last lease."""
        self.stopped = False
        """Whether a stop at this runtime was not reset; told with the claims."""
        # Time at which runtimes last told of a stop, by name.
        self._stopped: dict[str, float] = {}

    def claim(self) -> str:
        """See `Exclusive.claim`."""
        with self._lock:
            lease, now_s = self._lease, clock_s()
            if lease.holds:
                return "" if lease.had else "the robot's lease"
            # Claims of others cannot arrive before discovery.
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
                # `claim`, which reports the publisher, is not called while something else blocks activation.
                lease.release()
            lease.renew(now_s)
            if lease.holds and now_s - self._looked_s > LOOK_S:
                self._looked_s = now_s
                other = self._other_publisher(now_s, patience_s=DISCOVERY_S)
                if other:
                    lease.lose(f"the robot has another commander: {other}")
            self.number = lease.claim.number or self.number
            self._publish()

    def stop_elsewhere(self) -> str:
        """See `SharesStops`."""
        with self._lock:
            return next(iter(self._stopped), "")

    def orphaned_stop(self) -> str:
        """See `SharesStops`."""
        with self._lock:
            now_s = clock_s()
            gone = next((name for name, heard_s in self._stopped.items() if now_s - heard_s > EXPIRY_S), "")
            self._stopped.pop(gone, None)
            return gone

    def lost(self) -> str:
        """See `Exclusive.lost`."""
        lease = self._lease
        # Checked here as well as in `renew`, because the renewing thread may hang.
        if lease.overdue(clock_s()):
            return f"the lease was not renewed for {TERM_S:g} s"
        return lease.lost

    def release(self) -> None:
        """See `Exclusive.release`."""
        with self._lock:
            # An inactive runtime calls this with every sample.
            if self._lease.claim.stage is not LeaseStage.IDLE:
                self._lease.release()
                self._publish()

    def _publish(self) -> None:
        # Known only once the node has publishers.
        self._owner = self._owner or self._wire.owner
        text = ClaimMessage(self._lease.claim, self._owner, self._topics, self.stopped).encode()
        try:
            self._writer.write(memoryview(encode(KIND, {"data": text})[0]), time.time_ns())
        except TransportError:
            self._lease.unpublished()

    def _hear(self, now_s: float) -> None:
        for data, info in self._reader.take():
            if not info.valid_data:
                continue
            try:
                message = ClaimMessage.decode(decode(KIND, data)[0]["data"])
            except TransportError:
                continue
            # Own claims come back, and other robots share the topic.
            if message.claim.name == self._lease.claim.name or not message.topics & self._topics:
                continue
            if message.owner:
                # Removed and inserted again, so that the dictionary stays ordered by when a runtime was last heard.
                self._known.pop(message.owner, None)
                self._known[message.owner] = message.claim.name
                if len(self._known) > MAX_KNOWN:
                    # Evict the least recently seen; active runtimes renew their claims and are never the oldest.
                    del self._known[next(iter(self._known))]
            if not message.stopped:
                self._stopped.pop(message.claim.name, None)
            elif message.claim.name in self._stopped or len(self._stopped) < MAX_KNOWN:
                self._stopped[message.claim.name] = now_s
            self._lease.hear(message.claim, now_s)

    # A ROS 2 driver ignores claims and obeys any publisher of its command topics, so a publisher that belongs to no
    # runtime also counts as a commander: while it exists, the robot is neither claimed nor kept.
    def _other_publisher(self, now_s: float, *, patience_s: float) -> str:
        """Describe another publisher of the command topics that is not a known runtime; empty if there is none.

        Args:
            now_s: `clock_s`.
            patience_s: time a publisher gets to publish a claim [s].
        """
        owner = self._owner or self._wire.owner
        names = self._lease.alive(now_s)
        alive = {owner for owner, name in self._known.items() if name in names}
        present: set[str] = set()
        found = ""
        for topic in sorted(self._topics):
            for endpoint in self._wire.publishers(topic):
                # This runtime and its watchdog, and runtimes that renew their claims, which the lease arbitrates.
                if endpoint.speaker == owner or endpoint.speaker in alive:
                    continue
                present.add(endpoint.owner)
                if endpoint.owner not in self._met and len(self._met) < MAX_KNOWN:
                    self._met[endpoint.owner] = now_s
                long = now_s - self._met.get(endpoint.owner, -math.inf) >= patience_s
                found = found or (self._described(endpoint, topic) if long else "")
        # Publishers that left are forgotten, so that one that returns gets its patience again.
        self._met = {one: since for one, since in self._met.items() if one in present}
        return found

    def _described(self, endpoint: Endpoint, topic: str) -> str:
        node = f" ({endpoint.node})" if endpoint.node else ""
        if endpoint.companion_of:
            # A watchdog never publishes while another runtime holds the lease.
            return "" if self._lease.holds else f"the watchdog{node} of a runtime that has gone silent, on {topic}"
        return "" if endpoint.owner in self._known else f"another publisher{node} of {topic}; stop it"
