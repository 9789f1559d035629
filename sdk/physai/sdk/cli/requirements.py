"""The options that say what a robot asks of a verdict."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from physai.sdk.evidence.requirements import Requirements


def add_requirement_arguments(parser: argparse.ArgumentParser) -> None:
    """`--settings` and `--accept`."""
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="what the robot asks of a verdict, JSON (default: every gate)"
    )
    parser.add_argument(
        "--accept",
        metavar="KIND,…",
        help="evidence that the robot accepts, too: stand-in, computer, unknown (default: a robot's only)",
    )


def requirements_from(arguments: argparse.Namespace) -> Requirements | None:
    """What the options say; None where they say nothing.

    Raises:
        RequirementsError, OriginError: they are malformed.
    """
    from physai.sdk.evidence.origin import parse_accepted
    from physai.sdk.evidence.requirements import Requirements

    if arguments.settings is None and arguments.accept is None:
        return None
    asked = Requirements() if arguments.settings is None else Requirements.load(arguments.settings)
    if arguments.accept is None:
        return asked
    return asked.model_copy(update={"accept": parse_accepted(arguments.accept, option="--accept")})
