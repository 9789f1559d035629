"""Reads passphrases from a file or from the terminal."""

from __future__ import annotations

import getpass
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from physai.sdk.signing.ed25519 import Passphrase

MAX_BYTES = 4096


def passphrase_from(file: Path | None, *, confirm: bool = False) -> Passphrase:
    """Returns a function that reads the passphrase from a file or prompts for it.

    Args:
        file: its first line is the passphrase; None prompts.
        confirm: prompt twice, for a new key.
    """
    from physai.sdk.signing.ed25519 import KeyFileError

    def ask(path: str) -> str:
        if file is not None:
            return _read(file)
        if not sys.stdin.isatty():
            raise KeyFileError(f"{path}: a passphrase is needed and there is no terminal; give --passphrase-file")
        passphrase = getpass.getpass(f"passphrase of {path}: ")
        if confirm and getpass.getpass("repeat passphrase: ") != passphrase:
            raise KeyFileError("the passphrases do not match")
        return passphrase

    return ask


def _read(path: Path) -> str:
    from physai.sdk.signing.ed25519 import KeyFileError

    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise KeyFileError(
                    f"{path} has mode {stat.S_IMODE(mode):04o}; a passphrase file must be 0600: chmod 600 {path}"
                )
            line = file.readline(MAX_BYTES).rstrip(b"\r\n")
            return line.decode("utf-8")
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeyFileError(f"{path}: not UTF-8 text") from None
