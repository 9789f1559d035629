"""Training in a process of its own, whose options are JSON."""

import json
import sys

from physai.sdk.cli.main import exit_code
from physai.train.api.options import TrainOptions
from physai.train.api.running import train_with


def main(options: str) -> None:
    """Train and end the process.

    Args:
        options: those of `TrainOptions.document`, as JSON.
    """
    sys.exit(exit_code(lambda: _run(options)))


def _run(options: str) -> int:
    trained = train_with(TrainOptions.read(json.loads(options)), say=lambda text: print(text, file=sys.stderr))
    return 130 if trained.interrupted else 0
