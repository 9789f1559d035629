"""In-toto statements without subjects in DSSE envelopes: signed, and read only after their signatures are counted."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import rfc8785
from pydantic import BaseModel, ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.signing.attestation import AttestationError, Envelope, Role, Signature, is_signed_by, parse_envelope
from physai.sdk.signing.ed25519 import PublicKey, SigningKey
from physai.sdk.signing.trust_store import TrustStore

StatementModel = TypeVar("StatementModel", bound=BaseModel)


def encode_statement(statement: BaseModel) -> bytes:
    """Encode a statement as canonical JSON, the bytes that are signed."""
    return rfc8785.dumps(statement.model_dump(mode="json", by_alias=True))


def sign_statement(keys: Sequence[SigningKey], statement: BaseModel, *, limit: int, error: type[PhysaiError]) -> bytes:
    """Sign a statement.

    Raises:
        PhysaiError: of type `error`, if there is no key, or the signed document has more than `limit` bytes.
    """
    payload = encode_statement(statement)
    if not keys:
        raise error("no key signs the document; give at least one")
    envelope = Envelope(payload, ())
    for key in keys:
        envelope = envelope.with_signature(key.sign(payload))
    data = envelope.encode()
    if not len(data) <= limit:
        raise error(
            f"the signed document has {len(data)} bytes, at most {limit} are read: shorten its reasons or lists"
        )
    return data


def open_envelope(data: bytes, *, what: str, limit: int, error: type[PhysaiError]) -> Envelope:
    """Parse an envelope; its payload is not looked at.

    Raises:
        PhysaiError: of type `error`, if it is too large or no canonical envelope.
    """
    if not len(data) <= limit:
        raise error(f"{what}: more than the {limit} bytes it may have")
    try:
        return parse_envelope(data.removesuffix(b"\n"), source=what)
    except AttestationError as problem:
        raise error(str(problem)) from None


def parse_statement(
    envelope: Envelope, model: type[StatementModel], *, what: str, error: type[PhysaiError]
) -> StatementModel:
    """Parse the payload of an envelope whose signatures have been checked.

    Raises:
        PhysaiError: of type `error`, if it is malformed, of another kind or version, or not in canonical JSON.
    """
    try:
        statement = model.model_validate_json(envelope.payload)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise error(f"{what}: not one that this version of physai reads: {where}: {first['msg']}") from None
    if encode_statement(statement) != envelope.payload:
        raise error(f"{what}: not in canonical JSON")
    return statement


def signers(envelope: Envelope, keys: Iterable[PublicKey]) -> list[PublicKey]:
    """Select the keys with a valid signature in an envelope."""
    values = {one.key_id: one.value for one in envelope.signatures}
    return [
        key
        for key in keys
        if key.key_id in values and is_signed_by(bytes.fromhex(key.public), values[key.key_id], envelope.payload)
    ]


def require_signers(
    envelope: Envelope, trust: TrustStore, role: Role, *, what: str, error: type[PhysaiError]
) -> tuple[str, ...]:
    """Count the valid signatures of a role; return the ids of the keys.

    Raises:
        PhysaiError: of type `error`, if fewer keys than the role's threshold signed; tells what is wrong with each.
    """
    good = tuple(key.key_id for key in signers(envelope, trust.usable(role)))
    needed = trust.threshold(role)
    if not len(good) >= needed:
        problems = [_problem(one, trust, role) for one in envelope.signatures if one.key_id not in good]
        raise error(f"{what}: {len(good)} of {needed} {role} signatures: {'; '.join(problems) or 'add another one'}")
    return good


def _problem(signature: Signature, trust: TrustStore, role: Role) -> str:
    short = signature.key_id[:16]
    revoked, key = trust.revocation(signature.key_id), trust.key(signature.key_id)
    if revoked is not None:
        return f"key {short} was revoked on {revoked.since}: {revoked.reason}"
    if key is None:
        return f"key {short} is not in the trust file"
    return f"key {short} is a {key.role}'s" if key.role != role else f"the signature of {role} {short} is invalid"
