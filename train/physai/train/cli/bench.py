"""`physai bench`: alias of `python -m benchmarks` in a source tree."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.verb import AsJson, Option, verb

_ROOT = Path(__file__).resolve().parents[4]
"""Of the source tree, if this module is in one."""


@verb(summary="compare speed and success with other software, in a source tree")
def command(
    words: Annotated[Sequence[str], Option(word=True, rest=True, metavar="NAME ...")] = (), *, as_json: AsJson = False
) -> int:
    """Run benchmarks.

    Args:
        words: as after `python -m benchmarks`.
    """
    if not (_ROOT / "benchmarks" / "__main__.py").is_file():
        raise PhysaiError(
            "the benchmarks are not in the installed package; run `python -m benchmarks` in a clone of its source"
        )
    # The folder is no package of this installation.
    sys.path.insert(0, str(_ROOT))
    benchmarks: Any = importlib.import_module("benchmarks.__main__")
    return benchmarks.main([*words, *(["--json"] if as_json else [])])
