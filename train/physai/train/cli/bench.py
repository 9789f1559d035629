"""`physai bench`: alias of `python -m benchmarks` in a source tree."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand

_ROOT = Path(__file__).resolve().parents[4]
"""Of the source tree, if this module is in one."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="list the benchmarks as one JSON object")
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="NAME ...",
        help="as after `python -m benchmarks`",
    )


def _run(arguments: argparse.Namespace) -> int:
    if not (_ROOT / "benchmarks" / "__main__.py").is_file():
        raise PhysaiError(
            "the benchmarks are not in the installed package; run `python -m benchmarks` in a clone of its source"
        )
    # The folder is no package of this installation.
    sys.path.insert(0, str(_ROOT))
    benchmarks: Any = importlib.import_module("benchmarks.__main__")
    return benchmarks.main([*arguments.words, *(["--json"] if arguments.json else [])])


command = CliCommand(
    summary="compare speed and success with other software, in a source tree", add_arguments=_add_arguments, run=_run
)
