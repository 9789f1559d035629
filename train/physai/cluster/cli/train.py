"""`physai train`: learn a policy."""

import argparse
import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.cluster.cli import generators as generator_options
from physai.cluster.cli.settings import option_pairs
from physai.cluster.cli.train_team import is_team, run_team, team_config
from physai.sdk.base.errors import DeviceError, PhysaiError
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.train.api.options import TrainOptions
    from physai.train.api.training import TrainingRun


_OF_NEW_RUNS = ("out", "seed", "num_envs", "staleness", "engine", "config", "init_from", "teacher", "preset", "twin")
"""Options of `--seeds` that a run which is resumed has in its folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai train`."""
    parser.add_argument(
        "task",
        nargs="?",
        help="task or team name, Python file, or run folder whose copy of the task is to be run; with --resume only if "
        "the run's task is not built in",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/TASK/DATE-TIME)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue this run folder from its checkpoint")
    parser.add_argument(
        "--init-from", type=Path, metavar="RUN", help="start a new run from the weights of this run folder"
    )
    parser.add_argument(
        "--teacher",
        type=Path,
        metavar="POLICY",
        help="start by imitating this policy.onnx or run, for instance a designed one, on the CPU",
    )
    parser.add_argument(
        "--engine",
        choices=("mujoco", "warp"),
        help="physics engine: mujoco on the CPU, or warp where the policy learns (default: warp on a GPU, else mujoco)",
    )
    parser.add_argument(
        "--device",
        default="auto",
        help="where to learn: auto, cpu or cuda:N (default: auto, a GPU if there is one)",
    )
    parser.add_argument("--deterministic", action="store_true", help="make runs on one GPU equal, which is slower")
    parser.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="learn on N GPUs of this computer, a process each; with --device cpu in N processes; on several computers "
        "start `-m physai.sdk.cli train …` with torchrun instead",
    )
    generator_options.add_generator_arguments(parser)
    generator_options.add_staleness_argument(parser)
    parser.add_argument("--num-envs", type=int, metavar="N", help="number of worlds simulated in parallel, on each GPU")
    parser.add_argument("--seed", type=int, help="seed of all random numbers (default: 0)")
    parser.add_argument(
        "--seeds", metavar="A..B", help="train once per seed, one after another: 0..4 or 0,3,7; run it again to go on"
    )
    parser.add_argument("--iterations", type=int, metavar="N", help="number of updates after which to stop")
    parser.add_argument(
        "--time-budget-s",
        type=float,
        metavar="S",
        help="training time after which to stop [s]; earlier sessions of a resumed run count",
    )
    parser.add_argument(
        "--robot", metavar="FILE", help="MJCF or URDF file to train with instead of the task's own robot"
    )
    parser.add_argument(
        "--twin", type=Path, metavar="TWIN", help="train with the model, delay and noise of this calibrated twin"
    )
    parser.add_argument("--preset", help="variant of the task, if it has any")
    parser.add_argument(
        "--config", type=Path, metavar="YAML", help="file of settings, such as `discount_s: 2.0`; --set goes over it"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="options",
        help="any other setting, such as learning_rate=3e-4; `TASK --set help` lists them with this task's values",
    )
    _add_trackers(parser)
    parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object")


