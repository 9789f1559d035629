"""Options with which validators sign evidence, and name the validators whose evidence they trust."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable
from physai.sdk.cli.shared.key_files import KEYS_SHOWN, default_trust, key_folder, key_of_role
from physai.sdk.cli.shared.passphrases import add_passphrase_argument

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey


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

    if path is not None:
        return key_of_role("validator", path, passphrase_file)
    if not (key_folder() / f"validator{PRIVATE_SUFFIX}").exists():
        return None
    try:
        return key_of_role("validator", None, passphrase_file)
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


def trusted_validators(path: Path | None) -> tuple[PublicKey, ...]:
    """Validators of a trust file; of the user's own if none is named, without one the user's own key.

    Raises:
        KeyFileError: the user's own key is malformed.
        TrustError: the file is missing, malformed, or not signed by its owners.
    """
    from physai.sdk.signing.ed25519 import PUBLIC_SUFFIX, load_public_key
    from physai.sdk.signing.trust_file import SignedTrust

    file = path or default_trust()
    if path is None and not file.exists():
        own = key_folder() / f"validator{PUBLIC_SUFFIX}"
        return (load_public_key(own),) if own.exists() else ()
    return SignedTrust.load(file).check().usable("validator")
