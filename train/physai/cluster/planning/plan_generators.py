"""`physai cluster plan` as a function: number and place of the generators that are worth starting."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.cluster.planning.estimate import Costs, Node, Plan


@dataclass(frozen=True, kw_only=True)
class GeneratorPlan:
    """Costs of a task and the generators that they justify."""

    costs: Costs
    """Costs of simulation, learning and transfer on one processor of this computer."""
    plan: Plan
    nodes: tuple[Node, ...]


def plan_generators(
    task: str | Path,
    *,
    nodes: Annotated[Path | str | None, Option(metavar="YAML")] = None,
    gbit_s: Annotated[float, Option(metavar="X")] = 10.0,
    num_envs: int | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    preset: str | None = None,
    out: Annotated[Path | str | None, Option(flags=("-o",), old=("--output",))] = None,
    say: Callable[[str], None] | None = None,
) -> GeneratorPlan:
    """Measure simulation, learning and transfer on one processor, and plan the generators of a cluster.

    Args:
        task: task name or Python file, as of `physai train`.
        nodes: computers of the cluster. None for this one.
        gbit_s: network to the trainer [Gbit/s].
        num_envs: number of worlds. None for the task's.
        model: MJCF or URDF file instead of the task's own robot.
        preset: variant of the task, if it has any.
        out: write the placement for `physai train --placement`.
        say: receives the line that names the measurement.

    Raises:
        PhysaiError: the task, a setting or the file of the nodes cannot be used.
    """
    import torch

    from physai.cluster.planning.estimate import Node, measure, plan, read_nodes
    from physai.sim.policies.resolve import named_source
    from physai.train.settings.config import with_options
    from physai.train.settings.presets import settings_of

    if not 1e-3 <= gbit_s <= 1e5:
        raise PhysaiError(f"`gbit_s` must lie in [0.001, 100000], got {gbit_s:g}")
    found = (Node(name="here", cpus=os.cpu_count() or 1),) if nodes is None else read_nodes(Path(nodes))
    source = named_source(str(task), robot=None if model is None else str(model), preset=preset)
    loaded = source.load()
    config = settings_of(loaded, source.task, source.preset)
    if num_envs is not None:
        config = with_options(config, {"num_envs": str(num_envs)})
    torch.set_num_threads(1)
    if say is not None:
        say(f"measuring {loaded.name} with {config.num_envs} worlds on one processor")
    costs = replace(measure(loaded, config), bandwidth=gbit_s * 1e9 / 8.0)
    planned = plan(costs, found)
    if out is not None:
        _write(Path(out), planned, named=nodes is not None)
    return GeneratorPlan(costs=costs, plan=planned, nodes=tuple(found))


def _write(path: Path, found: Plan, *, named: bool) -> None:
    from physai.cluster.placement.placement import placement_text
    from physai.sdk.base.files import write_atomic

    text = placement_text(found.placement(named=named), reasons=found.reasons)
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
