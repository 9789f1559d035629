"""Training on several GPUs of one computer: a process each, started here."""

import json
import sys
import tempfile
from pathlib import Path

import torch

from physai.sdk.base.errors import DeviceError, PhysaiError
from physai.train.api.options import RolloutPool, TrainOptions
from physai.train.api.resolution import resolved
from physai.train.collectors.devices import choose_device
from physai.train.collectors.distributed import MAX_LOCAL_RANKS, started
from physai.train.runners.launch import launch
from physai.train.runners.session import TrainingRun

ERROR_FILE = "error.txt"
RESULT_FILE = "result.json"


def require_one_learner(generators: RolloutPool | None, ranks: int) -> None:
    """Refuse generators for several processes that learn.

    Raises:
        PhysaiError: there are generators and several processes.
    """
    if generators is not None and ranks > 1:
        raise PhysaiError(
            f"`generators` work for one process that learns, not for {ranks}; leave out `generators`, or else `gpus` "
            "and torchrun"
        )


def starts_ranks(gpus: int | None) -> bool:
    """Whether a run on so many GPUs starts processes, which then train with the same options.

    Raises:
        PhysaiError: the number is out of range, or not that of the ranks that torchrun started.
    """
    if gpus is None:
        return False
    if not 1 <= gpus <= MAX_LOCAL_RANKS:
        raise PhysaiError(f"`gpus` must lie in [1, {MAX_LOCAL_RANKS}], got {gpus}")
    ranks = started()
    if ranks and ranks["LOCAL_WORLD_SIZE"] != gpus:
        raise PhysaiError(
            f"`gpus` {gpus}, but {ranks['LOCAL_WORLD_SIZE']} ranks were started on this computer; leave `gpus` out, or "
            "start without torchrun"
        )
    return ranks is None and gpus > 1


def train_as_ranks(options: TrainOptions) -> TrainingRun:
    """Train in `options.gpus` processes and return what the first one returned.

    Raises:
        PhysaiError: an option is refused, here or by the first process.
        RanksError: a process failed.
        KeyboardInterrupt: a signal ended the processes before they had a result.
    """
    gpus = options.gpus or 1
    require_one_learner(options.generators, gpus)
    # Errors in the options are reported before any process starts.
    run = resolved(options)
    device = choose_device(run.device, run.config.engine)
    count = torch.cuda.device_count()
    if run.device != "cpu" and (device == "cpu" or count < gpus):
        raise DeviceError(
            f"`gpus` {gpus}, but torch finds {count} and engine {run.config.engine} learns on {device}; start "
            "fewer processes, or add `device` cpu to start them on the CPU"
        )
    document = options.document() | ({} if options.resume else {"out": str(run.folder)})
    with tempfile.TemporaryDirectory(prefix="physai-ranks-") as folder:
        words = ["-m", "physai.train.api.process", json.dumps(document), folder]
        code = launch([sys.executable, *words], gpus, run=run.folder)
        error, result = Path(folder) / ERROR_FILE, Path(folder) / RESULT_FILE
        if code and error.exists():
            raise PhysaiError(error.read_text())
        if not result.exists():
            raise KeyboardInterrupt
        found = json.loads(result.read_text())
        return TrainingRun(run=Path(found.pop("run")), **found)
