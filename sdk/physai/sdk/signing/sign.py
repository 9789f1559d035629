"""Signs bundles as a publisher and verdicts as a validator."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from physai.sdk.bundle.archive import SIGNATURE_FOLDER, VERDICT_FILE, BundleError, signature_file, write_archive
from physai.sdk.bundle.manifest import Bundle, attach
from physai.sdk.evidence.origin import is_unit_of
from physai.sdk.evidence.requirements import Requirements, RequirementsError
from physai.sdk.evidence.verdict import Verdict, VerdictOutcome, utc_text
from physai.sdk.signing.attestation import (
    AttestationError,
    Envelope,
    Signature,
    VerdictPredicate,
    bundle_statement,
    parse_envelope,
    verdict_statement,
)
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.verify import CLOCK_SKEW, SignedVerdict, signed_verdict

MAX_LIFETIME = timedelta(days=3650)
DEFAULT_LIFETIME = timedelta(days=90)
"""Default validity of a verdict; limited because robots wear and drift from the calibrated twin."""

VERSION_AHEAD = timedelta(days=1)
"""How far the packer's clock may be ahead of the validator's."""


def sign_bundle(bundle: Bundle, key: SigningKey, *, replace: bool = False) -> bytes:
    """Adds a publisher's signature and returns the new bundle file.

    Args:
        bundle: the bundle to sign.
        key: the publisher's key.
        replace: drop the signatures of other keys.

    Raises:
        BundleError: there would be too many signatures.
    """
    signature = {signature_file(key.key_id): key.envelope(bundle_statement(bundle.id)).encode()}
    if not replace:
        return attach(bundle, signature)
    kept = {name: bundle.members.view(name) for name in bundle.members if not name.startswith(SIGNATURE_FOLDER)}
    return write_archive({**kept, **signature})


def sign_verdict(
    bundle: Bundle,
    key: SigningKey,
    verdict: Verdict,
    *,
    robot: str | None = None,
    now: datetime,
    lifetime: timedelta = DEFAULT_LIFETIME,
    requirements: Requirements | None = None,
    replace: bool = False,
) -> bytes:
    """Signs a verdict as a validator and returns the new bundle file.

    Args:
        bundle: the bundle that was validated.
        key: the validator's key.
        verdict: the result. If the bundle already has an equivalent signed verdict, the signature is added to that.
        robot: the robot it applies to, a model or one unit of it (`ur10e/cell-3`); None means every unit of the model.
        now: current time, timezone-aware.
        lifetime: how long robots accept the verdict.
        requirements: what the robot requires of a verdict; None means the defaults.
        replace: drop the signatures of other keys.

    Raises:
        BundleError: the verdict is not on this bundle, not a PASS, or does not meet the requirements; the robot is of
            another model; the lifetime is out of range; or the bundle has a different signed verdict and `replace` is
            False.
        AttestationError: the bundle's existing verdict is malformed.
    """
    payload = _new_payload(bundle, verdict, robot, now, lifetime)
    _require(requirements or Requirements(), verdict, robot or bundle.manifest.robot)
    existing = _verdict_envelope(bundle)
    others = () if replace or existing is None else tuple(s for s in existing.signatures if s.key_id != key.key_id)
    if existing is not None and others:
        # Sign the existing payload: a new one with another expiry would invalidate the other signatures.
        signed = signed_verdict(bundle, existing.payload)
        _require_agreement(signed, verdict, robot, others)
        _require_time(signed, now, lifetime)
        return attach(bundle, {VERDICT_FILE: existing.with_signature(key.sign(existing.payload)).encode()})
    return attach(bundle, {VERDICT_FILE: key.envelope(payload).encode()})


def _require(requirements: Requirements, verdict: Verdict, robot: str) -> None:
    """Refuses to sign a verdict that the robot would reject."""
    try:
        requirements.check(verdict, robot=robot)
    except RequirementsError as error:
        raise BundleError(f"not signed: {error}") from None


_AGREED = ("policy_sha256", "contract_fingerprint", "twin_hash", "gates_sha256", "evidence", "preferences", "outcome")
"""Fields in which the verdicts of two validators must agree."""


def _require_agreement(
    existing: SignedVerdict, verdict: Verdict, robot: str | None, signatures: tuple[Signature, ...]
) -> None:
    """Refuses to co-sign a verdict that differs from the validator's own."""
    differs = [name for name in _AGREED if getattr(existing.verdict, name) != getattr(verdict, name)]
    if _exam(existing.verdict) != _exam(verdict):
        differs.append("exam")
    if _decisions(existing.verdict) != _decisions(verdict):
        differs.append("gates")
    if robot is not None and robot != existing.robot:
        differs.append("robot")
    if differs:
        others = ", ".join(one.key_id[:16] for one in signatures)
        raise BundleError(
            f"the bundle's verdict is signed by {others} and differs from this one in {', '.join(differs)}; to replace "
            "it and drop their signatures: `replace`"
        )


def _exam(verdict: Verdict) -> str | None:
    # Not how many were opened: each validator counts their own.
    return None if verdict.exam is None else verdict.exam.id


