"""The run that made a policy: its id, what it was started with, and the proof in the policy's metadata.

A run has an Ed25519 key pair. Its id is the SHA-256 of its facts, canonical JSON that holds the public key, so no other
run has it. The private key stays in the run folder and signs each exported policy with all of its metadata. So a policy
cannot name a run without that run's folder, and neither facts nor graph can be changed afterwards.

A quantised policy is made without the run folder, so it has no signature. It repeats id and facts, and names the float
policy that proves them by its hash. That it was made of that policy is its own statement: its graph is not covered.
"""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Literal

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field

from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.base.formats.onnx_metadata import MAX_FIELDS
from physai.sdk.base.formats.protobuf import BYTES, MalformedError, fields
from physai.sdk.base.process.software import Software
from physai.sdk.contract.robot import Frozen, Sha256
from physai.sdk.policy.header import PROVENANCE_PREFIX, PolicyError, PolicyHeader
from physai.sdk.policy.parity import SOURCE_KEY, require_made_of

ID_KEY, FACTS_KEY, SIGNATURE_KEY = "run.id", "run.facts", "run.signature"
"""Entries of a policy's provenance."""

MAX_FACTS_BYTES = 4096
_METADATA_PROPS = 14
_SIGNATURE_ENTRY = PROVENANCE_PREFIX + SIGNATURE_KEY


class RunFacts(Frozen):
    """Inputs that a run was started with; unknown ones are left out."""

    format_version: Literal[1] = 1
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Ed25519 public key of the run."""
    software: Software
    seed: Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,19})$")]
    """Decimal digits, as numbers in JSON are exact up to 2^53 only."""
    contract: Sha256
    """Fingerprint of the contract."""
    settings: Sha256
    """Of the training settings."""
    files: Annotated[dict[Annotated[str, Field(pattern=r"^[ -~]{1,256}$")], Sha256], Field(max_length=16)] = Field(
        default_factory=dict[str, str], exclude_if=lambda files: not files
    )
    """Hashes of what else it was made from: `task`, `robot`, `twin`, `recordings`, `init_from`, `teacher`;
    `preferences` of all that it states of them."""


_KIND = DocumentKind(name="run's facts", format_version=1, max_bytes=MAX_FACTS_BYTES, max_depth=4, error=PolicyError)


@dataclass(frozen=True)
class Run:
    """A run, as its artefacts name it."""

    facts: RunFacts
    text: str
    """The facts as canonical JSON."""

    @classmethod
    def of(cls, facts: RunFacts) -> "Run":
        """Return the run with these facts."""
        return cls(facts, rfc8785.dumps(facts.model_dump(mode="json")).decode())

    @classmethod
    def parse(cls, text: str, *, source: str) -> "Run":
        """Parse the facts of a run.

        Raises:
            PolicyError: they are malformed, too large or not in canonical form.
        """
        run = cls.of(_KIND.parse(RunFacts, text, source=source))
        if run.text != text:
            raise PolicyError(f"{source}: the run's facts are not in canonical JSON; they were changed")
        return run

    @property
    def id(self) -> str:
        """SHA-256 of the facts, 64 lower-case hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def provenance(self) -> dict[str, str]:
        """Entries for the provenance of a policy."""
        return {ID_KEY: self.id, FACTS_KEY: self.text}


