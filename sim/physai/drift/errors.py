"""Errors of the drift monitor."""

from physai.sdk.base.errors import PhysaiError


class DriftError(PhysaiError):
    """Recordings, twin and verdict of a drift monitor do not belong together, or the robot cannot be watched."""
