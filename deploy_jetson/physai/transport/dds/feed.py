"""Subscription to one topic: messages of one publisher only, with plausible stamps."""

import time
from typing import Any

from physai.sdk.transport.protocol import Array, TransportError
from physai.transport.dds.codec.field_layout import MessageReader
from physai.transport.dds.wire import ByteReader, wrong_hash
from physai.transport.notices import Notices
from physai.transport.stamps import NANOSECONDS, StampCheck

# Bound of the remembered rejected publishers.
MAX_REFUSED = 64


class Subscription:
    """The newest valid message of a topic.

    Accepts a single publisher: the first with valid messages. Others are rejected while it is active, because messages
    of two robots on one topic must not be mixed. A runtime and its watchdog count as one publisher.
    """

    def __init__(
        self, reader: ByteReader, inlet: MessageReader, notices: Notices, *, ahead_s: float, silence_s: float
    ) -> None:
        """Initialize without messages.

        Args:
            reader: of the topic.
            inlet: decodes its messages.
            notices: receives rejections.
            ahead_s: see `StampCheck`.
            silence_s: silence of the publisher after which another one is accepted [s].
        """
        self.reader = reader
        self.inlet = inlet
        self.topic = inlet.layout.binding.topic
        self.stamp_ns = 0
        """Stamp of the newest message, CLOCK_REALTIME [ns]; 0 before the first."""
        self.parts: list[tuple[str, Array]] = []
        """Field names with views of their values."""
        start = 0
        for one in inlet.layout.placed:
            self.parts.append((one.vector.name, inlet.values[start : start + one.vector.size]))
            start += one.vector.size
        # Otherwise the time at which the publisher's middleware sent the message.
        self._own_stamp = inlet.layout.is_stamped and inlet.layout.binding.stamp == "header"
        self._notices = notices
        self._stamps = StampCheck(self.topic, ahead_s, notices)
        self._silence_ns = round(silence_s * NANOSECONDS)
        self._publisher = 0
        self._speaker: str = ""
        self.heard_ns = 0
        """CLOCK_MONOTONIC at which the newest message was accepted [ns]; 0 before the first."""
        self._refused: set[int] = set()

    def poll(self) -> bool:
        """Read waiting messages; return whether a new one was accepted.

        Raises:
            TransportError: DDS failed.
        """
        samples = self.reader.take()
        # The newest first: only one of them is needed.
        for data, info in reversed(samples):
            if info.valid_data and (info.publication_handle == self._publisher or self._adopt(info)):
                return self._accept(data, info)
        return False

    def forget(self) -> None:
        """Clear the rejections so far; those that persist are reported again."""
        self._refused.clear()

    def _accept(self, data: bytes, info: Any) -> bool:
        try:
            self.inlet.read(data)
        except TransportError as error:
            self._notices.add(f"{self.topic}: refused: {error}")
            # Accept another publisher, whose messages may be valid.
            self._publisher = 0
            return False
        stamp_ns = self.inlet.stamp_ns if self._own_stamp else info.source_timestamp
        if not self._stamps.accepts(stamp_ns, time.time_ns()):
            return False
        self.stamp_ns = stamp_ns
        self.heard_ns = time.monotonic_ns()
        return True

    def _adopt(self, info: Any) -> bool:
        """Whether to accept messages of a new publisher."""
        handle: int = info.publication_handle
        is_active = bool(self._publisher) and time.monotonic_ns() - self.heard_ns <= self._silence_ns
        # The usual case with a second publisher, before the slow queries of discovery.
        if is_active and handle in self._refused:
            return False
        endpoint = self.reader.publisher(handle)
        speaker = "" if endpoint is None else endpoint.speaker
        # A runtime and its watchdog take turns.
        same = bool(speaker) and speaker == self._speaker
        if is_active and not same:
            if len(self._refused) < MAX_REFUSED:
                self._refused.add(handle)
                self._notices.add(f"{self.topic}: a second publisher; only the first is heard, stop one of them")
            return False
        reason = "" if endpoint is None else wrong_hash(self.inlet.layout.binding.type, endpoint)
        if reason:
            self._notices.add(f"{self.topic}: refused: {reason}; a message of this name that holds something else")
            return False
        if self._publisher and not same:
            self._notices.add(f"{self.topic}: its publisher was replaced by another one")
        # The handle is that of a writer; a restarted publisher has a new one.
        self._publisher, self._speaker = handle, speaker
        return True