def sign_policy(data: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return a policy file with the signature of the run that its metadata name.

    Args:
        data: ONNX file without a signature.
        key: the run's private key.
    """
    value = key.sign(_digest(data)).hex()
    entry = b"".join(_field(number, text.encode()) for number, text in ((1, _SIGNATURE_ENTRY), (2, value)))
    return data + _field(_METADATA_PROPS, entry)


def verify_run(data: bytes | memoryview, header: PolicyHeader, *, source: str) -> Run | None:
    """Check that a policy was exported by the run that it names, if it names one, and not changed since.

    That of a quantised policy is left to `named_run`, as it takes the float policy.

    Returns:
        The run that it names.

    Raises:
        PolicyError: facts, id and signature do not belong together; the message has both values.
    """
    run = _stated(header, source)
    signature = header.provenance.get(SIGNATURE_KEY)
    if run is None or (signature is None and SOURCE_KEY in header.provenance):
        return run
    remedy = "the file was changed after its export; export the run again"
    if signature is None:
        raise PolicyError(f"{source} names the run {run.id[:12]}… without its signature; {remedy}")
    try:
        public_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(run.facts.public_key))
        public_key.verify(_signature_bytes(signature), _digest(data))
    except (ValueError, InvalidSignature):
        raise PolicyError(f"{source} names the run {run.id[:12]}…, which did not sign these bytes; {remedy}") from None
    return run


def _signature_bytes(text: str) -> bytes:
    """Parse a signature as `sign_policy` writes it: spaces or capitals would make another file of the same policy."""
    value = bytes.fromhex(text)
    if value.hex() != text:
        raise ValueError("not in lower-case hexadecimal digits")
    return value


def _stated(header: PolicyHeader, source: str) -> Run | None:
    """The run that a policy names, if id, facts and contract agree."""
    entries = {key: header.provenance[key] for key in (ID_KEY, FACTS_KEY, SIGNATURE_KEY) if key in header.provenance}
    if not entries:
        return None
    if not {ID_KEY, FACTS_KEY} <= entries.keys():
        raise PolicyError(f"{source} has {', '.join(entries)} alone, of {ID_KEY} and {FACTS_KEY}; it was changed")
    run = Run.parse(entries[FACTS_KEY], source=source)
    if run.id != entries[ID_KEY]:
        raise PolicyError(
            f"{source} names the run {entries[ID_KEY][:64]!r}, but its facts are those of {run.id}; one of the two was "
            "changed"
        )
    if run.facts.contract != header.contract.fingerprint:
        raise PolicyError(
            f"{source} has the contract {header.contract.fingerprint}, but the run that it names was started with "
            f"{run.facts.contract}"
        )
    return run


def named_run(header: PolicyHeader, *, source: str, original: tuple[PolicyHeader, str] | None = None) -> Run | None:
    """Return the run that made a policy accepted by `verify_run`.

    Args:
        header: the policy's.
        source: origin of the policy, for messages.
        original: header and SHA-256 of the float policy, for a quantised one.

    Returns:
        None for a policy that names no run, and for a quantised one without the float policy, which would prove it.

    Raises:
        PolicyError: a quantised policy was not made of this float policy, or names another run.
    """
    run = _stated(header, source)
    if run is None or SIGNATURE_KEY in header.provenance:
        return run
    if original is None:
        return None
    float_header, float_sha256 = original
    require_made_of(header, float_sha256, source=source)
    made_by = _stated(float_header, source)
    if made_by is None or made_by.id != run.id:
        other = "no run" if made_by is None else f"the run {made_by.id}"
        raise PolicyError(
            f"{source} names the run {run.id}, its float policy {other}: run physai policy quantize again"
        )
    return run


def without_signature(provenance: dict[str, str]) -> dict[str, str]:
    """Return the entries that a policy made from another one takes over."""
    return {key: value for key, value in provenance.items() if key != SIGNATURE_KEY}


def _digest(data: bytes | memoryview) -> bytes:
    """SHA-256 of an ONNX file without the entry of the signature."""
    digest = hashlib.sha256(b"physai policy of a run\0")
    try:
        for number, kind, value in fields(memoryview(data), limit=MAX_FIELDS):
            if isinstance(value, int):
                digest.update(b"%d %d %d\0" % (number, kind, value))
            elif number != _METADATA_PROPS or kind != BYTES or not _is_signature(value):
                digest.update(b"%d %d %d\0" % (number, kind, len(value)))
                digest.update(value)
    except MalformedError as error:
        raise PolicyError(f"not an ONNX model: {error}") from None
    return digest.digest()


def _is_signature(entry: memoryview) -> bool:
    keys = [value for number, _, value in fields(entry, limit=2) if number == 1 and not isinstance(value, int)]
    return keys == [_SIGNATURE_ENTRY.encode()]


def _field(number: int, value: bytes) -> bytes:
    """A protobuf field of bytes, https://protobuf.dev/programming-guides/encoding/."""
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
