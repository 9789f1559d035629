"""Shadow evidence: how a policy answered on a robot that another policy drove.

The robot's own key signs it, so that a robot's owner can demand it before a trial. It counts for the bundle and the
robot that it names, and for no others.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Finite, Frozen, Name, NonNegative
from physai.sdk.evidence.origin import Origin, is_unit_of
from physai.sdk.evidence.signature_record import EvidenceSignature
from physai.sdk.evidence.verdict import Sha256, Utc

FORMAT_VERSION = 1
MAX_SHADOW_BYTES = 1 << 20
MAX_MOMENTS = 8

Ticks = Annotated[int, Field(ge=0, le=2**53 - 1)]
_Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
_Vector = Annotated[tuple[Finite | None, ...], Field(max_length=4096)]


class ShadowEvidenceError(PhysaiError):
    """A file of shadow evidence is malformed."""


class JointDivergence(Frozen):
    """Difference between the shadow's command of a joint and the one that was sent, in the command's unit."""

    output: Name
    joint: Name
    mean: Finite
    """Of shadow less sent."""
    rms: NonNegative
    p99: NonNegative
    """Magnitude that 99 % of the ticks do not exceed."""
    greatest: NonNegative


class DivergenceMoment(Frozen):
    """A tick in which the shadow differed most."""

    tick: Ticks
    stamp_s: Annotated[float, Field(ge=0.0, le=1e11, allow_inf_nan=False)]
    """Of the sample, CLOCK_REALTIME [s]."""
    output: Name
    joint: Name
    shadow: Finite
    sent: Finite
    fields: Annotated[dict[Name, _Vector], Field(max_length=64)]
    """Sample and operator's commands of the tick, fields of up to 64 elements; None for what was not measured."""


class BeyondJudged(Frozen):
    """An input that went beyond the range of the policy's golden states."""

    field: Name
    element: Annotated[int, Field(ge=0, lt=4096)]
    ticks: Ticks
    lower: Finite
    """Least value in the shadow's ticks, in the field's unit."""
    upper: Finite
    judged_lower: Finite
    judged_upper: Finite


class ComputeTimes(Frozen):
    """Time from sample to decision [s]."""

    p50: NonNegative
    p99: NonNegative
    greatest: NonNegative


