"""Why a robot was not flashed."""

from physai.sdk.base.errors import PhysaiError


class FlashError(PhysaiError):
    """A robot was not flashed; what it ran it still runs."""


class UnreachableError(FlashError):
    """No ssh server answers there."""


class HostKeyError(FlashError):
    """The ssh server is not known to be the robot."""


class LoginError(FlashError):
    """The robot lets none of our keys in."""


class NoReceiverError(FlashError):
    """There is no physai on the robot that could receive a bundle."""


class LostError(FlashError):
    """The connection was lost; what has arrived stays there."""


class SilentError(FlashError):
    """The robot says nothing any more, although the connection holds."""


class RefusedError(FlashError):
    """The robot does not take the bundle."""

    def __init__(self, kind: str, text: str) -> None:
        """Keeps what the robot says.

        Args:
            kind: name of the error on the robot: `VerificationError`.
            text: what it says.
        """
        super().__init__(text)
        self.kind = kind
