"""Signing: a publisher vouches for a bundle, a validator for the verdict on it."""

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
from physai.sdk.signing.keys import SigningKey
from physai.sdk.signing.verify import CLOCK_SKEW, SignedVerdict, signed_verdict

MAX_LIFETIME = timedelta(days=3650)
DEFAULT_LIFETIME = timedelta(days=90)
"""How long a verdict counts: robots wear, and a twin that was calibrated once does not follow."""

VERSION_AHEAD = timedelta(days=1)
"""How far the clock of whoever packed may be ahead of the validator's."""


def sign_bundle(bundle: Bundle, key: SigningKey, *, replace: bool = False) -> bytes:
    """The bundle's file with a publisher's signature.

    Args:
        bundle: what is signed.
        key: the publisher's.
        replace: leave the signatures of other keys out.

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
    """The bundle's file with a validator's signature over a verdict.

    Args:
        bundle: what was judged.
        key: the validator's.
        verdict: what came out. Where others have signed one that says the same, theirs is signed, too.
        robot: the robot it is for, a model or one unit of it (`ur10e/cell-3`); None means every robot of the model.
        now: the time, with a time zone.
        lifetime: for how long robots accept the verdict.
        requirements: what the robot asks of a verdict; the defaults where nothing is given.
        replace: leave the signatures of other keys out.

    Raises:
        BundleError: the verdict is not on this bundle, no PASS, or not what the robot asks for; the robot is of another
            model, the lifetime is out of range, or others have signed another verdict, which is not to be replaced.
        AttestationError: the bundle's own verdict is malformed.
    """
    payload = _new_payload(bundle, verdict, robot, now, lifetime)
    _require(requirements or Requirements(), verdict, robot or bundle.manifest.robot)
    held = _held(bundle)
    others = () if replace or held is None else tuple(one for one in held.signatures if one.key_id != key.key_id)
    if held is not None and others:
        # The same verdict with another expiry is another statement, and would lose what others have signed.
        signed = signed_verdict(bundle, held.payload)
        _require_agreement(signed, verdict, robot, others)
        _require_time(signed, now, lifetime)
        return attach(bundle, {VERDICT_FILE: held.with_signature(key.sign(held.payload)).encode()})
    return attach(bundle, {VERDICT_FILE: key.envelope(payload).encode()})


def _require(requirements: Requirements, verdict: Verdict, robot: str) -> None:
    """Refuses to sign what the robot would refuse."""
    try:
        requirements.check(verdict, robot=robot)
    except RequirementsError as error:
        raise BundleError(f"not signed: {error}") from None


_AGREED = ("policy_sha256", "contract_fingerprint", "twin_hash", "gates_sha256", "evidence", "outcome")
"""What two validators' verdicts must have in common."""


def _require_agreement(
    held: SignedVerdict, verdict: Verdict, robot: str | None, signatures: tuple[Signature, ...]
) -> None:
    """Refuses to sign what others have signed, unless one's own verdict says the same."""
    differs = [name for name in _AGREED if getattr(held.verdict, name) != getattr(verdict, name)]
    if _decisions(held.verdict) != _decisions(verdict):
        differs.append("gates")
    if robot is not None and robot != held.robot:
        differs.append("robot")
    if differs:
        others = ", ".join(one.key_id[:16] for one in signatures)
        raise BundleError(
            f"the bundle's verdict is signed by {others}, and differs from this one in {', '.join(differs)}; to put "
            "this one in its place and drop theirs: --replace"
        )


def _decisions(verdict: Verdict) -> list[tuple[str, VerdictOutcome, str]]:
    """What two runs on two computers must have in common; their numbers may differ in the last digits."""
    return [(gate.gate, gate.outcome, gate.threshold) for gate in verdict.gates]


def _require_time(held: SignedVerdict, now: datetime, lifetime: timedelta) -> None:
    """Refuses a time that others have chosen and one would not: signed once, it counts without their signatures."""
    _require_past(held.verdict, now)
    if not held.expires <= now + lifetime + CLOCK_SKEW:
        raise BundleError(
            f"the verdict that others have signed expires on {utc_text(held.expires)}, later than the {lifetime.days} "
            "days that you give it: sign for as long (--days), or put yours in its place and drop theirs: --replace"
        )


