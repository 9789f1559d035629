"""Time from starting `physai train` to a policy that solves its task, and the policy's success rate."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.training.process import physai
from physai.sim.policies.evaluate import evaluation_seeds, play_episodes
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.runners.checkpoint import load_run

THRESHOLDS = {"cartpole-swingup": 0.95, "pendubot-swingup": 0.95, "ur10e-reach": 0.95}
"""Required success rate in held-out episodes (of commands, where an episode has several)."""
TIME_BUDGET_S = 900.0
FRESH_SEED = 0xF2E5_8E9
"""Seed of the held-out episodes; the evaluations during training use others."""


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Trains every task with its preset and each seed.

    Raises:
        WorkloadError: a policy misses its success rate in held-out episodes.
    """
    results: list[BenchmarkResult] = []
    for task in options.chosen(tuple(THRESHOLDS)):
        seconds: list[float] = []
        shares: list[float] = []
        for seed in range(1 if options.quick else options.seeds):
            taken, share = solve(task, seed, quick=options.quick)
            report(f"{task}, seed {seed}: {taken:.1f} s, success in {share:.1%} of held-out episodes")
            seconds.append(taken)
            shares.append(share)
        results.append(BenchmarkResult(name=f"seconds_to_success.{task}", unit="s", runs=tuple(seconds)))
        results.append(BenchmarkResult(name=f"success.{task}", unit="1", runs=tuple(shares)))
    return results


def solve(
    task: str,
    seed: int,
    *,
    quick: bool = False,
    threshold: float | None = None,
    budget_s: float = TIME_BUDGET_S,
    arguments: Sequence[str] = (),
) -> tuple[float, float]:
    """Returns the wall time of one training process [s] and the success rate in 512 held-out episodes.

    Args:
        task: what to learn.
        seed: seed of the run.
        quick: learn almost nothing, and ask for no success.
        threshold: required success rate; None for the task's in `THRESHOLDS`.
        budget_s: training time after which to stop [s].
        arguments: further options of `physai train`.

    Raises:
        WorkloadError: training failed, or the success rate is below the threshold.
    """
    required = THRESHOLDS[task] if threshold is None else threshold
    small = ("--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2", "--iterations", "2")
    budget = small if quick else ("--time-budget-s", f"{budget_s:g}", "--iterations", "1000000")
    with tempfile.TemporaryDirectory() as folder:
        training = physai("train", task, "--out", f"{folder}/run", "--seed", str(seed), *arguments, *budget, "--json")
        trained = load_run(Path(folder) / "run")
    episodes = 8 if quick else 512
    seeds = evaluation_seeds(episodes, FRESH_SEED)
    share = play_episodes(GraphPolicy(trained.graph), trained.task, episodes=episodes, seeds=seeds).success
    if not quick and not share >= required:
        raise WorkloadError(
            f"{task}, seed {seed}: {share:.1%} of {episodes} held-out episodes succeeded after "
            f"{training.seconds:.0f} s of training, expected {required:.0%}; training ended: "
            f"{training.record['reason']}"
        )
    return training.seconds, share
