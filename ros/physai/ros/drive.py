"""The runtime behind a managed node: each transition is a request to the loop's own thread, and waits for its answer.

Nothing here needs rclpy: a managed node calls it, and so do tests.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.loop import DAMP_S, RAMP_S, LoopEnd
from physai.deploy_jetson.runtime.options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.watchdog.client import END_S
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.sdk.base.errors import PhysaiError
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Transport

CONFIGURE_S = 120.0
"""Longest time for loading: a TensorRT engine may have to be built first [s]."""
RAMP_DOWN_S = RAMP_S + DAMP_S + 1.0
"""Longest time from the order to stop to the last command [s]."""
STOP_S = RAMP_DOWN_S + END_S + 2.0
"""Longest time until the loop's thread has ended, too: the watchdog ends meanwhile, and DDS waits a second for every
subscriber that was killed before it took the last command [s]."""

ANSWER_S = 3.0
"""Longest time in which a request is answered [s]."""
NOT_DRIVEN = "the policy does not drive the robot now, nothing is sent"

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
        self.end: LoopEnd | None = None
        """Why it ended; None as long as it runs, or if it failed."""
        self.error: Exception | None = None
        """What it failed with."""
        self._activating = False
        self._taken_back: Command | None = None
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
        self._activating = True
        try:
            self._activate(timeout_s)
        finally:
            self._activating = False

    def _activate(self, timeout_s: float) -> None:
        ticket = self.runtime.commands.put(Command.ACTIVATE)

        def given_up() -> bool:
            refused = ticket is not None and ticket.answered and not ticket.obeyed
            return refused or self._taken_back is not None

        if not self._reached(Lifecycle.ACTIVE, timeout_s, given_up=given_up):
            self.runtime.commands.put(Command.DEACTIVATE)
            if ticket is not None and ticket.answered and not ticket.obeyed:
                raise DriveError(f"not activated: {ticket.text}")
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
        self.runtime.commands.put(Command.DEACTIVATE)
        if not self._reached(Lifecycle.INACTIVE, timeout_s) and self.running:
            raise DriveError(f"still active {timeout_s:g} s after the order to stop")

    def brake(self, command: Command) -> None:
        """Requests hold, damp or stop: for the next tick, and against an activation under way.

        Raises:
            DriveError: nothing is driven that could brake; the request counts all the same.
        """
        told = NOT_DRIVEN + ("; the activation under way is taken back" if self._activating else "")
        self.runtime.commands.put(command)
        self._taken_back = command
        if self.runtime.state is not Lifecycle.ACTIVE:
            raise DriveError(told + ("; none begins until reset" if command is Command.STOP else ""))

    def braked(self, command: Command, state: GuardState) -> str:
        """As `brake`, and waits until the guard brakes; what it does then.

        Raises:
            DriveError: nothing is driven, or the guard was not seen to brake.
        """
        self.brake(command)
        runtime, give_up = self.runtime, time.monotonic() + ANSWER_S
        while not GuardState[runtime.guard_state] >= state:
            if runtime.state is not Lifecycle.ACTIVE or time.monotonic() > give_up:
                raise DriveError(f"{command}: NOT CONFIRMED, the guard is in {runtime.guard_state}")
            time.sleep(_LOOK_S)
        return f"{runtime.guard_state}, until reset"

    def request(self, command: Command, timeout_s: float = ANSWER_S) -> str:
        """Requests a reset or a start; the answer.

        Raises:
            DriveError: the loop has ended.
            CommandError: refused, or not answered in time.
        """
        self._require_running()
        ticket = self.runtime.commands.put(command)
        return f"{command}: requested" if ticket is None else ticket.wait(timeout_s)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ramps to a safe state, disconnects and ends the thread; may be called twice.

        Raises:
            DriveError: the thread does not end.
        """
        self.runtime.commands.put(Command.SHUTDOWN)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise DriveError(f"the control loop did not end within {timeout_s:g} s")

    def _run(self) -> None:
        try:
            self.end = self.runtime.run()
        except Exception as error:  # reported by the caller of the transition
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
