"""What an operator may ask of a running policy, and the letter box between him and the loop."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum


class Order(StrEnum):
    """A request; each is obeyed between two ticks."""

    ACTIVATE = "activate"
    """Begin to send commands; only from INACTIVE. HOLD, DAMP and STOP before that has happened take it back."""
    DEACTIVATE = "deactivate"
    """Ramp to a safe state, then send nothing more."""
    HOLD = "hold"
    """Stay where you are, until `reset`."""
    DAMP = "damp"
    """Brake without stiffness, until `reset`."""
    STOP = "stop"
    """Emergency stop, until `reset`, or `activate` once nothing is driven; believed when every joint was measured at
    rest."""
    RESET = "reset"
    """Back to RUN: the policy moves the robot again."""
    SHUTDOWN = "shutdown"
    """Ramp to a safe state, then end."""


MAX_WAITING = 64
"""Most orders that wait; the loop takes one a tick."""


@dataclass
class Mailbox:
    """Written by helper threads and signal handlers, read by the loop; appending is atomic."""

    orders: deque[Order] = field(default_factory=lambda: deque[Order](maxlen=MAX_WAITING))
    stop: bool = False
    """An emergency stop is asked for: not queued behind anything."""
    driving: bool = False
    """Whether the loop sends commands: `activate` is no order then, and takes no stop back."""
    heartbeat_ns: int = 0
    """CLOCK_MONOTONIC of the operator's last sign of life [ns]; 0 before the first."""

    def put(self, order: Order) -> None:
        """Leaves an order for the loop."""
        if order is Order.STOP:
            self.stop = True
            return
        if order is Order.ACTIVATE and not self.driving:
            # Here and not where it is obeyed: a stop that comes after it must stay.
            self.stop = False
        self.orders.append(order)
