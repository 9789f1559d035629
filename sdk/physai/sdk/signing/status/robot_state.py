"""Signed states of robots: the bundle that drives a robot, and the verdict that it was installed with.

The robot's own key signs a state. It is the robot's word: a robot whose key was stolen can state anything.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.origin import RobotName
from physai.sdk.evidence.verdict import Sha256, Utc
from physai.sdk.signing.attestation import STATEMENT_TYPE
from physai.sdk.signing.ed25519 import PublicKey, SigningKey
from physai.sdk.signing.status.signed_statement import open_envelope, parse_statement, sign_statement, signers
from physai.sdk.signing.trust_store import TrustStore

STATE_PREDICATE = "urn:physai:robot-state:1"
MAX_STATE_BYTES = 1 << 14
MAX_LABEL = 64
"""Characters of a robot's name that its key has as its label."""

_WHAT = "robot state"


class RobotStateError(PhysaiError):
    """A state is malformed, or not signed by a key of its robot."""


class StatedVerdict(Frozen):
    """The verdict that a robot accepted with a bundle."""

    created: Utc
    expires: Utc


class StatedBundle(Frozen):
    """The bundle that drives a robot."""

    sha256: Sha256
    manifest: Sha256
    """SHA-256 of its manifest, by which validators revoke it."""
    version: Annotated[int, Field(ge=0, le=2**53 - 1)]
    task: Name
    on_trial: bool
    installed: Utc
    verdict: StatedVerdict | None
    """None for a bundle that was installed without a valid verdict."""


class RobotStatePredicate(Frozen):
    """Claim of a robot."""

    robot: RobotName
    issued: Utc
    stand_in: bool
    """Whether a simulation stands in for the robot."""
    active: StatedBundle | None
    """None if no policy is active."""


class RobotStateStatement(Frozen):
    """The in-toto statement that a robot signs."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: RobotStatePredicate
    predicate_type: Literal["urn:physai:robot-state:1"] = Field(default=STATE_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[str, ...], Field(max_length=0)] = ()


def sign_robot_state(key: SigningKey, predicate: RobotStatePredicate) -> bytes:
    """Sign a state with the robot's key.

    Raises:
        RobotStateError: it is too large.
    """
    statement = RobotStateStatement(predicate=predicate)
    return sign_statement([key], statement, limit=MAX_STATE_BYTES, error=RobotStateError)


def read_robot_state(data: bytes, trust: TrustStore) -> tuple[RobotStatePredicate, PublicKey]:
    """Verify a state; return its claim, and the robot's key that signed it.

    Raises:
        RobotStateError: it is malformed, or no key in the trust file of the robot that it names signed it.
    """
    envelope = open_envelope(data, what=_WHAT, limit=MAX_STATE_BYTES, error=RobotStateError)
    found = signers(envelope, trust.usable("robot"))
    if not found:
        raise RobotStateError(
            "the state is not signed by a robot's key in the trust file: enrol it (physai keys trust)"
        )
    predicate = parse_statement(envelope, RobotStateStatement, what=_WHAT, error=RobotStateError).predicate
    own = next((key for key in found if key.label == predicate.robot[:MAX_LABEL]), None)
    if own is None:
        raise RobotStateError(
            f"the state is of {predicate.robot}, and signed by the key of {found[0].label or 'no robot'}"
        )
    return predicate, own