def _add_trackers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wandb", metavar="PROJECT", help="log to this Weights & Biases project, too")
    parser.add_argument(
        "--mlflow", metavar="EXPERIMENT", help="log to this MLflow experiment, too, at MLFLOW_TRACKING_URI or locally"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, alone or as one rank of several; return 0, or 130 when a signal ended it (its checkpoint is saved)."""
    from physai.sdk.policy.team_record import holds_team

    if "help" in arguments.options:
        return _print_settings(arguments)
    if is_team(arguments.task) or (arguments.resume is not None and holds_team(arguments.resume)):
        return run_team(arguments)
    if arguments.seeds is not None:
        return _each_seed(arguments)
    return _run_one(arguments)


def train_options(arguments: argparse.Namespace, *, ranks: int = 1) -> "TrainOptions":
    """The options of one run.

    Args:
        arguments: options.
        ranks: number of processes that learn.

    Raises:
        PhysaiError: options do not go together.
    """
    from physai.train.api.options import TrainOptions

    fields = {field.name for field in dataclasses.fields(TrainOptions)} - {"settings", "generators"}
    return TrainOptions(
        **{name: getattr(arguments, name) for name in fields},
        settings=option_pairs(arguments.options),
        generators=generator_options.generators_of(arguments, ranks=ranks),
    )


def _run_one(arguments: argparse.Namespace) -> int:
    from physai.train.api.training import train_with
    from physai.train.collectors import distributed
    from physai.train.runners.launch import LOST

    ranks = distributed.started()
    options = train_options(arguments, ranks=ranks["WORLD_SIZE"] if ranks else 1)
    if _starts_ranks(arguments):
        return _launch(options, arguments.gpus)
    try:
        trained = train_with(options, say=_say)
    except distributed.PeerLostError as error:
        if distributed.PARENT not in os.environ:
            raise
        # The process that started the ranks says what became of the other one.
        if os.environ["RANK"] != "0":
            _say(str(error))
        return LOST
    if trained.leads:
        _report(trained, as_json=arguments.json)
    return 130 if trained.interrupted else 0


def _starts_ranks(arguments: argparse.Namespace) -> bool:
    """Whether to start processes; the processes started have the same command line.

    Raises:
        PhysaiError: `--gpus` is out of range, or not the number of ranks that somebody else started.
    """
    from physai.train.collectors.distributed import MAX_LOCAL_RANKS, started

    if arguments.gpus is None:
        return False
    if not 1 <= arguments.gpus <= MAX_LOCAL_RANKS:
        raise PhysaiError(f"--gpus must lie in [1, {MAX_LOCAL_RANKS}], got {arguments.gpus}")
    ranks = started()
    if ranks and ranks["LOCAL_WORLD_SIZE"] != arguments.gpus:
        raise PhysaiError(
            f"--gpus {arguments.gpus}, but {ranks['LOCAL_WORLD_SIZE']} ranks were started on this computer; leave "
            "--gpus out, or start without torchrun"
        )
    return ranks is None and arguments.gpus > 1


def _launch(options: "TrainOptions", gpus: int) -> int:
    """Run this command line again, once per rank."""
    import torch

    from physai.train.api.resolution import resolved
    from physai.train.collectors.devices import choose_device
    from physai.train.runners.launch import launch

    # What is wrong is refused before any process starts.
    run = resolved(options)
    device = choose_device(run.device, run.config.engine)
    count = torch.cuda.device_count()
    if run.device != "cpu" and (device == "cpu" or count < gpus):
        raise DeviceError(
            f"--gpus {gpus}, but torch finds {count} and engine {run.config.engine} learns on {device}; start "
            "fewer processes, or add --device cpu to start them on the CPU"
        )
    chosen = [] if options.resume else ["--out", str(run.folder)]
    return launch([sys.executable, "-m", "physai.sdk.cli", *sys.argv[1:], *chosen], gpus, run=run.folder)


def _report(trained: "TrainingRun", *, as_json: bool) -> None:
    if as_json:
        outcome = {name: getattr(trained, name) for name in ("iterations", "env_steps", "seconds", "success", "reason")}
        print(json.dumps({"run": str(trained.run), "contract": trained.contract, **outcome, **trained.totals}))
    _say(f"{trained.reason}: {trained.env_steps / 1e6:.2f} M steps in {trained.seconds:.0f} s")
    if trained.diverged_episodes:
        _say(f"{trained.diverged_episodes} episodes ended because the physics diverged")
    task = ["--task", str(trained.run)] if trained.task.endswith(".py") else []
    _say(f"next: {shlex.join(['physai', 'export', str(trained.run), *task])}")


def _print_settings(arguments: argparse.Namespace) -> int:
    """Print all settings, with the values that they have for the named task and the other options."""
    from physai.train.api.resolution import configured
    from physai.train.settings.config import describe_settings

    arguments.options = [text for text in arguments.options if text != "help"]
    config = None
    if arguments.task:
        config = team_config(arguments) if is_team(arguments.task) else configured(train_options(arguments))[1]
    print(describe_settings(config))
    return 0


def _each_seed(arguments: argparse.Namespace) -> int:
    """Train once per seed; what has ended is left alone, what was interrupted is continued."""
    from physai.cluster.cli.seeds import check_options, parse_seeds, unfinished
    from physai.train.api.options import default_folder
    from physai.train.api.resolution import configured

    check_options(arguments)
    seeds = parse_seeds(arguments.seeds)
    source, _ = configured(train_options(arguments))
    base: Path = arguments.out or default_folder(source)
    for seed in seeds:
        folder = base / f"seed-{seed}"
        one = argparse.Namespace(**{**vars(arguments), "seeds": None, "seed": seed, "out": folder})
        state = unfinished(folder, lambda one=one: configured(train_options(one))[1])
        if state == "finished":
            _say(f"{folder} has ended")
            continue
        if state == "interrupted":
            one = argparse.Namespace(**{**vars(one), **dict.fromkeys(_OF_NEW_RUNS), "resume": folder})
            one.options, one.deterministic = [], False
        code = _run_one(one)
        if code != 0:
            return code
    _say(f"next: physai runs compare {base}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


command = CliCommand(summary="train a policy for a task", add_arguments=add_arguments, run=run)
