"""Options with which validators sign evidence, and name the validators whose evidence they trust."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable
from physai.sdk.cli.shared.key_files import KEYS_SHOWN, key_folder
from physai.sdk.cli.shared.passphrases import add_passphrase_argument, passphrase_from
from physai.sdk.signing.files.user_keys import trusted_validators as trusted_validators

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import SigningKey


def add_signing_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--key` and `--passphrase-file`."""
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help=f"validator's key that signs the result (default: {KEYS_SHOWN}/validator.key, if there is one); without a "
        "signature, evidence of a robot counts as of unknown origin",
    )
    add_passphrase_argument(parser)


def signing_key(arguments: argparse.Namespace) -> SigningKey | None:
    """`own_signing_key` of the parsed options."""
    return own_signing_key(arguments.key, arguments.passphrase_file)


def own_signing_key(path: Path | None, passphrase_file: Path | None) -> SigningKey | None:
    """The key of `--key`, or the user's own; None, with a note on stderr, without a usable one.

    Raises:
        KeyFileError: the key of `--key` cannot be used.
    """
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError
    from physai.sdk.signing.files.user_keys import load_key

    passphrase = passphrase_from(passphrase_file)
    if path is not None:
        return load_key("validator", path, passphrase=passphrase)
    if not (key_folder() / f"validator{PRIVATE_SUFFIX}").exists():
        return None
    try:
        return load_key("validator", passphrase=passphrase)
    except KeyFileError as error:
        print(printable(f"not signed: {error}"), file=sys.stderr)
        return None


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--trust`."""
    parser.add_argument(
        "--trust",
        type=Path,
        metavar="FILE",
        help=f"trust file whose validators may have signed twin and tick times (default: {KEYS_SHOWN}/trust.json)",
    )
