"""A whole tick compared with the bare graph, and the runtime's loop with an idle timer and a plain loop.

All on one policy, one robot that is not there, and one rate. What the timer misses is the machine's doing, not ours;
the plain loop is the one would write first: `step(); sleep(period - elapsed)`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from physai.deploy_jetson.bench.fixtures.local_robot import LocalRobot
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.health import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.loop import Loop
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.deploy_jetson.runtime.tick import Tick
from physai.deploy_jetson.telemetry.flight.ring import FlightRing
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import TimingSpec
from physai.sdk.policy.header import POLICY_FILE, PolicyHeader
from physai.sdk.transport.protocol import Array

DEADLINE_SHARE = 0.9
"""Deadline of the benchmark, as a share of the period."""

TURN, SETTLING = 250, 50
"""Periods of one way on end, and how many of them do not count."""

_DECIMATION = 4
_NS = 1_000_000_000


@dataclass(frozen=True)
class Overhead:
    """Periods of four ways in turns [ns]; the bare graph is warmed up wherever the tick is."""

    ticks: list[int]
    """From waking to the end of everything a tick does, counters included."""
    runs: list[int]
    """From waking to the end of a bare `session.run`."""
    cold_ticks: list[int]
    """As `ticks`, straight from sleep: nothing is warmed up."""
    cold_runs: list[int]
    """As `runs`, straight from sleep."""
    lates: list[int]
    """From when a warmed up tick was due until it began."""


@dataclass(frozen=True)
class Block:
    """One block of one loop."""

    periods: int
    missed: int
    gaps: list[int]
    """Times from one start to the next [ns]."""
    memory_growth_kib: float = 0.0
    """Anonymous memory that was taken and not given back."""
    busy_share: float = 0.0
    """Share of a core that its thread used, watching the clock included."""

    @property
    def missed_per_million(self) -> float:
        """Share of the periods whose work ended after the deadline."""
        return 1e6 * self.missed / self.periods


def at_rate(header: PolicyHeader, rate_hz: float) -> PolicyHeader:
    """The policy's header as if it had been made for another rate; the graph does not know its rate."""
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
    """A transport that costs next to nothing: each sample is the last one with new stamps, commands are counted.

    The transport's own time comes on top; see `dds_rtt_us` for DDS.
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
        """Loads the policy three times, once for each.

        Args:
            data: the policy, an ONNX file.
            rate_hz: of every loop.
            health: where to keep the counters.
            most_ticks: of one block.

        Raises:
            PhysaiError: it does not load.
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
        """Ticks and bare runs in turns of half a second, so that each finds caches as it leaves them itself."""
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
        """The runtime's loop, its ramp at the end included."""
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
        """An idle timer of the same rate, whose missed and skipped periods are counted as the loop counts its own."""
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
        """The plain loop; missed is what ends after the deadline of its period, counted from its own start."""
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
    """Resident memory that belongs to no file: pages of libraries come and go as the kernel likes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


def _quiet(text: str) -> None:
    del text
