"""Facts of the exam in which a verdict's episodes were played."""

from typing import Annotated

from pydantic import Field

from physai.sdk.contract.robot import Frozen, Sha256

Attempts = Annotated[int, Field(ge=1, le=10**6)]


class ExamFacts(Frozen):
    """An opened exam; a verdict without one is of a rehearsal."""

    id: Sha256
    """SHA-256 of the signed statement, from which the seeds of the episodes follow."""
    validator: Sha256
    """Id of the key that opened it."""
    number: Attempts
    """Which exam of this validator under this contract and twin it is, from 1."""
    opened: Attempts
    """How many the validator had opened under them when the verdict was signed."""

    @property
    def shown(self) -> str:
        """The exam for people: `exam 2 of 3`."""
        return f"exam {self.number} of {self.opened}"
