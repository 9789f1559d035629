"""Learning on a device: beside mjlab, until it succeeds, and how soon it starts."""

import tempfile
from dataclasses import replace

import torch

from benchmarks.gpu.gpu_peer import Peer
from benchmarks.gpu.gpu_speed import FULL, SpeedSize, against, finish, same_work
from benchmarks.measure import BenchmarkResult, ProgressCallback, WorkloadError, alternate, rate_of
from benchmarks.training.learners import Ours
from benchmarks.training.process import physai
from benchmarks.training.solve import solve
from physai.sim.tasks.task import Task
from physai.train.settings.config import TrainConfig

LIKE_MJLAB = TrainConfig(engine="warp", horizon=24, epochs=5, minibatches=4, hidden=(512, 256, 128), activation="elu")
"""The sizes of mjlab's preset for the Go1."""


def train_over_mjlab(task: Task, peer: Peer, size: SpeedSize, device: str) -> list[BenchmarkResult]:
    """Our environment steps per second with learning over mjlab's, with the same network, batch sizes and passes.

    Raises:
        WorkloadError: as for `env_over_mjlab`.
    """
    worlds = same_work(task, peer)
    config = replace(LIKE_MJLAB, num_envs=worlds)
    learner = Ours(task, config, device=device)
    learner.learn(1)
    horizon = peer.ask("train", iterations=1)["horizon"]
    if horizon != config.horizon:
        raise WorkloadError(f"mjlab learns from {horizon} steps per world, ours from {config.horizon}")
    steps = size.iterations * worlds * config.horizon

    def ours() -> float:
        def work() -> None:
            learner.learn(size.iterations)
            finish(torch.device(device))

        return rate_of(work, steps)

    def theirs() -> float:
        return steps / peer.ask("train", iterations=size.iterations)["seconds"]

    rates = alternate({"ours": ours, "mjlab": theirs}, size.rounds)
    learner.check(1 + size.iterations * size.rounds)
    return against(peer, "train", rates)


def learn_on(device: str) -> tuple[str, ...]:
    """Options of `physai train` that put worlds and learner on a device."""
    return ("--engine", "warp", "--device", device)


def seconds_to_success(
    task: str, threshold: float, budget_s: float, device: str, *, quick: bool, report: ProgressCallback
) -> list[BenchmarkResult]:
    """Wall time of `physai train` until a policy reaches the threshold, also in held-out episodes.

    Raises:
        WorkloadError: it did not in the budget.
    """
    options = (*learn_on(device), "--set", f"stop_at_success={threshold}")
    options += () if quick else ("--num-envs", str(FULL.worlds[0]))
    seconds, share = solve(task, 0, quick=quick, threshold=threshold, budget_s=budget_s, arguments=options)
    report(f"{task}: {seconds:.1f} s, success in {share:.1%} of held-out episodes")
    return [
        BenchmarkResult(name=f"seconds_to_success.{task}", unit="s", runs=(seconds,)),
        BenchmarkResult(name=f"success.{task}", unit="1", runs=(share,)),
    ]


def cold_start(task: str, worlds: int, device: str) -> list[BenchmarkResult]:
    """Wall time of a `physai train` of one iteration, from starting the process to its end, kernels compiled before.

    Raises:
        WorkloadError: a run failed.
    """
    seconds: list[float] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            sizes = ("--num-envs", str(worlds), "--iterations", "1")
            run = physai("train", task, "--out", f"{folder}/run", *learn_on(device), *sizes, "--json")
        if run.record["iterations"] != 1:
            raise WorkloadError(f"{task}: ran {run.record['iterations']} iterations, expected 1")
        seconds.append(run.seconds)
    # The first compiles.
    return [BenchmarkResult(name=f"cold_start_s.{task}", unit="s", runs=tuple(seconds[1:]))]
