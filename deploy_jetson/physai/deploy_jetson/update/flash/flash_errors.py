"""Errors of `physai flash`."""

from physai.sdk.base.errors import PhysaiError


class FlashError(PhysaiError):
    """A robot was not flashed; its active policy is unchanged."""


class UnreachableError(FlashError):
    """No ssh server answers at the address."""


class HostKeyError(FlashError):
    """The host key of the ssh server cannot be verified."""


class LoginError(FlashError):
    """The robot accepts none of the user's ssh keys."""


class NoReceiverError(FlashError):
    """The robot has no working `physai robot receive`."""


class LostError(FlashError):
    """The connection was lost; the partial upload is kept."""


class SilentError(FlashError):
    """The robot no longer responds although the connection is up."""


class RefusedError(FlashError):
    """The robot refuses the bundle."""

    def __init__(self, kind: str, text: str) -> None:
        """Initialises the error.

        Args:
            kind: name of the error on the robot: `VerificationError`.
            text: its message.
        """
        super().__init__(text)
        self.kind = kind
