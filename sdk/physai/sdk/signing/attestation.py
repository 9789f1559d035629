"""In-toto statements in DSSE envelopes, signed with Ed25519.

A statement makes a claim about files that it names by hash (https://github.com/in-toto/attestation, spec v1): a
publisher's statement names a manifest, a validator's also carries a verdict. An envelope carries a statement and its
signatures (https://github.com/secure-systems-lab/dsse, v1.0.2). Both are accepted in canonical JSON only, so an
envelope is matched byte for byte and its payload is not parsed before a signature over it is valid.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ConfigDict, Field, ValidationError

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.formats.documents import MAX_CONTAINERS
from physai.sdk.bundle.archive import MANIFEST_FILE, MAX_SIGNATURES
from physai.sdk.contract.io import CONTRACT_FILE
from physai.sdk.contract.robot import Frozen, Name
from physai.sdk.evidence.origin import RobotName
from physai.sdk.evidence.verdict import Sha256, Utc, Verdict

Role = Literal["owner", "publisher", "validator", "robot"]
"""A publisher signs the contents of a bundle, a validator the verdict on it, an owner the robots' trust file, a robot
what it measured itself."""
ROLES: tuple[Role, ...] = ("owner", "publisher", "validator")
"""Roles of people, of whom a threshold must sign."""

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
BUNDLE_PREDICATE = "urn:physai:bundle:1"
VERDICT_PREDICATE = "urn:physai:verdict:1"

PolicyFile = Literal["policy.onnx", "policy.int8.onnx", "policy.fp16.onnx", "policy.fp8.onnx"]

_SIGNATURE = rb'\{"keyid":"[0-9a-f]{64}","sig":"[A-Za-z0-9+/]{86}=="\}'
_ENVELOPE = re.compile(
    rb'\{"payload":"([A-Za-z0-9+/]+={0,2})","payloadType":"application/vnd\.in-toto\+json","signatures":\['
    rb"(" + _SIGNATURE + rb"(?:," + _SIGNATURE + rb"){0,%d})\]\}" % (MAX_SIGNATURES - 1)
)
_SIGNATURE_PARTS = re.compile(rb'"keyid":"([0-9a-f]{64})","sig":"([A-Za-z0-9+/]{86}==)"')


_PRIME = (1 << 255) - 19
_ORDER_8_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# y coordinates of the eight points of order 4, 1, 2 and 8: Table 1 of Chalkias, Garillot, Nikolaenko, "Taming the many
# EdDSAs", SSR 2020 (https://eprint.iacr.org/2020/1244).
_SMALL_ORDER_Y = frozenset((0, 1, _PRIME - 1, _ORDER_8_Y, _PRIME - _ORDER_8_Y))


class AttestationError(PhysaiError):
    """An envelope or a statement is malformed or not in canonical form."""


@dataclass(frozen=True)
class Signature:
    """One signature over an envelope's payload."""

    key_id: str
    value: bytes
    """64 bytes."""


@dataclass(frozen=True)
class Envelope:
    """A payload of type PAYLOAD_TYPE and the signatures over it, ordered by key."""

    payload: bytes
    signatures: tuple[Signature, ...]

    def encode(self) -> bytes:
        """The envelope as canonical JSON."""
        # Hexadecimal digits and base64 need no escapes in JSON.
        signatures = b",".join(
            b'{"keyid":"%b","sig":"%b"}' % (one.key_id.encode("ascii"), base64.b64encode(one.value))
            for one in sorted(self.signatures, key=lambda signature: signature.key_id)
        )
        kind = PAYLOAD_TYPE.encode("ascii")
        payload = base64.b64encode(self.payload)
        return b'{"payload":"%b","payloadType":"%b","signatures":[%b]}' % (payload, kind, signatures)

    def with_signature(self, signature: Signature) -> Self:
        """Adds a signature; replaces an existing one of the same key."""
        others = (one for one in self.signatures if one.key_id != signature.key_id)
        return type(self)(self.payload, tuple(sorted((*others, signature), key=lambda one: one.key_id)))


