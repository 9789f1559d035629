"""The policy contract: everything that two computers must agree on before a policy may run.

One frozen, versioned record, serialised as canonical JSON (RFC 8785) and identified by the SHA-256 of those
bytes, its fingerprint. A boundary that sees two fingerprints refuses and prints what differs
(`physai.sdk.contract.diff`). Files are read and written by `physai.sdk.contract.io`.
"""

from typing import Self

from pydantic import model_validator

from physai.sdk.base.canonical import canonical_json, sha256_hex
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
