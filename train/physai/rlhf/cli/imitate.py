"""`physai imitate`: a policy from recordings of a robot, or from another policy."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.cluster.cli.settings import option_pairs
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.train.api.options import TrainOptions
    from physai.train.runners.runner import Trainer

MAX_ROUNDS = 20
WORTH_A_WARNING = 0.01
"""Share of commands beyond the policy's from which it says so."""

_DESCRIPTION = """\
Teach a network to answer as recordings show (behaviour cloning), or as another policy does (with --rounds: DAgger).

FILE is a recording as `physai logs check` reads it: CSV, JSON, Parquet of LeRobot, MCAP, or the folder of a ROS 2 bag.
Its commands must be of the kind that the task's policy gives. The result is a run folder as of `physai train`: evaluate
and export it, or go on by reinforcement learning with `physai train TASK --init-from RUN`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai imitate`."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("task", help="task name or Python file")
    parser.add_argument("--from", nargs="+", dest="files", metavar="FILE", help="recordings of the robot at the task")
    parser.add_argument("--teacher", type=Path, metavar="POLICY", help="imitate this policy.onnx or run instead")
    parser.add_argument(
        "--rounds",
        type=int,
        default=0,
        metavar="N",
        help=f"rounds in which the network plays and the teacher corrects it, at most {MAX_ROUNDS} (default: 0)",
    )
    parser.add_argument("--columns", type=Path, metavar="YAML", help="column map for all recordings")
    parser.add_argument("--out", type=Path, help="run folder (default: runs/TASK/DATE-TIME)")
    parser.add_argument("--seed", type=int, help="seed of all random numbers (default: 0)")
    parser.add_argument("--robot", metavar="FILE", help="MJCF or URDF file instead of the task's own robot")
    parser.add_argument("--twin", type=Path, metavar="TWIN", help="calibrated twin in which it is judged")
    parser.add_argument("--preset", help="variant of the task, if it has any")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="options", help="as for `physai train`"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Imitates and judges; returns 0."""
    if "help" in arguments.options:
        return _print_settings(arguments)
    if bool(arguments.files) == (arguments.teacher is not None):
        raise PhysaiError("give either --from FILE …, recordings, or --teacher POLICY")
    if not 0 <= arguments.rounds <= MAX_ROUNDS:
        raise PhysaiError(f"--rounds must lie in [0, {MAX_ROUNDS}], got {arguments.rounds}")
    if arguments.rounds and arguments.teacher is None:
        raise PhysaiError("--rounds needs --teacher: recordings cannot say what to do after the network's own mistakes")

    import torch

    from physai.train.api.resolution import resolved
    from physai.train.runners.runner import Trainer, learner_threads
    from physai.train.runs.run_config import begin_run, training_alone

    new = resolved(_as_training(arguments))
    folder, source, config = new.folder, new.source, new.config
    task = source.load()
    torch.set_num_threads(learner_threads(config))
    trainer = Trainer(task, config)
    learn, origin = _lesson(arguments, trainer)
    start = time.perf_counter()
    with training_alone(folder):
        for note in begin_run(folder, source, config, task, origin=origin):
            _say(note)
        outcome = learn()
        outcome |= _finish(trainer, folder, seconds=time.perf_counter() - start)
    if arguments.json:
        print(json.dumps({"run": str(folder), "contract": task.contract.fingerprint, **outcome}))
    share = outcome["success"]
    _say(
        f"succeeds in {share:.0%} of the commands or episodes, into {folder}" if share is not None else f"into {folder}"
    )
    own = ["--task", str(folder)] if source.task.endswith(".py") else []
    _say(f"next: {shlex.join(['physai', 'export', str(folder), *own])}")
    return 0


def _as_training(arguments: argparse.Namespace) -> TrainOptions:
    """Options of a training run with these settings."""
    from physai.train.api.options import TrainOptions

    return TrainOptions(
        task=arguments.task,
        out=arguments.out,
        device="cpu",
        engine="mujoco",
        seed=arguments.seed,
        robot=arguments.robot,
        twin=arguments.twin,
        preset=arguments.preset,
        settings=option_pairs(arguments.options),
    )


def _print_settings(arguments: argparse.Namespace) -> int:
    from physai.train.api.resolution import configured
    from physai.train.settings.config import describe_settings

    arguments.options = [text for text in arguments.options if text != "help"]
    print(describe_settings(configured(_as_training(arguments))[1]))
    return 0


Lesson = Callable[[], "dict[str, Any]"]


def _lesson(arguments: argparse.Namespace, trainer: Trainer) -> tuple[Lesson, Mapping[str, str]]:
    """The teacher, and entries for the provenance; all that is wrong with it is found before a folder is made."""
    task, graph = trainer.task, trainer.graph
    if arguments.teacher is not None:
        from physai.sim.policies.onnx import OnnxPolicy
        from physai.sim.policies.resolve import find_policy
        from physai.train.runners.imitation.teacher import imitate_file, require_teachable

        path, rounds = arguments.teacher, arguments.rounds
        require_teachable(task, OnnxPolicy.load(find_policy(path)), graph)

        def follow() -> dict[str, Any]:
            return vars(imitate_file(trainer, path, say=_say, rounds=rounds, critic=False))

        return follow, {"teacher": str(path)}
    from physai.sdk.base.formats.canonical import sha256_hex
    from physai.train.runners.imitation.demonstrations import cloned, from_logs
    from physai.twin.logs.reader import read_logs

    logs = read_logs(arguments.files, task.robot.spec, column_map=arguments.columns)
    _say(f"learning from {len(logs)} recordings of {sum(log.duration_s for log in logs):.0f} s")
    pairs = from_logs(graph, logs)
    if pairs.clipped > WORTH_A_WARNING:
        _say(
            f"warning: {pairs.clipped:.0%} of the recorded commands lie outside what this policy can give in one "
            "period; it learns the nearest (see the action's scale and limits: physai contract show)"
        )

    def learn() -> dict[str, Any]:
        learned = cloned(graph, pairs, seed=trainer.config.seed)
        apart = "" if learned.held_out_error is None else f", by {learned.held_out_error:.3f} on what was held out"
        _say(f"differs by {learned.error:.3f} of the range{apart}")
        return vars(learned)

    return learn, {"demonstrations": sha256_hex("\n".join(sorted(log.sha256 for log in logs)).encode())}


def _finish(trainer: Trainer, folder: Path, *, seconds: float) -> dict[str, Any]:
    """Saves the run, judges it without exploration, and writes how it ended."""
    from physai.train.runners.checkpoint import save_checkpoint
    from physai.train.runners.eval_scheduler import EPISODES
    from physai.train.runs.summary import Outcome, save_outcome

    save_checkpoint(trainer, folder)
    success = trainer.evaluate(EPISODES)["success"]
    found = success if 0.0 <= success <= 1.0 else None
    ended = Outcome(reason="imitated", interrupted=False, iterations=0, env_steps=0, seconds=seconds, success=found)
    save_outcome(folder, ended)
    return {"seconds": seconds, "success": found}


def _say(text: str) -> None:
    print(text, file=sys.stderr)


command = CliCommand(
    summary="teach a policy from recordings, or from another policy", add_arguments=add_arguments, run=run
)
"""The verb `imitate`."""
