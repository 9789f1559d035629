"""Errors of this package."""

from physai.sdk import PhysaiError


class DesignError(PhysaiError):
    """A task, a model or a number does not fit."""


class TrajectoryError(PhysaiError):
    """No trajectory was found, or one cannot be scored."""
