"""The runtime behind a managed node: each transition is a request to the control thread and waits for its outcome.

Independent of rclpy, so that it can be tested without ROS.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.loop.loop import DAMP_S, RAMP_S, LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.stop.stop_records import StopRecordError, StopRecords
from physai.deploy_jetson.runtime.watchdog.client import END_S, WATCHDOG_STARTS
from physai.deploy_jetson.telemetry.telemetry import Telemetry
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.sdk.base.errors import PhysaiError
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Transport

# Timeout of loading [s], which may include building a TensorRT engine.
CONFIGURE_S = 120.0
# Timeout from a stop request to the last command [s].
RAMP_DOWN_S = RAMP_S + DAMP_S + 1.0
# Timeout until the control thread has ended [s]: includes the end of the watchdog and DDS, which waits a second for
# every subscriber that was killed before it received the last command.
STOP_S = RAMP_DOWN_S + END_S + 2.0

# Longest start of the watchdog's process [s].
WATCHDOG_S = 60.0

# Timeout of a request [s].
ANSWER_S = 3.0
NOT_DRIVEN = "the policy is not driving the robot, nothing is sent"

_POLL_S = 0.002
# Period at which the status is read while a stop is confirmed [s].
_STATUS_S = 0.005


class DriveError(PhysaiError):
    """A transition failed."""


def record_stop(root: Path) -> str:
    """Record a stop of a robot that no runtime of this program drives; return the end of the answer to it."""
    try:
        StopRecords(root).record("requested at the ROS 2 node")
    except StopRecordError as error:
        return f"the stop is NOT DURABLE, a restart may forget it: {error}"
    return "the stop is recorded and blocks until reset"


class Drive:
    """A runtime in a separate thread, from `start` to `stop`."""

    def __init__(
        self,
        options: RunOptions,
        transport: Transport,
        *,
        say: Callable[[str], None],
        telemetry: Telemetry | None = None,
    ) -> None:
        """Creates the runtime without starting it.

        Args:
            options: run options; `stand_by` is always set.
            transport: transport, not yet open.
            say: logs a line; called from the runtime's threads.
            telemetry: see `Runtime`.
        """
        # A managed node starts inactive; only its transition `activate` drives.
        self.runtime = Runtime(replace(options, stand_by=True), transport, say=say, telemetry=telemetry)
        self.end: LoopEnd | None = None
        """Why the loop ended; None while it runs, or if it failed."""
        self.error: Exception | None = None
        """The exception with which the loop failed."""
        self._activating = False
        self._cancelled_by: Command | None = None
        self._thread = threading.Thread(target=self._run, name="physai-loop", daemon=True)

    @property
    def running(self) -> bool:
        """Whether the control thread is alive."""
        return self._thread.is_alive()

    def start(self, timeout_s: float = CONFIGURE_S) -> None:
        """Loads and verifies the policy and connects the transport; returns in the state INACTIVE.

        Raises:
            PhysaiError: the runtime's error.
            DriveError: it takes too long.
        """
        self._thread.start()
        if not self._reached(Lifecycle.INACTIVE, timeout_s):
            self.stop()
            raise self._failure() or DriveError(f"the policy was not ready within {timeout_s:g} s")

    def activate(self, timeout_s: float) -> None:
        """Starts sending commands.

        Raises:
            DriveError: the runtime is not ACTIVE in time; the message gives the reason.
        """
        self._require_running()
        # Only stops requested from now on cancel this activation.
        self._cancelled_by = None
        self._activating = True
        try:
            self._activate(timeout_s)
        finally:
            self._activating = False

    def _activate(self, timeout_s: float) -> None:
        ticket = self.runtime.commands.put(Command.ACTIVATE)

        def cancelled() -> bool:
            refused = ticket is not None and ticket.answered and not ticket.obeyed
            return refused or self._cancelled_by is not None

        # A watchdog that starts, which takes seconds on a busy computer, takes nothing of the time for samples.
        if not self._reached(Lifecycle.ACTIVE, timeout_s, cancelled=cancelled, unless=self._starts_watchdog):
            self.runtime.commands.put(Command.DEACTIVATE)
            if ticket is not None and ticket.answered and not ticket.obeyed:
                raise DriveError(f"not activated: {ticket.text}")
            if self._cancelled_by is not None:
                raise DriveError(f"not activated: cancelled by {self._cancelled_by.value}; activate again")
            reason = (
                str(self._failure() or "") or f"waited {timeout_s:g} s for {self.runtime.waiting_for or 'the loop'}"
            )
            problems = "; ".join(self.runtime.transport.problems())
            raise DriveError(f"not activated: {reason}" + (f" ({problems})" if problems else ""))

    def deactivate(self, timeout_s: float = RAMP_DOWN_S) -> None:
        """Ramps to a safe state; returns once no more commands are sent.

        Raises:
            DriveError: it is still active after the timeout.
        """
        if not self.running or self.runtime.state is not Lifecycle.ACTIVE:
            return
        self.runtime.commands.put(Command.DEACTIVATE)
        if not self._reached(Lifecycle.INACTIVE, timeout_s) and self.running:
            raise DriveError(f"still active {timeout_s:g} s after the stop request")

    def brake(self, command: Command) -> None:
        """Requests hold, damp or stop for the next tick, and cancels a pending activation.

        Raises:
            DriveError: the runtime is not ACTIVE; the request is queued nevertheless.
        """
        # Before the request, after which the activation may already have been cancelled.
        message = NOT_DRIVEN + ("; the pending activation is cancelled" if self._activating else "")
        self.runtime.commands.put(command)
        self._cancelled_by = command
        if self.runtime.state is not Lifecycle.ACTIVE:
            raise DriveError(message + ("; activation is blocked until reset" if command is Command.STOP else ""))

    def braked(self, command: Command, state: GuardState) -> str:
        """Calls `brake`, waits until the guard is at least in `state` and returns its state.

        Raises:
            DriveError: the runtime is not ACTIVE, or the guard does not reach the state in time.
        """
        self.brake(command)
        runtime, deadline = self.runtime, time.monotonic() + ANSWER_S
        # A higher state is as good: a robot in DAMP obeys HOLD already.
        while not GuardState[runtime.guard_state] >= state:
            if runtime.state is not Lifecycle.ACTIVE or time.monotonic() > deadline:
                raise DriveError(f"{command}: NOT CONFIRMED, the guard is in {runtime.guard_state}")
            time.sleep(_POLL_S)
        return f"{runtime.guard_state}, until reset"

    def confirmed_stop(self, timeout_s: float) -> str:
        """Request a protective stop; return once every joint is measured at rest.

        The answer says whether the stop is not durable, in each case.

        Raises:
            DriveError: nothing is driven, or the joints are not measured at rest in time; the stop acts nevertheless.
        """
        if not self.running:
            raise DriveError(f"the policy has ended, nothing is driven; {record_stop(self.runtime.options.root)}")
        deadline = time.monotonic() + timeout_s
        try:
            self.brake(Command.STOP)
        except DriveError as error:
            raise DriveError(f"{error}{self._not_durable(deadline)}") from None
        while not self.runtime.status().get("stopped"):
            if time.monotonic() > deadline:
                raise DriveError(
                    f"NOT CONFIRMED: the joints are not measured at rest after {timeout_s:g} s; cut the power"
                    f"{self._not_durable(deadline)}"
                )
            time.sleep(_STATUS_S)
        return f"stopped: every joint was measured at rest{self._not_durable(deadline)}"

    def _not_durable(self, deadline: float) -> str:
        """Wait for the record of the newest stop; return why it is not durable, empty if it is."""
        runtime = self.runtime
        number = runtime.commands.stop
        while (settled := runtime.stop_settled(number)) is None and self.running and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if settled is None:
            # A runtime that still loads, or fails to, keeps no records yet, and its requests end with it.
            return f"; {record_stop(runtime.options.root)}"
        return f"; the stop is {settled}" if settled else ""

    def request(self, command: Command) -> str:
        """Requests a reset or a start and returns the reply.

        Raises:
            DriveError: the loop has ended.
            CommandError: the request is refused, or times out.
        """
        self._require_running()
        ticket = self.runtime.commands.put(command)
        return f"{command}: requested" if ticket is None else ticket.wait(ANSWER_S)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ramps to a safe state, disconnects and ends the thread; idempotent.

        Raises:
            DriveError: the thread does not end in time.
        """
        self.runtime.commands.put(Command.SHUTDOWN)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise DriveError(f"the control loop did not end within {timeout_s:g} s")

    def _run(self) -> None:
        try:
            self.end = self.runtime.run()
        except Exception as error:
            # Raised again in the thread that waits for the transition.
            self.error = error

    def _starts_watchdog(self) -> bool:
        return self.runtime.waiting_for == WATCHDOG_STARTS

    def _reached(
        self,
        state: Lifecycle,
        timeout_s: float,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        unless: Callable[[], bool] = lambda: False,
    ) -> bool:
        begun = time.monotonic()
        deadline = begun + timeout_s
        while self.runtime.state is not state:
            if unless() and time.monotonic() - begun < WATCHDOG_S:
                deadline = time.monotonic() + timeout_s
            if not self.running or cancelled() or time.monotonic() > deadline:
                # Read again: it may have been reached between the two checks.
                return self.runtime.state is state
            time.sleep(_POLL_S)
        return True

    def _require_running(self) -> None:
        if not self.running:
            raise self._failure() or DriveError(f"the policy has ended: {self.end or 'it was never started'}")

    def _failure(self) -> PhysaiError | None:
        """The error with which the runtime failed, if any."""
        if self.error is None or isinstance(self.error, PhysaiError):
            return self.error
        return DriveError(f"the runtime failed: {type(self.error).__name__}: {self.error}")
