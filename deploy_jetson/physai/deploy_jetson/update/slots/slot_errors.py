"""Errors of the slot store; none of them affects the active policy."""

from physai.sdk.base.errors import PhysaiError


class SlotError(PhysaiError):
    """The slots are in the wrong state, damaged, or cannot be written."""


class LockedError(SlotError):
    """Another process is changing the slots."""


class InstallError(SlotError):
    """A bundle was not installed, or not activated."""
