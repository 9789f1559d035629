"""Decides whether a robot may install a bundle: takes bytes, returns a verified bundle or raises the violated rule."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.archive import (
    MANIFEST_FILE,
    SIGNATURE_FOLDER,
    VERDICT_FILE,
    BundleError,
    Members,
    read_archive,
    signature_file,
)
from physai.sdk.bundle.manifest import Bundle, open_members
from physai.sdk.evidence.origin import is_unit_of
from physai.sdk.evidence.requirements import Requirement, Requirements, RequirementsError
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome, utc_text
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.signing.attestation import (
    AttestationError,
    Envelope,
    Role,
    Signature,
    bundle_statement,
    is_signed_by,
    parse_envelope,
    parse_verdict_statement,
    verdict_statement,
)
from physai.sdk.signing.trust_store import TrustError, TrustStore

__all__ = [
    "Rule",
    "SignedVerdict",
    "TrustError",
    "TrustStore",
    "VerificationError",
    "Verified",
    "parse_utc",
    "signed_verdict",
    "verify",
]

CLOCK_SKEW = timedelta(minutes=5)
"""How far a robot's clock may lag behind the validator's."""


class Rule(StrEnum):
    """The rule that a refused bundle violates; described at `verify`."""

    ARCHIVE = "archive"
    ENVELOPE = "envelope"
    STATEMENT = "statement"
    KEY = "key"
    REVOKED = "revoked"
    SIGNATURE = "signature"
    THRESHOLD = "threshold"
    CONTENTS = "contents"
    VERSION = "version"
    ROBOT = "robot"
    NO_VERDICT = "no-verdict"
    OUTCOME = "outcome"
    GATES = "gates"
    SETTINGS = "settings"
    EVIDENCE = "evidence"
    CLOCK = "clock"
    EXPIRED = "expired"


class VerificationError(PhysaiError):
    """A bundle is refused."""

    def __init__(self, rule: Rule, message: str) -> None:
        super().__init__(f"{rule.value}: {message}")
        self.rule = rule
        self.reason = message


@dataclass(frozen=True)
class SignedVerdict:
    """The content of a signed verdict."""

    verdict: Verdict
    robot: str
    """The robot it applies to: a model, or one unit of it."""
    policy: str
    """The member that was validated; the only one that may run."""
    expires: datetime

    @property
    def outcome(self) -> VerdictOutcome:
        """Always PASS in a result of `verify`."""
        return self.verdict.outcome


@dataclass(frozen=True)
class Verified:
    """A bundle that a robot may install."""

    bundle: Bundle
    verdict: SignedVerdict | None
    """None only if no verdict was required."""
    signers: dict[Role, tuple[str, ...]]
    """Ids of the keys that signed, by role."""
    verdict_problem: str | None = None
    """Why there is no valid verdict."""

    @property
    def policy(self) -> str:
        """The member to run: the validated one, or float32 without a verdict."""
        return POLICY_FILE if self.verdict is None else self.verdict.policy


def verify(
    data: bytes,
    trust: TrustStore,
    *,
    robot: str,
    now: datetime,
    floor: int,
    requirements: Requirements | None = None,
    machine: str | None = None,
    require_verdict: bool = True,
) -> Verified:
    """Verifies a bundle against everything this robot requires. Pure: no file access, no clock, no state.

    Checks in this order, each named as in `Rule`:

    1. archive: the bytes are a canonical bundle archive within the size limits; every checksum matches.
    2. For each member of signatures/: envelope: a canonical DSSE envelope with one signature, named after its key.
       statement: it names this manifest. key: the key is known and a publisher's. revoked: the key is not revoked.
       signature: it is valid.
    3. threshold: enough publishers signed.
    4. contents: the manifest is canonical and lists exactly these members with their sizes and hashes; contract,
       safety envelope and policies match.
    5. version: not below the floor; an equal version may be installed again.
    6. robot: the contract is for this robot's model.
    7. no-verdict: there is a verdict, and its envelope passes 2 and 3 for validators. statement: it names this
       manifest, and a policy and the contract of this bundle, by hash. outcome: it is PASS. robot: it is for this
       robot. gates: every required gate passed. settings: the gate settings are accepted. evidence: the origins of
       twin and latency are accepted. clock: the robot's clock is not before the verdict's creation. expired: the
       verdict has not expired.

    Args:
        data: contents of the bundle file; install these bytes, never a second read of the file.
        trust: the robot's trust store.
        robot: name of this robot: its model (`ur10e`) or one unit of it (`ur10e/cell-3`).
        now: current time, timezone-aware.
        floor: lowest version that may be installed.
        requirements: what this robot requires of a verdict; None means the defaults.
        machine: this robot's computer, `physai.sdk.evidence.origin.machine_text`; None skips the comparison.
        require_verdict: if False, a bundle that fails rule 7 is returned without a verdict and with the reason; only
            for an explicit override that is logged.

    Raises:
        VerificationError: a rule is violated.
    """
    try:
        members = read_archive(data)
    except BundleError as error:
        raise VerificationError(Rule.ARCHIVE, str(error)) from None
    # Signatures first: the manifest is not parsed before trusted publishers have signed it.
    publishers = _check_publishers(members, trust)
    try:
        bundle = open_members(members)
    except BundleError as error:
        raise VerificationError(Rule.CONTENTS, str(error)) from None
    manifest = bundle.manifest
    # Rollback protection, as for TUF metadata.
    if not manifest.version >= floor:
        reason = f"version {manifest.version} is older than {floor}, which this robot has committed to"
        raise VerificationError(Rule.VERSION, reason)
    if not is_unit_of(robot, manifest.robot):
        raise VerificationError(Rule.ROBOT, f"the bundle is for {manifest.robot}, this robot is {robot}")
    try:
        verdict, validators = _check_verdict(bundle, trust, robot)
        _check_requirements(verdict.verdict, requirements or Requirements(), robot, machine)
        _check_time(verdict, now)
    except VerificationError as error:
        if require_verdict:
            raise
        return Verified(bundle, None, {"publisher": publishers, "validator": ()}, str(error))
    return Verified(bundle, verdict, {"publisher": publishers, "validator": validators})


def _check_publishers(members: Members, trust: TrustStore) -> tuple[str, ...]:
    """Ids of the publisher keys that signed the manifest."""
    if MANIFEST_FILE not in members:
        raise VerificationError(Rule.ARCHIVE, f"it has no {MANIFEST_FILE}")
    expected = bundle_statement(members.sha256(MANIFEST_FILE))
    signers: list[str] = []
    # An unverifiable signature is refused like an invalid one: no byte of an accepted bundle is unauthenticated.
    for name in members:
        if name.startswith(SIGNATURE_FOLDER):
            envelope = _envelope(members, name)
            key_id = envelope.signatures[0].key_id
            if len(envelope.signatures) != 1 or name != signature_file(key_id):
                raise VerificationError(Rule.ENVELOPE, f"{name} is not named after its one key, {key_id[:16]}")
            if envelope.payload != expected:
                raise VerificationError(Rule.STATEMENT, f"{name} signs another manifest than this bundle's")
            signers += _check_signatures(envelope, trust, "publisher")
    _check_threshold("publisher", len(signers), trust, f"add a signature: {_SIGN} KEY")
    return tuple(signers)


_SIGN = "physai bundle sign BUNDLE --key"


def _envelope(members: Members, name: str) -> Envelope:
    try:
        return parse_envelope(members.view(name), source=name)
    except AttestationError as error:
        raise VerificationError(Rule.ENVELOPE, str(error)) from None


def _check_signatures(envelope: Envelope, trust: TrustStore, role: Role) -> list[str]:
    """Ids of the signing keys after checking each for role, revocation and a valid signature."""
    for signature in envelope.signatures:
        _check_signature(signature, envelope.payload, trust, role)
    return [signature.key_id for signature in envelope.signatures]


def _check_signature(signature: Signature, payload: bytes, trust: TrustStore, role: Role) -> None:
    short = signature.key_id[:16]
    revoked = trust.revocation(signature.key_id)
    if revoked is not None:
        raise VerificationError(Rule.REVOKED, f"key {short} was revoked on {revoked.since}: {revoked.reason}")
    key = trust.key(signature.key_id)
    if key is None or key.role != role:
        unknown = f"is not in the trust file; `physai keys trust` adds a {role}'s key"
        reason = unknown if key is None else f"is a {key.role}'s key; a {role}'s key is required here"
        raise VerificationError(Rule.KEY, f"key {short} {reason}")
    if not is_signed_by(bytes.fromhex(key.public), signature.value, payload):
        raise VerificationError(Rule.SIGNATURE, f"the signature of {role} {short} is invalid")


def _check_threshold(role: Role, count: int, trust: TrustStore, remedy: str) -> None:
    needed = trust.threshold(role)
    if not count >= needed:
        raise VerificationError(Rule.THRESHOLD, f"{count} of {needed} {role} signatures; {remedy}")


def _check_verdict(bundle: Bundle, trust: TrustStore, robot: str) -> tuple[SignedVerdict, tuple[str, ...]]:
    """The signed verdict on this bundle for this robot, and the ids of the validators' keys."""
    if VERDICT_FILE not in bundle.members:
        reason = "this bundle has no verdict; `physai sim validate`, then "
        raise VerificationError(Rule.NO_VERDICT, f"{reason}{_SIGN} validator.key --verdict VERDICT")
    envelope = _envelope(bundle.members, VERDICT_FILE)
    validators = _check_signatures(envelope, trust, "validator")
    _check_threshold("validator", len(validators), trust, f"add a signature: {_SIGN} KEY --role validator")
    # As with the manifest, the verdict is parsed only after its signatures are valid.
    try:
        signed = signed_verdict(bundle, envelope.payload)
    except AttestationError as error:
        raise VerificationError(Rule.STATEMENT, str(error)) from None
    if signed.outcome is not VerdictOutcome.PASS:
        raise VerificationError(Rule.OUTCOME, f"the verdict is {signed.outcome}; only PASS may be installed")
    if not is_unit_of(robot, signed.robot):
        raise VerificationError(Rule.ROBOT, f"the verdict is for {signed.robot}, this robot is {robot}")
    return signed, tuple(validators)


