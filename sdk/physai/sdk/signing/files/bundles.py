"""Bundle files: packed, signed and verified in one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError, unknown_name
from physai.sdk.base.parameters.option import Option
from physai.sdk.signing.files.rederivation import VerdictTerms
from physai.sdk.signing.files.user_keys import default_trust

if TYPE_CHECKING:
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.evidence.requirements import Requirements
    from physai.sdk.signing.ed25519 import SigningKey
    from physai.sdk.signing.verify import Verified


@dataclass(frozen=True)
class BundleFile:
    """A bundle and the file that holds it."""

    path: Path
    bundle: Bundle


def pack_bundle(
    policy: Annotated[Path | str, Option(metavar="POLICY")],
    *,
    out: Annotated[Path | str | None, Option(flags=("-o",))] = None,
    variants: Annotated[str | Sequence[str] | None, Option(metavar="LIST")] = None,
    version: int | None = None,
    created: Annotated[datetime | str | None, Option(metavar="TIME")] = None,
    note: Annotated[str | None, Option(metavar="TEXT")] = None,
    publisher: SigningKey | None = None,
    report: Annotated[Path | str | None, Option(flags=("--verdict",), metavar="DIR")] = None,
    validator: SigningKey | None = None,
    terms: Annotated[VerdictTerms | None, Option(flatten=True)] = None,
) -> BundleFile:
    """Pack an exported policy into a bundle file, signed if keys are given.

    All parameters but the first are given by name.

    Args:
        policy: run folder, export folder, or policy.onnx.
        out: output file. None for TASK.physai in the current folder, such as cartpole-swingup.physai.
        variants: quantised variants to pack: int8,fp16,fp8 or none. None for all in the policy's folder.
        version: must increase with every release. None for seconds since 1970.
        created: time of creation, 2026-11-21T12:00:00Z. None for SOURCE_DATE_EPOCH, or now.
        note: text for the provenance.
        publisher: publisher's key, which signs the bundle; None to leave it unsigned.
        report: report folder of `physai sim validate`; the verdict is recomputed from its record before it is signed.
        validator: validator's key, which signs the verdict of `report`.
        terms: terms of the signed verdict; None for the defaults.

    Returns:
        The bundle and its file.

    Raises:
        BundleError: no exported policy is found, its files do not fit together, or the verdict is not on this policy.
        PhysaiError: the file cannot be written, or the verdict cannot be recomputed.
    """
    from physai.sdk.bundle.archive import BundleError
    from physai.sdk.bundle.manifest import ManifestFacts, pack, read_bundle
    from physai.sdk.bundle.source import find_export, read_members
    from physai.sdk.evidence.verdict import load_verdict
    from physai.sdk.signing.sign import sign_bundle

    if report is not None and validator is None:
        raise BundleError(f"{report}: a verdict is packed with the signature of a validator: give a validator's key")
    moment = _created(created)
    facts = ManifestFacts(
        version=int(moment.timestamp()) if version is None else version,
        created=moment,
        provenance={} if note is None else {"note": note},
    )
    members = read_members(find_export(Path(policy)), _variants(variants))
    data = pack(members, facts, verdict=None if report is None else load_verdict(report))
    if publisher is not None:
        data = sign_bundle(read_bundle(data), publisher)
    if report is not None and validator is not None:
        data = _with_verdict(read_bundle(data), report, validator, terms or VerdictTerms(), replace=False)
    bundle = read_bundle(data)
    return _written(data, out or f"{bundle.manifest.task.replace('/', '-')}.physai")


def sign_as_publisher(
    bundle: Path | str, key: SigningKey, *, out: Path | str | None = None, replace: bool = False
) -> BundleFile:
    """Sign a bundle file as a publisher.

    Args:
        bundle: bundle file.
        key: publisher's key.
        out: output file; None to sign in place.
        replace: drop the signatures of other publishers.

    Raises:
        BundleError: the file is no bundle, or would have too many signatures.
        PhysaiError: the file cannot be written.
    """
    from physai.sdk.bundle.manifest import read_bundle
    from physai.sdk.signing.sign import sign_bundle

    return _written(sign_bundle(read_bundle(Path(bundle)), key, replace=replace), out or bundle)


def sign_as_validator(
    bundle: Path | str,
    key: SigningKey,
    report: Path | str,
    *,
    terms: VerdictTerms | None = None,
    out: Path | str | None = None,
    replace: bool = False,
) -> BundleFile:
    """Recompute the verdict of a report and sign it as a validator, in a bundle file.

    Args:
        bundle: bundle file.
        key: validator's key.
        report: report folder of `physai sim validate`.
        terms: how the verdict is recomputed, and for which robot and how long it is signed; None for the defaults.
        out: output file; None to sign in place.
        replace: drop the signatures of other validators.

    Raises:
        BundleError: the verdict is not on this bundle, not a PASS, or does not meet the requirements; or the bundle has
            a different signed verdict and `replace` is False.
        PhysaiError: the verdict cannot be recomputed, or the file cannot be written.
    """
    from physai.sdk.bundle.manifest import read_bundle

    data = _with_verdict(read_bundle(Path(bundle)), report, key, terms or VerdictTerms(), replace=replace)
    return _written(data, out or bundle)


def verify_bundle(
    bundle: Annotated[Path | str, Option(metavar="BUNDLE")],
    *,
    trust: Path | str | None = None,
    robot: Annotated[str | None, Option(metavar="NAME")] = None,
    floor: int = 0,
    at: Annotated[datetime | str | None, Option(metavar="TIME")] = None,
    machine: Annotated[str | None, Option(metavar="TEXT")] = None,
    requirements: Requirements | None = None,
    require_verdict: Annotated[bool, Option(flags=("--no-verdict",), help="do not require a verdict")] = True,
) -> Verified:
    """Verify a bundle file as a robot does before it installs it; `physai.sdk.verify` is the same without files.

    Args:
        bundle: bundle file.
        trust: the robot's trust file. None for ~/.config/physai/keys/trust.json.
        robot: the robot's name. None for the bundle's robot model.
        floor: lowest accepted version.
        at: time on the robot, 2026-11-21T12:00:00Z. None for now.
        machine: the robot's computer, as `physai robot doctor` shows it.
        requirements: the robot's requirements on verdicts; None for the defaults.
        require_verdict: refuse a bundle without a valid verdict.

    Raises:
        VerificationError: a rule is violated; the robot would refuse the bundle.
        BundleError: the file cannot be read.
        TrustError: the trust file cannot be read, or is not signed by its owners.
    """
    from physai.sdk.bundle.archive import read_file
    from physai.sdk.signing.trust_file import SignedTrust
    from physai.sdk.signing.verify import verify

    data = read_file(Path(bundle))
    return verify(
        data,
        SignedTrust.load(trust or default_trust()).check(),
        robot=robot or robot_model(data),
        now=datetime.now(UTC) if at is None else utc_time("`at`", at),
        floor=floor,
        requirements=requirements,
        machine=machine,
        require_verdict=require_verdict,
    )


def robot_model(bundle: bytes) -> str:
    """Robot model of a bundle; "any robot" for a damaged bundle, which no robot accepts."""
    from physai.sdk.bundle.archive import BundleError
    from physai.sdk.bundle.manifest import read_bundle

    try:
        return read_bundle(bundle).manifest.robot
    except BundleError:
        return "any robot"


def utc_time(option: str, given: datetime | str) -> datetime:
    """A time given as such or as text.

    Raises:
        PhysaiError: the text is not UTC as 2026-11-21T12:00:00Z.
    """
    from physai.sdk.signing.verify import parse_utc

    if isinstance(given, datetime):
        return given
    try:
        return parse_utc(given)
    except ValueError:
        raise PhysaiError(f"{option} {given!r}: expected UTC as 2026-11-21T12:00:00Z") from None


def write_file(path: Path | str, data: bytes) -> None:
    """Write a file atomically, world-readable.

    Raises:
        PhysaiError: the file cannot be written.
    """
    from physai.sdk.base.files import write_atomic

    try:
        write_atomic(Path(path), data)
        Path(path).chmod(0o644)
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {error.strerror}") from None


def _written(data: bytes, path: Path | str) -> BundleFile:
    from physai.sdk.bundle.manifest import read_bundle

    bundle = read_bundle(data)
    write_file(path, data)
    return BundleFile(Path(path), bundle)


def _created(given: datetime | str | None) -> datetime:
    """Creation time of a bundle: the one given, else SOURCE_DATE_EPOCH, else now."""
    # https://reproducible-builds.org/specs/source-date-epoch/
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        return utc_time("`created`", given)
    if epoch is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        raise PhysaiError(f"SOURCE_DATE_EPOCH is {epoch!r}, expected seconds since 1970") from None


def _variants(given: str | Sequence[str] | None) -> list[str] | None:
    from physai.sdk.bundle.source import VARIANTS

    if given is None:
        return None
    names = ([] if given == "none" else given.split(",")) if isinstance(given, str) else list(given)
    for name in names:
        if name not in VARIANTS:
            raise unknown_name("variant", name, [*VARIANTS, "none"])
    return names


def _with_verdict(bundle: Bundle, report: Path | str, key: SigningKey, terms: VerdictTerms, *, replace: bool) -> bytes:
    from physai.sdk.signing.files.rederivation import rederived
    from physai.sdk.signing.sign import sign_verdict

    return sign_verdict(
        bundle,
        key,
        rederived(bundle, report, terms, key),
        robot=terms.robot,
        now=datetime.now(UTC),
        # Clamped to what timedelta can hold; sign_verdict checks the range.
        lifetime=timedelta(days=min(max(terms.days, 0), 10**6)),
        requirements=terms.requirements,
        replace=replace,
    )
