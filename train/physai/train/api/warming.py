"""`physai tasks warmup` as a function: compile ahead what a task's simulation on a device needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.sim.envs.device.capacity import Capacities
    from physai.sim.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Kernels of a task that are compiled, and the memory that its contacts get."""

    task: str
    device: str
    modules: int
    """Number of modules that the task needs."""
    compiled: int
    """Number of those that were compiled now."""
    seconds: float
    """Duration [s]."""
    capacities: Capacities


def warm_up(
    tasks: Annotated[Sequence[str | Path], Option(word=True, metavar="TASK")] = (),
    *,
    device: str = "auto",
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    twin: Annotated[Path | str | None, Option(metavar="TWIN")] = None,
    preset: str | None = None,
    deterministic: bool = False,
    measure: bool = False,
    max_contacts: int | None = None,
    max_constraints: int | None = None,
    say: Callable[[str], None] | None = None,
    done: Callable[[WarmUp], None] | None = None,
) -> list[WarmUp]:
    """Compile the kernels of tasks on a device, ahead of the first run.

    Args:
        tasks: task names or Python files. None for all built-in ones.
        device: device to compile for: auto (a GPU if there is one), cpu, cuda or cuda:N.
        model: MJCF or URDF file instead of the task's own robot, for one task.
        twin: calibrated twin to train in, for one task.
        preset: variant of the task, for one task.
        deterministic: kernels of `physai train --deterministic`.
        measure: measure again how much memory contacts need.
        max_contacts: set it instead: contacts per world.
        max_constraints: set it instead: constraints per world.
        say: receives progress.
        done: called with the result of each task.

    Raises:
        PhysaiError: options do not go together, or a task or the device cannot be used.
    """
    from physai.sim.engines.warp import require_device
    from physai.train.collectors.devices import choose_device

    chosen = _by_hand(len(tasks), max_contacts, max_constraints, measure=measure)
    on = choose_device(device, "warp")
    require_device(on)
    results: list[WarmUp] = []
    for task in _loaded(tasks, model, twin, preset):
        results.append(
            _warm_up(task, on, chosen, deterministic=deterministic, again=measure, say=say or (lambda text: None))
        )
        if done is not None:
            done(results[-1])
    return results


def _loaded(
    tasks: Sequence[str | Path], model: Path | str | None, twin: Path | str | None, preset: str | None
) -> list[Task]:
    from physai.sim.tasks.registry import task_names
    from physai.train.api.options import TrainOptions

    options = {"model": model, "twin": twin, "preset": preset}
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given and len(tasks) != 1:
        raise PhysaiError(f"{' and '.join(given)}: name the one TASK that it is for; got {len(tasks)}")
    return [TrainOptions.of(task=name, **options).source.load() for name in tasks or task_names()]


def _by_hand(tasks: int, max_contacts: int | None, max_constraints: int | None, *, measure: bool) -> Capacities | None:
    """The capacities that the options set.

    Raises:
        PhysaiError: only one of two is given, one is out of bounds, or for not exactly one task.
    """
    from physai.sdk.base.parameters.arguments import require_range
    from physai.sim.envs.device.capacity import MAX_CAPACITY, Capacities

    numbers = {"`max_contacts`": max_contacts, "`max_constraints`": max_constraints}
    given = [option for option, value in numbers.items() if value is not None]
    if not given:
        return None
    if max_contacts is None or max_constraints is None or tasks != 1 or measure:
        raise PhysaiError(
            f"{' and '.join(given)}: give both numbers, for one TASK, and without `measure`; got "
            f"{len(given)} of 2 for {tasks} tasks"
        )
    require_range("max_contacts", max_contacts, 1, MAX_CAPACITY)
    require_range("max_constraints", max_constraints, 1, MAX_CAPACITY)
    return Capacities(max_contacts=max_contacts, max_constraints=max_constraints, by_hand=True)


def _warm_up(
    task: Task,
    device: str,
    chosen: Capacities | None,
    *,
    deterministic: bool,
    again: bool,
    say: Callable[[str], None],
) -> WarmUp:
    from physai.sim.engines.warp_kernels import LoadedModule, listening
    from physai.sim.envs.device.capacity import capacities_of, keep, measure
    from physai.sim.envs.device.warmup import warm_up

    start, compiled, loaded = time.monotonic(), 0, 0

    def told(module: LoadedModule) -> None:
        nonlocal compiled, loaded
        loaded += 1
        compiled += module.compiled
        if module.compiled:
            say(f"{task.name}: compiled {module.name} for {module.device} in {module.seconds:.1f} s")

    with listening(told):
        say(f"{task.name}: looking for kernels that are not compiled yet for {device}")
        if again or chosen:
            capacities = chosen or measure(task, device=device)
            keep(task, capacities)
        else:
            capacities = capacities_of(task, device=device)
        warm_up(task, capacities, device=device, deterministic=deterministic)
    return WarmUp(
        task=task.name,
        device=device,
        modules=loaded,
        compiled=compiled,
        seconds=time.monotonic() - start,
        capacities=capacities,
    )
