"""Where commands take passphrases from: a file, or whoever sits at the terminal."""

from __future__ import annotations

import argparse
import getpass
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from physai.sdk.signing.keys import Passphrase

MAX_BYTES = 4096


def add_passphrase_argument(parser: argparse.ArgumentParser) -> None:
    """The option `--passphrase-file`."""
    parser.add_argument(
        "--passphrase-file",
        type=Path,
        metavar="FILE",
        help="first line is the passphrase of the key (default: asked for on the terminal)",
    )


def passphrase_from(file: Path | None, *, confirm: bool = False) -> Passphrase:
    """What asks for a passphrase: reads the file, or prompts where there is a terminal.

    Args:
        file: whose first line it is; None prompts.
        confirm: prompt twice, for a new key.
    """
    from physai.sdk.signing.keys import KeyFileError

    def ask(path: str) -> str:
        if file is not None:
            return _read(file)
        if not sys.stdin.isatty():
            raise KeyFileError(f"{path}: a passphrase is needed and nobody can be asked; give --passphrase-file")
        word = getpass.getpass(f"passphrase of {path}: ")
        if confirm and getpass.getpass("once more: ") != word:
            raise KeyFileError("the two passphrases differ")
        return word

    return ask


def _read(path: Path) -> str:
    from physai.sdk.signing.keys import KeyFileError

    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise KeyFileError(f"{path} has mode {stat.S_IMODE(mode):04o}; a passphrase is 0600: chmod 600 {path}")
            line = file.readline(MAX_BYTES).rstrip(b"\r\n")
            return line.decode("utf-8")
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KeyFileError(f"{path}: not UTF-8 text") from None
