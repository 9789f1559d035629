"""Hypothesis plays operator, robot, network, policy and clock against the whole loop, and shortens what it finds.

The loop runs in a thread of its own, one control period at a time, so that requests come from another thread as they do
on a robot. Between two periods any rule may do its worst; a request may also come in the middle of a tick.
"""

import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.harness.fault_injection.arm_policies import ARMS, arm_policy
from tests.harness.fault_injection.composed import ComposedWorld, PlantRobot
from tests.harness.fault_injection.injection import LoopUnderTest, make_rig
from tests.harness.fault_injection.operator_model import NEVER, STOPS, TICKETS
from tests.harness.fault_injection.plant import SensorFault
from tests.harness.fault_injection.world import Fault
from tests.harness.fixtures.sample import sample_policy

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue, Levels
from physai.deploy_jetson.runtime.loop.loop import LoopEnd
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.safety import GuardState

PENDULUM = "pendulum"
PATIENCE_S = 60.0
MOST_PERIODS = 40
_LONGER_THAN_AN_EXAMPLE = 10**9


class SteppedWorld(ComposedWorld):
    """A world that waits between two periods for what is to happen in the next one."""

    habits = NEVER

    def __init__(
        self, contract: PolicyContract, commands: CommandQueue, *, seed: int, periods: int, share: float
    ) -> None:
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.coming: list[Fault | None] = []
        self.interrupts: dict[int, list[Command]] = {}
        self.looks = 0
        super().__init__(contract, commands, seed=seed, periods=periods, share=share)

    def wait(self, due_ns: int) -> int:
        self.tick_ends()
        self.done.release()
        assert self.go.acquire(timeout=PATIENCE_S)
        return super().wait(due_ns)

    def fault_share(self) -> float:
        return 0.0

    def operate(self) -> None:
        """The fault that a rule has ordered, and its requests in the middle of the tick."""
        self.fault = self.coming.pop(0) if self.coming else None
        self.looks = 0

    def now(self) -> int:
        for command in self.interrupts.pop(self.looks, ()):
            self.operator.asks(command)
        self.looks += 1
        return super().now()


class LoopMachine(RuleBasedStateMachine):
    """The machine's rules are all that can happen; its invariant is the judge's silence."""

    rig: LoopUnderTest
    world: SteppedWorld

    @initialize(kind=st.sampled_from([PENDULUM, *ARMS]), seed=st.integers(0, 3))
    def begin(self, kind: str, seed: int) -> None:
        policy, spare = (
            sample_policy(seed=one)[POLICY_FILE] if kind == PENDULUM else arm_policy(kind, seed=one)
            for one in (seed, seed + 10)
        )
        self.folder = tempfile.TemporaryDirectory()
        self.rig = make_rig(
            policy,
            periods=_LONGER_THAN_AN_EXAMPLE,
            seed=seed,
            health=Path(self.folder.name) / "health",
            world=SteppedWorld,
            robot=PlantRobot,
            spare=spare,
        )
        assert isinstance(self.rig.world, SteppedWorld)
        self.world = self.rig.world
        self.world.rig = self.rig
        self.active, self.failed, self.end = False, None, None
        self._activate(None)

    def _activate(self, levels: Levels | None) -> None:
        def run() -> None:
            try:
                self.end = self.rig.loop.run(levels=levels)
            except BaseException as error:
                self.failed = error
            finally:
                self.active = False
                self.world.done.release()

        self.active = True
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert self.world.done.acquire(timeout=PATIENCE_S)

    def _advance(self, periods: int) -> None:
        for _ in range(periods):
            if not self.active:
                return
            self.world.go.release()
            assert self.world.done.acquire(timeout=PATIENCE_S)
            if not self.active:
                self.thread.join()
                self.world.deactivated()

    @rule(periods=st.integers(1, MOST_PERIODS))
    def time_passes(self, periods: int) -> None:
        self._advance(periods)

    @rule(command=st.sampled_from([*STOPS, *TICKETS, *TICKETS[:2]]))
    def someone_asks(self, command: Command) -> None:
        self.world.operator.asks(command)

    @rule(command=st.sampled_from([*STOPS, *TICKETS]), look=st.integers(0, 12))
    def someone_interrupts_a_tick(self, command: Command, look: int) -> None:
        self.world.interrupts.setdefault(look, []).append(command)

    @rule(commands=st.lists(st.sampled_from([*STOPS, *TICKETS]), min_size=2, max_size=12))
    def many_ask_at_once(self, commands: list[Command]) -> None:
        for command in commands:
            self.world.operator.asks(command)

    @rule(fault=st.sampled_from(Fault), periods=st.integers(1, 5))
    def something_fails(self, fault: Fault, periods: int) -> None:
        self.world.coming += [fault] * periods
        self._advance(periods)

    @rule(faults=st.lists(st.sampled_from([None, *Fault]), min_size=2, max_size=8))
    def much_fails(self, faults: list[Fault | None]) -> None:
        self.world.coming += faults
        self._advance(len(faults))

    @rule(lie=st.sampled_from(SensorFault))
    def something_lies(self, lie: SensorFault) -> None:
        robot = self.rig.robot
        assert isinstance(robot, PlantRobot)
        robot.plant.begin(lie, self.world.random)

    @rule()
    def all_is_repaired(self) -> None:
        robot = self.rig.robot
        assert isinstance(robot, PlantRobot)
        robot.plant.repair()

    @rule()
    def the_goal_changes(self) -> None:
        robot = self.rig.robot
        assert isinstance(robot, PlantRobot)
        robot.choose_goal()

    @rule()
    def another_policy_is_activated(self) -> None:
        assert self.rig.swaps is not None
        self.rig.swaps.offer()

    @rule()
    def the_robot_is_reset_and_started(self) -> None:
        """What an operator does who waits for each answer, so that the policy drives again."""
        self._advance(MOST_PERIODS)
        if self.world.judge.state > GuardState.STANDSTILL:
            self.world.operator.asks(Command.RESET)
            self._advance(2)
        self.world.operator.asks(Command.START)
        self._advance(4)

    @rule()
    def it_is_deactivated(self) -> None:
        self.world.operator.asks(Command.DEACTIVATE)
        self._advance(5)

    @precondition(lambda self: not self.active and self.end is LoopEnd.DEACTIVATED)
    @rule(stop=st.booleans())
    def it_is_activated_again(self, stop: bool) -> None:
        commands = self.rig.commands
        commands.acknowledged, levels = commands.stop, commands.levels
        self.world.activated()
        if stop:
            self.world.operator.asks(Command.STOP)
        self._activate(levels)

    @invariant()
    def every_promise_is_kept(self) -> None:
        if hasattr(self, "world"):
            assert self.failed is None
            assert self.world.judge.verdict.broken == []
            assert self.world.judge.verdict.periods_to_safe <= 2

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.operator.asks(Command.SHUTDOWN)
        # Two seconds of HOLD and one of DAMP, if the joints do not come to rest.
        self._advance(round(3.5 / world.contract.timing.control_dt))
        assert not self.active
        assert world.judge.verdict.broken == []
        self.rig.counters.close()
        world.operator.close()
        self.folder.cleanup()


TestLoop = LoopMachine.TestCase
TestLoop.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    # The same ones each time; test_everything_at_random_for_long looks for others.
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.exhaustive
def test_everything_at_random_for_long() -> None:
    run_state_machine_as_test(LoopMachine, settings=settings(TestLoop.settings, max_examples=1000, derandomize=False))
