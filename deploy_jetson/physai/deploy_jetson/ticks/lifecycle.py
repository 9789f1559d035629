"""The states of a runtime, as in ros2_control (https://control.ros.org, hardware lifecycle)."""

from enum import StrEnum

from physai.sdk.base.errors import PhysaiError


class LifecycleError(PhysaiError):
    """A runtime was asked for what its state does not allow."""


class Lifecycle(StrEnum):
    """What is true of the robot."""

    UNCONFIGURED = "unconfigured"
    """No policy is loaded, nothing is connected."""
    INACTIVE = "inactive"
    """The policy is loaded and checked, sensors are heard; nothing is sent, the drives are left to themselves."""
    ACTIVE = "active"
    """Every control period a command that has passed the guard is sent; joints may move."""
    FINALIZED = "finalized"
    """The robot was brought to a safe state as far as it could be, and everything is let go."""


_NEXT = {
    Lifecycle.UNCONFIGURED: (Lifecycle.INACTIVE, Lifecycle.FINALIZED),
    Lifecycle.INACTIVE: (Lifecycle.ACTIVE, Lifecycle.FINALIZED),
    Lifecycle.ACTIVE: (Lifecycle.INACTIVE,),
    Lifecycle.FINALIZED: (),
}


def advance(state: Lifecycle, to: Lifecycle) -> Lifecycle:
    """The next state.

    Raises:
        LifecycleError: it cannot be reached from here.
    """
    if to not in _NEXT[state]:
        allowed = ", ".join(_NEXT[state]) or "nothing"
        raise LifecycleError(f"a runtime that is {state} cannot become {to}, only {allowed}")
    return to
