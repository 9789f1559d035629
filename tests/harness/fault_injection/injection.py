"""Fault injection around a real control loop, in virtual time.

Loop, tick, guard and policy are the production code. The robot, the clocks, the wrapper of the inference engine and
the operator inject faults. `tests.harness.fault_injection.oracle` checks every command and every answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.harness.fault_injection.world import SECOND, Fault, World
from tests.harness.fixtures.local_robot import LocalRobot

from physai.deploy_jetson.inference.engine import Floats, InferenceError
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.commands.queue import CommandQueue
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.deploy_jetson.runtime.hot_swap.health_report import RuntimeHealth
from physai.deploy_jetson.runtime.hot_swap.swap import LoadedPolicy, PolicySwapper
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.loop.clocks import Clocks
from physai.deploy_jetson.runtime.loop.loop import Loop
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.sdk.policy.header import PolicyHeader
from physai.sdk.transport.protocol import Array, TransportError, required_fields


class FaultyRobot(LocalRobot):
    """A robot with the faults of a world."""

    def __init__(self, world: World, *, wind: float = 0.0) -> None:
        super().__init__(now_ns=world.now, wall_ns=world.wall)
        self._world, self._wind = world, wind

    def poll(self) -> bool:
        """See `LocalRobot`."""
        world, numbers = self._world, self._world.random
        fault = world.fault
        if fault is Fault.SUSPENDED_SENSING:
            world.stand_still(1.0)
            world.fault = None  # the loop may poll again in this period, then without the fault
        world.polled_ns = world.now()
        if fault is Fault.POLL_RAISES:
            raise numbers.choice((TransportError("the network is down"), RuntimeError("driver"), OSError(5, "I/O")))
        if fault is Fault.SILENT:
            return False
        self.measure()
        sample = self.sample()
        spoilt: dict[Fault | None, float] = {
            Fault.SENSOR_NAN: math.nan,
            Fault.SENSOR_INFINITE: numbers.choice((math.inf, -math.inf)),
            Fault.SENSOR_HUGE: numbers.choice((1e300, -1e39)),
        }
        if fault in spoilt:
            values = sample.fields[numbers.choice(required_fields(world.contract))]
            values[numbers.randrange(len(values))] = spoilt[fault]
        if fault is Fault.SENSOR_JUMPS:
            values = sample.fields["joint_pos"]
            values[numbers.randrange(len(values))] += numbers.choice((-1.0, 1.0)) * numbers.uniform(0.02, 2.0)
        timing = world.contract.timing
        if fault is Fault.STAMP_OLD:
            sample.stamp_ns -= round((timing.max_observation_age_s + numbers.uniform(1e-4, 10.0)) * SECOND)
        elif fault is Fault.STAMP_AHEAD:
            sample.stamp_ns += round((timing.control_dt + numbers.uniform(1e-3, 10.0)) * SECOND)
        world.judge.hears(sample.fields)
        return True

    def measure(self) -> None:
        """Updates positions and velocities, and takes a sample."""
        self.position += np.array([self._world.random.gauss(0.0, self._wind) for _ in self.position])
        self.stamp()

    def stamp(self) -> None:
        """Takes a sample of the current positions and velocities."""
        super().poll()

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `LocalRobot`."""
        if self._world.fault is Fault.SEND_RAISES:
            raise self._world.random.choice((TransportError("no buffer space"), OSError(105, "no buffer space")))
        self._world.sends(targets)
        self.drive(targets, stamp_ns)

    def drive(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """Moves the joints."""
        super().send(targets, stamp_ns)


class FaultyEngine:
    """An inference engine with the faults of a world."""

    def __init__(self, engine: OnnxEngine, world: World) -> None:
        self._engine, self._world = engine, world

    @property
    def header(self) -> PolicyHeader:
        """See `Engine`."""
        return self._engine.header

    @property
    def versions(self) -> dict[str, str]:
        """See `Engine`."""
        return self._engine.versions

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """See `Engine`."""
        world = self._world
        if world.fault is Fault.INFERENCE_RAISES:
            raise world.random.choice((InferenceError("out of memory"), ValueError("shape"), MemoryError()))
        world.asks_policy(inputs)
        outputs = self._engine.run(inputs)
        if world.fault is Fault.SLOW:
            world.stand_still(4.0 * world.contract.timing.control_dt)
        if world.fault in (Fault.OUTPUT_NAN, Fault.OUTPUT_HUGE):
            wrong = math.nan if world.fault is Fault.OUTPUT_NAN else world.random.choice((1e6, -1e6, 3e38))
            for name in world.random.sample(list(outputs), 1):
                outputs[name] = np.full_like(outputs[name], wrong)
        world.hears_policy(outputs)
        return outputs


@dataclass
class LoopUnderTest:
    """A real loop in a simulated world."""

    world: World
    robot: FaultyRobot
    tick: Tick
    loop: Loop
    commands: CommandQueue
    counters: RuntimeHealth
    said: list[str]
    """Log messages of the loop."""
    swaps: "AlternatingPolicies | None" = None


class AlternatingPolicies(PolicySwapper):
    """Swaps between two policies, without a watcher or a thread."""

    def __init__(self, spare: LoadedPolicy) -> None:
        """Starts without a swap pending."""
        self.ready, self.other = None, None
        self._spare = spare

    def offer(self) -> None:
        """Makes the other policy ready to swap to."""
        self.ready = self._spare

    def change(self, old: LoadedPolicy) -> LoadedPolicy:
        """See `PolicySwapper`."""
        new, self.ready, self._spare = self._spare, None, old
        return new


def make_rig(
    policy: bytes,
    *,
    periods: int,
    seed: int,
    health: Path,
    share: float = 0.0,
    wind: float = 0.0,
    heartbeat_s: float | None = None,
    world: type[World] = World,
    robot: type[FaultyRobot] = FaultyRobot,
    spare: bytes | None = None,
) -> LoopUnderTest:
    """Builds a loop with its robot and world; see `World` for the arguments.

    Raises:
        EngineError, PolicyError: the policy does not load.
    """
    engine = OnnxEngine(policy, source="policy.onnx")
    contract, commands = engine.header.contract, CommandQueue()
    made = world(contract, commands, seed=seed, periods=periods, share=share)
    driven = robot(made, wind=wind)
    driven.open(contract)
    bound = BoundPolicy.engine(FaultyEngine(engine, made))
    clocks = Clocks(made.now, made.wall)
    tick = Tick(contract, driven, bound, TickRing(4096), clocks=clocks)
    made.look = lambda: (tick.state, tick.read_back, tick.withheld)
    made.activated()
    counters = RuntimeHealth(health, bundle_sha256=_BUNDLE, now_ns=made.now())
    said: list[str] = []
    swaps = None
    if spare is not None:
        other = OnnxEngine(spare, source="spare.onnx")
        swaps = AlternatingPolicies(
            LoadedPolicy(_candidate(other, spare), BoundPolicy.engine(FaultyEngine(other, made)), counters)
        )
    loop = Loop(
        tick,
        LoadedPolicy(_candidate(engine, policy), bound, counters),
        commands,
        period_ns=round(contract.timing.control_dt * SECOND),
        say=said.append,
        swapper=swaps,
        heartbeat_s=heartbeat_s,
        alarm=made,
        clocks=clocks,
    )
    return LoopUnderTest(made, driven, tick, loop, commands, counters, said, swaps)


_BUNDLE = "0" * 64


def _candidate(engine: OnnxEngine, policy: bytes) -> Candidate:
    return Candidate(
        version=1,
        slot="a",
        bundle_sha256=_BUNDLE,
        fingerprint=engine.header.contract.fingerprint,
        member="policy.onnx",
        policy=policy,
        plan=None,
        state_sizes=engine.header.state_sizes,
        unsafe_no_verdict=True,
    )
