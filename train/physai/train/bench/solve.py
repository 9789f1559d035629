"""Time from starting `physai train` to a policy that does its task, and how well it does it."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sim.policies.evaluate import evaluation_seeds, play_episodes
from physai.train.bench.process import physai
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.runners.checkpoint import load_run

THRESHOLDS = {"cartpole-swingup": 0.95, "pendubot-swingup": 0.95, "ur10e-reach": 0.95}
"""Share of fresh episodes (of commands, where an episode has several) that must succeed."""
TIME_BUDGET_S = 900.0
FRESH_SEED = 0xF2E5_8E9
"""The confirming evaluation within the training has used other episodes."""


def run(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Trains every task with its preset and each seed.

    Raises:
        WorkloadError: a training ended without success, or its policy falls short in fresh episodes.
    """
    results: list[BenchmarkResult] = []
    for task in options.chosen(tuple(THRESHOLDS)):
        seconds: list[float] = []
        shares: list[float] = []
        for seed in range(1 if options.quick else options.seeds):
            taken, share = solve(task, seed, quick=options.quick)
            say(f"{task}, seed {seed}: {taken:.1f} s, {share:.1%} of fresh episodes")
            seconds.append(taken)
            shares.append(share)
        results.append(BenchmarkResult(name=f"seconds_to_success.{task}", unit="s", runs=tuple(seconds)))
        results.append(BenchmarkResult(name=f"success.{task}", unit="1", runs=tuple(shares)))
    return results


def solve(task: str, seed: int, *, quick: bool = False) -> tuple[float, float]:
    """Seconds of one training, process start to end, and the share of 512 fresh episodes its policy succeeds in.

    Raises:
        WorkloadError: the training did not reach its success threshold in time, or the policy falls short.
    """
    small = ("--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2", "--iterations", "2")
    budget = small if quick else ("--time-budget-s", f"{TIME_BUDGET_S:g}", "--iterations", "1000000")
    with tempfile.TemporaryDirectory() as folder:
        training = physai("train", task, "--out", f"{folder}/run", "--seed", str(seed), *budget, "--json")
        trained = load_run(Path(folder) / "run")
    episodes = 8 if quick else 512
    seeds = evaluation_seeds(episodes, FRESH_SEED)
    share = play_episodes(GraphPolicy(trained.graph), trained.task, episodes=episodes, seeds=seeds).success
    if not quick and not share >= THRESHOLDS[task]:
        raise WorkloadError(
            f"{task}, seed {seed}: {share:.1%} of {episodes} fresh episodes succeeded after {training.seconds:.0f} s, "
            f"expected {THRESHOLDS[task]:.0%}; the training ended because: {training.record['reason']}"
        )
    return training.seconds, share
