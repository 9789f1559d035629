"""`physai cluster`: how many generators pay off, and where they run."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.cluster.generators.estimate import Costs, Node, Plan

COUNTS = (1, 2, 4, 8, 16, 32, 100, 1000)
"""Numbers of generators that the table shows."""

_PLAN = """\
Measure what playing, learning and sending cost on one processor of this computer, and say how many generators pay off.

--nodes names a YAML file with the computers of a cluster, by their names, host names or addresses in Ray:

  nodes:
    - {name: rack-1, cpus: 64}
    - {name: rack-2, cpus: 32}

--output writes where generators run, for `physai train --placement`. The measurement takes a few iterations of the
task. Its formula and what it leaves out: docs/explanation/cluster-scaling.md.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    one = actions.add_parser(
        "plan",
        help="how many generators pay off, and where",
        description=_PLAN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.add_argument("task", help="task name or Python file, as of `physai train`")
    one.add_argument("--nodes", type=Path, metavar="YAML", help="computers of the cluster (default: this one)")
    one.add_argument("--gbit-s", type=float, default=10.0, metavar="X", help="network to the trainer (default: 10)")
    one.add_argument("--num-envs", type=int, metavar="N", help="number of worlds (default: the task's)")
    one.add_argument("--robot", metavar="FILE", help="MJCF or URDF file instead of the task's own robot")
    one.add_argument("--preset", help="variant of the task, if it has any")
    one.add_argument("--output", "-o", type=Path, metavar="YAML", help="write the placement for `physai train`")
    one.add_argument("--json", action="store_true", help="print one JSON object")


def _run(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    import torch

    from physai.cluster.generators.estimate import Node, measure, plan, read_nodes
    from physai.sdk.base.errors import PhysaiError
    from physai.sim.policies.resolve import named_source
    from physai.train.settings.config import with_options
    from physai.train.settings.presets import settings_of

    if not 1e-3 <= arguments.gbit_s <= 1e5:
        raise PhysaiError(f"--gbit-s must lie in [0.001, 100000], got {arguments.gbit_s:g}")
    nodes = read_nodes(arguments.nodes) if arguments.nodes else (Node(name="here", cpus=os.cpu_count() or 1),)
    source = named_source(arguments.task, robot=arguments.robot, preset=arguments.preset)
    task = source.load()
    config = settings_of(task, source.task, source.preset)
    if arguments.num_envs is not None:
        config = with_options(config, {"num_envs": str(arguments.num_envs)})
    torch.set_num_threads(1)
    print(f"measuring {task.name} with {config.num_envs} worlds on one processor", file=sys.stderr)
    costs = replace(measure(task, config), bandwidth=arguments.gbit_s * 1e9 / 8.0)
    found = plan(costs, nodes)
    if arguments.output is not None:
        _write(arguments.output, found, named=arguments.nodes is not None)
    if arguments.json:
        print(json.dumps({"costs": asdict(costs), "limits": costs.limits(), "best": costs.best, **asdict(found)}))
        return 0
    print(_table(costs))
    print()
    for reason in found.reasons:
        print(printable(reason))
    print()
    print(printable(table(("node", "runs"), _placed(found.trainer, found.generators, nodes), indent="")))
    where = ["--generators", str(found.count)] if arguments.output is None else ["--placement", str(arguments.output)]
    given = {"--num-envs": arguments.num_envs, "--robot": arguments.robot, "--preset": arguments.preset}
    where += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    print(f"\nphysai train {shlex.join([arguments.task, '--ray', 'auto', *where])}")
    return 0


def _write(path: Path, found: Plan, *, named: bool) -> None:
    from physai.cluster.placement.placement import placement_text
    from physai.sdk.base.errors import PhysaiError
    from physai.sdk.base.files import write_atomic

    text = placement_text(found.placement(named=named), reasons=found.reasons)
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _table(costs: Costs) -> str:
    rows: list[tuple[str, ...]] = []
    for count in COUNTS:
        if count > costs.most:
            rows.append((str(count), "more than the worlds can be divided among", ""))
            break
        rates = (costs.steps / costs.iteration_s(count, asynchronous=late) for late in (False, True))
        rows.append((str(count), *(f"{rate:,.0f}" for rate in rates)))
    return table(("generators", "steps/s", "asynchronous"), rows, indent="")


def _placed(trainer: str, generators: dict[str, int], nodes: tuple[Node, ...]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for node in nodes:
        parts = ["trainer"] if node.name == trainer else []
        if count := generators.get(node.name):
            parts.append(f"{count} generator{'s' if count > 1 else ''}")
        if parts:
            rows.append((node.name, ", ".join(parts)))
    return rows


command = CliCommand(summary="plan generators on a cluster", add_arguments=_add_arguments, run=_run)
"""The verb `cluster`."""
