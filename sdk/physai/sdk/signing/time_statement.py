"""The time, as somebody says it whom a robot believes, for robots whose own clock cannot be.

A robot remembers a floor, a moment that has passed for certain; verdicts expire by the later of floor and clock. The
clock moves the floor by a bounded step only, so that one excursion of the clock does not end all updates; what a
validator or an owner has signed moves it at once. Only the owners may set it back, and only from the very moment at
which it stands: a statement that was used, or kept, does so no second time.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

import rfc8785
from pydantic import ConfigDict, Field, ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Frozen
from physai.sdk.evidence.origin import RobotName, is_unit_of
from physai.sdk.evidence.verdict import Utc, utc_text
from physai.sdk.signing.attestation import (
    STATEMENT_TYPE,
    AttestationError,
    Envelope,
    Role,
    is_signed_by,
    parse_envelope,
)
from physai.sdk.signing.keys import SigningKey
from physai.sdk.signing.trust_store import TrustStore

TIME_PREDICATE = "urn:physai:time:1"
MAX_STATEMENT_BYTES = 1 << 14

CLOCK_STEP = timedelta(days=1)
"""How far the clock alone moves the floor each time the robot writes its state."""


class TimeStatementError(PhysaiError):
    """A statement of the time is malformed, not signed by whom the robot believes, or for another robot or moment."""


class TimePredicate(Frozen):
    """What is stated."""

    robot: RobotName
    """Robot it is for, a model or one unit of it."""
    time: Utc
    """A moment that has passed."""
    replaces: Utc | None = None
    """The robot's floor, where it is to be set back; None where it may only rise."""


class TimeStatement(Frozen):
    """What is signed; an in-toto statement without subjects, as it is about no file."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: TimePredicate
    predicate_type: Literal["urn:physai:time:1"] = Field(default=TIME_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[str, ...], Field(max_length=0)] = ()

    def encode(self) -> bytes:
        """The statement as canonical JSON."""
        return rfc8785.dumps(self.model_dump(mode="json", by_alias=True))


def sign_time(keys: Sequence[SigningKey], robot: str, moment: datetime, *, replaces: datetime | None = None) -> bytes:
    """A signed statement, as a file.

    Args:
        keys: of a validator or an owner; of enough owners where it sets a floor back.
        robot: a model or one unit of it.
        moment: with a time zone.
        replaces: the floor it sets back.

    Raises:
        TimeStatementError: the robot's name is none.
    """
    record = {"robot": robot, "time": utc_text(moment), "replaces": None if replaces is None else utc_text(replaces)}
    try:
        payload = TimeStatement(predicate=TimePredicate.model_validate(record)).encode()
    except ValidationError as error:
        raise TimeStatementError(f"robot {robot!r}: {error.errors(include_url=False)[0]['msg']}") from None
    first, *others = keys
    envelope = first.envelope(payload)
    for key in others:
        envelope = envelope.with_signature(key.sign(payload))
    return envelope.encode()


def read_time(data: bytes, trust: TrustStore, *, robot: str) -> TimePredicate:
    """What a file states, if this robot believes it.

    Raises:
        TimeStatementError: it does not.
    """
    if not len(data) <= MAX_STATEMENT_BYTES:
        raise TimeStatementError(f"a statement of the time has at most {MAX_STATEMENT_BYTES} bytes, got {len(data)}")
    try:
        envelope = parse_envelope(data.rstrip(b"\n"), source="the statement of the time")
    except AttestationError as error:
        raise TimeStatementError(str(error)) from None
    owners = _signers(envelope, trust, "owner")
    if not owners and not _signers(envelope, trust, "validator"):
        raise TimeStatementError("the statement of the time is signed by no validator or owner whom this robot trusts")
    try:
        statement = TimeStatement.model_validate_json(envelope.payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TimeStatementError(f"not a statement of the time: {first['msg']}") from None
    said = statement.predicate
    if statement.encode() != envelope.payload:
        raise TimeStatementError("the statement of the time is not in canonical JSON")
    if not is_unit_of(robot, said.robot):
        raise TimeStatementError(f"the statement of the time is for {said.robot}, this robot is {robot}")
    needed = trust.threshold("owner")
    if said.replaces is not None and not owners >= needed:
        raise TimeStatementError(f"to set a robot's time back {needed} owners sign, got {owners}")
    return said


def _signers(envelope: Envelope, trust: TrustStore, role: Role) -> int:
    public = {key.key_id: bytes.fromhex(key.public) for key in trust.usable(role)}
    return sum(
        is_signed_by(public[one.key_id], one.value, envelope.payload)
        for one in envelope.signatures
        if one.key_id in public
    )
