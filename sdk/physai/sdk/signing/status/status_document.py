"""Status documents: a validator's word on verdicts that it signed before, for one robot or all of a model.

A document lists every verdict that is revoked or narrowed; one with empty lists says that all is well. The next
document of the same robot name has a higher serial, and takes the place of the one before as a whole.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Finite, Frozen, Name, NonNegative, Positive, require_unique
from physai.sdk.evidence.origin import RobotName, is_unit_of
from physai.sdk.evidence.verdict import Sha256, Utc, VerdictLine, utc_text
from physai.sdk.signing.attestation import STATEMENT_TYPE
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.status.signed_statement import open_envelope, parse_statement, require_signers, sign_statement
from physai.sdk.signing.trust_store import TrustStore

STATUS_PREDICATE = "urn:physai:status:1"
MAX_STATUS_BYTES = 1 << 16
MAX_LISTED = 128
"""Greatest number of revoked, and of narrowed, bundles in one document."""

_WHAT = "status document"


class StatusError(PhysaiError):
    """A status document is malformed, not signed as required, replayed, or for another robot."""


class NarrowedJoint(Frozen):
    """Conditions on one joint, as measured."""

    lower: Finite | None = None
    """Least position [rad or m]; None for that of the contract."""
    upper: Finite | None = None
    """Greatest position [rad or m]; None for that of the contract."""
    speed: Positive | None = None
    """Greatest speed [rad/s or m/s]; None for that of the contract."""


class NarrowedCommand(Frozen):
    """Range of a command field, in its unit."""

    lower: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=256)]
    """Least value of each element."""
    upper: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=256)]
    """Greatest value of each element."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if len(self.lower) != len(self.upper):
            raise ValueError(f"{len(self.lower)} lower values, {len(self.upper)} upper ones: give one each per element")
        if any(low > high for low, high in zip(self.lower, self.upper, strict=True)):
            raise ValueError(f"a lower value is above its upper one: {self.lower}, {self.upper}")
        return self


class NarrowedConditions(Frozen):
    """Conditions under which a verdict still holds."""

    commands: Annotated[dict[Name, NarrowedCommand], Field(max_length=16)] = Field(
        default_factory=dict[str, NarrowedCommand]
    )
    """Ranges to which a robot cuts the commands of its operator or planner, by field."""
    joints: Annotated[dict[Name, NarrowedJoint], Field(max_length=64)] = Field(default_factory=dict[str, NarrowedJoint])
    """Ranges that no joint may leave; a robot ends the policy if one does."""
    payload_kg: NonNegative | None = None
    """Greatest payload [kg]; shown, because a robot does not measure it."""
    temperature_c: tuple[Finite, Finite] | None = None
    """Least and greatest ambient temperature [°C]; shown, because a robot does not measure it."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.commands or self.joints or self.payload_kg is not None or self.temperature_c):
            raise ValueError("it narrows nothing: give commands, joints, payload_kg or temperature_c")
        return self


class RevokedVerdict(Frozen):
    """A bundle whose verdict is revoked."""

    bundle: Sha256
    """SHA-256 of its manifest (its id), or of the bundle file."""
    reason: VerdictLine
    since: Utc


class NarrowedVerdict(RevokedVerdict):
    """A bundle whose verdict holds under narrower conditions only."""

    conditions: NarrowedConditions


class StatusPredicate(Frozen):
    """The word of a validator on the verdicts of a robot."""

    robot: RobotName
    """The robot it is for: a model, or one unit of it."""
    serial: Annotated[int, Field(ge=1, le=2**53 - 1)]
    """Increases with every document for this name."""
    issued: Utc
    revoked: Annotated[tuple[RevokedVerdict, ...], Field(max_length=MAX_LISTED)] = ()
    narrowed: Annotated[tuple[NarrowedVerdict, ...], Field(max_length=MAX_LISTED)] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        require_unique("bundle", (one.bundle for one in (*self.revoked, *self.narrowed)))
        return self

    def without(self, *bundles: str) -> Self:
        """The same word, without entries of these bundles."""
        kept = {
            "revoked": tuple(one for one in self.revoked if one.bundle not in bundles),
            "narrowed": tuple(one for one in self.narrowed if one.bundle not in bundles),
        }
        return self.model_copy(update=kept)


class StatusStatement(Frozen):
    """The in-toto statement that a validator signs; without subjects, as a robot knows its bundles by hash."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: StatusPredicate
    predicate_type: Literal["urn:physai:status:1"] = Field(default=STATUS_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[str, ...], Field(max_length=0)] = ()


def next_status(before: StatusPredicate | None, robot: str, now: datetime) -> StatusPredicate:
    """Make the word that follows another one, with the same lists.

    Args:
        before: the word before; None if there is none.
        robot: a model, or one unit of it.
        now: time of issue, timezone-aware. The serial is its seconds since 1970, so that it rises even where the word
            before was lost.

    Raises:
        StatusError: the word before is for another robot.
    """
    if before is not None and before.robot != robot:
        raise StatusError(f"the status document before is for {before.robot}, this one for {robot}: name another file")
    serial = max(int(now.timestamp()), 0 if before is None else before.serial + 1)
    lists = {} if before is None else {"revoked": before.revoked, "narrowed": before.narrowed}
    return StatusPredicate.model_validate({"robot": robot, "serial": serial, "issued": utc_text(now), **lists})


def sign_status(keys: Sequence[SigningKey], predicate: StatusPredicate) -> bytes:
    """Sign a status document.

    Args:
        keys: of as many validators as the robots' trust file requires.
        predicate: the word.

    Raises:
        StatusError: there is no key, or the document is too large.
    """
    return sign_statement(keys, StatusStatement(predicate=predicate), limit=MAX_STATUS_BYTES, error=StatusError)


def read_status(data: bytes, trust: TrustStore, *, robot: str | None = None) -> StatusPredicate:
    """Verify a status document and return its word.

    Args:
        data: the document.
        trust: keys, and the number of validators that must sign.
        robot: the robot that it must be for; None for any.

    Raises:
        StatusError: it is malformed, not signed as required, or for another robot.
    """
    envelope = open_envelope(data, what=_WHAT, limit=MAX_STATUS_BYTES, error=StatusError)
    require_signers(envelope, trust, "validator", what=_WHAT, error=StatusError)
    predicate = parse_statement(envelope, StatusStatement, what=_WHAT, error=StatusError).predicate
    if robot is not None and not is_unit_of(robot, predicate.robot):
        raise StatusError(f"the status document is for {predicate.robot}, this robot is {robot}")
    return predicate


def parse_status(data: bytes) -> StatusPredicate:
    """Parse a status document without checking its signatures, for documents that were accepted before.

    Raises:
        StatusError: it is malformed.
    """
    envelope = open_envelope(data, what=_WHAT, limit=MAX_STATUS_BYTES, error=StatusError)
    return parse_statement(envelope, StatusStatement, what=_WHAT, error=StatusError).predicate
