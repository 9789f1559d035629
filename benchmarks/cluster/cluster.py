"""Generators on a real Ray cluster of this computer: what Ray costs, how it scales, and whether kills cost data."""

import contextlib
import dataclasses
import io
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.cluster.cluster_async import WaitingExecutor, WaitingSource, straggler, without_straggler
from benchmarks.cluster.cluster_overlap import overcommit, overlaps
from benchmarks.cluster.cluster_scoring import finetuning
from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.executor import Executor
from physai.cluster.generators.ray_executor import RayGenerators
from physai.compute.ray.cluster import connected
from physai.sdk.cli.main import main
from physai.sdk.contract.io import save_contract
from physai.sim.tasks.registry import load_task
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

TASK = "cartpole-swingup"
CONFIG = dataclasses.replace(preset_for(TASK), num_threads=1)
WAITING = dataclasses.replace(CONFIG, num_envs=128, horizon=16, epochs=1, minibatches=1)
WAIT_S = 0.010
GENERATORS = 8
KILLS = 50
MEASURED = {"iterations": 20, "rounds": 3}
"""Of fine-tuning."""
_MB = 2.0**20


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Runs the benchmark; `quick` keeps every workload and shortens it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        results = [
            *_ray_over_inprocess(report, iterations=4 if options.quick else 40, rounds=1 if options.quick else 5),
            *_scaling(report, iterations=3 if options.quick else 20),
            *_kills(report, kills=3 if options.quick else KILLS),
            _cached(report),
        ]
        few: dict[str, int] = {"iterations": 4, "seeds": 1} if options.quick else {}
        results += [*straggler(report, **few), *without_straggler(report, **few)]
        results += overcommit(report, **({"iterations": 30, "seeds": 3} | few))
        results += overlaps(report, iterations=4 if options.quick else 20)
        return [*results, *finetuning(report, **({"iterations": 2, "rounds": 1} if options.quick else MEASURED))]
    finally:
        torch.set_num_threads(threads)


def _together(executor: Executor, config: TrainConfig, generators: int) -> Trainer:
    task = load_task(TASK)
    return Trainer(
        task, config, source=lambda learner: ClusterCollector(task, config, learner, executor, generators=generators)
    )


def _weights(trainer: Trainer) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in trainer.graph.state_dict().values())


def _steps_per_s(trainer: Trainer, iterations: int) -> float:
    """Steps per second after two iterations to warm up; the median, for other programs disturb some."""
    rates: list[float] = []
    for number in range(iterations + 2):
        steps, start = trainer.env_steps, time.perf_counter()
        trainer.train_iteration()
        if number >= 2:
            rates.append((trainer.env_steps - steps) / (time.perf_counter() - start))
    return statistics.median(rates)


def _ray_over_inprocess(report: ProgressCallback, *, iterations: int, rounds: int) -> list[BenchmarkResult]:
    """One generator and the learner through Ray, and one process with the same seeds, in turn."""
    ratios: list[float] = []
    with connected("local", processors=2) as ray:
        for number in range(rounds):
            alone = Trainer(load_task(TASK), CONFIG)
            executor = RayGenerators(ray, RunTaskSource(task=TASK), CONFIG)
            through = _together(executor, CONFIG, 1)
            order = [alone, through] if number % 2 == 0 else [through, alone]
            rates = {id(trainer): _steps_per_s(trainer, iterations) for trainer in order}
            executor.close()
            if _weights(alone) != _weights(through):
                raise WorkloadError("weights of one generator differ from those of one process")
            ratios.append(rates[id(through)] / rates[id(alone)])
            report(f"round {number}: {rates[id(through)]:.0f} steps/s through Ray, {rates[id(alone)]:.0f} in process")
    return [BenchmarkResult(name="ray_over_inprocess", unit="1", runs=tuple(ratios), peer="one process")]


