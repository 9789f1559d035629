"""Private keys, with the passphrase of a file or a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.cli.shared.passphrases import passphrase_from

if TYPE_CHECKING:
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import SigningKey


def key_of_role(role: Role, path: Path | None, passphrase_file: Path | None) -> SigningKey:
    """Load a private key, with the passphrase of a file or a prompt; see `physai.sdk.load_key`."""
    from physai.sdk.signing.files.user_keys import load_key

    return load_key(role, path, passphrase=passphrase_from(passphrase_file))
