"""The policy contract: the interface and the limits that training, twin and robot must agree on.

It is serialised as canonical JSON (RFC 8785) and identified by its fingerprint, the SHA-256 of that JSON. Components
with different fingerprints refuse to work together and report the differences
(`physai.sdk.contract.contract_diff`). See `physai.sdk.contract.io` for files.
"""

from typing import Self

from pydantic import model_validator

from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.contract.checks import contract_problems
from physai.sdk.contract.terms import ContractTerms


class PolicyContract(ContractTerms):
    """The whole agreement between the computer that trains, the twin and the robot."""

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        problems = list(contract_problems(self))
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON, 64 lower-case hexadecimal digits."""
        return sha256_hex(canonical_json(self))