def _require_past(verdict: Verdict, now: datetime) -> None:
    if not verdict.created <= utc_text(now + CLOCK_SKEW):
        raise BundleError(f"the verdict was made on {verdict.created}, and it is {utc_text(now)}: is the clock right?")


def _new_payload(bundle: Bundle, verdict: Verdict, robot: str | None, now: datetime, lifetime: timedelta) -> bytes:
    if verdict.outcome is not VerdictOutcome.PASS:
        raise BundleError(f"the verdict is {verdict.outcome}; only a PASS lets a robot run a policy")
    _require_past(verdict, now)
    if not timedelta(0) < lifetime <= MAX_LIFETIME:
        raise BundleError(f"a verdict counts for 1 to {MAX_LIFETIME.days} days, got {lifetime}")
    _require_later_versions(bundle.manifest.version, now)
    model = bundle.manifest.robot
    robot = model if robot is None else robot
    if not is_unit_of(robot, model):
        raise BundleError(f"the bundle is for {model}, so the robot is {model} or {model}/UNIT, got {robot!r}")
    facts = {"expires": utc_text(now + lifetime), "policy": judged_policy(bundle, verdict), "robot": robot}
    try:
        predicate = VerdictPredicate.model_validate({**facts, "verdict": verdict})
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise BundleError(f"{details['loc'][0]} {details['input']!r}: {details['msg']}") from None
    return verdict_statement(predicate, bundle.digests).encode()


def _require_later_versions(version: int, now: datetime) -> None:
    """Refuses a version that leaves no room for later ones, which count in seconds: robots take no lower one again."""
    latest = int((now + VERSION_AHEAD).timestamp())
    if not version <= latest:
        raise BundleError(
            f"the bundle is version {version}, and versions are the time, now {int(now.timestamp())}, or smaller: a "
            "robot that commits to it would take no bundle of a lower version again; pack it with another --version"
        )


def judged_policy(bundle: Bundle, verdict: Verdict) -> str:
    """Name of the policy in the bundle that a verdict is on.

    Raises:
        BundleError: it is on none of them, or under another contract.
    """
    if verdict.contract_fingerprint != bundle.manifest.contract_fingerprint:
        raise BundleError(
            f"the verdict is under the contract {verdict.contract_fingerprint[:12]}, the bundle's is "
            f"{bundle.manifest.contract_fingerprint[:12]}; validate the policy that is packed"
        )
    hashes = {name: bundle.members.sha256(name) for name in bundle.policies}
    for name, sha256 in hashes.items():
        if sha256 == verdict.policy_sha256:
            return name
    held = ", ".join(f"{name} {sha256[:12]}" for name, sha256 in hashes.items())
    raise BundleError(
        f"the verdict is on a policy of SHA-256 {verdict.policy_sha256[:12]}, the bundle holds {held}; validate one of "
        "these, or pack the one that was validated"
    )


def _held(bundle: Bundle) -> Envelope | None:
    if VERDICT_FILE not in bundle.members:
        return None
    return parse_envelope(bundle.members.view(VERDICT_FILE), source=VERDICT_FILE)


@dataclass(frozen=True)
class Claims:
    """What a bundle says of itself; whether it is true is for `physai.sdk.signing.verify.verify` to say."""

    publishers: tuple[str, ...]
    """Ids of the keys that are said to have signed the bundle."""
    validators: tuple[str, ...]
    """Ids of the keys that are said to have signed the verdict."""
    verdict: SignedVerdict | None
    problem: str = ""
    """Why there is no verdict, where the bundle holds something in its place."""


def read_claims(bundle: Bundle) -> Claims:
    """Who is said to have signed, and what; nothing is checked but that it can be read."""
    names = (name for name in bundle.members if name.startswith(SIGNATURE_FOLDER))
    publishers = tuple(name.removeprefix(f"{SIGNATURE_FOLDER}publisher-").removesuffix(".json") for name in names)
    try:
        held = _held(bundle)
        if held is None:
            return Claims(publishers, (), None)
        validators = tuple(signature.key_id for signature in held.signatures)
        return Claims(publishers, validators, signed_verdict(bundle, held.payload))
    except AttestationError as error:
        return Claims(publishers, (), None, str(error))
