"""`physai sim serve`: the digital twin as a service."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from physai.compute.cli.options import (
    add_device_argument,
    add_ray_argument,
    add_reward_without_argument,
    require_range,
)
from physai.sdk.base.errors import MissingExtraError, PhysaiError, unknown_name
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.compute.sandbox.reward import UserReward


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim serve`."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8800, help="port to listen on (default: 8800)")
    parser.add_argument(
        "--data", type=Path, default=Path("physai-service"), metavar="DIR", help="data folder (default: physai-service)"
    )
    parser.add_argument(
        "--db",
        metavar="URL",
        help="database: sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME (default: SQLite in the data folder)",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="jobs that run at once (default: 1)")
    add_ray_argument(parser, "run the jobs on Ray")
    add_device_argument(parser)
    parser.add_argument(
        "--preferences", type=Path, metavar="DB", help="ask the pairs of this preference database on the page /prefer"
    )
    parser.add_argument(
        "--preferences-robot", type=Path, metavar="FILE", help="robot to draw there, if the task is not built in"
    )
    parser.add_argument(
        "--reward",
        action="append",
        default=[],
        metavar="TASK=FILE",
        help="Python file whose reward(steps) or rubric(episode) replaces the task's reward for OpenEnv's clients; it "
        "runs in a sandbox; may be given once per task",
    )
    add_reward_without_argument(parser)
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="JSON line per request; - is standard error (default: requests.log in the data folder, at most 50 MB)",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="PEM", help="certificate; needed off loopback")
    parser.add_argument("--tls-key", type=Path, metavar="PEM", help="the certificate's private key")


def run(arguments: argparse.Namespace) -> int:
    """Serves until Ctrl-C."""
    try:
        from physai.service.serving.server import prepare
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"physai sim serve needs {error.name}; pip install 'physai-sdk[serve]'") from error
    from physai.compute.ray.cluster import check_address
    from physai.service.settings import ServiceSettings, default_database
    from physai.sim.policies.devices import choose_policy_device

    require_range("--port", arguments.port, 1, 65535)
    require_range("--workers", arguments.workers, 0, 256)
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise PhysaiError("--tls-cert and --tls-key belong together; give both or neither")
    device = choose_policy_device(arguments.device)
    if arguments.ray is not None:
        check_address(arguments.ray)
        if arguments.device != "cpu":
            raise PhysaiError(f"--ray computes policies on the CPU, not on --device {arguments.device}; leave one out")
    data = arguments.data.absolute()
    settings = ServiceSettings(
        data=data,
        database=arguments.db or default_database(data),
        host=arguments.host,
        port=arguments.port,
        workers=arguments.workers,
        device=str(device),
        ray=arguments.ray,
        log=arguments.log,
        preferences=arguments.preferences,
        preferences_robot=arguments.preferences_robot,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
    )
    with ExitStack() as stack:
        rewards = _open_rewards(arguments.reward, arguments.reward_without, stack)
        server = stack.enter_context(prepare(settings, rewards=rewards))
        scheme = "https" if settings.tls_cert else "http"
        print(f"serving {data} at {scheme}://{settings.host}:{settings.port} (Ctrl-C stops)", file=sys.stderr)
        if settings.preferences is not None:
            print(f"asking at {scheme}://{settings.host}:{settings.port}/prefer", file=sys.stderr)
        server.run()
    return 0


def _open_rewards(given: list[str], without: list[str], stack: ExitStack) -> dict[str, UserReward]:
    """Starts the rewards of `--reward` and says which layers hold them."""
    from physai.compute.sandbox.reward import UserReward, parse_layers
    from physai.sim.tasks.registry import task_names

    rewards: dict[str, UserReward] = {}
    for words in given:
        task, equals, file = words.partition("=")
        if not equals or not file:
            raise PhysaiError(f"--reward {words}: expected TASK=FILE, as ur10e-reach=mine.py")
        if task not in task_names():
            raise unknown_name("task", task, task_names())
        if task in rewards:
            raise PhysaiError(f"--reward {words}: {task} has a reward already; give one file per task")
        reward = stack.enter_context(UserReward(Path(file), without=parse_layers(without)))
        rewards[task] = reward
        print(f"{reward.form} of {task}: {file}, SHA-256 {reward.sha256}, {reward.confinement}", file=sys.stderr)
    return rewards


command = CliCommand(summary="serve twins, sessions and jobs to a team", add_arguments=add_arguments, run=run)
"""The verb `sim serve`."""
