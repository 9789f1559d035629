"""Timeout of operator commands."""

import math
import time
from collections.abc import Mapping

from physai.sdk.transport.protocol import Array, TransportError
from physai.transport.dds.feed import Subscription
from physai.transport.notices import Notices
from physai.transport.stamps import NANOSECONDS


class CommandTimeout:
    """Replaces a topic's commands after its binding's `timeout_s` by zeros, or by NaN, for which the guard holds."""

    def __init__(self, feed: Subscription, fields: Mapping[str, Array], sensors: set[str], notices: Notices) -> None:
        """Zero the commands that time out to zero, until the first message.

        Args:
            feed: of the topic.
            fields: of the sample, by name.
            sensors: names of the sensor fields, whose age the guard checks.
            notices: receives timeouts.

        Raises:
            TransportError: the topic carries a sensor.
        """
        binding = feed.inlet.layout.binding
        self.names = tuple(name for name, _ in feed.parts)
        measured = [name for name in self.names if name in sensors]
        # Zeros in place of a measurement would be taken for one.
        if measured or binding.timeout_s is None:
            raise TransportError(
                f"{binding.topic}: timeout_s is for commands; {', '.join(measured)} is a sensor, whose age is limited "
                "by the contract"
            )
        self.is_zero = binding.at_timeout == "zero"
        self._feed, self._notices = feed, notices
        self._fields = [fields[name] for name in self.names]
        self._limit_ns = round(binding.timeout_s * NANOSECONDS)
        outcome = "it counts as zero" if self.is_zero else "the robot holds"
        self._text = f"{feed.topic}: silent for {binding.timeout_s:g} s; {outcome}"
        self._over = False
        if self.is_zero:
            self._fill()

    def look(self) -> None:
        """Expire the last command, if it is time."""
        heard_ns = self._feed.heard_ns
        # Before the first message there is nothing to expire.
        if not heard_ns or time.monotonic_ns() - heard_ns <= self._limit_ns:
            self._over = False
            return
        if not self._over:
            self._over = True
            self._notices.add(self._text)
        self._fill()

    def forget(self) -> None:
        """Report a continuing timeout again."""
        self._over = False

    def _fill(self) -> None:
        for field in self._fields:
            field[:] = 0.0 if self.is_zero else math.nan
