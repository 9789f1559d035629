"""Exhaustive test of the supervisor and randomised test of the complete loop against their safety properties."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from tests.harness.fault_injection.arm_policies import ARMS, arm_policy
from tests.harness.fault_injection.composed import ComposedWorld, compose
from tests.harness.fault_injection.lie_trial import CAUGHT, FaultDetection, tell_lie
from tests.harness.fault_injection.plant import SensorFault
from tests.harness.fault_injection.world import Fault
from tests.harness.fixtures.sample import sample_policy
from tests.harness.supervisor.events import every_event, frequent_events, varied_events
from tests.harness.supervisor.search import SearchResult, close, enumerate_sequences

from physai.sdk.policy.header import POLICY_FILE

PENDULUM = "pendulum"
"""A minimal policy without state or limits, in addition to `ARMS`."""

SEEDS = 3


@dataclass(frozen=True)
class Workload:
    """Size of a trial, and minimum counts for a meaningful result."""

    depth: int
    """Length of sequences of varied events; those of frequent ones are longer by three."""
    periods: int
    """Periods for each policy and seed."""
    seeds: int
    sequences: int
    ticks: int
    faults: int
    """Faults that began while the policy drove."""
    requests: int
    """Resets obeyed, and as many starts."""


FULL = Workload(depth=4, periods=6200, seeds=SEEDS, sequences=1_000_000, ticks=100_000, faults=3000, requests=500)
QUICK = Workload(depth=2, periods=300, seeds=1, sequences=1000, ticks=1000, faults=20, requests=5)

OWN_SHARE, CHANGED_SHARE = 0.05, 0.15
"""Minimum shares of the commands that are the policy's own, and that differ from the previous one."""


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Tries seven million sequences, 110,000 ticks and five kinds of sensor faults.

    Raises:
        WorkloadError: too little happened for a meaningful result.
    """
    load = QUICK if options.quick else FULL
    searched = search(load, report)
    with tempfile.TemporaryDirectory() as folder:
        worlds = [one for seed in range(load.seeds) for one in _play(seed, load, Path(folder), report)]
        lies = [
            tell_lie(lie, kind=kind, seed=seed, health=Path(folder) / "health")
            for lie in CAUGHT
            for kind in ("incremental", "absolute")
            for seed in range(load.seeds)
        ]
    for text in _broken(searched, worlds, lies)[:10]:
        report(f"violated: {text}")
    _require(load, searched, worlds, lies)
    return _results(searched, worlds, lies)


def search(load: Workload, report: ProgressCallback) -> list[SearchResult]:
    """Explores the supervisor's state space, and enumerates sequences."""
    found = [close(every_event())]
    report(f"{found[0].transitions} transitions from {found[0].states} states, all that are reachable")
    for events, depth in ((varied_events(), load.depth), (frequent_events(), load.depth + 3)):
        found.append(enumerate_sequences(events, depth))
        report(f"{found[-1].sequences} sequences of {depth} out of {len(events)} events")
    return found


def _play(seed: int, load: Workload, folder: Path, report: ProgressCallback) -> list[ComposedWorld]:
    worlds: list[ComposedWorld] = []
    for kind in (PENDULUM, *ARMS):
        policy, spare = (
            sample_policy(seed=one)[POLICY_FILE] if kind == PENDULUM else arm_policy(kind, seed=one)
            for one in (seed, seed + 100)
        )
        world = compose(policy, periods=load.periods, seed=seed, health=folder / "health", spare=spare)
        verdict, findings = world.judge.verdict, world.findings
        report(
            f"{kind} {seed}: {world.ticks} ticks, {sum(findings.injected.values())} faults, {verdict.stops} stops, "
            f"{verdict.resets} resets, {verdict.starts} starts, {verdict.violations} violations"
        )
        worlds.append(world)
    return worlds


def _broken(searched: list[SearchResult], worlds: list[ComposedWorld], lies: list[FaultDetection]) -> list[str]:
    """Violations as text."""
    texts = [str(one) for found in searched for one in found.broken]
    texts += [text for world in worlds for text in world.judge.verdict.broken]
    texts += [text for lie in lies for text in lie.violations]
    return texts + [f"{lie.lie} was not detected" for lie in lies if lie.periods is None]


def _require(
    load: Workload, searched: list[SearchResult], worlds: list[ComposedWorld], lies: list[FaultDetection]
) -> None:
    """Raises WorkloadError unless the trial was large enough."""
    verdicts = [world.judge.verdict for world in worlds]
    commands = sum(verdict.commands for verdict in verdicts)
    arms = [world for world in worlds if world.memory.corrected]
    met = {fault for world in worlds for fault in world.findings.injected}
    happened = {
        "sequences": (sum(found.sequences for found in searched), load.sequences),
        "exhausted searches": (sum(found.closed for found in searched), 1),
        "ticks": (sum(world.ticks for world in worlds), load.ticks),
        "faults in RUN": (sum(world.findings.met_running for world in worlds), load.faults),
        "resets obeyed": (sum(verdict.resets for verdict in verdicts), load.requests),
        "starts obeyed": (sum(verdict.starts for verdict in verdicts), load.requests),
        "stops requested": (sum(verdict.stops for verdict in verdicts), load.requests),
        "commands changed": (sum(verdict.changed for verdict in verdicts), round(CHANGED_SHARE * commands)),
        "commands of the policy": (sum(w.memory.own for w in worlds), round(OWN_SHARE * commands)),
        "worlds with a stateful policy": (len(arms), 1),
        "kinds of injected faults": (len(met), len(Fault)),
        "kinds of sensor faults": (
            len({lie for world in worlds for lie in world.lies}),
            1 if load is QUICK else len(SensorFault),
        ),
        "sensor faults detected": (sum(lie.periods is not None for lie in lies), len(lies)),
    }
    for name, (count, minimum) in happened.items():
        if not count >= minimum:
            raise WorkloadError(f"{count} {name}, expected at least {minimum}")


def _results(
    searched: list[SearchResult], worlds: list[ComposedWorld], lies: list[FaultDetection]
) -> list[BenchmarkResult]:
    verdicts, findings = [world.judge.verdict for world in worlds], [world.findings for world in worlds]
    found = sum(len(one.broken) for one in searched) + sum(len(lie.violations) for lie in lies)
    safe = max(verdict.periods_to_safe for verdict in verdicts)
    silence = max(one.longest_silence for one in findings)
    numbers = {
        "sequences": sum(one.sequences for one in searched),
        "states": sum(one.states for one in searched),
        "transitions": sum(one.transitions for one in searched),
        "ticks": sum(world.ticks for world in worlds),
        "violations": found + sum(verdict.violations for verdict in verdicts),
        "periods_to_safe": max(safe, silence),
        "faults": sum(sum(one.injected.values()) for one in findings),
        "faults_in_run": sum(one.met_running for one in findings),
        "commands": sum(verdict.commands for verdict in verdicts),
        "commands_changed": sum(verdict.changed for verdict in verdicts),
        "stops": sum(verdict.stops for verdict in verdicts),
        "resets": sum(verdict.resets for verdict in verdicts),
        "starts": sum(verdict.starts for verdict in verdicts),
        "lies": len(lies),
        "periods_to_catch": max(lie.periods or 0 for lie in lies),
    }
    results = [BenchmarkResult(name=name, unit="1", runs=(float(value),)) for name, value in numbers.items()]
    return [*results, BenchmarkResult(name="crept", unit="rad", runs=(max(lie.crept for lie in lies),))]
