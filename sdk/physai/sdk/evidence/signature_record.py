"""Signature of whoever derived a piece of evidence; stored in its file, see `physai.sdk.signing.evidence`."""

from typing import Annotated

from pydantic import Field

from physai.sdk.contract.robot import Frozen, Sha256


class EvidenceSignature(Frozen):
    """Ed25519 signature over the statement about a twin or tick times."""

    key_id: Sha256
    """Id of the validator's key."""
    value: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
    """64 bytes in hexadecimal digits."""
