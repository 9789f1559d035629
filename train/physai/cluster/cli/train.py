"""`physai train`: learn a policy."""

import argparse
import json
import os
import shlex
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from physai.cluster.cli import generators as generator_options
from physai.cluster.cli.resume import require_built_in, require_no_settings
from physai.cluster.cli.settings import option_pair
from physai.cluster.cli.train_team import is_team, run_team, team_config
from physai.sdk.base.errors import DeviceError, PhysaiError
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.train.collectors.distributed import Ranks
    from physai.train.runners.runner import Trainer
    from physai.train.runners.session import TrainingOutcome
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import TrainConfig


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
    """Trains, alone or as one rank of several; returns 0, or 130 when a signal ended it (its checkpoint is saved)."""
    from physai.sdk.policy.team_record import holds_team

    if "help" in arguments.options:
        return _print_settings(arguments)
    if arguments.time_budget_s is not None and not 0.0 < arguments.time_budget_s < float("inf"):
        raise PhysaiError(f"--time-budget-s must be a positive number of seconds, got {arguments.time_budget_s}")
    if is_team(arguments.task) or (arguments.resume is not None and holds_team(arguments.resume)):
        return run_team(arguments)
    if arguments.seeds is not None:
        return _each_seed(arguments)
    return _run_one(arguments)


def _run_one(arguments: argparse.Namespace) -> int:
    from physai.train.collectors import distributed
    from physai.train.runners.launch import LOST

    ranks = distributed.started()
    generator_options.check_options(arguments, ranks["WORLD_SIZE"] if ranks else 1)
    if _starts_ranks(arguments):
        return _launch(arguments)
    try:
        with distributed.joined() as ranks:
            return _train(arguments, ranks)
    except distributed.PeerLostError as error:
        if distributed.PARENT not in os.environ:
            raise
        # The process that started the ranks says what became of the other one.
        _say(str(error), leads=os.environ["RANK"] != "0")
        return LOST


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


def _launch(arguments: argparse.Namespace) -> int:
    """Runs this command line again, once per rank."""
    import torch

    from physai.train.collectors.devices import choose_device
    from physai.train.runners.launch import launch

    # What is wrong is refused before any process starts.
    folder, _, config = _resume(arguments) if arguments.resume else new_run(arguments)
    device = choose_device(arguments.device, config.engine)
    count = torch.cuda.device_count()
    if arguments.device != "cpu" and (device == "cpu" or count < arguments.gpus):
        raise DeviceError(
            f"--gpus {arguments.gpus}, but torch finds {count} and engine {config.engine} learns on {device}; start "
            "fewer processes, or add --device cpu to start them on the CPU"
        )
    chosen = [] if arguments.resume else ["--out", str(folder)]
    return launch([sys.executable, "-m", "physai.sdk.cli", *sys.argv[1:], *chosen], arguments.gpus, run=folder)


def _train(arguments: argparse.Namespace, ranks: "Ranks") -> int:
    from physai.train.runs.run_config import training_alone

    folder, source, config = ranks.first(lambda: _resume(arguments) if arguments.resume else new_run(arguments))
    with training_alone(folder) if ranks.leads else nullcontext():
        return _train_in(folder, source, config, arguments, ranks)


def _train_in(
    folder: Path, source: "RunTaskSource", config: "TrainConfig", arguments: argparse.Namespace, ranks: "Ranks"
) -> int:
    import torch

    from physai.train.collectors.devices import choose_device
    from physai.train.runners import session
    from physai.train.runners.imitation.teacher import imitate_file
    from physai.train.runners.initial_weights import load_initial_weights
    from physai.train.runners.runner import Trainer, check_settings, learner_threads

    generators = generator_options.checked_generators(arguments, config)
    if ranks.size > 1 and ":" in arguments.device:
        raise DeviceError(
            f"--device {arguments.device} is one GPU for {ranks.size} processes; use --device cuda, which gives each "
            "its own, and CUDA_VISIBLE_DEVICES to choose which"
        )
    device = ranks.device(choose_device(arguments.device, config.engine))
    torch.set_num_threads(learner_threads(config))
    task = source.load()
    check_settings(task, config, ranks=ranks.size)
    worlds = f"{config.num_envs} worlds" + (f" in each of {ranks.size} processes" if ranks.size > 1 else "")
    worlds += generator_options.described(generators, config)
    _say(
        f"training {task.name} on {device} with engine {config.engine}, {worlds}, seed {config.seed}, into {folder}",
        leads=ranks.leads,
    )
    with generator_options.source_of_rollouts(arguments, generators, task, source, config) as rollouts:
        trainer = Trainer(task, config, device=device, ranks=ranks, source=rollouts)
        if arguments.init_from is not None:
            load_initial_weights(trainer, arguments.init_from)
        if ranks.leads:
            # Only now, so that what was refused leaves no run.
            _begin(folder, source, trainer, arguments, generators)
        if arguments.teacher is not None and not arguments.resume:
            imitate_file(trainer, arguments.teacher, say=_say)
        outcome = session.run(
            trainer,
            folder,
            time_budget_s=arguments.time_budget_s,
            resume=arguments.resume is not None,
            wandb_project=arguments.wandb,
            mlflow_experiment=arguments.mlflow,
        )
    if ranks.leads:
        _report(arguments, folder, source, trainer, outcome)
    return 130 if outcome.interrupted else 0


