"""Options of `physai train` and `finetune` for generators."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.cluster.generators.launch import Generators


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


def generators_of(arguments: argparse.Namespace, *, ranks: int = 1) -> "Generators | None":
    """Generators that the options ask for; None for none.

    Args:
        arguments: options.
        ranks: number of processes that learn.

    Raises:
        PhysaiError: options do not go together, or with processes that somebody else started.
    """
    from physai.cluster.generators.launch import Generators

    count: int | None = arguments.generators
    placement = None
    if arguments.placement is not None:
        from physai.cluster.placement.placement import read_placement

        if arguments.ray is None:
            raise PhysaiError(
                f"--placement {arguments.placement} names nodes of a Ray cluster; add --ray, or leave it out"
            )
        placement = read_placement(arguments.placement)
        if count not in (None, placement.count):
            raise PhysaiError(
                f"--generators {count}, but {arguments.placement} places {placement.count}; leave out --generators, or "
                "change the file"
            )
        count = placement.count
    if count is None:
        for name in ("ray", "staleness"):
            if (value := getattr(arguments, name)) is not None:
                raise PhysaiError(f"--{name} {value} is for generators; add --generators K, or leave it out")
        return None
    if arguments.gpus is not None or ranks > 1:
        raise PhysaiError(
            f"--generators {count} work for one process that learns, not for {arguments.gpus or ranks}; "
            "leave out --generators, or else --gpus and torchrun"
        )
    return Generators(count, ray=arguments.ray, placement=placement, placed_by=arguments.placement)
