"""Revocation of a verdict: time until a running robot holds, cost per tick, and power cuts that the word survives."""

import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.status_cuts import signed_word, status_cuts

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.robot.runtime import ram_disk
from physai.deploy_jetson.runtime.commands.queue import Command, CommandError
from physai.deploy_jetson.runtime.revocation.joint_bounds import JointBounds
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.evidence.status_rules import StatusRules
from physai.sdk.signing.status.status_document import NarrowedConditions

RUNS = 20
POLL_S = 1.0
"""Period at which the robot asks [s]."""

WORDS = 12
"""Words that are kept under power cuts."""

_ROUNDS, _ROUND = 11, 5000
_LOOK_S = 1e-3
_TIMEOUT_S = 30.0


class _Patient(LocalRobot):
    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, 2e-3))
        return self.poll()


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Twenty revocations, the cost of a tick, and the power cuts.

    Raises:
        WorkloadError: the robot does not hold, or does not start again.
    """
    with tempfile.TemporaryDirectory(dir=ram_disk()) as name:
        folder = Path(name)
        now = datetime.now(UTC)
        workshop = SampleSigners(created=(now - timedelta(hours=1)).replace(microsecond=0))
        site = Site.make(folder / "robot", workshop, {1: workshop.bundle(1)}, now=now)
        site.run(1)
        stick = folder / "stick"
        stick.mkdir()
        rules = StatusRules(sources=(str(stick),), poll_s=POLL_S)
        site.agent.setup(site.agent.config.identity(), requirements=Requirements(status=rules))
        with _driving(site) as runtime:
            delays = _delays(runtime, stick, site, 2 if options.quick else RUNS)
            plain, watched, bounded = _costs(runtime, 100 if options.quick else _ROUND)
        cuts = status_cuts(folder, words=2 if options.quick else WORDS)
    for bad in cuts.bad[:5]:
        report(f"bad state: {bad}")
    return [
        BenchmarkResult(name="hold_ms", unit="ms", runs=delays),
        BenchmarkResult(name="hold_ms.p50", unit="ms", runs=(float(np.median(delays)),)),
        BenchmarkResult(name="hold_ms.max", unit="ms", runs=(max(delays),)),
        BenchmarkResult(name="tick_us", unit="us", runs=tuple(b - a for a, b in zip(plain, watched, strict=True))),
        BenchmarkResult(
            name="tick_us.narrowed", unit="us", runs=tuple(b - a for a, b in zip(plain, bounded, strict=True))
        ),
        BenchmarkResult(name="power_cuts", unit="1", runs=(float(cuts.cuts),)),
        BenchmarkResult(name="bad_power_cuts", unit="1", runs=(float(len(cuts.bad)),)),
    ]


@contextmanager
def _driving(site: Site) -> Generator[Runtime]:
    options = RunOptions(root=site.agent.root, realtime=Realtime(lock_memory=False), hot_swap=False)
    runtime = Runtime(options, _Patient(), say=lambda text: None)
    thread = threading.Thread(target=runtime.run)
    thread.start()
    try:
        yield runtime
    finally:
        runtime.commands.put(Command.SHUTDOWN)
        thread.join()


def _delays(runtime: Runtime, stick: Path, site: Site, runs: int) -> tuple[float, ...]:
    """From the file's name being there to HOLD [ms]."""
    bundle, chance, found = read_bundle(site.bundles[1]).id, np.random.default_rng(0), list[float]()
    _until(lambda: runtime.guard_state == "RUN", "the policy does not run")
    for number in range(runs):
        # At any phase of the poll.
        time.sleep(float(chance.uniform(0.0, POLL_S)))
        # A loaded machine may have missed deadlines meanwhile, for which the guard holds, too.
        _until(lambda: runtime.guard_state == "RUN" or _start(runtime), "the policy does not run again")
        begun = _place(stick, signed_word(site.workshop, 2 * number + 1, bundle))
        _until(lambda: runtime.commands.barred and runtime.guard_state == "HOLD", "the robot does not hold")
        found.append((time.monotonic() - begun) * 1e3)
        _place(stick, signed_word(site.workshop, 2 * number + 2))
        _until(lambda: not runtime.commands.barred, "the lifted word does not arrive")
    return tuple(found)


def _place(stick: Path, document: bytes) -> float:
    """Put a document on the stick as a whole; return when it was there, CLOCK_MONOTONIC [s]."""
    new = stick / "new"
    new.write_bytes(document)
    new.rename(stick / "status.json")
    return time.monotonic()


def _start(runtime: Runtime) -> None:
    for command in (Command.RESET, Command.START):
        ticket = runtime.commands.put(command)
        try:
            if ticket is not None:
                ticket.wait(1.0)
        except CommandError:
            return


def _until(holds: Callable[[], object], why: str) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise WorkloadError(f"{why} within {_TIMEOUT_S:g} s")
        time.sleep(_LOOK_S)


def _costs(runtime: Runtime, count: int) -> tuple[list[float], list[float], list[float]]:
    """Median duration of what the words cost a tick [µs]: nothing, the words, and the words with ranges of joints.

    The three are timed in turn, call by call, so that the load of the machine meets all of them.
    """
    words = runtime._words  # pyright: ignore[reportPrivateUsage]
    tick, contract = runtime._tick, runtime._contract  # pyright: ignore[reportPrivateUsage]
    if words is None or tick is None or contract is None:
        raise WorkloadError("the runtime is not configured")
    joint = {name.name: {"lower": -100.0, "upper": 100.0, "speed": 1000.0} for name in contract.robot.joints}
    bounds = JointBounds(contract, [NarrowedConditions.model_validate({"joints": joint})])

    def nothing() -> None:
        pass

    def narrowed() -> None:
        words.check()
        bounds.left(tick.senses.joint_pos, tick.senses.joint_vel)

    medians: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(_ROUNDS):
        durations = np.zeros((3, count))
        for number in range(count):
            for row, call in enumerate((nothing, words.check, narrowed)):
                start = time.perf_counter_ns()
                call()
                durations[row, number] = time.perf_counter_ns() - start
        for values, row in zip(medians, durations, strict=True):
            values.append(1e-3 * float(np.median(row)))
    return medians
