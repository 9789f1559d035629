"""`physai tasks warmup`: compile what a task's simulation on a device needs, ahead of the first run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import styled
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.sim.envs.device.capacity import Capacities
    from physai.sim.tasks.task import Task


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="*", metavar="TASK", help="task names or Python files (default: all built-in)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: a GPU if there is one)")
    parser.add_argument("--robot", metavar="FILE", help="as in `physai train`, for one TASK")
    parser.add_argument("--twin", type=Path, metavar="TWIN", help="as in `physai train`, for one TASK")
    parser.add_argument("--preset", help="as in `physai train`, for one TASK")
    parser.add_argument("--deterministic", action="store_true", help="kernels of `physai train --deterministic`")
    parser.add_argument("--measure", action="store_true", help="measure again how much memory contacts need")
    parser.add_argument("--max-contacts", type=int, metavar="N", help="set it instead: contacts per world")
    parser.add_argument("--max-constraints", type=int, metavar="N", help="set it instead: constraints per world")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    from physai.sim.engines.warp import require_device
    from physai.train.collectors.devices import choose_device

    chosen = _by_hand(arguments)
    arguments.device = choose_device(arguments.device, "warp")
    require_device(arguments.device)
    tasks = _tasks(arguments)
    results = [_warm_up(task, arguments, chosen) for task in tasks]
    if arguments.json:
        print(json.dumps(results, indent=2))
    return 0


def _tasks(arguments: argparse.Namespace) -> list[Task]:
    from physai.sim.tasks.registry import task_names
    from physai.train.runs.run_config import RunTaskSource

    given = [f"--{name}" for name in ("robot", "twin", "preset") if getattr(arguments, name) is not None]
    if given and len(arguments.task) != 1:
        raise PhysaiError(f"{' and '.join(given)}: name the one TASK that it is for; got {len(arguments.task)}")
    twin = str(arguments.twin.resolve()) if arguments.twin else None
    return [
        RunTaskSource(task=name, robot=arguments.robot, preset=arguments.preset, twin=twin).load()
        for name in arguments.task or task_names()
    ]


def _by_hand(arguments: argparse.Namespace) -> Capacities | None:
    """The capacities that the options set.

    Raises:
        PhysaiError: only one of two is given, one is out of bounds, or for not exactly one task.
    """
    from physai.compute.cli.options import require_range
    from physai.sim.envs.device.capacity import MAX_CAPACITY, Capacities

    numbers = {"--max-contacts": arguments.max_contacts, "--max-constraints": arguments.max_constraints}
    given = [option for option, value in numbers.items() if value is not None]
    if not given:
        return None
    if len(given) < len(numbers) or len(arguments.task) != 1 or arguments.measure:
        raise PhysaiError(
            f"{' and '.join(given)}: give both numbers, for one TASK, and without --measure; got "
            f"{len(given)} of 2 for {len(arguments.task)} tasks"
        )
    for option, value in numbers.items():
        require_range(option, value, 1, MAX_CAPACITY)
    return Capacities(max_contacts=arguments.max_contacts, max_constraints=arguments.max_constraints, by_hand=True)


def _warm_up(task: Task, arguments: argparse.Namespace, chosen: Capacities | None) -> dict[str, Any]:
    from physai.sim.engines.warp_kernels import LoadedModule, listening
    from physai.sim.envs.device.capacity import capacities_of, keep, measure
    from physai.sim.envs.device.warmup import warm_up

    start, compiled, loaded = time.monotonic(), 0, 0

    def told(module: LoadedModule) -> None:
        nonlocal compiled, loaded
        loaded += 1
        compiled += module.compiled
        if module.compiled:
            _say(f"{task.name}: compiled {module.name} for {module.device} in {module.seconds:.1f} s")

    with listening(told):
        _say(f"{task.name}: looking for kernels that are not compiled yet for {arguments.device}")
        if arguments.measure or chosen:
            capacities = chosen or measure(task, device=arguments.device)
            keep(task, capacities)
        else:
            capacities = capacities_of(task, device=arguments.device)
        warm_up(task, capacities, device=arguments.device, deterministic=arguments.deterministic)
    seconds = time.monotonic() - start
    if not arguments.json:
        how = "set by hand" if capacities.by_hand else "measured"
        print(
            f"{task.name}: {compiled} of {loaded} modules compiled for {arguments.device} in {seconds:.1f} s; memory "
            f"for {capacities.max_contacts} contacts and {capacities.max_constraints} constraints per world ({how})"
        )
    return {
        "task": task.name,
        "device": arguments.device,
        "modules": loaded,
        "compiled": compiled,
        "seconds": round(seconds, 3),
        **capacities.model_dump(),
    }


def _say(text: str) -> None:
    print(styled(text, "dim", sys.stderr), file=sys.stderr, flush=True)


command = CliCommand(summary="compile a task's simulation kernels ahead", add_arguments=_add_arguments, run=_run)
"""The verb `warmup`."""
