"""Folder of the user's keys and trust file, which procedures use unless others are named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import Passphrase, PublicKey, SigningKey


def key_folder() -> Path:
    """Default folder of the user's keys: `~/.config/physai/keys`, or below XDG_CONFIG_HOME."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "physai" / "keys"


def default_trust() -> Path:
    """The trust file in the user's key folder."""
    return key_folder() / "trust.json"


def load_key(role: Role, path: Path | str | None = None, *, passphrase: Passphrase | None = None) -> SigningKey:
    """Load a private key and check its role.

    Args:
        role: role that the key must have.
        path: the key file. None for `ROLE.key` in the user's key folder.
        passphrase: called with the file's name if the key is encrypted.

    Raises:
        KeyFileError: the file is missing, of another role, or cannot be read.
    """
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError, check_role, load_private_key

    file = key_folder() / f"{role}{PRIVATE_SUFFIX}" if path is None else Path(path)
    if not file.exists():
        raise KeyFileError(f"{file}: no such key; make keys with: physai keys init")
    key = load_private_key(file, passphrase=passphrase)
    check_role(file, key, role)
    return key


def trusted_validators(path: Path | str | None = None) -> tuple[PublicKey, ...]:
    """Validators of a trust file; of the user's own if none is named, without one the user's own key.

    Raises:
        KeyFileError: the user's own key is malformed.
        TrustError: the file is missing, malformed, or not signed by its owners.
    """
    from physai.sdk.signing.ed25519 import PUBLIC_SUFFIX, load_public_key
    from physai.sdk.signing.trust_file import SignedTrust

    file = default_trust() if path is None else path
    if path is None and not default_trust().exists():
        own = key_folder() / f"validator{PUBLIC_SUFFIX}"
        return (load_public_key(own),) if own.exists() else ()
    return SignedTrust.load(file).check().usable("validator")
