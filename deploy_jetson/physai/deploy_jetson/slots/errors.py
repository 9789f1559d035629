"""What keeps a robot from changing its policy. None of these touches the policy that is active."""

from physai.sdk.base.errors import PhysaiError


class SlotError(PhysaiError):
    """The slots are not in the state that was asked for, damaged, or cannot be written."""


class LockedError(SlotError):
    """Another process is changing the slots."""


class InstallError(SlotError):
    """A bundle was not installed, or not activated."""
