"""Whether a robot may install a bundle: bytes in, a verified bundle or the rule it breaks out."""

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
"""How far a robot's clock may lag behind the clock of whoever validated."""


class Rule(StrEnum):
    """What a refused bundle breaks; `verify` says what each asks."""

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
        """The rule it breaks."""
        self.reason = message


@dataclass(frozen=True)
class SignedVerdict:
    """A verdict that validators signed."""

    verdict: Verdict
    robot: str
    """Robot it is for: a model, or one unit of it."""
    policy: str
    """Member that was judged, and so the one that may run."""
    expires: datetime

    @property
    def outcome(self) -> VerdictOutcome:
        """PASS in everything that `verify` returns."""
        return self.verdict.outcome


@dataclass(frozen=True)
class Verified:
    """A bundle that a robot may install."""

    bundle: Bundle
    verdict: SignedVerdict | None
    """None only where none was required."""
    signers: dict[Role, tuple[str, ...]]
    """Ids of the keys that signed, by role."""
    verdict_problem: str | None = None
    """Why there is no verdict."""

    @property
    def policy(self) -> str:
        """Member to run: the one that was judged, else the float32 one."""
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
    """The bundle in these bytes, if this robot may install it. Pure: no file, no clock, no state.

    In this order, each rule by its name in `Rule`:

    1. archive: the bytes are the one form a bundle's zip file has, within its bounds; every checksum holds.
    2. For each of signatures/: envelope: it is a DSSE envelope in its one form with one signature, named after its key.
       statement: it names this very manifest. key: the key is known, and a publisher's. revoked: it is not revoked.
       signature: it holds. A signature that nobody can check is refused like a wrong one: every byte of an accepted
       bundle is vouched for.
    3. threshold: as many publishers signed as the trust file asks for.
    4. contents: only now is the manifest parsed. It is canonical, lists exactly these members with their sizes and
       hashes; contract, safety envelope and policies are of one contract.
    5. version: not below the floor. An equal one may be installed again.
    6. robot: the contract is for this robot's model.
    7. no-verdict: there is one. Its envelope is checked as in 2 and 3, with validators. Only then it is parsed:
       statement: it names this manifest, and a policy and contract of this bundle, by the hashes of the bytes that
       are here. outcome: it is PASS. robot: it is for this robot. gates: every gate that the robot requires passed.
       settings: under gate settings that it accepts. evidence: twin and latency come from where it accepts. clock: the
       clock does not show a time before the verdict was made, which would make its expiry worthless. expired: it has
       not expired.

    Args:
        data: the bundle's file; what is installed must come from these bytes, not from the file read once more.
        trust: whom to believe.
        robot: name of this robot: its model (`ur10e`) or one unit of it (`ur10e/cell-3`).
        now: the time, with a time zone.
        floor: lowest version that may be installed.
        requirements: what this robot asks of a verdict; the defaults where nothing is given.
        machine: this robot's computer, `physai.sdk.evidence.origin.machine_text`; None compares it with nothing.
        require_verdict: whether rule 7 decides. If not, a bundle that breaks it comes back without a verdict, with
            the reason; meant for nothing but an explicit override that is logged.

    Raises:
        VerificationError: a rule is broken.
    """
    try:
        members = read_archive(data)
    except BundleError as error:
        raise VerificationError(Rule.ARCHIVE, str(error)) from None
    publishers = _check_publishers(members, trust)
    try:
        bundle = open_members(members)
    except BundleError as error:
        raise VerificationError(Rule.CONTENTS, str(error)) from None
    manifest = bundle.manifest
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
    """Ids of the publishers' keys, each of which vouches for the manifest."""
    if MANIFEST_FILE not in members:
        raise VerificationError(Rule.ARCHIVE, f"it has no {MANIFEST_FILE}")
    expected = bundle_statement(members.sha256(MANIFEST_FILE))
    signers: list[str] = []
    for name in members:
        if name.startswith(SIGNATURE_FOLDER):
            envelope = _envelope(members, name)
            key_id = envelope.signatures[0].key_id
            if len(envelope.signatures) != 1 or name != signature_file(key_id):
                raise VerificationError(Rule.ENVELOPE, f"{name} is not named after its one key, {key_id[:16]}")
            if envelope.payload != expected:
                raise VerificationError(Rule.STATEMENT, f"{name} signs another manifest than this bundle's")
            signers += _check_signatures(envelope, trust, "publisher")
    _check_threshold("publisher", len(signers), trust, f"sign it, too: {_SIGN} KEY")
    return tuple(signers)


_SIGN = "physai bundle sign BUNDLE --key"


