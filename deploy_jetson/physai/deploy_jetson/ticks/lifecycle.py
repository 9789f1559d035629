"""The states of a runtime, as in ros2_control (https://control.ros.org, hardware lifecycle)."""

from enum import StrEnum

from physai.sdk.base.errors import PhysaiError


class LifecycleError(PhysaiError):
    """A transition that the runtime's state does not allow."""


class Lifecycle(StrEnum):
    """State of a runtime."""

    UNCONFIGURED = "unconfigured"
    """No policy is loaded and no transport is open."""
    INACTIVE = "inactive"
    """The policy is loaded and checked and sensors are read; nothing is sent to the drives."""
    ACTIVE = "active"
    """A command that passed the guard is sent every control period; joints may move."""
    FINALIZED = "finalized"
    """The robot was brought to a safe state as far as possible, and all resources are released."""


# An active runtime ends by way of INACTIVE, so that the robot is brought to rest before anything is released.
_NEXT = {
    Lifecycle.UNCONFIGURED: (Lifecycle.INACTIVE, Lifecycle.FINALIZED),
    Lifecycle.INACTIVE: (Lifecycle.ACTIVE, Lifecycle.FINALIZED),
    Lifecycle.ACTIVE: (Lifecycle.INACTIVE,),
    Lifecycle.FINALIZED: (),
}


def advance(state: Lifecycle, to: Lifecycle) -> Lifecycle:
    """Return `to`, if it can follow `state`.

    Raises:
        LifecycleError: it cannot.
    """
    if to not in _NEXT[state]:
        allowed = ", ".join(_NEXT[state]) or "nothing"
        raise LifecycleError(f"a runtime that is {state} cannot become {to}, only {allowed}")
    return to
