"""Modules of the source tree as programs of their own."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""Of the source tree, which has the packages `tests` and `benchmarks`."""

_RUN = """
import runpy, sys
root, module, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, root)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def program(module: str, *words: str) -> list[str]:
    """Command that runs a module from any working folder, even where `PYTHONSAFEPATH` is set."""
    return [sys.executable, "-c", _RUN, str(ROOT), module, *words]


def let_children_import() -> None:
    """Put the source tree on the path of this program's child processes, which unpickle what the harness gives them."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
