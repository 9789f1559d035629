"""Checks of options and the progress bar that several verbs share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

# For the verbs that are not made by the bridge yet.
from physai.sdk.base.arguments import MAX_SEED as MAX_SEED
from physai.sdk.base.arguments import require_range as require_range

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def add_device_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--device`, which `choose_policy_device` reads."""
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="DEVICE",
        help="what computes the policy: cpu, cuda[:N], or tensorrt[:N] for TensorRT on that GPU (default: cpu)",
    )


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--jobs` and `--ray`; see `check_worker_options`."""
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of worker processes (default: 1; with --ray, the number of processors of the cluster)",
    )
    add_ray_argument(parser, "run the workers on Ray")


def add_ray_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds `--ray`; `what` says what it does."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help=f"{what}: auto (the cluster of RAY_ADDRESS or of this computer, else one started here), local (one "
        "started here), or HOST:PORT of a cluster",
    )


def add_reward_without_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--reward-without`, which `physai.compute.sandbox.reward.parse_layers` reads."""
    parser.add_argument(
        "--reward-without",
        action="append",
        default=[],
        metavar="LAYER,…",
        help="run the file of --reward although the kernel or container lacks this layer of its sandbox: namespaces, "
        "landlock",
    )


def check_worker_options(arguments: argparse.Namespace) -> None:
    """Raises PhysaiError for a number of workers out of range, and for what is no address of a cluster."""
    from physai.compute.pool import require_jobs

    if arguments.jobs is not None:
        require_jobs(arguments.jobs)
    check_ray_option(arguments)


def check_ray_option(arguments: argparse.Namespace) -> None:
    """Raises PhysaiError for what is no address of a cluster."""
    if arguments.ray is not None:
        from physai.compute.ray.cluster import check_address

        check_address(arguments.ray)


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A progress bar on stderr, invisible if that is no terminal; `columns` replace the default ones."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)


@contextmanager
def share_bar(label: str) -> Generator[Callable[[float], None]]:
    """Show a progress bar on stderr, invisible if that is no terminal; yields what receives the share that is done."""
    with progress_bar() as bar:
        line = bar.add_task(label, total=1.0)

        def update(share: float) -> None:
            bar.update(line, completed=share)

        yield update
