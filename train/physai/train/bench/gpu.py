"""What a step of the device environment costs apart from physics, counted on Warp's CPU device.

The same code runs on a GPU, so launches, waits and memory per world are the same there. Speed is not measured here.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import torch

from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sim.engines.warp_device import WarpDeviceEngine
from physai.sim.envs.device.counting import OperationCounter
from physai.sim.envs.device.environment import DeviceEnvironment
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task

TASKS = ("cartpole-swingup", "pendubot-swingup", "ur10e-reach", "go2-velocity")
GIGABYTES = (24, 80, 141)
"""Memory of the cards that the greatest number of worlds is stated for [GB]."""
_WORLDS = 8


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Counts for each task."""
    results: list[BenchmarkResult] = []
    for name in options.chosen(TASKS):
        report(f"{name}: compiling kernels for the CPU device, once")
        results += _count(load_task(name))
    return results


def _count(task: Task) -> list[BenchmarkResult]:
    environment = _environment(task, _WORLDS)
    environment.reset()
    targets = {term.target_name: torch.tensor(term.offset).repeat(_WORLDS, 1) for term in task.contract.action.terms}
    environment.step(targets)
    with OperationCounter() as counter:
        step = environment.step(targets)
    if not bool(torch.isfinite(step.reward).all()):
        raise WorkloadError(f"{task.name}: a reward is not finite after two steps at rest")
    per_world = (_bytes(environment) - _bytes(_environment(task, _WORLDS // 2))) / (_WORLDS - _WORLDS // 2)

    def result(what: str, unit: str, value: float) -> BenchmarkResult:
        return BenchmarkResult(name=f"{what}.{task.name}", unit=unit, runs=(float(value),))

    return [
        result("syncs_per_step", "waits", len(counter.waits)),
        result("launches_per_step", "launches", counter.torch_kernels + counter.warp_kernels),
        result("launches_per_step.warp", "launches", counter.warp_kernels),
        result("bytes_per_world", "bytes", per_world),
        *(result(f"most_worlds.{size}_gb", "worlds", size * 1e9 // per_world) for size in GIGABYTES),
    ]


def _environment(task: Task, worlds: int) -> DeviceEnvironment:
    engine = WarpDeviceEngine(
        task.model, worlds, stage=task.stage, parameters=ParameterDraws.fields(task), derived=task.derived, record=False
    )
    return DeviceEnvironment(task, engine, training=True)


def _bytes(found: Any, seen: set[int] | None = None) -> int:
    """Bytes of all tensors and Warp arrays that an object holds."""
    seen = set() if seen is None else seen
    if id(found) in seen:
        return 0
    seen.add(id(found))
    if isinstance(found, torch.Tensor):
        storage = found.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()
    if hasattr(found, "capacity") and hasattr(found, "ptr"):
        if found.ptr in seen:
            return 0
        seen.add(found.ptr)
        return int(found.capacity)
    parts: list[Any] = []
    if isinstance(found, dict):
        parts = list(cast("dict[str, Any]", found).values())
    elif isinstance(found, list | tuple):
        parts = list(cast("Sequence[Any]", found))
    elif dataclasses.is_dataclass(found):
        parts = [getattr(found, field.name) for field in dataclasses.fields(found)]
    elif type(found).__module__.startswith(("physai.sim.engines", "physai.sim.envs")):
        parts = list(cast("dict[str, Any]", vars(found)).values())
    return sum(_bytes(part, seen) for part in parts)
