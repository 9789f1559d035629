"""Randomised test of the complete robot side: loop, tick, guard, policy and queue, with faults in everything around.

Combines the virtual world of `tests.harness.fault_injection.world` with joints that lag, faulty sensors,
an operator who sends any request at any moment, and an oracle of the policy's memory.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tests.harness.fault_injection.injection import FaultyRobot, LoopUnderTest, make_rig
from tests.harness.fault_injection.operator_model import OperatorHabits, OperatorModel
from tests.harness.fault_injection.oracle_memory import MemoryOracle
from tests.harness.fault_injection.plant import Plant, SensorFault
from tests.harness.fault_injection.world import SECOND, World

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.loop.loop import LoopEnd
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

FAULT_SHARE = 0.12
"""Probability per period in RUN that a fault begins."""

LIE_SHARE = 0.002
"""Probability per period that a fault of joints or sensors begins."""

LONGEST_LIE = 100
STORM_SHARE, LONGEST_STORM = 0.15, 40
"""Probability that faults continue after a stop, and maximum duration in periods; otherwise they are rare (CALM_SHARE),
so that a reset can be obeyed."""

CALM_SHARE = 0.01
GOAL_SHARE = 0.03
WARM_UP_SHARE = 0.05
SWAP_SHARE = 0.005
STOP_AT_ONCE_SHARE = 0.3
"""Probability that a stop is requested between an activation and its first tick."""


class ComposedWorld(World):
    """A world with an operator, faulty sensors, and an oracle of the policy's memory."""

    habits = OperatorHabits()

    def __init__(
        self, contract: PolicyContract, commands: CommandQueue, *, seed: int, periods: int, share: float
    ) -> None:
        """See `World`."""
        super().__init__(contract, commands, seed=seed, periods=periods, share=share)
        self.operator = OperatorModel(commands, self.random, self.judge.requested, self.habits)
        self.memory = MemoryOracle(contract, self.judge.bounds.slices, self.judge.accuse)
        self.lies: Counter[SensorFault] = Counter()
        self.rig: LoopUnderTest | None = None
        self.warming_up = False
        self.swaps = 0
        """Number of hot swaps."""
        self.ticks = 0
        self._lie_left = self._storm_left = 0

    def now(self) -> int:
        """See `World`; an operator's request may arrive at every read of the clock."""
        self.operator.looked()
        return super().now()

    def fault_share(self) -> float:
        """See `World`; after a stop faults usually become rare."""
        if self.judge.state == GuardState.RUN:
            self._storm_left = self.random.randrange(LONGEST_STORM) if self.random.random() < STORM_SHARE else 0
            return self.share
        self._storm_left -= 1
        return self.share if self._storm_left > 0 else CALM_SHARE

    def operate(self) -> None:
        """See `World`."""
        self.operator.lives(stopped=self.judge.state != GuardState.RUN)
        if self.rig is None:
            return
        robot, random = self.rig.robot, self.random
        assert isinstance(robot, PlantRobot)
        if random.random() < GOAL_SHARE:
            robot.choose_goal()
        self._lie_left -= 1
        if self._lie_left == 0:
            robot.plant.repair()
        elif random.random() < LIE_SHARE:
            lie = random.choice(tuple(SensorFault))
            self.lies[lie] += 1
            self._lie_left = random.randrange(5, LONGEST_LIE)
            robot.plant.begin(lie, random)
        if self.rig.swaps is not None and random.random() < SWAP_SHARE:
            self.rig.swaps.offer()
        if random.random() < WARM_UP_SHARE:
            self.warming_up = True
            self.rig.tick.warm_up()
            self.warming_up = False

    def period_begins(self, *, skipped: bool) -> None:
        """See `World`."""
        super().period_begins(skipped=skipped)
        if skipped and self.judge.state == GuardState.RUN:
            self.memory.idles(self.judge.last, self.judge.step)
        if self.rig is not None and self.rig.loop.counts.swaps != self.swaps:
            self.swaps = self.rig.loop.counts.swaps
            self.memory.changed()

    def judge_tick(self) -> Array | None:
        """See `World`."""
        judge = self.judge
        before = judge.state
        self.ticks += 1
        sent = super().judge_tick()
        self.memory.ends(before, judge.state, sent, judge.last, judge.step)
        if judge.state == GuardState.RUN != before:
            self.memory.starts()
        return sent

    def asks_policy(self, inputs: Mapping[str, Floats]) -> None:
        """See `World`."""
        if not self.warming_up:
            self.memory.asked(inputs, self.judge.last, self.judge.step)

    def hears_policy(self, outputs: Mapping[str, Floats]) -> None:
        """See `World`."""
        if not self.warming_up:
            self.memory.computed(outputs)


class PlantRobot(FaultyRobot):
    """A robot with lagging joints and faulty sensors."""

    def open(self, contract: PolicyContract) -> None:
        """See `LocalRobot`."""
        super().open(contract)
        self.plant = Plant(contract)
        self.goals = [(field.name, np.array(field.lower), np.array(field.upper)) for field in contract.command.fields]
        self._moved_ns = self._world.now()
        self.choose_goal()

    def choose_goal(self) -> None:
        """Sets a random goal, up to 10 % outside the range of the command."""
        for name, lower, upper in self.goals:
            margin = 0.1 * (upper - lower)
            values = [self._world.random.uniform(*ends) for ends in zip(lower - margin, upper + margin, strict=True)]
            self.sample().fields[name][:] = values

    def _pass(self) -> None:
        now_ns = self._world.now()
        self.plant.pass_time((now_ns - self._moved_ns) / SECOND)
        self._moved_ns = now_ns

    def measure(self) -> None:
        """See `FaultyRobot`."""
        self._pass()
        self.position, self.velocity = self.plant.measured(self._world.random)
        self.stamp()

    def drive(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `FaultyRobot`."""
        del stamp_ns
        self._pass()
        self.sent += 1
        self.plant.command(targets)


def make_composed(
    policy: bytes, *, periods: int, seed: int, health: Path, share: float = FAULT_SHARE, spare: bytes | None = None
) -> tuple[LoopUnderTest, ComposedWorld]:
    """Builds loop and world; see `make_rig`."""
    rig = make_rig(
        policy,
        periods=periods,
        seed=seed,
        health=health,
        share=share,
        world=ComposedWorld,
        robot=PlantRobot,
        spare=spare,
    )
    world = rig.world
    assert isinstance(world, ComposedWorld)
    world.rig = rig
    return rig, world


def compose(policy: bytes, *, periods: int, seed: int, health: Path, spare: bytes | None = None) -> ComposedWorld:
    """Drives simulated joints with a policy; returns the world with its report.

    Args:
        policy: the ONNX file.
        periods: number of periods.
        seed: seed of all random events.
        health: file for the health counters.
        spare: another policy of the same contract to swap with.
    """
    rig, world = make_composed(policy, periods=periods, seed=seed, health=health, spare=spare)
    drive(rig, world)
    return world


def drive(rig: LoopUnderTest, world: ComposedWorld) -> None:
    """Runs the loop, again after each deactivation by the operator, until all periods are over."""
    commands, levels = rig.commands, None
    while rig.loop.run(levels=levels) is LoopEnd.DEACTIVATED:
        world.deactivated()
        # As in the runtime's standby: a stop must be reset before the next activation.
        commands.acknowledged, levels = commands.stop, commands.levels
        world.activated()
        if world.random.random() < STOP_AT_ONCE_SHARE:
            world.request(Command.STOP)
    world.deactivated()
    rig.counters.close()
    world.operator.close()
