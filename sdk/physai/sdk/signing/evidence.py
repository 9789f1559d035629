"""Signatures of evidence: a validator vouches for a twin that they fitted or tick times that they measured, a robot for
the shadows that it ran.

The hash in a file protects from damage only: whoever edits the file computes the hash again. So evidence counts as from
a robot only if a validator signed it where it was derived; without that its origin is unknown.
"""

from collections.abc import Iterable
from typing import Literal

import rfc8785

from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.signature_record import EvidenceSignature
from physai.sdk.signing.attestation import STATEMENT_TYPE, is_signed_by
from physai.sdk.signing.ed25519 import PublicKey, SigningKey

EVIDENCE_PREDICATE = "urn:physai:evidence:1"

EvidenceFile = Literal["twin", "latency", "shadow"]


def _statement(what: EvidenceFile, sha256: str) -> bytes:
    return rfc8785.dumps(
        {
            "_type": STATEMENT_TYPE,
            "predicate": {},
            "predicateType": EVIDENCE_PREDICATE,
            "subject": [{"digest": {"sha256": sha256}, "name": what}],
        }
    )


def sign_evidence(key: SigningKey, what: EvidenceFile, sha256: str) -> EvidenceSignature:
    """Sign evidence.

    Args:
        key: a validator's key, or a robot's for `shadow`.
        what: kind of evidence.
        sha256: hash of all that the evidence states.
    """
    signature = key.sign(_statement(what, sha256))
    return EvidenceSignature(key_id=signature.key_id, value=signature.value.hex())


def is_vouched(what: EvidenceFile, sha256: str, signature: EvidenceSignature | None, keys: Iterable[PublicKey]) -> bool:
    """Return whether one of these keys, of the role that signs such evidence, signed evidence with this hash."""
    if signature is None:
        return False
    role = "robot" if what == "shadow" else "validator"
    payload, value = _statement(what, sha256), bytes.fromhex(signature.value)
    return any(
        is_signed_by(bytes.fromhex(key.public), value, payload)
        for key in keys
        if key.role == role and key.key_id == signature.key_id
    )


def vouched_origin(
    origin: Origin,
    what: EvidenceFile,
    sha256: str,
    signature: EvidenceSignature | None,
    validators: Iterable[PublicKey],
) -> Origin:
    """Return the origin that counts: that of a robot needs a validator's signature, and is unknown without.

    The other origins need none: who accepts a stand-in or any computer accepts what everybody can make.
    """
    if origin.kind != "robot" or is_vouched(what, sha256, signature, validators):
        return origin
    return Origin(kind="unknown", robot=origin.robot)


def unsigned_remedy(what: EvidenceFile) -> str:
    """Return what to do about evidence that states a robot and is not signed by a known validator."""
    how: dict[EvidenceFile, str] = {
        "twin": "calibrate it from its recordings with your validator's key (physai sim calibrate … --key FILE)",
        "latency": "sign what you measured yourself (physai keys ticks FILE)",
        "shadow": "let the owner enrol the robot's key (physai keys trust robot.pub)",
    }
    return f"{how[what]}, or name the trust file with the key of who did (--trust FILE)"
