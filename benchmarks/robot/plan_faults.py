"""Faulty plans in random orders through the follower and the guard, and what a period costs."""

import time
from collections.abc import Sequence

import numpy as np
from tests.harness.plan_faults.faults import FAULTS, POLICY, FaultCounts, FaultPlay, fault_contract

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sdk.safety.plan.follower import PlanFollower
from physai.sdk.safety.plan.plan import PlanAnswer, PolicyPlan

PLAN_FAULTS = 100_000
PERIODS = 1000
"""Control periods of one play."""

_ROUNDS, _SAMPLES = 20, 2000


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Play until so many plans were faulty, and time the follower.

    Raises:
        WorkloadError: plans are never followed, or a good one is refused.
    """
    counts, contract = FaultCounts(), fault_contract()
    wanted = 300 if options.quick else PLAN_FAULTS
    seed, faults, said = 0, 0, 0
    while faults < wanted:
        play = FaultPlay(seed, counts, contract)
        play.run(PERIODS)
        counts.answers += play.follower.answers
        seed += 1
        faults = sum(counts.faults[name] for name in FAULTS)
        if faults >= said + wanted // 10:
            said = faults
            report(f"{faults} faulty plans, {len(counts.violations)} violations")
    if not counts.followed > 0.3 * counts.periods:
        raise WorkloadError(f"a plan was followed in {counts.followed} of {counts.periods} periods")
    for violation in counts.violations[:5]:
        report(violation)
    results = {"violations": float(len(counts.violations)), "faults": float(faults), "starved": float(counts.starved)}
    return [
        *(BenchmarkResult(name=name, unit="count", runs=(value,)) for name, value in results.items()),
        *_times(),
    ]


def _times() -> list[BenchmarkResult]:
    """Time of a period that follows a plan, and of judging a plan and making its commands."""
    contract = fault_contract()
    periods: list[float] = []
    offers: list[float] = []
    for _ in range(_ROUNDS):
        follower = PlanFollower(contract, POLICY)
        last = np.zeros(1)
        follower.sample(0.0, last, last)
        request = follower.request(0.0)
        if request is None:
            raise WorkloadError("nothing was asked for")
        plan = PolicyPlan(1, request.epoch, contract.fingerprint, POLICY, 0.0, np.zeros((16, 1)))
        begin = time.perf_counter()
        answer = follower.offer(plan, 0.0)
        offers.append((time.perf_counter() - begin) * 1e6)
        if answer is not PlanAnswer.ACCEPTED:
            raise WorkloadError(f"a good plan was refused: {answer.value}")
        begin = time.perf_counter()
        for _ in range(_SAMPLES):
            follower.sample(0.3, last, last)
        periods.append((time.perf_counter() - begin) * 1e6 / _SAMPLES)
    return [
        BenchmarkResult(name="sample", unit="us", runs=tuple(periods)),
        BenchmarkResult(name="offer", unit="us", runs=tuple(offers)),
    ]
