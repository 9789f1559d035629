"""Signed reports of monitors: whether the evidence behind a verdict still holds on a robot.

A report moves nothing: robots ignore it, and a validator who reads it decides whether to sign a status document.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Finite, Frozen, Name
from physai.sdk.evidence.origin import RobotName
from physai.sdk.evidence.verdict import Sha256, Text, Utc
from physai.sdk.signing.attestation import STATEMENT_TYPE
from physai.sdk.signing.ed25519 import PublicKey, SigningKey
from physai.sdk.signing.status.robot_state import MAX_LABEL
from physai.sdk.signing.status.signed_statement import open_envelope, parse_statement, sign_statement, signers
from physai.sdk.signing.trust_store import TrustStore

REPORT_PREDICATE = "urn:physai:report:1"
MAX_REPORT_BYTES = 1 << 16

REPORTERS = ("robot", "owner", "validator")
"""Roles whose keys sign reports."""

_WHAT = "report"


class ReportError(PhysaiError):
    """A report is malformed, or not signed by a key that may report."""


class ReportPredicate(Frozen):
    """Claim of a monitor."""

    robot: RobotName
    issued: Utc
    finding: Literal["HOLDS", "NO EVIDENCE", "DRIFTED"]
    bundle: Sha256 | None = None
    """The bundle whose verdict is concerned, by the SHA-256 of its manifest or file; None for the twin as such."""
    text: Text = ""
    """What was found, and the next act, for a person."""
    values: Annotated[dict[Name, Finite], Field(max_length=128)] = Field(default_factory=dict[str, float])
    """Numbers behind the finding, by name."""
    evidence: Sha256 | None = None
    """SHA-256 of a file with all of it."""


class ReportStatement(Frozen):
    """The in-toto statement that a monitor signs."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: ReportPredicate
    predicate_type: Literal["urn:physai:report:1"] = Field(default=REPORT_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[str, ...], Field(max_length=0)] = ()


def sign_report(keys: Sequence[SigningKey], predicate: ReportPredicate) -> bytes:
    """Sign a report with the key of a robot, an owner or a validator.

    Raises:
        ReportError: there is no key, or the report is too large.
    """
    return sign_statement(keys, ReportStatement(predicate=predicate), limit=MAX_REPORT_BYTES, error=ReportError)


def read_report(data: bytes, trust: TrustStore) -> tuple[ReportPredicate, tuple[PublicKey, ...]]:
    """Verify a report; return its claim, and the keys that signed it.

    Raises:
        ReportError: it is malformed, or no key of an owner, a validator or the robot that it is about signed it.
    """
    envelope = open_envelope(data, what=_WHAT, limit=MAX_REPORT_BYTES, error=ReportError)
    reporters = [key for key in trust.keys if key.role in REPORTERS and trust.revocation(key.key_id) is None]
    found = tuple(signers(envelope, reporters))
    if not found:
        raise ReportError(f"the report is not signed by a key of the trust file whose role is {' or '.join(REPORTERS)}")
    predicate = parse_statement(envelope, ReportStatement, what=_WHAT, error=ReportError).predicate
    # A robot reports on itself only.
    able = tuple(key for key in found if key.role != "robot" or key.label == predicate.robot[:MAX_LABEL])
    if not able:
        signer = found[0].label or "no robot"
        raise ReportError(f"the report is on {predicate.robot}, and signed by the key of {signer}")
    return predicate, able
