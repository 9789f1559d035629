"""Everything that can go wrong around a control loop, at random, in virtual time, and what then left the process.

The loop, the tick, the guard and the policy are the real ones. The robot, the clock and the engine around the policy
misbehave. `physai.deploy_jetson.bench.world` judges every command.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from physai.deploy_jetson.bench.local_robot import LocalRobot
from physai.deploy_jetson.bench.sample import sample_policy
from physai.deploy_jetson.bench.world import FAULT_SHARE, SECOND, Fault, Findings, World
from physai.deploy_jetson.inference.engine import EngineError, Floats
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.bound_policy import BoundPolicy
from physai.deploy_jetson.runtime.candidate import Candidate
from physai.deploy_jetson.runtime.health import RuntimeHealth
from physai.deploy_jetson.runtime.loop import Loop
from physai.deploy_jetson.runtime.orders import Mailbox
from physai.deploy_jetson.runtime.ring import TickRing
from physai.deploy_jetson.runtime.swap import Loaded
from physai.deploy_jetson.runtime.tick import Clocks, Tick
from physai.sdk.bench import Options, Result, Say, WorkloadError
from physai.sdk.policy_file import POLICY_FILE, PolicyHeader, Ranges
from physai.sdk.wire import Array, TransportError, required_fields

POLICIES = 3

WIND = 0.02
"""Standard deviation of what pushes each joint in a period [rad or m], so that there is always something to command."""


LEAST_SHARE = 0.25
"""Share of the commands that must differ from the one before, and of the faults that must meet a policy in RUN."""


class FaultyRobot(LocalRobot):
    """A robot that the world's faults befall."""

    def __init__(self, world: World, *, wind: float = 0.0) -> None:
        super().__init__(now_ns=world.now, wall_ns=world.wall)
        self._world, self._wind = world, wind

    def poll(self) -> bool:
        """See `LocalRobot`."""
        world, numbers = self._world, self._world.random
        fault = world.fault
        if fault is Fault.SUSPENDED_SENSING:
            world.stand_still(1.0)
            world.fault = None  # the loop may look again, and then nothing is wrong any more
        world.polled_ns = world.now()
        if fault is Fault.POLL_RAISES:
            raise numbers.choice((TransportError("the network is down"), RuntimeError("driver"), OSError(5, "I/O")))
        if fault is Fault.SILENT:
            return False
        self.position += np.array([numbers.gauss(0.0, self._wind) for _ in self.position])
        super().poll()
        sample = self.sample()
        spoilt: dict[Fault | None, float] = {
            Fault.SENSOR_NAN: math.nan,
            Fault.SENSOR_INFINITE: numbers.choice((math.inf, -math.inf)),
            Fault.SENSOR_HUGE: numbers.choice((1e300, -1e39)),
        }
        if fault in spoilt:
            values = sample.fields[numbers.choice(required_fields(world.contract))]
            values[numbers.randrange(len(values))] = spoilt[fault]
        timing = world.contract.timing
        if fault is Fault.STAMP_OLD:
            sample.stamp_ns -= round((timing.max_observation_age_s + numbers.uniform(1e-4, 10.0)) * SECOND)
        elif fault is Fault.STAMP_AHEAD:
            sample.stamp_ns += round((timing.control_dt + numbers.uniform(1e-3, 10.0)) * SECOND)
        return True

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `LocalRobot`."""
        if self._world.fault is Fault.SEND_RAISES:
            raise self._world.random.choice((TransportError("no buffer space"), OSError(105, "no buffer space")))
        self._world.judge(targets)
        super().send(targets, stamp_ns)


class FaultyEngine:
    """A policy that the world's faults befall."""

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
            raise world.random.choice((EngineError("out of memory"), ValueError("shape"), MemoryError()))
        outputs = self._engine.run(inputs)
        if world.fault is Fault.SLOW:
            world.stand_still(4.0 * world.contract.timing.control_dt)
        if world.fault in (Fault.OUTPUT_NAN, Fault.OUTPUT_HUGE):
            wrong = math.nan if world.fault is Fault.OUTPUT_NAN else world.random.choice((1e6, -1e6, 3e38))
            for name in world.random.sample(list(outputs), 1):
                outputs[name] = np.full_like(outputs[name], wrong)
        return outputs


