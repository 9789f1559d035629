"""`python -m physai.train.api.rank OPTIONS FOLDER`: one process of a run on several GPUs.

OPTIONS are those of `TrainOptions.document`, as JSON. The first process writes its result, or its error, into FOLDER.
"""

import json
import os
import sys
from pathlib import Path

from physai.sdk.cli.main import exit_code
from physai.train.api.options import TrainOptions
from physai.train.api.ranks import ERROR_FILE, RESULT_FILE
from physai.train.api.running import train_with
from physai.train.collectors.distributed import PeerLostError
from physai.train.runners.launch import LOST


def _run(options: str, folder: Path) -> int:
    try:
        trained = train_with(TrainOptions.read(json.loads(options)), say=lambda text: print(text, file=sys.stderr))
    except PeerLostError as error:
        # The process that started the ranks reports the other one's end.
        if os.environ["RANK"] != "0":
            print(error, file=sys.stderr)
        return LOST
    if trained.leads:
        trained.save(folder / RESULT_FILE)
    return 130 if trained.interrupted else 0


def _refuse(message: str, folder: Path) -> int:
    """Hand the first rank's error to the process that started it, which reports it; print that of another one."""
    if os.environ["RANK"] == "0":
        (folder / ERROR_FILE).write_text(message)
    else:
        print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    place = Path(sys.argv[2])
    sys.exit(exit_code(lambda: _run(sys.argv[1], place), refuse=lambda message: _refuse(message, place)))
