"""Folder of the user's keys, and how commands load them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.cli.shared.passphrases import passphrase_from
from physai.sdk.signing.files.user_keys import default_trust as default_trust
from physai.sdk.signing.files.user_keys import key_folder as key_folder

if TYPE_CHECKING:
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import SigningKey

KEYS_SHOWN = "~/.config/physai/keys"
"""`key_folder` in help texts."""


def load_key(path: Path, role: Role, arguments: argparse.Namespace) -> SigningKey:
    """Loads a private key, with `--passphrase-file` or a prompt, and checks its role; raises KeyFileError."""
    from physai.sdk.signing.ed25519 import check_role, load_private_key

    key = load_private_key(path, passphrase=passphrase_from(arguments.passphrase_file))
    check_role(path, key, role)
    return key


def key_of_role(role: Role, path: Path | None, passphrase_file: Path | None) -> SigningKey:
    """Load a private key, with the passphrase of a file or a prompt; see `physai.sdk.load_key`."""
    from physai.sdk.signing.files import user_keys

    return user_keys.load_key(role, path, passphrase=passphrase_from(passphrase_file))
