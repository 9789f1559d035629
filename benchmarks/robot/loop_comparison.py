"""Compares a complete tick with the bare graph, and the runtime's loop with an idle timer and a plain loop.

All with the same policy, simulated robot and rate. Deadlines that the idle timer misses are due to the machine; the
plain loop is `step(); sleep(period - elapsed)`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from tests.harness.fixtures.local_robot import LocalRobot

from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.deploy_jetson.runtime.hot_swap.health_report import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import TimingSpec
from physai.sdk.policy.header import POLICY_FILE, PolicyHeader
from physai.sdk.transport.protocol import Array

DEADLINE_SHARE = 0.9
"""Deadline as a fraction of the period."""

TURN, SETTLING = 250, 50
"""Consecutive periods of one variant, and how many of them are discarded as warm-up."""

_DECIMATION = 4
_NS = 1_000_000_000


@dataclass(frozen=True)
class Overhead:
    """Durations of four alternating variants [ns]; the bare graph is warmed up when the tick is."""

    ticks: list[int]
    """From wake-up to the end of a tick, health counters included."""
    runs: list[int]
    """From wake-up to the end of a bare `session.run`."""
    cold_ticks: list[int]
    """As `ticks`, without warm-up before the deadline."""
    cold_runs: list[int]
    """As `runs`, without warm-up before the deadline."""
    lates: list[int]
    """From when a warmed-up tick was due until it began."""


@dataclass(frozen=True)
class Block:
    """One block of one loop."""

    periods: int
    missed: int
    gaps: list[int]
    """Intervals between starts [ns]."""
    memory_growth_kib: float = 0.0
    """Growth of the process's anonymous memory [KiB]."""
    busy_share: float = 0.0
    """CPU share of its thread, busy-waiting included."""

    @property
    def missed_per_million(self) -> float:
        """Missed deadlines per million periods."""
        return 1e6 * self.missed / self.periods


def at_rate(header: PolicyHeader, rate_hz: float) -> PolicyHeader:
    """The policy's header with the timing of another rate; the graph itself is independent of the rate."""
    period_s = 1.0 / rate_hz
    timing = TimingSpec(
        control_dt=period_s,
        physics_dt=period_s / _DECIMATION,
        decimation=_DECIMATION,
        deadline_s=DEADLINE_SHARE * period_s,
        max_observation_age_s=3.0 * period_s,
    )
    contract = PolicyContract.model_validate({**dict(header.contract), "timing": timing})
    return PolicyHeader(contract, header.state_sizes)


