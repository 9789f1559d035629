"""Whom a robot believes: public keys, each in one role, how many of a role must sign, and keys that were revoked.

`physai.sdk.signing.trust_file` is the file it lies in, signed by its owners; nothing in a bundle can change it.
"""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.archive import MAX_SIGNATURES
from physai.sdk.contract.robot import Frozen, require_unique
from physai.sdk.evidence.verdict import Sha256, Utc, VerdictLine, utc_text
from physai.sdk.signing.attestation import Role
from physai.sdk.signing.keys import PublicKey

MAX_KEYS = 256
MAX_REVOKED = 4096


class TrustError(PhysaiError):
    """A trust file is missing, malformed, or a change to it makes no sense."""


class RevokedKey(Frozen):
    """A key that must never be believed again."""

    key_id: Sha256
    since: Utc
    reason: VerdictLine


Threshold = Annotated[int, Field(ge=1, le=MAX_SIGNATURES)]


class Thresholds(Frozen):
    """How many keys of a role must sign."""

    owner: Threshold = 1
    publisher: Threshold = 1
    validator: Threshold = 1


class TrustStore(Frozen):
    """Whom a robot believes. Changes give a new store with the next version."""

    version: Annotated[int, Field(ge=0, le=2**53 - 1)] = 0
    """Counts the changes; a robot takes no lower one."""
    keys: Annotated[tuple[PublicKey, ...], Field(max_length=MAX_KEYS)] = ()
    """Each key has one role: who publishes cannot also validate with the same key."""
    thresholds: Thresholds = Thresholds()
    revoked: Annotated[tuple[RevokedKey, ...], Field(max_length=MAX_REVOKED)] = ()

    @model_validator(mode="after")
    def _keys_are_unique(self) -> Self:
        require_unique("key", (key.key_id for key in self.keys))
        require_unique("revoked key", (key.key_id for key in self.revoked))
        return self

    def revocation(self, key_id: str) -> RevokedKey | None:
        """When and why a key was revoked; None if it was not."""
        return next((key for key in self.revoked if key.key_id == key_id), None)

    def key(self, key_id: str) -> PublicKey | None:
        """The key of that id, revoked or not; None if it is not known."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def usable(self, role: Role) -> tuple[PublicKey, ...]:
        """Keys of a role that are not revoked."""
        return tuple(key for key in self.keys if key.role == role and self.revocation(key.key_id) is None)

    def threshold(self, role: Role) -> int:
        """How many keys of the role must sign."""
        counts: dict[str, int] = self.thresholds.model_dump()
        return counts[role]

    def with_key(self, key: PublicKey) -> Self:
        """The store that believes one more key; itself if it already does.

        Raises:
            TrustError: the key was revoked, has another role here, or there are too many.
        """
        revoked = self.revocation(key.key_id)
        if revoked is not None:
            raise TrustError(f"key {key.key_id[:16]} was revoked on {revoked.since}: {revoked.reason}")
        known = self.key(key.key_id)
        if known is not None and known.role != key.role:
            raise TrustError(f"key {key.key_id[:16]} is trusted as {known.role}, so it cannot be a {key.role}'s too")
        return self if known is not None else self._changed(keys=(*self.keys, key))

    def with_threshold(self, role: Role, threshold: int) -> Self:
        """The store that wants that many signatures of a role.

        Raises:
            TrustError: the role has fewer keys, or the number is out of range.
        """
        usable = len(self.usable(role))
        if not 1 <= threshold <= min(usable, MAX_SIGNATURES):
            raise TrustError(f"threshold {threshold} for {role}: give 1 to {usable}, the number of its keys")
        return self._changed(thresholds=self.thresholds.model_copy(update={role: threshold}))

    def with_revoked(self, key_id: str, *, since: datetime, reason: str) -> Self:
        """The store that never believes a key again, whether it knows the key or not; itself if that is so already.

        Raises:
            TrustError: there are too many, the reason is empty, or too few owners would be left.
        """
        if self.revocation(key_id) is not None:
            return self
        owners = [key for key in self.usable("owner") if key.key_id != key_id]
        if len(owners) < self.threshold("owner") <= len(self.usable("owner")):
            raise TrustError(
                f"without key {key_id[:16]} {len(owners)} owners are left, and {self.threshold('owner')} must sign "
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
