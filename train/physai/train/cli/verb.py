"""Verbs of `physai` in processes of their own."""

import sys
from collections.abc import Sequence

_PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main(sys.argv[1:]))"

_TORCH_FREE = """
import sys
from physai.sdk.cli.main import main
code = main(sys.argv[1:])
if "torch" in sys.modules:
    sys.exit("physai demo: torch was imported where the robot has none")
sys.exit(code)
"""


def verb_command(arguments: Sequence[str], *, torch: bool) -> list[str]:
    """The command line of a verb in this interpreter; without `torch` it fails if it took torch to do its work."""
    return [sys.executable, "-c", _PROGRAM if torch else _TORCH_FREE, *arguments]
