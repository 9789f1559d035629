"""Recomputes the verdict in a report folder from the record of its run, before a validator signs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.plugins import contributions
from physai.sdk.cli.shared.key_files import key_folder
from physai.sdk.cli.shared.signed_evidence import add_trust_argument, trusted_validators

if TYPE_CHECKING:
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.evidence.verdict import Verdict
    from physai.sdk.signing.ed25519 import PublicKey, SigningKey

RECORDS = "physai.verdict_records"
"""Entry-point group of functions that recompute a verdict from the record of its run."""


class Rederive(Protocol):
    """See `physai.gates.record.rederive`."""

    def __call__(
        self,
        report: Path,
        members: Mapping[str, bytes],
        *,
        task: str | None,
        robot: str | None,
        replays: int | None,
        device: str,
        validators: tuple[PublicKey, ...],
        tell: Callable[[str], None],
    ) -> Verdict: ...


def add_record_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--verdict` and the options needed to recompute it."""
    parser.add_argument(
        "--verdict",
        type=Path,
        metavar="DIR",
        help="report folder of `physai sim validate`; the verdict is recomputed from its record before it is signed",
    )
    parser.add_argument("--replay", metavar="N", default="all", help="batches of episodes to replay (default: all)")
    parser.add_argument("--device", default="cpu", help="`--device` of the validation (default: cpu)")
    parser.add_argument("--task", help="task file of the verdict, if the task is not built in")
    parser.add_argument("--robot-file", metavar="FILE", help="MJCF or URDF of the robot, if it is not built in")
    add_trust_argument(parser)


def rederived(bundle: Bundle, arguments: argparse.Namespace, key: SigningKey) -> Verdict:
    """The verdict in a report folder, recomputed from its record by the validator with this key.

    Raises:
        PhysaiError: no verdict is given, the simulator is not installed, or the record gives another verdict.
    """
    from physai.sdk.bundle.archive import BundleError
    from physai.sdk.signing.exam import JOURNAL_FILE, with_opened

    if arguments.verdict is None:
        raise BundleError("a validator signs a verdict: give --verdict DIR, a report folder of `physai sim validate`")
    folder: Path = arguments.verdict if arguments.verdict.is_dir() else arguments.verdict.parent
    plugins = contributions(RECORDS)
    if not plugins:
        raise MissingExtraError(
            "a verdict is recomputed before it is signed, which needs the simulator: pip install 'physai-sdk[sim]'"
        )
    rederive: Rederive = next(iter(plugins.values())).load()
    verdict = rederive(
        folder,
        bundle.members,
        task=arguments.task,
        robot=arguments.robot_file,
        replays=_replays(arguments.replay),
        device=arguments.device,
        validators=(*trusted_validators(arguments.trust), key.public_key("validator")),
        tell=lambda text: print(text, file=sys.stderr) if sys.stderr.isatty() else None,
    )
    if verdict.exam is None or verdict.exam.validator != key.key_id:
        return verdict
    return verdict.model_copy(update={"exam": with_opened(verdict.exam, key_folder() / JOURNAL_FILE)})


def _replays(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 6 and int(text) >= 1):
        raise PhysaiError(f"--replay {text!r}: give a number of batches, at least 1, or all")
    return int(text)