def _check_requirements(verdict: Verdict, requirements: Requirements, robot: str, machine: str | None) -> None:
    try:
        requirements.check(verdict, robot=robot, machine=machine)
    except RequirementsError as error:
        raise VerificationError(Rule((error.requirement or Requirement.GATES).value), str(error)) from None


def signed_verdict(bundle: Bundle, payload: bytes) -> SignedVerdict:
    """Parses a verdict statement and checks that it is about this bundle; does not check signatures.

    Raises:
        AttestationError: the statement is malformed, or about another bundle, policy or contract.
    """
    statement = parse_verdict_statement(payload, source=VERDICT_FILE)
    predicate = statement.predicate
    verdict, policy = predicate.verdict, predicate.policy
    if policy not in bundle.members:
        raise AttestationError(f"the verdict is on {policy}, which is not in this bundle")
    if statement != verdict_statement(predicate, bundle.digests):
        raise AttestationError("the verdict is on another bundle")
    sha256 = bundle.members.sha256(policy)
    if verdict.policy_sha256 != sha256:
        raise AttestationError(f"the verdict is on a policy of SHA-256 {verdict.policy_sha256}, {policy} has {sha256}")
    if verdict.contract_fingerprint != bundle.manifest.contract_fingerprint:
        raise AttestationError(
            f"the verdict is under the contract {verdict.contract_fingerprint}, the bundle's is "
            f"{bundle.manifest.contract_fingerprint}"
        )
    if verdict.preferences != bundle.preferences:
        # Software that does not know of preferences judges no policy against its reference.
        raise AttestationError(
            f"the verdict states {verdict.preferences!r:.200} of preferences, the policy {bundle.preferences!r:.200}; "
            "validate again with this version of physai"
        )
    if not is_unit_of(predicate.robot, bundle.manifest.robot):
        raise AttestationError(f"the verdict is for {predicate.robot}, which is not a {bundle.manifest.robot}")
    return SignedVerdict(verdict, predicate.robot, policy, parse_utc(predicate.expires))


def parse_utc(text: str) -> datetime:
    """Inverse of `utc_text`; raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _check_time(signed: SignedVerdict, now: datetime) -> None:
    if now.tzinfo is None:
        raise VerificationError(Rule.CLOCK, f"the time {now} has no time zone")
    created = parse_utc(signed.verdict.created)
    # A clock that is behind would make the expiry worthless.
    if not now >= created - CLOCK_SKEW:
        reason = f"the clock shows {utc_text(now)}, before the verdict was created ({signed.verdict.created}): set it"
        raise VerificationError(Rule.CLOCK, reason)
    if not now < signed.expires:
        reason = f"the verdict expired on {utc_text(signed.expires)}, it is now {utc_text(now)}: validate again"
        raise VerificationError(Rule.EXPIRED, reason)