def _begin(
    folder: Path, source: "RunTaskSource", trainer: "Trainer", arguments: argparse.Namespace, generators: int | None
) -> None:
    """Writes what a new run, or a session of an old one, keeps of its circumstances; warns of what learns badly."""
    from physai.sim.robots.checks.check import unstable_servos
    from physai.train.runs.run_config import begin_run, begin_session

    origin = generator_options.generator_origin(arguments, generators)
    if arguments.resume:
        begin_session(folder, origin)
        return
    sources = {"init_from": arguments.init_from, "teacher": arguments.teacher}
    origin = {name: str(path) for name, path in sources.items() if path is not None} | origin
    for note in begin_run(folder, source, trainer.config, trainer.task, origin=origin):
        _say(note)
    # A policy learns little from servos that tremble or explode, and no episode counts as diverged.
    for finding in unstable_servos(trainer.task.robot, trainer.task.model):
        _say(f"warning: {finding.about} {finding.text}; {finding.next_step} (physai robots check)")


def _report(
    arguments: argparse.Namespace, folder: Path, source: "RunTaskSource", trainer: "Trainer", outcome: "TrainingOutcome"
) -> None:
    if arguments.json:
        summary = {"run": str(folder), "contract": trainer.task.contract.fingerprint, **vars(outcome)}
        summary |= generator_options.totals(trainer.collector)
        print(json.dumps(summary))
    _say(f"{outcome.reason}: {outcome.env_steps / 1e6:.2f} M steps in {outcome.seconds:.0f} s")
    if trainer.diverged_episodes:
        _say(f"{trainer.diverged_episodes} episodes ended because the physics diverged")
    words = ["physai", "export", str(folder), *(["--task", str(folder)] if source.task.endswith(".py") else [])]
    _say(f"next: {shlex.join(words)}")


def new_run(arguments: argparse.Namespace) -> tuple[Path, "RunTaskSource", "TrainConfig"]:
    """Folder, task and settings of a new run.

    Raises:
        PhysaiError: there is no such task, a setting is wrong, or the folder holds a run.
    """
    from physai.train.runs.run_config import require_no_run

    source, config = configured(arguments)
    folder = arguments.out or Path("runs") / _name(source) / time.strftime("%Y%m%d-%H%M%S")
    require_no_run(folder, resumable=True)
    return folder, source, config


def _name(source: "RunTaskSource") -> str:
    return Path(source.task).stem if source.task.endswith(".py") else source.task


def configured(arguments: argparse.Namespace) -> tuple["RunTaskSource", "TrainConfig"]:
    """The task of a new run and its settings: the task's, then the initial network's, the file's, the options'."""
    from physai.train.collectors.devices import choose_engine
    from physai.train.runners.initial_weights import network_settings, require_same_network
    from physai.train.settings.config import read_settings, with_options, with_settings
    from physai.train.settings.presets import settings_of

    if not arguments.task:
        raise PhysaiError("name a task to train (see `physai tasks`), or a run to continue with --resume RUN")
    source = _source(arguments)
    task = source.load()
    config = settings_of(task, source.task, source.preset)
    named = set(task.training)
    if arguments.init_from is not None:
        config = with_settings(config, network_settings(arguments.init_from), source=str(arguments.init_from))
    if arguments.config is not None:
        settings = read_settings(arguments.config)
        config = with_settings(config, settings, source=str(arguments.config))
        named |= set(settings)
    options = dict(option_pair(text) for text in arguments.options)
    for name in ("num_envs", "seed", "iterations", "engine", "staleness"):
        if getattr(arguments, name) is not None:
            options[name] = str(getattr(arguments, name))
    if "engine" not in named:
        # Generators step worlds on processors, also where there is a GPU; and so do some settings.
        with_generators = arguments.generators is not None or arguments.placement is not None
        on_processors = with_generators or with_options(config, options).on_processors
        options.setdefault("engine", choose_engine("cpu" if on_processors else arguments.device))
    if arguments.deterministic:
        options["deterministic"] = "true"
    config = with_options(config, options)
    if arguments.init_from is not None:
        require_same_network(config, arguments.init_from)
    return source, config