def _decisions(verdict: Verdict) -> list[tuple[str, VerdictOutcome, str]]:
    # Without the measured numbers, which differ in the last digits between computers.
    return [(gate.gate, gate.outcome, gate.threshold) for gate in verdict.gates]


def _require_time(existing: SignedVerdict, now: datetime, lifetime: timedelta) -> None:
    """Refuses to co-sign an expiry later than the validator's own: the signature stays valid without the others."""
    _require_past(existing.verdict, now)
    if not existing.expires <= now + lifetime + CLOCK_SKEW:
        raise BundleError(
            f"the existing signed verdict expires on {utc_text(existing.expires)}, later than your {lifetime.days} "
            "days: sign for as long (`days`), or replace it and drop the other signatures: `replace`"
        )


def _require_past(verdict: Verdict, now: datetime) -> None:
    if not verdict.created <= utc_text(now + CLOCK_SKEW):
        raise BundleError(f"the verdict was created on {verdict.created}, but it is {utc_text(now)}: check the clock")


def _new_payload(bundle: Bundle, verdict: Verdict, robot: str | None, now: datetime, lifetime: timedelta) -> bytes:
    if verdict.outcome is not VerdictOutcome.PASS:
        raise BundleError(f"the verdict is {verdict.outcome}; only a PASS lets a robot run a policy")
    _require_past(verdict, now)
    if not timedelta(0) < lifetime <= MAX_LIFETIME:
        raise BundleError(f"a verdict is valid for 1 to {MAX_LIFETIME.days} days, got {lifetime}")
    _require_later_versions(bundle.manifest.version, now)
    model = bundle.manifest.robot
    robot = model if robot is None else robot
    if not is_unit_of(robot, model):
        raise BundleError(f"the bundle is for {model}: the robot must be {model} or {model}/UNIT, got {robot!r}")
    facts = {"expires": utc_text(now + lifetime), "policy": judged_policy(bundle, verdict), "robot": robot}
    try:
        predicate = VerdictPredicate.model_validate({**facts, "verdict": verdict})
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise BundleError(f"{details['loc'][0]} {details['input']!r}: {details['msg']}") from None
    return verdict_statement(predicate, bundle.digests).encode()


def _require_later_versions(version: int, now: datetime) -> None:
    # Versions default to seconds since 1970. A version far in the future would lock robots out of all later ones.
    latest = int((now + VERSION_AHEAD).timestamp())
    if not version <= latest:
        raise BundleError(
            f"the bundle is version {version}; a version must not exceed the current time, {int(now.timestamp())}: a "
            "robot that commits to it would reject every lower version from then on; pack it with another `version`"
        )


def judged_policy(bundle: Bundle, verdict: Verdict) -> str:
    """Name of the policy in the bundle that a verdict is on.

    Raises:
        BundleError: the verdict is on another policy or contract.
    """
    if verdict.contract_fingerprint != bundle.manifest.contract_fingerprint:
        raise BundleError(
            f"the verdict is under the contract {verdict.contract_fingerprint[:12]}, the bundle's is "
            f"{bundle.manifest.contract_fingerprint[:12]}; validate the packed policy"
        )
    hashes = {name: bundle.members.sha256(name) for name in bundle.policies}
    for name, sha256 in hashes.items():
        if sha256 == verdict.policy_sha256:
            return name
    packed = ", ".join(f"{name} {sha256[:12]}" for name, sha256 in hashes.items())
    raise BundleError(
        f"the verdict is on a policy of SHA-256 {verdict.policy_sha256[:12]}, the bundle holds {packed}; validate one "
        "of these, or pack the one that was validated"
    )


def _verdict_envelope(bundle: Bundle) -> Envelope | None:
    if VERDICT_FILE not in bundle.members:
        return None
    return parse_envelope(bundle.members.view(VERDICT_FILE), source=VERDICT_FILE)


@dataclass(frozen=True)
class Claims:
    """Unverified signers and verdict of a bundle; `physai.sdk.signing.verify.verify` verifies them."""

    publishers: tuple[str, ...]
    """Ids of the keys that claim to have signed the bundle."""
    validators: tuple[str, ...]
    """Ids of the keys that claim to have signed the verdict."""
    verdict: SignedVerdict | None
    problem: str = ""
    """Why the bundle's verdict cannot be read; empty if it can, or if there is none."""


def read_claims(bundle: Bundle) -> Claims:
    """Reads signers and verdict without verifying any signature."""
    names = (name for name in bundle.members if name.startswith(SIGNATURE_FOLDER))
    publishers = tuple(name.removeprefix(f"{SIGNATURE_FOLDER}publisher-").removesuffix(".json") for name in names)
    try:
        envelope = _verdict_envelope(bundle)
        if envelope is None:
            return Claims(publishers, (), None)
        validators = tuple(signature.key_id for signature in envelope.signatures)
        return Claims(publishers, validators, signed_verdict(bundle, envelope.payload))
    except AttestationError as error:
        return Claims(publishers, (), None, str(error))