def _envelope(members: Members, name: str) -> Envelope:
    try:
        return parse_envelope(members.view(name), source=name)
    except AttestationError as error:
        raise VerificationError(Rule.ENVELOPE, str(error)) from None


def _check_signatures(envelope: Envelope, trust: TrustStore, role: Role) -> list[str]:
    """Ids of the keys, every one of which is known in the role, not revoked, and did sign."""
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
        what = unknown if key is None else f"is a {key.role}'s key, here a {role} signs"
        raise VerificationError(Rule.KEY, f"key {short} {what}")
    if not is_signed_by(bytes.fromhex(key.public), signature.value, payload):
        raise VerificationError(Rule.SIGNATURE, f"the signature of {role} {short} does not hold")


def _check_threshold(role: Role, count: int, trust: TrustStore, remedy: str) -> None:
    needed = trust.threshold(role)
    if not count >= needed:
        raise VerificationError(Rule.THRESHOLD, f"{count} of {needed} {role} signatures; {remedy}")


def _check_verdict(bundle: Bundle, trust: TrustStore, robot: str) -> tuple[SignedVerdict, tuple[str, ...]]:
    """The verdict that validators signed of this bundle for this robot, and the ids of their keys."""
    if VERDICT_FILE not in bundle.members:
        reason = "nobody has validated this bundle; `physai sim validate`, then "
        raise VerificationError(Rule.NO_VERDICT, f"{reason}{_SIGN} validator.key --verdict VERDICT")
    envelope = _envelope(bundle.members, VERDICT_FILE)
    validators = _check_signatures(envelope, trust, "validator")
    _check_threshold("validator", len(validators), trust, f"sign it, too: {_SIGN} KEY --role validator")
    try:
        signed = signed_verdict(bundle, envelope.payload)
    except AttestationError as error:
        raise VerificationError(Rule.STATEMENT, str(error)) from None
    if signed.outcome is not VerdictOutcome.PASS:
        raise VerificationError(Rule.OUTCOME, f"the verdict is {signed.outcome}, and only PASS may be installed")
    if not is_unit_of(robot, signed.robot):
        raise VerificationError(Rule.ROBOT, f"the verdict is for {signed.robot}, this robot is {robot}")
    return signed, tuple(validators)


def _check_requirements(verdict: Verdict, requirements: Requirements, robot: str, machine: str | None) -> None:
    try:
        requirements.check(verdict, robot=robot, machine=machine)
    except RequirementsError as error:
        raise VerificationError(Rule((error.requirement or Requirement.GATES).value), str(error)) from None


def signed_verdict(bundle: Bundle, payload: bytes) -> SignedVerdict:
    """What a statement says of this bundle, whoever signed it.

    Raises:
        AttestationError: it is malformed, or about another bundle, policy or contract.
    """
    statement = parse_verdict_statement(payload, source=VERDICT_FILE)
    said = statement.predicate
    if said.policy not in bundle.members:
        raise AttestationError(f"the verdict is on {said.policy}, which this bundle does not hold")
    if statement != verdict_statement(said, bundle.digests):
        raise AttestationError("the verdict is on another bundle")
    sha256 = bundle.members.sha256(said.policy)
    if said.verdict.policy_sha256 != sha256:
        raise AttestationError(
            f"the verdict is on a policy of SHA-256 {said.verdict.policy_sha256}, {said.policy} has {sha256}"
        )
    if said.verdict.contract_fingerprint != bundle.manifest.contract_fingerprint:
        raise AttestationError(
            f"the verdict is under the contract {said.verdict.contract_fingerprint}, the bundle's is "
            f"{bundle.manifest.contract_fingerprint}"
        )
    if not is_unit_of(said.robot, bundle.manifest.robot):
        raise AttestationError(f"the verdict is for {said.robot}, which is no {bundle.manifest.robot}")
    return SignedVerdict(said.verdict, said.robot, said.policy, parse_utc(said.expires))


def parse_utc(text: str) -> datetime:
    """The moment that `utc_text` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _check_time(signed: SignedVerdict, now: datetime) -> None:
    if now.tzinfo is None:
        raise VerificationError(Rule.CLOCK, f"the time {now} has no time zone")
    created = parse_utc(signed.verdict.created)
    if not now >= created - CLOCK_SKEW:
        reason = f"this clock shows {utc_text(now)}, before the verdict was made ({signed.verdict.created}): set it"
        raise VerificationError(Rule.CLOCK, reason)
    if not now < signed.expires:
        reason = f"the verdict expired on {utc_text(signed.expires)}, it is {utc_text(now)}: validate again"
        raise VerificationError(Rule.EXPIRED, reason)
