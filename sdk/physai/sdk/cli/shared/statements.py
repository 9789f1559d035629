"""Statements that `physai keys` signs besides trust files: the time, for robots, and tick times that a validator
measured.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from physai.sdk.base.terminal import printable
from physai.sdk.cli.shared.key_files import KEYS_SHOWN, key_folder, load_key
from physai.sdk.cli.shared.passphrases import add_passphrase_argument, passphrase_from
from physai.sdk.signing.files.bundles import utc_time


def add_time_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai keys time`."""
    parser.add_argument("--robot", required=True, metavar="NAME", help="robot model, or one unit: ur10e/cell-3")
    parser.add_argument("--key", action="append", type=Path, metavar="FILE", help="a validator's or owner's key")
    parser.add_argument("--replaces", metavar="TIME", help="set the robot's time back from this one; owners must sign")
    parser.add_argument(
        "--corrections",
        type=int,
        default=0,
        metavar="N",
        help="how often the robot's time was set back before, as `physai robot time` shows it (default: 0)",
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("time.json"), metavar="FILE", help="default: time.json")
    add_passphrase_argument(parser)


def add_ticks_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai keys ticks`."""
    parser.add_argument("file", type=Path, metavar="JSON", help="file of `physai robot measure`; signed in place")
    parser.add_argument("--key", type=Path, metavar="FILE", help=f"default: {KEYS_SHOWN}/validator.key")
    add_passphrase_argument(parser)


def sign_time_file(arguments: argparse.Namespace) -> int:
    """Writes a signed statement of the current time; raises PhysaiError."""
    from physai.sdk.base.files import write_atomic
    from physai.sdk.evidence.verdict import utc_text
    from physai.sdk.signing.ed25519 import PRIVATE_SUFFIX, KeyFileError, load_private_key
    from physai.sdk.signing.time_statement import sign_time

    role = "validator" if arguments.replaces is None else "owner"
    files: list[Path] = arguments.key or [key_folder() / f"{role}{PRIVATE_SUFFIX}"]
    keys = [load_private_key(file, passphrase=passphrase_from(arguments.passphrase_file)) for file in files]
    replaces = None if arguments.replaces is None else utc_time("--replaces", arguments.replaces)
    now, corrections = datetime.now(UTC), arguments.corrections
    statement = sign_time(keys, arguments.robot, now, replaces=replaces, corrections=corrections)
    try:
        write_atomic(arguments.out, statement + b"\n")
    except OSError as error:
        raise KeyFileError(f"{arguments.out}: cannot be written: {error.strerror}") from None
    print(printable(f"{arguments.out}: states {utc_text(now)} for {arguments.robot}"))
    print("next  physai flash HOST BUNDLE --time FILE, or on the robot: physai robot time --statement FILE")
    return 0


def sign_ticks_file(arguments: argparse.Namespace) -> int:
    """Signs tick times in place; raises PhysaiError."""
    from physai.sdk.evidence.latency import load_evidence, save_evidence
    from physai.sdk.signing.evidence import sign_evidence

    evidence = load_evidence(arguments.file)
    key = load_key(arguments.key or key_folder() / "validator.key", "validator", arguments)
    signature = sign_evidence(key, "latency", evidence.sha256)
    save_evidence(evidence.model_copy(update={"signature": signature}), arguments.file)
    print(
        printable(f"{arguments.file}: {len(evidence.tick_s)} ticks from {evidence.origin}, signed by {key.key_id[:16]}")
    )
    return 0