def _scaling(report: ProgressCallback, *, iterations: int) -> list[BenchmarkResult]:
    """Worlds that wait in each step: with eight generators as many worlds wait at once on each as with one."""
    rates: dict[int, float] = {}
    starts: dict[int, float] = {}
    memory: list[float] = []
    with connected("local", processors=GENERATORS) as ray:
        for count in (1, GENERATORS):
            # Weak scaling: a generator's worlds wait together, so eight generators have eight times the worlds.
            config = dataclasses.replace(WAITING, num_envs=WAITING.num_envs // GENERATORS * count)
            source = WaitingSource(task=TASK, waits_s=(WAIT_S,) * count)
            executor = WaitingExecutor(ray, source, config)
            start = time.perf_counter()
            trainer = _together(executor, config, count)
            trainer.train_iteration()
            starts[count] = time.perf_counter() - start
            rates[count] = _steps_per_s(trainer, iterations)
            memory += [_unshared_mb(pid) for _, pid in executor.processes.values()] if count > 1 else []
            executor.close()
            report(f"{count} generators: {rates[count]:.0f} steps/s, {starts[count]:.1f} s to the first chunk")
    each_ms = 1e3 * (starts[GENERATORS] - starts[1]) / (GENERATORS - 1)
    return [
        BenchmarkResult(
            name=f"scaling_{GENERATORS}", unit="1", runs=(rates[GENERATORS] / rates[1],), peer="1 generator"
        ),
        BenchmarkResult(name="generator_memory", unit="MB", runs=tuple(memory)),
        BenchmarkResult(name="generator_start", unit="ms", runs=(each_ms,)),
    ]


def _unshared_mb(pid: int) -> float:
    """Memory that the computer would have more without this process [MB]."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return private * 1024 / _MB


def _kills(report: ProgressCallback, *, kills: int) -> list[BenchmarkResult]:
    """Kills random generators at random times; the weights show whether a sample was lost or counted twice."""
    config = dataclasses.replace(CONFIG, num_envs=64, horizon=32)
    chance = random.Random(0)
    done = iterations = 0
    with connected("local", processors=2) as ray:
        executor = RayGenerators(ray, RunTaskSource(task=TASK), config)
        trainer = _together(executor, config, 2)
        trainer.train_iteration()
        iterations += 1
        while done < kills:
            _, pid = chance.choice(list(executor.processes.values()))
            with _killed_after(pid, chance.uniform(0.0, 0.05)) as killer:
                trainer.train_iteration()
                iterations += 1
            done += killer.hit
            if done and done % 10 == 0 and killer.hit:
                report(f"{done} of {kills} kills in {iterations} iterations")
        replaced = getattr(trainer.collector, "replaced", 0)
        executor.close()
    alone = Trainer(load_task(TASK), config)
    for _ in range(iterations):
        alone.train_iteration()
    lost = 0 if _weights(alone) == _weights(trainer) and alone.env_steps == trainer.env_steps else 1
    return [
        BenchmarkResult(name="kills", unit="1", runs=(float(done),)),
        BenchmarkResult(name="replaced", unit="1", runs=(float(replaced),)),
        BenchmarkResult(name="lost", unit="runs whose weights differ", runs=(float(lost),)),
    ]


@dataclasses.dataclass
class _Killer:
    hit: int = 0


@contextlib.contextmanager
def _killed_after(pid: int, delay_s: float) -> Any:
    """Kills a process that much later, while the block runs or at its end."""
    killer = _Killer()

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killer.hit = 1

    timer = threading.Timer(delay_s, kill)
    timer.start()
    try:
        yield killer
    finally:
        timer.join()


def _cached(report: ProgressCallback) -> BenchmarkResult:
    """A workflow of six stages, run twice."""
    stages: dict[str, Any] = {}
    for number in range(6):
        stages[f"stage{number}"] = {
            "image": "train",
            "command": ["contract", "show", "${inputs.contract}"],
            "stdout": "text",
            "inputs": {"contract": {"path": "contract.json"}}
            | ({"before": {"from": f"stage{number - 1}.text"}} if number else {}),
            "outputs": {"text": "text.txt"},
        }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "six.yaml"
        document = {
            "format_version": 1,
            "name": "six",
            "images": {"train": {"name": "physai-train", "platforms": ["linux/amd64"]}},
            "stages": stages,
        }
        file.write_text(yaml.safe_dump(document))
        save_contract(load_task(TASK).contract, Path(folder) / "contract.json")
        words = ["workflow", "run", str(file), "--folder", f"{folder}/results"]
        seconds: list[float] = []
        for _ in range(2):
            start = time.perf_counter()
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = main(words)
            if code != 0:
                raise WorkloadError(f"the workflow ended with {code}: {said.getvalue()[-500:]}")
            seconds.append(time.perf_counter() - start)
    report(f"six stages: {seconds[0]:.1f} s, then {seconds[1]:.2f} s")
    return BenchmarkResult(name="cached_seconds", unit="s", runs=(seconds[1],))
