"""The runtime behind a managed node: each transition is a request to the loop's own thread, and waits for its answer.

Nothing here needs rclpy: a managed node calls it, and so do tests.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from physai.deploy_jetson.runtime.lifecycle import Lifecycle
from physai.deploy_jetson.runtime.loop import DAMP_S, RAMP_S, End
from physai.deploy_jetson.runtime.orders import Order
from physai.deploy_jetson.runtime.runtime import RunOptions, Runtime
from physai.sdk.errors import PhysaiError
from physai.sdk.wire import Transport

CONFIGURE_S = 120.0
"""Longest time for loading: a TensorRT engine may have to be built first [s]."""
RAMP_DOWN_S = RAMP_S + DAMP_S + 1.0
"""Longest time from the order to stop to the last command [s]."""

_LOOK_S = 0.002


class DriveError(PhysaiError):
    """A transition did not come about; says what is in its way."""


class Drive:
    """One runtime in a thread of its own, from `start` to `stop`."""

    def __init__(
        self, options: RunOptions, transport: Transport, *, say: Callable[[str], None], **telemetry: Any
    ) -> None:
        """Nothing runs yet.

        Args:
            options: how to run; it stands by after loading, whatever they say.
            transport: not yet open.
            say: shows a line; called in the runtime's threads.
            telemetry: further arguments of `Runtime`.
        """
        self.runtime = Runtime(replace(options, stand_by=True), transport, say=say, **telemetry)
        self.end: End | None = None
        """Why it ended; None as long as it runs, or if it failed."""
        self.error: Exception | None = None
        """What it failed with."""
        self._taken_back: Order | None = None
        self._thread = threading.Thread(target=self._run, name="physai-loop", daemon=True)

    @property
    def running(self) -> bool:
        """Whether the loop's thread lives."""
        return self._thread.is_alive()

    def start(self, timeout_s: float = CONFIGURE_S) -> None:
        """Loads, verifies and connects; returns once it is inactive.

        Raises:
            PhysaiError: what the runtime says about why not.
            DriveError: it takes too long.
        """
        self._thread.start()
        if not self._reached(Lifecycle.INACTIVE, timeout_s):
            self.stop()
            raise self._failure() or DriveError(f"the policy was not ready within {timeout_s:g} s")

    def activate(self, timeout_s: float) -> None:
        """Begins to send commands.

        Raises:
            DriveError: the robot cannot be driven within the time; what is in the way.
        """
        self._require_running()
        self._taken_back = None
        self.runtime.mailbox.put(Order.ACTIVATE)
        if not self._reached(Lifecycle.ACTIVE, timeout_s, given_up=lambda: self._taken_back is not None):
            self.runtime.mailbox.put(Order.DEACTIVATE)
            if self._taken_back is not None:
                raise DriveError(f"not activated: {self._taken_back.value} was asked for meanwhile; activate it again")
            why = str(self._failure() or "") or f"waited {timeout_s:g} s for {self.runtime.waiting_for or 'the loop'}"
            told = "; ".join(self.runtime.transport.problems())
            raise DriveError(f"not activated: {why}" + (f" ({told})" if told else ""))

    def deactivate(self, timeout_s: float = RAMP_DOWN_S) -> None:
        """Ramps to a safe state; returns once nothing more is sent.

        Raises:
            DriveError: it still sends after that time.
        """
        if not self.running or self.runtime.state is not Lifecycle.ACTIVE:
            return
        self.runtime.mailbox.put(Order.DEACTIVATE)
        if not self._reached(Lifecycle.INACTIVE, timeout_s) and self.running:
            raise DriveError(f"still active {timeout_s:g} s after the order to stop")

    def brake(self, order: Order) -> None:
        """Leaves an order to hold, damp or stop: for the next tick, and against an activation under way."""
        self.runtime.mailbox.put(order)
        self._taken_back = order

    def stop(self, timeout_s: float = RAMP_DOWN_S) -> None:
        """Ramps to a safe state, disconnects and ends the thread; may be called twice.

        Raises:
            DriveError: the thread does not end.
        """
        self.runtime.mailbox.put(Order.SHUTDOWN)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise DriveError(f"the control loop did not end within {timeout_s:g} s")

    def _run(self) -> None:
        try:
            self.end = self.runtime.run()
        except Exception as error:  # told by whoever asked for the transition
            self.error = error

    def _reached(self, state: Lifecycle, timeout_s: float, *, given_up: Callable[[], bool] = lambda: False) -> bool:
        give_up = time.monotonic() + timeout_s
        while self.runtime.state is not state:
            if not self.running or given_up() or time.monotonic() > give_up:
                return self.runtime.state is state
            time.sleep(_LOOK_S)
        return True

    def _require_running(self) -> None:
        if not self.running:
            raise self._failure() or DriveError(f"the policy has ended: {self.end or 'it was never started'}")

    def _failure(self) -> PhysaiError | None:
        """What the runtime failed with."""
        if self.error is None or isinstance(self.error, PhysaiError):
            return self.error
        return DriveError(f"the runtime failed: {type(self.error).__name__}: {self.error}")
