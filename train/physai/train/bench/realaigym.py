"""Score of a designed and of newly trained double pendulum policies in the RealAIGym simulation leaderboard v2."""

import tempfile
from collections.abc import Sequence

from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sim.leaderboards.trial import PUBLISHED
from physai.sim.tasks.realaigym import PRESET
from physai.train.bench.process import physai

BEST_PUBLISHED = {f"{board}-swingup": max(scores.values()) for board, scores in PUBLISHED.items()}
"""Highest score on the leaderboard by task; HistorySAC's for both."""
TIME_BUDGET_S = 1200.0


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Trains, exports and scores each task with each seed."""
    results: list[BenchmarkResult] = []
    for task in options.chosen(tuple(BEST_PUBLISHED)):
        board = task.removesuffix("-swingup")
        scores: list[float] = []
        for seed in range(1 if options.quick else options.seeds):
            scores.append(score(task, seed, quick=options.quick))
            report(f"{task}, seed {seed}: score {scores[-1]:.4f}, best published {BEST_PUBLISHED[task]}")
        results.append(BenchmarkResult(name=f"score.{board}", unit="1", runs=tuple(scores)))
        over = tuple(value / BEST_PUBLISHED[task] for value in scores)
        results.append(BenchmarkResult(name=f"score_over_board.{board}", unit="1", runs=over, peer="HistorySAC"))
    return results


def score(task: str, seed: int, *, quick: bool = False) -> float:
    """Trains a policy and returns its score.

    Raises:
        WorkloadError: a step failed, or the score is not in [0, 1].
    """
    small = ("--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2", "--iterations", "2")
    budget = small if quick else ("--time-budget-s", f"{TIME_BUDGET_S:g}", "--iterations", "1000000")
    with tempfile.TemporaryDirectory() as folder:
        physai("train", task, "--preset", PRESET, "--out", f"{folder}/run", "--seed", str(seed), *budget)
        physai("export", f"{folder}/run")
        judged = physai("eval", f"{folder}/run", "--preset", PRESET, "--json").record
    value = float(judged["score"])
    if not 0.0 <= value <= 1.0:
        raise WorkloadError(f"{task}, seed {seed}: the score is {value}, expected 0 to 1")
    return value