def pre_authentication(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The bytes that are signed: DSSE's PAE(payload_type, payload)."""
    kind = payload_type.encode("ascii")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def is_weak_key(public: bytes) -> bool:
    """Whether a public key (32 bytes) is a point of small order, or its y coordinate is not below 2^255 - 19.

    Under such a key one signature can be valid for every payload.
    """
    # Drop the highest bit, the sign of x: both points with the same y have the same order.
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    return not y < _PRIME or y in _SMALL_ORDER_Y


def is_signed_by(public: bytes, signature: bytes, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bool:
    """Whether an Ed25519 signature by a public key (32 bytes) over a payload is valid; always False for weak keys."""
    if is_weak_key(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, pre_authentication(payload, payload_type))
    except (InvalidSignature, ValueError):
        return False
    return True


def parse_envelope(data: bytes | memoryview, *, source: str) -> Envelope:
    """Parses an envelope in canonical form.

    Raises:
        AttestationError: the envelope is not in canonical form, or one key signs twice.
    """
    # A regular expression instead of a JSON parser: these bytes are not authenticated yet.
    match = _ENVELOPE.fullmatch(data)
    if match is None:
        raise AttestationError(f"{source}: not a DSSE envelope of an in-toto statement in canonical JSON")
    signatures = tuple(
        Signature(key_id.decode("ascii"), base64.b64decode(value))
        for key_id, value in _SIGNATURE_PARTS.findall(match[2])
    )
    try:
        envelope = Envelope(base64.b64decode(match[1], validate=True), signatures)
    except binascii.Error as error:
        raise AttestationError(f"{source}: its payload is not base64: {error}") from None
    key_ids = [signature.key_id for signature in signatures]
    if len(set(key_ids)) != len(key_ids):
        raise AttestationError(f"{source}: one key signs it twice")
    # Base64 can have unused bits and signatures any order; only the canonical form survives a round trip.
    if envelope.encode() != data:
        raise AttestationError(f"{source}: base64 with stray bits, or signatures not ordered by key")
    return envelope


def bundle_statement(bundle_id: str) -> bytes:
    """The statement that a publisher signs: it names the manifest and thereby every member that the manifest lists."""
    return rfc8785.dumps(
        {
            "_type": STATEMENT_TYPE,
            "predicate": {},
            "predicateType": BUNDLE_PREDICATE,
            "subject": [{"digest": {"sha256": bundle_id}, "name": MANIFEST_FILE}],
        }
    )


class Digest(Frozen):
    """Hash of a subject (in-toto DigestSet)."""

    sha256: Sha256


class Subject(Frozen):
    """A file the statement is about."""

    digest: Digest
    name: Name


class VerdictPredicate(Frozen):
    """A validator's claim: the verdict, the robot and policy it applies to, and until when."""

    expires: Utc
    """The robot accepts the verdict before this time."""
    policy: PolicyFile
    """The member that was validated; the only one that may run."""
    robot: RobotName
    """The robot that the verdict applies to."""
    verdict: Verdict


class VerdictStatement(Frozen):
    """The statement that a validator signs."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default=STATEMENT_TYPE, alias="_type")
    predicate: VerdictPredicate
    predicate_type: Literal["urn:physai:verdict:1"] = Field(default=VERDICT_PREDICATE, alias="predicateType")
    subject: Annotated[tuple[Subject, ...], Field(min_length=1, max_length=8)]

    def encode(self) -> bytes:
        """The statement as canonical JSON."""
        return rfc8785.dumps(self.model_dump(mode="json", by_alias=True))


def verdict_statement(predicate: VerdictPredicate, digests: Mapping[str, str]) -> VerdictStatement:
    """The statement about the manifest, the contract and the validated policy of a bundle.

    Args:
        predicate: the validator's claim.
        digests: SHA-256 of the bundle's members by name.
    """
    names = (MANIFEST_FILE, CONTRACT_FILE, predicate.policy)
    return VerdictStatement(
        predicate=predicate, subject=tuple(Subject(name=name, digest=Digest(sha256=digests[name])) for name in names)
    )


def parse_verdict_statement(payload: bytes, *, source: str) -> VerdictStatement:
    """Parses the verdict statement in an envelope's payload.

    Raises:
        AttestationError: the statement is malformed, of another version, or not in canonical JSON.
    """
    containers = payload.count(b"{") + payload.count(b"[")
    if not containers <= MAX_CONTAINERS:
        raise AttestationError(f"{source}: {containers} objects and arrays, at most {MAX_CONTAINERS} are allowed")
    try:
        statement = VerdictStatement.model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise AttestationError(
            f"{source}: not a verdict statement that this version of physai reads: {where}: {first['msg']}"
        ) from None
    if statement.encode() != payload:
        raise AttestationError(f"{source}: not in canonical JSON")
    return statement


def key_id_of(public: bytes) -> str:
    """Key id as in TUF and in-toto: SHA-256 of the canonical JSON description of an Ed25519 public key."""
    return sha256_hex(rfc8785.dumps({"keytype": "ed25519", "keyval": {"public": public.hex()}, "scheme": "ed25519"}))
