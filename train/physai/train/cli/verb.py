"""Command lines that run a `physai` verb in a separate process."""

import sys
from collections.abc import Sequence

_PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"

_TORCH_FREE = """
import sys
from physai.sdk.cli.main import main
code = main()
if "torch" in sys.modules:
    sys.exit("physai demo: this step imported torch, which the robot does not have")
sys.exit(code)
"""


def verb_command(arguments: Sequence[str], *, torch: bool) -> list[str]:
    """The command line of a verb in this interpreter; with `torch=False` the verb fails if it imports torch."""
    return [sys.executable, "-c", _PROGRAM if torch else _TORCH_FREE, *arguments]
