"""`python -m physai.train.api.process OPTIONS [FOLDER]`: a run in a process of its own, perhaps one of several ranks.

OPTIONS are those of `TrainOptions.document`, as JSON. With FOLDER the first rank writes its result or error there.
"""

import json
import os
import sys
from pathlib import Path

from physai.sdk.base.terminal import printable
from physai.sdk.cli.main import ended, exit_code
from physai.train.api.options import TrainOptions
from physai.train.api.ranks import ERROR_FILE, RESULT_FILE
from physai.train.api.running import train_with
from physai.train.collectors.distributed import PeerLostError
from physai.train.runners.launch import LOST


def main(options: str, folder: Path | None = None) -> int:
    """Train and return the exit code.

    Args:
        options: options as JSON.
        folder: folder for the first rank's result or error. None to print an error.
    """
    leads = folder is not None and os.environ["RANK"] == "0"

    def refuse(message: str) -> int:
        # The process that started the ranks reports the error.
        if folder is not None and leads:
            (folder / ERROR_FILE).write_text(message)
        else:
            _say(f"physai: error: {printable(message)}")
        return 2

    return exit_code(lambda: _run(options, folder, leads=leads), refuse=refuse)


def _run(options: str, folder: Path | None, *, leads: bool) -> int:
    try:
        trained = train_with(TrainOptions.of(**json.loads(options)), say=_say)
    except PeerLostError as error:
        if folder is None:
            raise
        # The process that started the ranks reports the other one's end.
        if not leads:
            _say(str(error))
        return LOST
    if folder is not None and leads:
        (folder / RESULT_FILE).write_text(json.dumps({**vars(trained), "run": str(trained.run)}))
    return 130 if trained.interrupted else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(ended(main(sys.argv[1], *map(Path, sys.argv[2:]))))