def _source(arguments: argparse.Namespace) -> "RunTaskSource":
    from dataclasses import asdict

    from physai.sim.policies.resolve import named_source
    from physai.train.runs.run_config import RunTaskSource

    twin = str(arguments.twin.resolve()) if arguments.twin else None
    named = named_source(arguments.task, robot=arguments.robot, preset=arguments.preset)
    return RunTaskSource(**asdict(named), twin=twin)


def _resume(arguments: argparse.Namespace) -> tuple[Path, "RunTaskSource", "TrainConfig"]:
    from dataclasses import replace

    from physai.sdk.evidence.preferences import preference_entries
    from physai.sdk.policy.team_record import TEAM_KEY
    from physai.sim.robots import robot_names
    from physai.train.runners.checkpoint import learned_on, read_checkpoint
    from physai.train.runs.run_config import load_config

    source, config, origin = load_config(arguments.resume)
    if TEAM_KEY in origin:
        raise PhysaiError(
            f"{arguments.resume} learned in the team {origin[TEAM_KEY]}; continue all its robots with --resume "
            f"{arguments.resume.resolve().parent}, or this one alone in a new run with --init-from {arguments.resume}"
        )
    if preference_entries(origin):
        raise PhysaiError(
            f"{arguments.resume} learned from preferences, whose reward `physai train` does not know; start again with "
            "physai finetune or physai prefer train"
        )
    kept = ["num_envs", "seed", "out", "engine", "config", "init_from", "teacher", "staleness"]
    if not arguments.task:
        # A robot from a file has to be named again, so --robot is allowed with it.
        kept += (
            ["preset", "twin"] if source.robot and source.robot not in robot_names() else ["robot", "preset", "twin"]
        )
    require_no_settings(arguments, kept)
    if not arguments.task:
        require_built_in(source.task, arguments.resume)
    named = arguments.task and not Path(arguments.task).is_dir()
    if named and Path(arguments.task).name != Path(source.task).name:
        # The contract check that follows reports how the two tasks differ.
        source = _source(arguments)
    else:
        source = source.chosen(arguments.resume, task=arguments.task, robot=arguments.robot)
    if arguments.iterations is not None:
        config = replace(config, iterations=arguments.iterations)
    if (
        arguments.device == "auto"
        and config.engine == "warp"
        and learned_on(read_checkpoint(arguments.resume)) == "cpu"
    ):
        # A GPU draws other numbers.
        arguments.device = "cpu"
    return arguments.resume, source, config


def _print_settings(arguments: argparse.Namespace) -> int:
    """Prints all settings, with the values that they have for the named task and the other options."""
    from physai.train.settings.config import describe_settings

    arguments.options = [text for text in arguments.options if text != "help"]
    config = None
    if arguments.task:
        config = team_config(arguments) if is_team(arguments.task) else configured(arguments)[1]
    print(describe_settings(config))
    return 0


def _each_seed(arguments: argparse.Namespace) -> int:
    """Trains once per seed; what has ended is left alone, what was interrupted is continued."""
    from physai.cluster.cli.seeds import check_options, parse_seeds, unfinished

    check_options(arguments)
    seeds = parse_seeds(arguments.seeds)
    source, _ = configured(arguments)
    base: Path = arguments.out or Path("runs") / _name(source) / time.strftime("%Y%m%d-%H%M%S")
    for seed in seeds:
        folder = base / f"seed-{seed}"
        one = argparse.Namespace(**{**vars(arguments), "seeds": None, "seed": seed, "out": folder})
        state = unfinished(folder, lambda one=one: configured(one)[1])
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


def _say(text: str, *, leads: bool = True) -> None:
    if leads:
        print(text, file=sys.stderr)


command = CliCommand(summary="train a policy for a task", add_arguments=add_arguments, run=run)
