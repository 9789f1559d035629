"""The trust file: a trust store signed by its owners.

Updates follow TUF's root metadata (https://theupdateframework.github.io/specification/latest, section 5.3): the first
file is trusted on first use; every later one must have a higher version and be signed by a threshold of the owners in
the current file and by a threshold of the owners in the new one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.bundle.archive import MAX_SIGNATURES
from physai.sdk.contract.robot import Frozen, require_unique
from physai.sdk.evidence.verdict import Sha256
from physai.sdk.signing.attestation import Signature, is_signed_by
from physai.sdk.signing.ed25519 import PublicKey, SigningKey
from physai.sdk.signing.trust_store import TrustError, TrustStore

FORMAT_VERSION = 2
"""Incremented when an older reader could misinterpret a newer trust file."""

TRUST_FILE = "trust.json"
MAX_TRUST_BYTES = 1 << 20
TRUST_TYPE = "application/vnd.physai.trust+json"
"""DSSE payload type that owners sign; separates the trust file from every other signed document."""


class TrustSignature(Frozen):
    """One owner's signature."""

    key_id: Sha256
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
    """64 bytes in hexadecimal digits."""


class TrustDocument(Frozen):
    """The trust file's JSON document."""

    format_version: Literal[2] = FORMAT_VERSION
    trust: TrustStore
    signatures: Annotated[tuple[TrustSignature, ...], Field(max_length=MAX_SIGNATURES)] = ()

    @model_validator(mode="after")
    def _each_signs_once(self) -> Self:
        require_unique("signature of key", (one.key_id for one in self.signatures))
        return self


@dataclass(frozen=True)
class SignedTrust:
    """A trust store and the owners' signatures over it."""

    trust: TrustStore
    signatures: tuple[Signature, ...] = ()

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Loads a trust file; does not check its signatures, see `check`.

        Raises:
            TrustError: the file cannot be read, is too large or malformed.
        """
        path = Path(path)
        with oserror_as(TrustError, f"{path}: cannot be read"):
            data = read_plain(path, limit=MAX_TRUST_BYTES)
        return cls.parse(data, source=str(path))

    @classmethod
    def parse(cls, data: bytes | str, *, source: str) -> Self:
        """Parses a JSON document; raises TrustError if it is malformed."""
        document = _KIND.parse(TrustDocument, data, source=source)
        return cls(
            document.trust, tuple(Signature(one.key_id, bytes.fromhex(one.signature)) for one in document.signatures)
        )

    def encode(self) -> bytes:
        """The trust file as indented JSON."""
        signatures = (TrustSignature(key_id=one.key_id, signature=one.value.hex()) for one in self.signatures)
        document = TrustDocument(trust=self.trust, signatures=tuple(signatures))
        return document.model_dump_json(indent=2).encode() + b"\n"

    def save(self, path: Path | str) -> None:
        """Writes the trust file atomically.

        Raises:
            TrustError: the file cannot be written.
        """
        path = Path(path)
        with oserror_as(TrustError, f"{path}: cannot be written"):
            write_atomic(path, self.encode())
            path.chmod(0o644)

    def signed(self, keys: Iterable[SigningKey]) -> Self:
        """Adds or replaces the signatures of these keys."""
        kept = {one.key_id: one for one in self.signatures}
        kept.update({key.key_id: key.sign(self._payload, TRUST_TYPE) for key in keys})
        return type(self)(self.trust, tuple(kept[key_id] for key_id in sorted(kept)))

    def count(self, owners: Iterable[PublicKey]) -> int:
        """Number of these owners with a valid signature."""
        public = {owner.key_id: bytes.fromhex(owner.public) for owner in owners}
        return sum(
            is_signed_by(public[one.key_id], one.value, self._payload, TRUST_TYPE)
            for one in self.signatures
            if one.key_id in public
        )

    def check(self) -> TrustStore:
        """Returns the trust store if a threshold of its own owners has signed it.

        Raises:
            TrustError: there are too few signatures.
        """
        self._require(self.trust, "its own owners")
        return self.trust

    def check_after(self, known: TrustStore) -> TrustStore:
        """Returns the trust store if it may replace the one that a robot has.

        Raises:
            TrustError: the version is not higher, too few owners of either store have signed, or a revocation is
                missing.
        """
        if self.check() == known:
            return known
        if not self.trust.version > known.version:
            raise TrustError(
                f"the trust file is version {self.trust.version}, the robot has version {known.version} and accepts "
                "only a higher one"
            )
        self._require(known, "the owners that this robot knows")
        kept = {one.key_id for one in self.trust.revoked}
        missing = [one for one in known.revoked if one.key_id not in kept]
        if missing:
            raise TrustError(
                f"key {missing[0].key_id[:16]} was revoked on this robot on {missing[0].since}: "
                f"{missing[0].reason}; the trust file does not list it as revoked: `physai keys revoke` it there"
            )
        return self.trust

    def _require(self, store: TrustStore, whose: str) -> None:
        needed, count = store.threshold("owner"), self.count(store.usable("owner"))
        if not count >= needed:
            raise TrustError(
                f"the trust file, version {self.trust.version}, is signed by {count} of {needed} of {whose}; sign it "
                "with: physai keys sign --owner-key KEY. If owners changed more than once, install the intermediate "
                "versions on the robot first, in order"
            )

    @property
    def _payload(self) -> bytes:
        return canonical_json(self.trust)


_KIND = DocumentKind(
    name="trust file", format_version=FORMAT_VERSION, max_bytes=MAX_TRUST_BYTES, max_depth=6, error=TrustError
)
