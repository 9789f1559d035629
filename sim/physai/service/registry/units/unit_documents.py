"""Signed documents about one robot: its state, a monitor's drift report, shadow evidence, a validator's word.

Nothing is read of a document before its signature is checked with the service's trust file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.shadow import MAX_SHADOW_BYTES, parse_shadow_evidence
from physai.sdk.signing.attestation import Envelope
from physai.sdk.signing.evidence import is_vouched
from physai.sdk.signing.status.drift_report import REPORT_PREDICATE, read_report
from physai.sdk.signing.status.robot_state import MAX_LABEL, STATE_PREDICATE, read_robot_state
from physai.sdk.signing.status.signed_statement import open_envelope, require_signers
from physai.sdk.signing.status.status_document import STATUS_PREDICATE, StatusError, read_status
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.trust_store import TrustStore
from physai.sdk.signing.verify import parse_utc

DocumentKind = Literal["state", "drift", "shadow", "word"]
MAX_DOCUMENT_BYTES = MAX_SHADOW_BYTES


class UnitDocumentError(PhysaiError):
    """A document about a robot is refused."""


@dataclass(frozen=True, kw_only=True)
class UnitDocument:
    """A document whose signature is valid."""

    kind: DocumentKind
    role: str
    """Role of the key that signed it."""
    signer: str
    """Id of that key."""
    issued: float
    """Time that the document states [s since 1970]."""
    rank: int
    """Orders the documents of a kind: the time, or the serial of a word."""
    digest: str
    """SHA-256 of what was signed: the same for a document that is encoded or signed another time."""
    facts: dict[str, Any]
    """What lists show."""


def load_trust(path: Path) -> TrustStore:
    """Load the service's trust file; raises TrustError if its owners did not sign it."""
    return SignedTrust.load(path).check()


def read_unit_document(data: bytes, trust: TrustStore, *, robot: str) -> UnitDocument:
    """Verify a document about a robot.

    Args:
        data: the signed document.
        trust: keys that may have signed it.
        robot: unit that it must be about, `ur10e/cell-3`.

    Raises:
        PhysaiError: it is malformed, not signed as required, or about another robot.
    """
    if not len(data) <= MAX_DOCUMENT_BYTES:
        raise UnitDocumentError(f"the document has {len(data)} bytes, at most {MAX_DOCUMENT_BYTES} are read")
    # Shadow evidence is a document with a signature in it, the others are envelopes.
    if not data.startswith(b'{"payload":'):
        return _shadow(data, trust, robot)
    envelope = open_envelope(data, what="document", limit=MAX_DOCUMENT_BYTES, error=UnitDocumentError)
    for predicate, read in _READERS.items():
        if f'"predicateType":"{predicate}"'.encode() in envelope.payload:
            return read(data, envelope, trust, robot)
    kinds = ", ".join(_READERS)
    raise UnitDocumentError(f"the document is of no kind that is filed here: send one of {kinds}, or shadow evidence")


def _state(data: bytes, envelope: Envelope, trust: TrustStore, robot: str) -> UnitDocument:
    state, key = read_robot_state(data, trust)
    _require_robot("state", state.robot, robot)
    return _document("state", state, (key.role, key.key_id), state.issued, sha256_hex(envelope.payload))


def _drift(data: bytes, envelope: Envelope, trust: TrustStore, robot: str) -> UnitDocument:
    report, keys = read_report(data, trust)
    _require_robot("report", report.robot, robot)
    return _document("drift", report, (keys[0].role, keys[0].key_id), report.issued, sha256_hex(envelope.payload))


def _word(data: bytes, envelope: Envelope, trust: TrustStore, robot: str) -> UnitDocument:
    word = read_status(data, trust, robot=robot)
    (first, *_) = require_signers(envelope, trust, "validator", what="status document", error=StatusError)
    signer = ("validator", first)
    return _document("word", word, signer, word.issued, sha256_hex(envelope.payload), rank=word.serial)


_READERS: dict[str, Callable[[bytes, Envelope, TrustStore, str], UnitDocument]] = {
    STATE_PREDICATE: _state,
    REPORT_PREDICATE: _drift,
    STATUS_PREDICATE: _word,
}


def _shadow(data: bytes, trust: TrustStore, robot: str) -> UnitDocument:
    evidence = parse_shadow_evidence(data, source="shadow evidence")
    own = [key for key in trust.usable("robot") if key.label == robot[:MAX_LABEL]]
    if not is_vouched("shadow", evidence.sha256, evidence.signature, own):
        raise UnitDocumentError(
            f"the shadow evidence is not signed by a key of {robot} in the trust file: enrol its robot.pub (physai "
            "keys trust), and name that file to `physai sim serve --trust`"
        )
    _require_robot("shadow evidence", evidence.robot, robot)
    assert evidence.signature is not None
    shown = evidence.model_copy(update={"moments": (), "divergence": (), "beyond": (), "signature": None})
    return _document("shadow", shown, ("robot", evidence.signature.key_id), evidence.ended, evidence.sha256)


def _require_robot(what: str, named: str, robot: str) -> None:
    if named != robot:
        raise UnitDocumentError(f"the {what} is of {named}, and was sent as one of {robot}: file it under its own name")


def _document(
    kind: DocumentKind, claim: BaseModel, signer: tuple[str, str], issued: str, digest: str, *, rank: int | None = None
) -> UnitDocument:
    """Make the document of a claim; `signer` is the role and the id of a key."""
    moment = parse_utc(issued).timestamp()
    return UnitDocument(
        kind=kind,
        role=signer[0],
        signer=signer[1],
        issued=moment,
        rank=int(moment) if rank is None else rank,
        digest=digest,
        facts=claim.model_dump(mode="json"),
    )
