"""Folder of the user's keys, and how commands load them."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.shared.passphrases import passphrase_from

if TYPE_CHECKING:
    from physai.sdk.signing.attestation import Role
    from physai.sdk.signing.ed25519 import SigningKey

KEYS_SHOWN = "~/.config/physai/keys"
"""`key_folder` in help texts."""


def key_folder() -> Path:
    """Default folder of the user's keys: `~/.config/physai/keys`, or below XDG_CONFIG_HOME."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "physai" / "keys"


def default_trust() -> Path:
    """The trust file in the user's key folder."""
    return key_folder() / "trust.json"


def load_key(path: Path, role: Role, arguments: argparse.Namespace) -> SigningKey:
    """Loads a private key, with `--passphrase-file` or a prompt, and checks its role; raises KeyFileError."""
    from physai.sdk.signing.ed25519 import check_role, load_private_key

    key = load_private_key(path, passphrase=passphrase_from(arguments.passphrase_file))
    check_role(path, key, role)
    return key


def key_of_role(role: Role, path: Path | None, passphrase_file: Path | None) -> SigningKey:
    """Loads a private key, by default `ROLE.key` of the user's folder, and checks its role.

    Raises:
        KeyFileError: it is missing, of another role, or cannot be read.
    """
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError, check_role, load_private_key

    path = path or key_folder() / f"{role}{PRIVATE_SUFFIX}"
    if not path.exists():
        raise KeyFileError(f"{path}: no such key; make keys with: physai keys init")
    key = load_private_key(path, passphrase=passphrase_from(passphrase_file))
    check_role(path, key, role)
    return key


def utc_option(option: str, text: str) -> datetime:
    """The time given to an option; raises PhysaiError."""
    from physai.sdk.signing.verify import parse_utc

    try:
        return parse_utc(text)
    except ValueError:
        raise PhysaiError(f"{option} {text!r}: expected UTC as 2026-11-21T12:00:00Z") from None