class ShadowEvidence(Frozen):
    """One run of a shadow."""

    format_version: Literal[1] = FORMAT_VERSION
    run: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Drawn when the shadow started."""
    robot: Annotated[str, Field(min_length=1, max_length=128)]
    """Unit that ran it."""
    origin: Origin
    bundle_sha256: Sha256
    policy_sha256: Sha256
    contract_fingerprint: Sha256
    active_bundle_sha256: Sha256
    """Of the policy that drove when this was written."""
    began: Utc
    ended: Utc
    ticks: Ticks
    """Ticks in which both policies answered."""
    starts: Ticks
    """Times that the policy which drives took over within these ticks."""
    unanswered: Ticks
    """Ticks in which only the policy that drives answered."""
    late: Ticks
    """Ticks that took the shadow longer than its contract's deadline."""
    command_share: _Share
    """Share of the contract's range of commands in which there were ticks; 1 without commands."""
    interventions: Annotated[dict[str, Ticks], Field(max_length=64)]
    """Ticks in which the guard would have changed or replaced the shadow's commands, by cause."""
    stops: Ticks
    """Times that the guard would have taken the robot from the shadow."""
    compute_s: ComputeTimes
    divergence: Annotated[tuple[JointDivergence, ...], Field(max_length=512)]
    moments: Annotated[tuple[DivergenceMoment, ...], Field(max_length=MAX_MOMENTS)]
    """Greatest difference of each of the joints that differ most."""
    beyond: Annotated[tuple[BeyondJudged, ...], Field(max_length=512)]
    signature: EvidenceSignature | None = Field(default=None, exclude_if=lambda signature: signature is None)
    """Of the robot's key; left out of the document if it has none."""

    def require_subject(self, policy_sha256: str, contract_fingerprint: str, model: str) -> None:
        """Require that this run is of a policy, under its contract, on a robot of its model.

        Raises:
            ShadowEvidenceError: it is of another one.
        """
        remedy = "give evidence of the policy that is validated"
        if self.policy_sha256 != policy_sha256:
            raise ShadowEvidenceError(
                f"the shadow run {self.run} is of the policy with SHA-256 {self.policy_sha256}, validated is "
                f"{policy_sha256}; {remedy}"
            )
        if self.contract_fingerprint != contract_fingerprint:
            raise ShadowEvidenceError(
                f"the shadow run {self.run} was under the contract {self.contract_fingerprint}, the policy has "
                f"{contract_fingerprint}; {remedy}"
            )
        if not is_unit_of(self.robot, model):
            raise ShadowEvidenceError(
                f"the shadow run {self.run} is of the robot {self.robot}, the policy is for {model}; {remedy} on such "
                "a robot"
            )

    @property
    def counts(self) -> tuple[int, int, int]:
        """Counts that only rise while a run lasts."""
        return self.ticks, self.unanswered, self.stops

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON without the signature."""
        return sha256_hex(canonical_json(self.model_copy(update={"signature": None})))


class ShadowRequirement(Frozen):
    """Shadow evidence that a robot's owner demands before a trial."""

    ticks: Annotated[int, Field(ge=1, le=10**12)]
    """Ticks in which both policies answered, over all runs."""
    starts: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Times that the policy which drives took over, over all runs."""
    command_share: _Share = 0.0
    """Share of the range of commands that one run visited."""
    stops: Ticks = 0
    """Times that the guard may have taken the robot from the shadow, over all runs."""


_KIND = DocumentKind(
    name="shadow evidence",
    format_version=FORMAT_VERSION,
    max_bytes=MAX_SHADOW_BYTES,
    max_depth=6,
    error=ShadowEvidenceError,
)


def load_shadow_evidence(path: Path | str) -> ShadowEvidence:
    """Load a file of shadow evidence; its signature is not checked.

    Raises:
        ShadowEvidenceError: it cannot be read or is malformed.
    """
    path = Path(path)
    with oserror_as(ShadowEvidenceError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_SHADOW_BYTES)
    return parse_shadow_evidence(data, source=str(path))


def parse_shadow_evidence(data: bytes, *, source: str) -> ShadowEvidence:
    """Parse a document of shadow evidence; raises ShadowEvidenceError."""
    return _KIND.parse(ShadowEvidence, data, source=source)


def save_shadow_evidence(evidence: ShadowEvidence, path: Path) -> None:
    """Write a file of shadow evidence atomically.

    Raises:
        ShadowEvidenceError: it cannot be written.
    """
    with oserror_as(ShadowEvidenceError, f"{path}: cannot be written"):
        write_atomic(path, canonical_json(evidence))


def distinct_runs(runs: Iterable[ShadowEvidence]) -> tuple[ShadowEvidence, ...]:
    """Return each run once: of copies of one file the newest, whose counts are the greatest."""
    distinct: dict[str, ShadowEvidence] = {}
    for run in runs:
        known = distinct.get(run.run)
        if known is None or run.counts > known.counts:
            distinct[run.run] = run
    return tuple(distinct.values())


def check_shadow(demanded: ShadowRequirement, runs: Iterable[ShadowEvidence]) -> None:
    """Check the evidence for one bundle on one robot.

    Args:
        demanded: by the robot's settings.
        runs: evidence whose signatures were checked; a run that is given twice counts once.

    Raises:
        ShadowEvidenceError: there is too little; names everything that is missing.
    """
    given = distinct_runs(runs)
    ticks, starts = sum(run.ticks for run in given), sum(run.starts for run in given)
    share = max((run.command_share for run in given), default=0.0)
    stops = sum(run.stops for run in given)
    lacking = [f"{ticks} of {demanded.ticks} ticks"] * (ticks < demanded.ticks)
    lacking += [f"{starts} of {demanded.starts} starts"] * (starts < demanded.starts)
    lacking += [f"{share:.0%} of the commands, {demanded.command_share:.0%} needed"] * (share < demanded.command_share)
    lacking += [f"{stops} stops by the guard, at most {demanded.stops} allowed"] * (stops > demanded.stops)
    if lacking:
        raise ShadowEvidenceError(
            f"this robot asks for shadow evidence before a trial, there is {'; '.join(lacking)}: let the bundle "
            "compute while the present policy drives, with `physai robot shadow BUNDLE`"
        )
