"""A robot's side as a whole, at random: loop, tick, guard, policy and queue, with everything around them wrong.

The virtual world of `physai.deploy_jetson.bench.fault_injection.world`, joints that have lag and sensors that lie,
an operator who asks
for anything at any moment, and a judge of the policy's memory.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from physai.deploy_jetson.bench.fault_injection.injection import FaultyRobot, LoopUnderTest, make_rig
from physai.deploy_jetson.bench.fault_injection.operator_model import OperatorHabits, OperatorModel
from physai.deploy_jetson.bench.fault_injection.oracle_memory import MemoryOracle
from physai.deploy_jetson.bench.fault_injection.plant import Plant, SensorFault
from physai.deploy_jetson.bench.fault_injection.world import SECOND, World
from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.loop import LoopEnd
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

FAULT_SHARE = 0.12
"""Share of the periods of RUN in which something begins to go wrong."""

LIE_SHARE = 0.002
"""Share of the periods in which joints or sensors begin to lie."""

LONGEST_LIE = 100
STORM_SHARE, LONGEST_STORM = 0.15, 40
"""How often faults go on after a stop, and for how many periods; else there are few, so that a reset can be obeyed."""

CALM_SHARE = 0.01
GOAL_SHARE = 0.03
WARM_UP_SHARE = 0.05
SWAP_SHARE = 0.005
STOP_AT_ONCE_SHARE = 0.3
"""Of the activations, before the first tick of which a stop is requested."""


class ComposedWorld(World):
    """A world with an operator, lying sensors, and a judge of the policy's memory."""

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
        """Times that another policy has taken over."""
        self.ticks = 0
        self._lie_left = self._storm_left = 0

    def now(self) -> int:
        """See `World`; an operator's request may come at every look."""
        self.operator.looked()
        return super().now()

    def fault_share(self) -> float:
        """See `World`; after a stop the storm may be over."""
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
    """A robot with joints that have lag and sensors that lie."""

    def open(self, contract: PolicyContract) -> None:
        """See `LocalRobot`."""
        super().open(contract)
        self.plant = Plant(contract)
        self.goals = [(field.name, np.array(field.lower), np.array(field.upper)) for field in contract.command.fields]
        self._moved_ns = self._world.now()
        self.choose_goal()

    def choose_goal(self) -> None:
        """The operator's joystick, or a planner; now and then it asks for more than the policy was trained for."""
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
    """Puts everything together; see `make_rig`."""
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
    """Drives joints that do not exist with a policy that does, for so many periods; the world, and its judge.

    Args:
        policy: the ONNX file.
        periods: how many.
        seed: of all that happens.
        health: where to keep the counters.
        spare: another policy of the same contract, that takes turns with it.
    """
    rig, world = make_composed(policy, periods=periods, seed=seed, health=health, spare=spare)
    drive(rig, world)
    return world


def drive(rig: LoopUnderTest, world: ComposedWorld) -> None:
    """Runs the loop, and again where an operator deactivates it, until its periods are over."""
    commands, levels = rig.commands, None
    while rig.loop.run(levels=levels) is LoopEnd.DEACTIVATED:
        world.deactivated()
        # As the runtime does it while nothing is driven: a stop has to be reset before the next activation.
        commands.acknowledged, levels = commands.stop, commands.levels
        world.activated()
        if world.random.random() < STOP_AT_ONCE_SHARE:
            world.request(Command.STOP)
    world.deactivated()
    rig.counters.close()
    world.operator.close()
