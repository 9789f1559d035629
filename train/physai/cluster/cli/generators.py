"""Options of `physai train` and `finetune` for generators."""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.cluster.placement.placement import Placement
    from physai.sim.tasks.task import Task
    from physai.train.collectors.collector import Learner
    from physai.train.runners.runner import RolloutSource
    from physai.train.runs.run_config import RunTaskSource
    from physai.train.settings.config import TrainConfig


def add_generator_arguments(parser: argparse.ArgumentParser) -> None:
    """`--generators`, `--ray` and `--placement`."""
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
    parser.add_argument(
        "--placement",
        type=Path,
        metavar="YAML",
        help="how many generators run on which nodes of the Ray cluster; `physai cluster plan --output` writes one",
    )


def add_staleness_argument(parser: argparse.ArgumentParser) -> None:
    """`--staleness`, which takes generators."""
    parser.add_argument(
        "--staleness",
        type=int,
        metavar="N",
        help="let generators play on while the trainer learns, with weights at most N updates older than those that "
        "learn from it (default: 0, they take turns)",
    )


def add_scoring_argument(parser: argparse.ArgumentParser) -> None:
    """`--scoring`, of a run that does without `--staleness` and `--gpus`."""
    parser.set_defaults(staleness=None, gpus=None)
    parser.add_argument(
        "--scoring",
        choices=("trainer", "generators", "apart"),
        help="where reward model and reference score what was played: in this process, in the generators as each "
        "share of the worlds ends, or then in actors of their own on Ray (default: generators, if there are any)",
    )


def ray_address(text: str) -> str:
    """Type of `--ray` for argparse."""
    # `--ray workflow.yaml` would take the file for the address, and then say that there is none.
    if text not in ("auto", "local") and ":" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write --ray auto, or put {text!r} before --ray")
    return text


def check_options(arguments: argparse.Namespace, ranks: int) -> None:
    """Refuses options that do not go with generators; with a placement, `--generators` becomes their number.

    Raises:
        PhysaiError: options do not go together, or with processes that somebody else started.
    """
    if arguments.placement is not None:
        arguments.generators = _placed(arguments)
    if arguments.generators is None:
        if arguments.ray is not None:
            raise PhysaiError(f"--ray {arguments.ray} is for generators; add --generators K, or leave it out")
        if arguments.staleness is not None:
            raise PhysaiError(
                f"--staleness {arguments.staleness} is for generators; add --generators K, or leave it out"
            )
    elif arguments.gpus is not None or ranks > 1:
        raise PhysaiError(
            f"--generators {arguments.generators} work for one process that learns, not for {arguments.gpus or ranks}; "
            "leave out --generators, or else --gpus and torchrun"
        )


def _placed(arguments: argparse.Namespace) -> int:
    from physai.cluster.placement.placement import read_placement

    if arguments.ray is None:
        raise PhysaiError(f"--placement {arguments.placement} names nodes of a Ray cluster; add --ray, or leave it out")
    count = read_placement(arguments.placement).count
    if arguments.generators not in (None, count):
        raise PhysaiError(
            f"--generators {arguments.generators}, but {arguments.placement} places {count}; leave out "
            "--generators, or change the file"
        )
    return count


def checked_generators(arguments: argparse.Namespace, config: "TrainConfig") -> int | None:
    """The checked number of generators; None for none.

    Raises:
        PhysaiError: other options do not go with generators.
    """
    count: int | None = arguments.generators
    if count is None and config.staleness:
        raise PhysaiError(
            f"the run's staleness is {config.staleness}, which takes generators; add --generators 1 or more, or start "
            "a new run with --set staleness=0"
        )
    if count is not None:
        from physai.cluster.generators.launch import check_generators

        check_generators(config, count, arguments.ray)
    return count


def check_scoring(arguments: argparse.Namespace) -> None:
    """Refuses a place for scoring that there is not; without `--scoring`, sets the one that measured best.

    Raises:
        PhysaiError: `--scoring` names it.
    """
    if arguments.scoring is None:
        arguments.scoring = "trainer" if arguments.generators is None else "generators"
    missing = {"trainer": None, "generators": "generators", "apart": "ray"}[arguments.scoring]
    if missing is not None and getattr(arguments, missing) is None:
        raise PhysaiError(
            f"--scoring {arguments.scoring} takes --generators K{' and --ray' if missing == 'ray' else ''}; add "
            f"{'it' if missing == 'generators' else 'them'}, or leave --scoring out"
        )


def placement_of(arguments: argparse.Namespace, *, scorers: bool) -> "Placement | None":
    """The placement that `--placement` names; None without.

    Args:
        arguments: options.
        scorers: whether the run starts scorers.

    Raises:
        PhysaiError: it cannot be read, or places scorers that there are not.
    """
    if arguments.placement is None:
        return None
    from physai.cluster.placement.placement import read_placement

    placement = read_placement(arguments.placement)
    if placement.scorers and not scorers:
        raise PhysaiError(
            f"{arguments.placement} places scorers, which only `physai finetune --scoring apart` starts; remove "
            "`scorers`, or use that"
        )
    return placement


def generator_origin(arguments: argparse.Namespace, generators: int | None) -> dict[str, str]:
    """Entries of a run's provenance."""
    if generators is None:
        return {}
    if arguments.ray is None:
        return {"generators": str(generators)}
    from physai.compute.ray.cluster import ray_version

    return {"generators": str(generators), "ray": arguments.ray, "version.ray": ray_version()}


def described(generators: int | None, config: "TrainConfig") -> str:
    """Text that follows the number of worlds."""
    if not generators:
        return ""
    stale = f", staleness {config.staleness}" if config.staleness else ""
    return f" on {generators} generator{'s' if generators > 1 else ''}{stale}"


def totals(collector: "RolloutSource") -> dict[str, Any]:
    """Entries of the outcome: what became of generators and their chunks in this session."""
    from physai.cluster.generators.async_collector import AsyncCollector

    return {"asynchronous": collector.totals()} if isinstance(collector, AsyncCollector) else {}


def source_of_rollouts(
    arguments: argparse.Namespace,
    generators: int | None,
    task: "Task",
    source: "RunTaskSource",
    config: "TrainConfig",
) -> "AbstractContextManager[Callable[[Learner], RolloutSource] | None]":
    """Maker of the trainer's collector while the block runs; None for worlds in its own process."""
    if generators is None:
        return nullcontext()
    from physai.cluster.generators.launch import generators_of

    placement = placement_of(arguments, scorers=False)
    return generators_of(task, source, config, generators=generators, address=arguments.ray, placement=placement)
