"""Cost of a step of the device environment apart from its time: waits, launches, memory; and of one of mjlab's."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import torch

from benchmarks.gpu.counting import OperationCounter
from benchmarks.gpu.gpu_peer import Peer
from benchmarks.measure import BenchmarkResult, WorkloadError
from physai.sim.engines.warp_device import WarpDeviceEngine
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.tasks.task import Task

GIGABYTES = (24, 80, 141)
"""Memory of the cards that the greatest number of worlds is stated for [GB]."""
_WORLDS = 8


def count(task: Task, device: str) -> list[BenchmarkResult]:
    """Counts of one step whose operations are launched one by one; a CUDA graph replays the same kernels.

    Raises:
        WorkloadError: a reward is not finite.
    """
    environment = _environment(task, _WORLDS, device)
    environment.reset()
    targets = {
        term.target_name: torch.tensor(term.offset, device=device).repeat(_WORLDS, 1)
        for term in task.contract.action.terms
    }
    environment.step(targets)
    with OperationCounter() as counter:
        step = environment.step(targets)
    if not bool(torch.isfinite(step.reward).all()):
        raise WorkloadError(f"{task.name}: a reward is not finite after two steps at rest")
    per_world = (_bytes(environment) - _bytes(_environment(task, _WORLDS // 2, device))) / (_WORLDS - _WORLDS // 2)
    return [
        *counts(task.name, len(counter.waits), counter.torch_kernels, counter.warp_kernels, counter.allocations),
        _result(f"bytes_per_world.{task.name}", "bytes", per_world),
        *(_result(f"most_worlds.{size}_gb.{task.name}", "worlds", size * 1e9 // per_world) for size in GIGABYTES),
    ]


def count_mjlab(peer: Peer) -> list[BenchmarkResult]:
    """The same counts of a step of mjlab's Go1 in which an episode ends.

    Raises:
        WorkloadError: mjlab failed, or no episode ended.
    """
    found = peer.ask("count")
    if not found["ended"]:
        raise WorkloadError("mjlab: no episode ended in the step that was counted")
    results = counts("mjlab_go1", len(found["waits"]), found["torch"], found["warp"], found["allocations"])
    return [dataclasses.replace(result, peer=peer.name) for result in results]


def counts(name: str, waits: int, in_torch: int, in_warp: int, allocations: int) -> list[BenchmarkResult]:
    """Results of what an `OperationCounter` counted."""
    return [
        _result(f"syncs_per_step.{name}", "waits", waits),
        _result(f"launches_per_step.{name}", "launches", in_torch + in_warp),
        _result(f"launches_per_step.warp.{name}", "launches", in_warp),
        _result(f"allocs_per_step.eager.{name}", "allocations", allocations),
    ]


def _result(name: str, unit: str, value: float) -> BenchmarkResult:
    return BenchmarkResult(name=name, unit=unit, runs=(float(value),))


def _environment(task: Task, worlds: int, device: str) -> DeviceEnvironment:
    engine = WarpDeviceEngine(
        task.model,
        worlds,
        device=device,
        stage=task.stage,
        parameters=ParameterDraws.fields(task),
        derived=task.derived,
        record=False,
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
