"""Canonical JSON (RFC 8785): equal values have equal bytes, and therefore equal hashes."""

import hashlib

import rfc8785
from pydantic import BaseModel


def canonical_json(model: BaseModel) -> bytes:
    """Return the model as canonical JSON in UTF-8, without a trailing newline.

    Fields at their default are included, except those that the model's own serialiser omits.
    """
    # Include defaults: if a later version changes one, the robot behaves differently, so the hash must change.
    return rfc8785.dumps(model.model_dump(mode="json"))


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
