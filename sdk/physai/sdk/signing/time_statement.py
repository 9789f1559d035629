"""Signed statements of the current time, for robots whose clock is unreliable.

A robot stores a time floor, a time that has certainly passed; verdicts expire by the later of floor and clock. The
clock advances the floor in bounded steps only, so that a clock that jumps ahead cannot expire every verdict for good. A
statement signed by a validator or an owner advances it at once. Only owners can set it back, and the statement must
name the current floor.

A robot counts how often it was set back, and accepts only statements that name its count. So each correction ends the
statements before it for good: neither the wrong time nor its correction can be replayed.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

import rfc8785
from pydantic import ConfigDict, Field, ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Frozen
from physai.sdk.evidence.origin import RobotName, is_unit_of
from physai.sdk.evidence.verdict import Count, Utc, utc_text
from physai.sdk.signing.attestation import (
    STATEMENT_TYPE,
    AttestationError,
    Envelope,
    Role,
    is_signed_by,
    parse_envelope,
)
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.trust_store import TrustStore

TIME_PREDICATE = "urn:physai:time:1"
MAX_STATEMENT_BYTES = 1 << 14

CLOCK_STEP = timedelta(days=1)
"""Maximum advance of the floor by the clock alone per write of the robot's state."""


class TimeStatementError(PhysaiError):
    """A time statement is malformed, not signed by a trusted key, or for another robot or floor."""


class TimePredicate(Frozen):
    """Claim of a time statement."""

    robot: RobotName
    """The robot it applies to: a model or one unit of it."""
    time: Utc
    """A time that has passed."""
    replaces: Utc | None = None
    """The robot's current floor, if it is to be set back; None only advances it."""
    corrections: Annotated[Count, Field(exclude_if=lambda corrections: corrections == 0)] = 0
    """How often the robot had been set back before; left out of the document if never."""


class TimeStatement(Frozen):
    """An in-toto statement without subjects, as it is not about a file."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: TimePredicate
    predicate_type: Literal["urn:physai:time:1"] = Field(default=TIME_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[str, ...], Field(max_length=0)] = ()

    def encode(self) -> bytes:
        """The statement as canonical JSON."""
        return rfc8785.dumps(self.model_dump(mode="json", by_alias=True))


def sign_time(
    keys: Sequence[SigningKey],
    robot: str,
    moment: datetime,
    *,
    replaces: datetime | None = None,
    corrections: int = 0,
) -> bytes:
    """Creates a signed time statement.

    Args:
        keys: of a validator or an owner; of enough owners to set a floor back.
        robot: a model or one unit of it.
        moment: the time, timezone-aware.
        replaces: the floor to set back.
        corrections: how often the robot was set back before.

    Raises:
        TimeStatementError: the robot's name or the count is invalid.
    """
    before = None if replaces is None else utc_text(replaces)
    record = {"robot": robot, "time": utc_text(moment), "replaces": before, "corrections": corrections}
    try:
        payload = TimeStatement(predicate=TimePredicate.model_validate(record)).encode()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TimeStatementError(f"{first['loc'][0]} {first['input']!r}: {first['msg']}") from None
    if not keys:
        raise TimeStatementError("no key signs the statement; give at least one")
    first, *others = keys
    envelope = first.envelope(payload)
    for key in others:
        envelope = envelope.with_signature(key.sign(payload))
    return envelope.encode()


def read_time(data: bytes, trust: TrustStore, *, robot: str) -> TimePredicate:
    """Verifies a time statement and returns its claim.

    Raises:
        TimeStatementError: the statement is malformed, not signed as required, or for another robot.
    """
    if not len(data) <= MAX_STATEMENT_BYTES:
        raise TimeStatementError(f"a time statement has at most {MAX_STATEMENT_BYTES} bytes, got {len(data)}")
    try:
        envelope = parse_envelope(data.rstrip(b"\n"), source="time statement")
    except AttestationError as error:
        raise TimeStatementError(str(error)) from None
    owners = _signers(envelope, trust, "owner")
    if not owners and not _signers(envelope, trust, "validator"):
        raise TimeStatementError("the time statement is not signed by a validator or owner that this robot trusts")
    try:
        statement = TimeStatement.model_validate_json(envelope.payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TimeStatementError(f"not a time statement: {first['msg']}") from None
    predicate = statement.predicate
    if statement.encode() != envelope.payload:
        raise TimeStatementError("the time statement is not in canonical JSON")
    if not is_unit_of(robot, predicate.robot):
        raise TimeStatementError(f"the time statement is for {predicate.robot}, this robot is {robot}")
    needed = trust.threshold("owner")
    if predicate.replaces is not None and not owners >= needed:
        raise TimeStatementError(f"setting a robot's time back needs {needed} owner signatures, got {owners}")
    return predicate


def _signers(envelope: Envelope, trust: TrustStore, role: Role) -> int:
    public = {key.key_id: bytes.fromhex(key.public) for key in trust.usable(role)}
    return sum(
        is_signed_by(public[one.key_id], one.value, envelope.payload)
        for one in envelope.signatures
        if one.key_id in public
    )