def run(options: Options, say: Say) -> Sequence[Result]:
    """Some 10,400 faults in 26,000 periods, over three seeds of weights and faults.

    Raises:
        WorkloadError: there were too few faults to say anything.
    """
    periods, least = (300, 60) if options.quick else (26_000, 10_000)
    total = Findings()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(POLICIES):
            data = sample_policy(seed=seed)[POLICY_FILE]
            found = inject(data, periods=periods // POLICIES, seed=seed, health=Path(folder) / "health")
            total.injected += found.injected
            total.unsafe += found.unsafe
            total.sent += found.sent
            total.changed += found.changed
            total.met_running += found.met_running
            total.longest_silence = max(total.longest_silence, found.longest_silence)
            say(f"seed {seed}: {sum(found.injected.values())} faults, {found.resets} resets by the operator")
    for text in total.unsafe[:5]:
        say(f"unsafe: {text}")
    injected = sum(total.injected.values())
    if not injected >= least:
        raise WorkloadError(f"{injected} faults, at least {least} are expected")
    if not (total.changed >= LEAST_SHARE * total.sent and total.met_running >= LEAST_SHARE * injected):
        raise WorkloadError(
            f"{total.changed} of {total.sent} commands were another than the one before, and {total.met_running} of "
            f"{injected} faults met a policy in RUN: that is no trial"
        )
    return [
        Result(name="faults", unit="1", runs=(float(injected),)),
        Result(name="unsafe_commands", unit="1", runs=(float(len(total.unsafe)),)),
        Result(name="commands", unit="1", runs=(float(total.sent),)),
        Result(name="commands_changed", unit="1", runs=(float(total.changed),)),
        Result(name="faults_in_run", unit="1", runs=(float(total.met_running),)),
        Result(name="periods_to_safe", unit="1", runs=(float(total.longest_silence),)),
    ]


def inject(policy: bytes, *, periods: int, seed: int, health: Path) -> Findings:
    """Drives a robot that does not exist with a policy that does, for so many periods.

    Args:
        policy: the ONNX file.
        periods: how many; two in five begin with a fault.
        seed: of the faults.
        health: where to keep the counters.

    Raises:
        EngineError, PolicyError: the policy does not load.
    """
    rig = make_rig(policy, periods=periods, seed=seed, health=health, share=FAULT_SHARE, wind=WIND)
    rig.loop.run()
    rig.counters.close()
    return rig.world.findings


@dataclass
class Rig:
    """A real loop in a world that is not."""

    world: World
    robot: FaultyRobot
    tick: Tick
    loop: Loop
    mailbox: Mailbox
    counters: RuntimeHealth
    said: list[str]
    """What an operator was told."""


def make_rig(
    policy: bytes,
    *,
    periods: int,
    seed: int,
    health: Path,
    share: float = 0.0,
    wind: float = 0.0,
    heartbeat_s: float | None = None,
    ranges: Ranges | None = None,
    world: type[World] = World,
) -> Rig:
    """Puts a loop together; see `inject` and `World`.

    Raises:
        EngineError, PolicyError: the policy does not load.
    """
    engine = OnnxEngine(policy, source="policy.onnx")
    contract, mailbox = engine.header.contract, Mailbox()
    made = world(contract, mailbox, seed=seed, periods=periods, share=share)
    robot = FaultyRobot(made, wind=wind)
    robot.open(contract)
    made.fields = robot.sample().fields
    bound = BoundPolicy.engine(FaultyEngine(engine, made))
    clocks = Clocks(made.now, made.wall)
    tick = Tick(contract, robot, bound, TickRing(4096), ranges=ranges or {}, clocks=clocks)
    made.guard_state = lambda: tick.guard.state
    candidate = Candidate(
        version=1,
        slot="a",
        bundle_sha256="0" * 64,
        fingerprint=contract.fingerprint,
        member="policy.onnx",
        policy=policy,
        plan=None,
        state_sizes=engine.header.state_sizes,
        unsafe_no_verdict=True,
    )
    counters = RuntimeHealth(health, bundle_sha256=candidate.bundle_sha256, now_ns=made.now())
    said: list[str] = []
    loop = Loop(
        tick,
        Loaded(candidate, bound, counters),
        mailbox,
        period_ns=round(contract.timing.control_dt * SECOND),
        say=said.append,
        heartbeat_s=heartbeat_s,
        alarm=made,
        clocks=clocks,
    )
    return Rig(made, robot, tick, loop, mailbox, counters, said)