class StaticTransport(LocalRobot):
    """A transport with negligible cost: each sample is the last one with new stamps, commands are only counted.

    A real transport adds its own time; see `dds_rtt_us` for DDS.
    """

    def open(self, contract: PolicyContract) -> None:
        """See `LocalRobot`."""
        super().open(contract)
        super().poll()
        self._still = self.sample()

    def poll(self) -> bool:
        """See `LocalRobot`."""
        sample = self._still
        sample.stamp_ns, sample.received_ns = self._wall(), self._now()
        sample.sequence += 1
        return True

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `LocalRobot`."""
        self.sent += 1


class LoopComparison:
    """The loop, the timer and the plain loop on one policy."""

    def __init__(self, data: bytes, rate_hz: float, health: Path, *, most_ticks: int) -> None:
        """Loads the policy for the loop and for the bare graph.

        Args:
            data: ONNX file of the policy.
            rate_hz: rate of all loops.
            health: file for the health counters.
            most_ticks: maximum ticks of one block.

        Raises:
            PhysaiError: the policy does not load.
        """
        self.header = header = at_rate(OnnxEngine(data, source="the policy").header, rate_hz)
        self.period_ns = round(_NS / rate_hz)
        self.deadline_ns = round(DEADLINE_SHARE * self.period_ns)
        self.alarm = DeadlineTimer()
        self.robot = StaticTransport()
        self.robot.open(header.contract)
        policy = BoundPolicy.onnx(data, header, source="the policy")
        policy.warm_up()
        self.ring = FlightRing(header.contract, self.robot.sample(), most_ticks)
        self.ring.close()
        self.tick = Tick(header.contract, self.robot, policy, self.ring)
        self.health = RuntimeHealth(health, bundle_sha256="0" * 64, now_ns=time.monotonic_ns())
        candidate = Candidate(
            version=1,
            slot="a",
            bundle_sha256="0" * 64,
            fingerprint=header.contract.fingerprint,
            member=POLICY_FILE,
            policy=data,
            plan=None,
            state_sizes=header.state_sizes,
            unsafe_no_verdict=True,
        )
        loaded = LoadedPolicy(candidate, policy, self.health)
        self.loop = Loop(self.tick, loaded, CommandQueue(), period_ns=self.period_ns, say=_quiet)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self.inputs = {name: np.zeros((1, size), np.float32) for name, size in header.inputs.items()}

    def overhead(self, periods: int) -> Overhead:
        """Alternates ticks and bare runs every half second, long enough for each to settle its own caches."""
        run, inputs = self.session.run, self.inputs
        warmed_up = [
            DeadlineTimer(warm_up=warm_up, period_ns=self.period_ns)
            for warm_up in (self._warm_up, lambda: run(None, inputs))
        ]
        ways = [(warmed_up[0], True), (warmed_up[1], False), (self.alarm, True), (self.alarm, False)]
        found: list[list[int]] = [[] for _ in ways]
        lates: list[int] = []
        now, tick, health = time.monotonic_ns, self.tick, self.health
        tick.reset()
        with np.errstate(all="ignore"):
            due = now() + self.period_ns
            for number in range(periods):
                way = number // TURN % len(ways)
                alarm, whole = ways[way]
                woke = alarm.wait(due)
                if woke - due >= self.period_ns:
                    due = woke
                if whole:
                    tick.run(number, due)
                    health.tick(tick.ended_ns, missed=tick.missed, intervened=tick.intervened)
                else:
                    run(None, inputs)
                took = now() - woke
                if number % TURN >= SETTLING:
                    found[way].append(took)
                    if way == 0:
                        lates.append(woke - due)
                if whole and tick.state:
                    tick.reset()
                due += self.period_ns
        ticks, runs, cold_ticks, cold_runs = found
        return Overhead(ticks, runs, cold_ticks, cold_runs, lates)

    def _warm_up(self) -> None:
        self.tick.warm_up()
        self.health.warm_up()

    def ours(self, seconds: float) -> Block:
        """The runtime's loop, including its final ramp."""
        counts = self.loop.counts
        missed, periods, first = counts.missed, counts.ticks + counts.skipped, self.ring.count
        before, begun, used = _anonymous_kib(), time.monotonic(), time.thread_time()
        self.loop.run(seconds)
        busy = (time.thread_time() - used) / (time.monotonic() - begun)
        growth = _anonymous_kib() - before
        woke = self.ring.between(first, self.ring.count)["woke_ns"]
        return Block(
            counts.ticks + counts.skipped - periods, counts.missed - missed, np.diff(woke).tolist(), growth, busy
        )

    def timer(self, seconds: float) -> Block:
        """An idle timer of the same rate; missed and skipped periods are counted as in the loop."""
        missed = number = 0
        starts: list[int] = []
        periods = round(seconds * _NS / self.period_ns)
        due = time.monotonic_ns() + self.period_ns
        while number < periods:
            woke = self.alarm.wait(due)
            starts.append(woke)
            skipped, late = divmod(woke - due, self.period_ns)
            missed += skipped + (late > self.deadline_ns)
            number += skipped + 1
            due += (skipped + 1) * self.period_ns
        return Block(number, missed, np.diff(starts).tolist())

    def plain(self, seconds: float) -> Block:
        """The plain loop; a period is missed if it ends after its deadline, counted from the loop's start."""
        missed = 0
        starts: list[int] = []
        fields = self.robot.sample().fields
        sensors = [name for name in self.inputs if name in fields]
        outputs = list(self.header.outputs)
        periods = round(seconds * _NS / self.period_ns)
        begun, used = time.monotonic(), time.thread_time()
        due = time.monotonic_ns()
        for _ in range(periods):
            began = time.monotonic_ns()
            starts.append(began)
            self.robot.poll()
            given = {**self.inputs, **{name: fields[name][None].astype(np.float32) for name in sensors}}
            answers = dict(zip(outputs, self.session.run(outputs, given), strict=True))
            targets = {name: answers[name][0].astype(np.float64) for name in self.tick.policy.targets.named}
            self.robot.send(targets, time.time_ns())
            ended = time.monotonic_ns()
            missed += ended > due + self.deadline_ns
            due += self.period_ns
            time.sleep(max(0.0, (self.period_ns - (ended - began)) * 1e-9))
        busy = (time.thread_time() - used) / (time.monotonic() - begun)
        return Block(periods, missed, np.diff(starts).tolist(), busy_share=busy)


def _anonymous_kib() -> float:
    """Resident anonymous memory [KiB]; file-backed pages are excluded, because the kernel may drop them at any time."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


def _quiet(text: str) -> None:
    del text
