"""Cost of a step of the device environment, the share of the physics' speed that is left in it, and its speed of
learning.

Waits, launches, allocations and memory are counted without a GPU, too. The rest needs one: without, each result says
that it was not measured. Results with `mjlab` in the name need `--peer-python`, the Python of an environment that has
mjlab.
"""

import contextlib
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from benchmarks.gpu import gpu_counts, gpu_learning, gpu_speed
from benchmarks.gpu.gpu_peer import Peer, mjlab
from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback
from physai.sdk.base.errors import PhysaiError
from physai.sim.tasks.registry import load_task

TASKS = ("cartpole-swingup", "pendubot-swingup", "ur10e-reach", "go2-velocity")
FAST = ("go2-velocity", "ur10e-reach")
"""Tasks whose speed is measured."""
LIKE_GO1 = "go2-velocity"
"""What is compared with mjlab's velocity environment of the Go1, a robot of the same build."""
SUCCESS = {"go2-velocity": (0.9, 300.0), "ur10e-reach": (0.95, 120.0)}
"""Required success rate, and training time after which a run has failed [s]."""
COUNTS = {"syncs_per_step": "waits", "launches_per_step": "launches", "allocs_per_step.eager": "allocations"}
NO_CARD = "no CUDA device"
NO_PEER = "no --peer-python"
_COUNTED_WORLDS = 8


@dataclass(frozen=True)
class Measurement:
    """One measurement, and what stands in for it where it cannot be made."""

    names: Mapping[str, str]
    """Main results, with their units."""
    work: Callable[[], Sequence[BenchmarkResult]]

    def results(self, why_not: str | None, report: ProgressCallback) -> list[BenchmarkResult]:
        """Measures, unless there is a reason not to; one that fails leaves the others their results."""
        report(", ".join(self.names))
        try:
            results = [] if why_not else list(self.work())
        # torch and Warp raise RuntimeError for what a device cannot do.
        except (PhysaiError, RuntimeError) as error:
            results, why_not = [], f"failed: {str(error).splitlines()[0]}"
            report(why_not)
        gc.collect()
        return results or [
            BenchmarkResult(name=name, unit=unit, runs=(), missing=why_not or "failed: no result")
            for name, unit in self.names.items()
        ]


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Counts for each task, then speed and learning where there is a card."""
    tasks = options.chosen(TASKS)
    card = torch.cuda.is_available()
    device, size = "cuda:0" if card else "cpu", gpu_speed.QUICK if options.quick else gpu_speed.FULL
    with contextlib.ExitStack() as stack:
        peer = None
        if options.peer_python is not None and LIKE_GO1 in tasks:
            worlds = size.worlds[0] if card else _COUNTED_WORLDS
            peer = stack.enter_context(mjlab(options.peer_python, device, worlds))
        results: list[BenchmarkResult] = []
        for name in tasks:
            # The first launch of a kernel compiles it, once per machine.
            results += counted(name, device).results(None, report)
        no_card = None if card else NO_CARD
        for measurement, needs_card in _with_peer(tasks, peer, size, device):
            results += measurement.results((no_card if needs_card else None) or (None if peer else NO_PEER), report)
    # mjlab has ended, so that learning has the card for itself.
    for measurement in alone(tasks, size, device, quick=options.quick, report=report):
        results += measurement.results(no_card, report)
    return results


def counted(name: str, device: str) -> Measurement:
    """The counts of a task's step."""
    counts = {**COUNTS, "bytes_per_world": "bytes"}
    return Measurement(
        {f"{count}.{name}": unit for count, unit in counts.items()}, lambda: gpu_counts.count(load_task(name), device)
    )


def _with_peer(
    tasks: Sequence[str], peer: Peer | None, size: gpu_speed.SpeedSize, device: str
) -> list[tuple[Measurement, bool]]:
    """Measurements beside mjlab, and whether each needs a card."""
    if LIKE_GO1 not in tasks:
        return []

    def beside(measure: Callable[..., list[BenchmarkResult]]) -> Callable[[], list[BenchmarkResult]]:
        return lambda: measure(load_task(LIKE_GO1), peer, size, device)

    names = {f"{name}.mjlab_go1": unit for name, unit in COUNTS.items()}
    return [
        (Measurement(names, lambda: gpu_counts.count_mjlab(peer) if peer else []), False),
        (Measurement({"env_over_mjlab": "1"}, beside(gpu_speed.env_over_mjlab)), True),
        (Measurement({"train_over_mjlab": "1"}, beside(gpu_learning.train_over_mjlab)), True),
    ]


def alone(
    tasks: Sequence[str], size: gpu_speed.SpeedSize, device: str, *, quick: bool, report: ProgressCallback
) -> list[Measurement]:
    """Measurements that need a card and no peer."""
    found = [
        Measurement(
            {f"allocs_per_step.{name}": "allocations"},
            lambda name=name: gpu_speed.allocations(load_task(name), size.worlds[0], size.steps, device),
        )
        for name in tasks
    ]
    for name in (name for name in FAST if name in tasks):
        found += [
            Measurement(
                {f"env_over_raw.{load_task(name).robot.name}.{worlds}": "1"},
                lambda name=name, worlds=worlds: gpu_speed.env_over_raw(load_task(name), worlds, size, device),
            )
            for worlds in size.worlds
        ]
        found.append(
            Measurement(
                {f"cold_start_s.{name}": "s"},
                lambda name=name: gpu_learning.cold_start(name, size.worlds[0], device),
            )
        )
        threshold, budget_s = SUCCESS[name]
        found.append(
            Measurement(
                {f"seconds_to_success.{name}": "s"},
                lambda name=name, threshold=threshold, budget_s=budget_s: gpu_learning.seconds_to_success(
                    name, threshold, budget_s, device, quick=quick, report=report
                ),
            )
        )
    return found
