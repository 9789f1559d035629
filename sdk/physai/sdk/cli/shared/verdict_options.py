"""Command-line options for a robot's requirements on verdicts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from physai.sdk.evidence.requirements import Requirements


def add_requirement_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--settings` and `--accept`."""
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="the robot's requirements on verdicts, JSON (default: every gate)"
    )
    parser.add_argument(
        "--accept",
        metavar="KIND,…",
        help="further origins of evidence that the robot accepts: stand-in, computer, unknown (default: robot only)",
    )


def requirements_from(arguments: argparse.Namespace) -> Requirements | None:
    """Requirements from the parsed options; None if neither option is given.

    Raises:
        RequirementsError, OriginError: an option is malformed.
    """
    from physai.sdk.evidence.origin import parse_accepted
    from physai.sdk.evidence.requirements import Requirements

    if arguments.settings is None and arguments.accept is None:
        return None
    requirements = Requirements() if arguments.settings is None else Requirements.load(arguments.settings)
    if arguments.accept is None:
        return requirements
    return requirements.model_copy(update={"accept": parse_accepted(arguments.accept, option="--accept")})
