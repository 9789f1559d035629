"""Canonical JSON (RFC 8785): one sequence of bytes for one value, so that equal values have equal hashes."""

import hashlib

import rfc8785
from pydantic import BaseModel


def canonical_json(model: BaseModel) -> bytes:
    """The model as canonical JSON, UTF-8, no trailing newline.

    Every field is written, those at their default too: a default that changes in a later version must change
    the hash, because it changes what the robot does. Only what a model's own serialiser leaves out is not there.
    """
    return rfc8785.dumps(model.model_dump(mode="json"))


def sha256_hex(data: bytes) -> str:
    """SHA-256 of the bytes, 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
