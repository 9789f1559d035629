"""`physai cluster`: plan generators, and where they run."""

from __future__ import annotations

import functools
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from physai.cluster.planning.plan_generators import plan_generators
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, noun, verb

if TYPE_CHECKING:
    from physai.cluster.planning.estimate import Costs, Node
    from physai.cluster.planning.plan_generators import GeneratorPlan

COUNTS = (1, 2, 4, 8, 16, 32, 100, 1000)
"""Numbers of generators that the table shows."""


@verb(plan_generators, summary="number and place of the generators that are worth starting")
def _plan(
    call: functools.partial[GeneratorPlan],
    *,
    task: str,
    num_envs: int | None = None,
    model: Path | None = None,
    preset: str | None = None,
    out: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Plan generators.

    The measurement takes a few iterations of the task on one processor of this computer. --nodes names a YAML file with
    the computers of a cluster, by their names, host names or addresses in Ray:

      nodes:
        - {name: rack-1, cpus: 64}
        - {name: rack-2, cpus: 32}

    Formula and limits: docs/explanation/cluster-scaling.md.
    """
    found = call(say=functools.partial(print, file=sys.stderr))
    costs, plan = found.costs, found.plan
    if as_json:
        print(json.dumps({"costs": asdict(costs), "limits": costs.limits(), "best": costs.best, **asdict(plan)}))
        return 0
    print(_table(costs))
    print()
    for reason in plan.reasons:
        print(printable(reason))
    print()
    print(printable(table(("node", "runs"), _placed(plan.trainer, plan.generators, found.nodes), indent="")))
    where = ["--generators", str(plan.count)] if out is None else ["--placement", str(out)]
    given = {"--num-envs": num_envs, "--model": model, "--preset": preset}
    where += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    print(f"\nphysai train {shlex.join([task, '--ray', 'auto', *where])}")
    return 0


def _table(costs: Costs) -> str:
    rows: list[tuple[str, ...]] = []
    for count in COUNTS:
        if count > costs.most:
            rows.append((str(count), "more than the worlds can be divided among", ""))
            break
        rates = (costs.steps / costs.iteration_s(count, asynchronous=late) for late in (False, True))
        rows.append((str(count), *(f"{rate:,.0f}" for rate in rates)))
    return table(("generators", "steps/s", "asynchronous"), rows, indent="")


def _placed(trainer: str, generators: Mapping[str, int], nodes: tuple[Node, ...]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for node in nodes:
        parts = ["trainer"] if node.name == trainer else []
        if count := generators.get(node.name):
            parts.append(f"{count} generator{'s' if count > 1 else ''}")
        if parts:
            rows.append((node.name, ", ".join(parts)))
    return rows


command = noun("plan generators on a cluster", {"plan": _plan})
