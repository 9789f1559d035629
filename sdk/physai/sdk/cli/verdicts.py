"""What a validator signs: the verdict in a report folder, derived anew from the record of its run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.base.plugins import contributions

if TYPE_CHECKING:
    from physai.sdk.bundle.manifest import Bundle
    from physai.sdk.evidence.verdict import Verdict

RECORDS = "physai.verdict_records"
"""Entry-point group of what derives a verdict from the record of its run."""


class Rederive(Protocol):
    """See `physai.sim.gates.record.rederive`."""

    def __call__(
        self,
        report: Path,
        members: Mapping[str, bytes],
        *,
        task: str | None,
        robot: str | None,
        replays: int | None,
        tell: Callable[[str], None],
    ) -> Verdict: ...


def add_record_arguments(parser: argparse.ArgumentParser) -> None:
    """`--verdict` and what it takes to derive it anew."""
    parser.add_argument(
        "--verdict",
        type=Path,
        metavar="DIR",
        help="folder of `physai sim validate`: its verdict is derived anew from the record there before it is signed",
    )
    parser.add_argument(
        "--replay", metavar="N", default="all", help="batches of episodes to play once more (default: all)"
    )
    parser.add_argument("--task", help="task file of the verdict, where it is no built-in task")
    parser.add_argument("--robot-file", metavar="FILE", help="its MJCF or URDF, where it is no built-in robot")


def rederived(bundle: Bundle, arguments: argparse.Namespace) -> Verdict:
    """The verdict in a report folder, which its record must bear out.

    Raises:
        PhysaiError: no verdict was named, there is no simulator here, or the record says otherwise.
    """
    from physai.sdk.bundle.archive import BundleError

    if arguments.verdict is None:
        raise BundleError("a validator signs what was validated here: --verdict DIR, as `physai sim validate` wrote it")
    folder: Path = arguments.verdict if arguments.verdict.is_dir() else arguments.verdict.parent
    found = contributions(RECORDS)
    if not found:
        raise MissingExtraError(
            "a verdict is derived anew before it is signed, and that takes the simulator: pip install 'physai-sdk[sim]'"
        )
    rederive: Rederive = next(iter(found.values())).load()
    return rederive(
        folder,
        bundle.members,
        task=arguments.task,
        robot=arguments.robot_file,
        replays=_replays(arguments.replay),
        tell=lambda text: print(text, file=sys.stderr) if sys.stderr.isatty() else None,
    )


def _replays(text: str) -> int | None:
    if text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= len(text) <= 6 and int(text) >= 1):
        raise PhysaiError(f"--replay {text!r}: give a number of batches from 1, or all")
    return int(text)
