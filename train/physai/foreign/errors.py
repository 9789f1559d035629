"""Errors of policies from elsewhere."""

from physai.sdk.base.errors import PhysaiError


class ForeignPolicyError(PhysaiError):
    """A file is no policy that can be read, or contradicts itself."""
