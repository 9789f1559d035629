"""Options of `physai train` for generators."""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.sim.tasks.task import Task
    from physai.train.config import TrainConfig
    from physai.train.runners.collector import Learner
    from physai.train.runners.run_config import RunTaskSource
    from physai.train.runners.runner import RolloutSource


def add_generator_arguments(parser: argparse.ArgumentParser) -> None:
    """`--generators` and `--ray`."""
    parser.add_argument(
        "--generators",
        type=int,
        metavar="K",
        help="divide the worlds over K generators, which step them for this process, the trainer",
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        type=ray_address,
        metavar="ADDRESS",
        help="run the generators on Ray: auto (the cluster of RAY_ADDRESS or of this computer, else one started here), "
        "local (one started here), or HOST:PORT of a cluster; without --ray they are in this process",
    )


def ray_address(text: str) -> str:
    """What `--ray` takes, for argparse."""
    # `--ray workflow.yaml` would take the file for the address, and then say that there is none.
    if text not in ("auto", "local") and ":" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write --ray auto, or put {text!r} before --ray")
    return text


def check_options(arguments: argparse.Namespace, ranks: int) -> None:
    """Raises PhysaiError for options that do not go with generators, and for processes that somebody else started."""
    if arguments.generators is None:
        if arguments.ray is not None:
            raise PhysaiError(f"--ray {arguments.ray} is for generators; add --generators K, or leave it out")
    elif arguments.gpus is not None or ranks > 1:
        raise PhysaiError(
            f"--generators {arguments.generators} work for one process that learns, not for {arguments.gpus or ranks}; "
            "leave out --generators, or else --gpus and torchrun"
        )


def checked_generators(arguments: argparse.Namespace, config: "TrainConfig") -> int | None:
    """How many generators there are to be; None for none.

    Raises:
        PhysaiError: other options do not go with generators.
    """
    count: int | None = arguments.generators
    if count is not None:
        from physai.train.cluster.launch import check_generators

        check_generators(config, count, arguments.ray)
    return count


def generator_origin(arguments: argparse.Namespace, generators: int | None) -> dict[str, str]:
    """Entries of a run's provenance."""
    if generators is None:
        return {}
    if arguments.ray is None:
        return {"generators": str(generators)}
    from physai.sim.workers.cluster import ray_version

    return {"generators": str(generators), "ray": arguments.ray, "version.ray": ray_version()}


def source_of_rollouts(
    arguments: argparse.Namespace,
    generators: int | None,
    task: "Task",
    source: "RunTaskSource",
    config: "TrainConfig",
) -> "AbstractContextManager[Callable[[Learner], RolloutSource] | None]":
    """What the trainer makes its collector with while the block runs; None for worlds in its own process."""
    if generators is None:
        return nullcontext()
    from physai.train.cluster.launch import generators_of

    return generators_of(task, source, config, generators=generators, address=arguments.ray)
