"""Trust store of a robot: public keys with one role each, signature thresholds per role, and revoked keys.

It is stored in the trust file (`physai.sdk.signing.trust_file`), which the owners sign; a bundle cannot change it.
"""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.archive import MAX_SIGNATURES
from physai.sdk.contract.robot import Frozen, require_unique
from physai.sdk.evidence.verdict import Sha256, Utc, VerdictLine, utc_text
from physai.sdk.signing.attestation import Role
from physai.sdk.signing.ed25519 import PublicKey

MAX_KEYS = 256
MAX_REVOKED = 4096


class TrustError(PhysaiError):
    """A trust file is missing or malformed, or a change to it is invalid."""


class RevokedKey(Frozen):
    """A key that is no longer trusted."""

    key_id: Sha256
    since: Utc
    reason: VerdictLine


Threshold = Annotated[int, Field(ge=1, le=MAX_SIGNATURES)]


class Thresholds(Frozen):
    """Number of keys of each role that must sign."""

    owner: Threshold = 1
    publisher: Threshold = 1
    validator: Threshold = 1


class TrustStore(Frozen):
    """Keys, thresholds and revocations; immutable: every change returns a new store with the next version."""

    version: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Number of changes; a robot never accepts a lower one."""
    keys: Annotated[tuple[PublicKey, ...], Field(max_length=MAX_KEYS)] = ()
    """Each key has one role: the same key cannot both publish and validate."""
    thresholds: Thresholds = Thresholds()
    revoked: Annotated[tuple[RevokedKey, ...], Field(max_length=MAX_REVOKED)] = ()

    @model_validator(mode="after")
    def _keys_are_unique(self) -> Self:
        require_unique("key", (key.key_id for key in self.keys))
        require_unique("revoked key", (key.key_id for key in self.revoked))
        return self

    def revocation(self, key_id: str) -> RevokedKey | None:
        """When and why a key was revoked; None if it is not revoked."""
        return next((key for key in self.revoked if key.key_id == key_id), None)

    def key(self, key_id: str) -> PublicKey | None:
        """The key with that id, revoked or not; None if unknown."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def usable(self, role: Role) -> tuple[PublicKey, ...]:
        """Unrevoked keys of a role."""
        return tuple(key for key in self.keys if key.role == role and self.revocation(key.key_id) is None)

    def threshold(self, role: Role) -> int:
        """Number of keys of the role that must sign; each robot signs alone."""
        counts: dict[str, int] = self.thresholds.model_dump()
        return counts.get(role, 1)

    def with_key(self, key: PublicKey) -> Self:
        """Adds a trusted key; returns itself if the key is already trusted.

        Raises:
            TrustError: the key is revoked or has another role here, or there are too many keys.
        """
        revoked = self.revocation(key.key_id)
        if revoked is not None:
            raise TrustError(f"key {key.key_id[:16]} was revoked on {revoked.since}: {revoked.reason}")
        known = self.key(key.key_id)
        if known is not None and known.role != key.role:
            raise TrustError(f"key {key.key_id[:16]} is trusted as {known.role} and cannot also be a {key.role}'s")
        return self if known is not None else self._changed(keys=(*self.keys, key))

    def with_threshold(self, role: Role, threshold: int) -> Self:
        """Sets how many keys of a role must sign.

        Raises:
            TrustError: the role has fewer usable keys, or the threshold is out of range.
        """
        usable = len(self.usable(role))
        if not usable:
            raise TrustError(f"threshold {threshold} for {role}: it has no usable key; add a public key first")
        if not 1 <= threshold <= min(usable, MAX_SIGNATURES):
            raise TrustError(
                f"threshold {threshold} for {role}: give 1 to {min(usable, MAX_SIGNATURES)}, for its {usable} keys"
            )
        return self._changed(thresholds=self.thresholds.model_copy(update={role: threshold}))

    def with_revoked(self, key_id: str, *, since: datetime, reason: str) -> Self:
        """Revokes a key, known or unknown; returns itself if the key is already revoked.

        Raises:
            TrustError: there are too many revocations, the reason is empty, or too few owners would remain.
        """
        if self.revocation(key_id) is not None:
            return self
        owners = [key for key in self.usable("owner") if key.key_id != key_id]
        # A store that cannot reach its owner threshold could never be changed again.
        if len(owners) < self.threshold("owner") <= len(self.usable("owner")):
            raise TrustError(
                f"without key {key_id[:16]}, {len(owners)} owners remain, but {self.threshold('owner')} must sign "
                "every change: `physai keys rotate` it first, or lower the threshold"
            )
        try:
            revoked = RevokedKey(key_id=key_id, since=utc_text(since), reason=reason)
        except ValidationError as error:
            raise _invalid(error, "revocation") from None
        return self._changed(revoked=(*self.revoked, revoked))

    def _changed(self, **fields: object) -> Self:
        kept = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            return type(self).model_validate({**kept, "version": self.version + 1, **fields})
        except ValidationError as error:
            raise _invalid(error, "trust file") from None


def _invalid(error: ValidationError, source: str) -> TrustError:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return TrustError(f"{source}: {where + ': ' if where else ''}{first['msg']}")
