"""Notifications to systemd for a service of `Type=notify` with `WatchdogSec`: sd_notify(3), without libsystemd.

Watchdog notifications are sent by the thread that is watched, never by one that would go on while it hangs.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress

# Notifications per WatchdogSec.
SIGNS = 4

# A struct timeval: send timeout for a manager that does not read [s].
_PATIENCE = struct.pack("ll", 1, 0)


class ServiceManager:
    """The service manager that started this process; without one, nothing is sent."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID."""
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract socket address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address.startswith(("@", "/")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _PATIENCE)
        limit_us, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        # WATCHDOG_PID names the one process that is watched; children inherit the variables.
        self._watches = limit_us.isdigit() and process in ("", str(os.getpid()))
        self._every_ns = int(limit_us) * 1000 // SIGNS if self._watches else 0
        # Never due without a watchdog, so that the check in `progress` is one comparison.
        self._next_ns = 0 if self._watches and self._socket is not None else 1 << 63

    def ready(self) -> None:
        """Notify that the service has started."""
        self._send(b"READY=1")

    def stopping(self) -> None:
        """Notify that the service is about to end."""
        self._send(b"STOPPING=1")

    def progress(self, now_ns: int) -> None:
        """Notify the watchdog if due; call often, from the thread that must not hang.

        Args:
            now_ns: CLOCK_MONOTONIC [ns].
        """
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + self._every_ns
            # Non-blocking: a manager that does not read must not delay the control loop.
            self._send(b"WATCHDOG=1", socket.MSG_DONTWAIT)

    def sleep(self, seconds: float) -> None:
        """Notify the watchdog, then sleep."""
        self.progress(time.monotonic_ns())
        time.sleep(seconds)

    def _send(self, message: bytes, flags: int = 0) -> None:
        if self._socket is not None:
            # It may be restarting.
            with suppress(OSError):
                self._socket.sendto(message, flags, self._address)
