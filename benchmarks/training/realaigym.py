"""Score of a designed and of newly trained double pendulum policies in the RealAIGym simulation leaderboard v2."""

import tempfile
from collections.abc import Sequence

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.training.process import example, physai
from physai.sim.tasks.pendulums.realaigym import PRESET

BEST_PUBLISHED = {"pendubot-swingup": 0.682, "acrobot-swingup": 0.655}
"""Highest score on the leaderboard by task; HistorySAC's for both."""
TIME_BUDGET_S = 1200.0


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Designs a policy for each task and scores it, then trains, exports and scores one with each seed."""
    results: list[BenchmarkResult] = []
    for task in options.chosen(tuple(BEST_PUBLISHED)):
        board = task.removesuffix("-swingup")
        best = designed_score(task, guesses=1 if options.quick else 6)
        report(f"{task}, designed: score {best:.4f}, best published {BEST_PUBLISHED[task]}")
        results.append(BenchmarkResult(name=f"score.{board}", unit="1", runs=(best,)))
        share = best / BEST_PUBLISHED[task]
        results.append(BenchmarkResult(name=f"score_over_board.{board}", unit="1", runs=(share,), peer="HistorySAC"))
        scores: list[float] = []
        for seed in range(1 if options.quick else options.seeds):
            scores.append(score(task, seed, quick=options.quick))
            report(f"{task}, seed {seed}: score {scores[-1]:.4f}, best published {BEST_PUBLISHED[task]}")
        results.append(BenchmarkResult(name=f"score_learned.{board}", unit="1", runs=tuple(scores)))
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
        return _judged(f"{folder}/run", f"{task}, seed {seed}")


def designed_score(name: str, guesses: int) -> float:
    """The score of an optimised swing-up that a time-varying LQR follows, as an exported policy.

    Raises:
        WorkloadError: a step failed, or the score is not in [0, 1].
    """
    with tempfile.TemporaryDirectory() as folder:
        example("tvlqr_double_pendulum", folder, name.removesuffix("-swingup"), str(guesses))
        return _judged(folder, f"{name}, designed")


def _judged(policy: str, what: str) -> float:
    value = float(example("leaderboard_trial", policy, "--json").record["score"])
    if not 0.0 <= value <= 1.0:
        raise WorkloadError(f"{what}: the score is {value}, expected 0 to 1")
    return value
