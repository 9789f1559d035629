"""Latency evidence: tick durations measured on the target by the runtime, evaluated by the latency gate."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen, Label
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.signature_record import EvidenceSignature
from physai.sdk.evidence.verdict import Sha256

MAX_EVIDENCE_BYTES = 64 << 20
MAX_TICKS = 2_000_000
FORMAT_VERSION = 2


class EvidenceError(PhysaiError):
    """A latency evidence file is malformed or belongs to another policy."""


class LatencyEvidence(Frozen):
    """Ticks measured on the target, in chronological order.

    A tick lasts from the arrival of a sensor sample to the departure of the command, including inference and guard.
    """

    format_version: Literal[2] = FORMAT_VERSION
    policy_sha256: Sha256
    """SHA-256 of the ONNX file that ran, or that the engine was built from."""
    contract_fingerprint: Sha256
    origin: Origin = Origin()
    """Where it was measured: on a robot, or on another computer."""
    device: Annotated[str, Field(min_length=1, max_length=200)]
    """`Jetson AGX Thor, JetPack 7.2`"""
    runtime: Annotated[str, Field(min_length=1, max_length=200)]
    """`TensorRT 10.16.0, int8`"""
    measured_at: Label = ""
    tick_s: Annotated[tuple[Annotated[float, Field(gt=0.0, le=100.0, allow_inf_nan=False)], ...], Field(min_length=1)]
    """Duration of each tick [s]."""
    signature: EvidenceSignature | None = Field(default=None, exclude_if=lambda signature: signature is None)
    """Of the validator who measured them; left out of the document if nobody signed."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON without the signature."""
        return sha256_hex(canonical_json(self.model_copy(update={"signature": None})))

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if not len(self.tick_s) <= MAX_TICKS:
            raise ValueError(f"tick_s holds {len(self.tick_s)} ticks, at most {MAX_TICKS} are read")
        return self


_KIND = DocumentKind(
    name="latency evidence",
    format_version=FORMAT_VERSION,
    max_bytes=MAX_EVIDENCE_BYTES,
    max_depth=4,
    error=EvidenceError,
)


def load_evidence(path: Path) -> LatencyEvidence:
    """Load a latency evidence file.

    Raises:
        EvidenceError: it cannot be read or is malformed.
    """
    with oserror_as(EvidenceError, f"{path}: cannot be read"):
        data = read_plain(path, limit=MAX_EVIDENCE_BYTES)
    return _KIND.parse(LatencyEvidence, data, source=str(path))


def save_evidence(evidence: LatencyEvidence, path: Path) -> None:
    """Write a latency evidence file atomically.

    Raises:
        EvidenceError: it cannot be written.
    """
    with oserror_as(EvidenceError, f"{path}: cannot be written"):
        write_atomic(path, canonical_json(evidence))
