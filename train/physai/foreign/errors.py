"""Errors of policies from elsewhere."""

from physai.sdk.base.errors import PhysaiError


class ForeignPolicyError(PhysaiError):
    """A file is no policy that can be read, or contradicts itself."""


class OpenQuestionsError(ForeignPolicyError):
    """No file states what a policy needs to run."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        """Raised with the fields of the description that are not stated."""
        super().__init__(message)
        self.names = names
