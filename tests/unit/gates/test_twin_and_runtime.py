"""Same inputs, same outputs: what a robot's runtime does with its samples, the gates' twin does bit for bit.

The runtime drives joints that do not exist, with faults at random; its inputs are written down and given to the guard
and the policy as the gates use them, one world alone and many beside each other.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.fault_injection.arm_policies import ARMS, EASED, arm_policy
from tests.harness.fault_injection.composed import ComposedWorld, PlantRobot
from tests.harness.fault_injection.injection import LoopUnderTest, make_rig
from tests.harness.fault_injection.plant import SensorFault
from tests.harness.fault_injection.world import Fault

from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.sdk.policy.command_shaping import command_shapes, shaped_command
from physai.sdk.safety import Guard, GuardState, Reason
from physai.sdk.safety.start import StartGate
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.twin.rollouts.rollout import Sensed, decide_on

SENSED = (
    Fault.SENSOR_NAN,
    Fault.SENSOR_INFINITE,
    Fault.SENSOR_JUMPS,
    Fault.STAMP_OLD,
    Fault.STAMP_AHEAD,
    Fault.SILENT,
    Fault.SLOW,
)
"""Faults that a twin can have, too."""

BITS_OF_THE_GUARD = 0xFFFF
OF_THE_SAMPLE = (
    Reason.SENSOR_NOT_FINITE
    | Reason.SENSOR_STALE
    | Reason.SENSOR_IMPLAUSIBLE
    | Reason.SENSOR_CONTRADICTS
    | Reason.SENSOR_FROZEN
)
OF_THE_COMMAND = Reason.DEADLINE_MISSED | Reason.COMMAND_LIMIT | Reason.COMMAND_RATE


@dataclass
class Period:
    """What one tick of the runtime was given, and what it made of it; one world."""

    seen: dict[str, Array] = field(default_factory=dict[str, Array])
    """The policy's sample."""
    asked: dict[str, Array] = field(default_factory=dict[str, Array])
    """The commands in the robot's sample."""
    judged: dict[str, Array] = field(default_factory=dict[str, Array])
    """The guard's: after a late answer it is a newer one."""
    stamp_s: float = 0.0
    age_s: float = 0.0
    late: bool = False
    state: int = 0
    reasons: int = 0
    targets: dict[str, Array] = field(default_factory=dict[str, Array])
    memory: dict[str, Array] = field(default_factory=dict[str, Array])


class Recorded(ComposedWorld):
    """A world without an operator, which goes wrong only in ways that a twin knows."""

    periods: list[Period]
    beginning: int

    def stand_still(self, most_s: float) -> None:
        """A slow policy misses its deadline, and no period: a twin has none without a decision."""
        timing = self.contract.timing
        super().stand_still(0.0)
        self._now_ns += round(0.5e9 * (timing.deadline_s + timing.control_dt))

    def operate(self) -> None:
        if self.rig is None or self.findings.periods < self.beginning:
            self.fault = None
            return
        self.fault = self.random.choice(SENSED) if self.random.random() < self.share else None
        robot = self.rig.robot
        assert isinstance(robot, PlantRobot)
        if self.random.random() < 0.05:
            robot.choose_goal()
        if self.findings.periods == self.beginning + 60:
            robot.plant.begin(
                self.random.choice(
                    (SensorFault.STUCK, SensorFault.SLIPPED, SensorFault.DEAD_VELOCITY, SensorFault.FROZEN)
                ),
                self.random,
            )


class SensingRobot(PlantRobot):
    """A robot whose goals are sound: a twin has no others."""

    def poll(self) -> bool:
        goal = self.sample().fields["goal"].copy()
        polled = super().poll()
        self.sample().fields["goal"][:] = goal
        return polled


def recorded(policy: bytes, *, seed: int, share: float, folder: Path, periods: int = 120) -> list[Period]:
    """Periods of a run from its start on."""
    rig = make_rig(
        policy, periods=periods, seed=seed, health=folder / f"{seed}", share=share, world=Recorded, robot=SensingRobot
    )
    world = rig.world
    assert isinstance(world, Recorded)
    world.rig, world.periods, world.beginning = rig, [], 20
    _listen(rig, world)
    rig.loop.run()
    rig.counters.close()
    world.operator.close()
    # The twin has no operator, and so not the HOLD of the end.
    return world.periods[:-30]


def _listen(rig: LoopUnderTest, world: Recorded) -> None:
    """Writes down what goes into the tick's parts and comes out of them; changes nothing."""
    tick, guard, policy = rig.tick, rig.tick.guard, rig.tick.policy
    assert isinstance(policy, BoundPolicy)
    observe, decide, step = guard.observe, guard.decide, policy.step
    now = Period()

    def inputs() -> dict[str, Array]:
        return {name: np.array(row) for name, row in policy.inputs.named.items()}

    def observing(**given: Any) -> Any:
        now.stamp_s = float(given["stamp_s"])
        fields = rig.robot.sample().fields
        commands = {one.name: fields[one.name] for one in policy.header.contract.command.fields}
        now.asked = now.asked or {name: values.astype(np.float32)[None] for name, values in commands.items()}
        now.judged = {name: np.array(values) for name, values in tick.senses.fields.items()}
        return observe(**given)

    def stepping() -> bool:
        now.seen = inputs()
        return step()

    def deciding(**given: Any) -> Any:
        now.age_s, now.late = float(given["age_s"]), bool(given["deadline_missed"])
        return decide(**given)

    def judging() -> Array | None:
        nonlocal now
        before = world.judge.state
        sent = judge()
        if before == GuardState.RUN or world.periods:
            # Where it was not asked, what it would have read.
            now.seen = now.seen or inputs()
            now.state, now.reasons = tick.state, tick.reasons
            now.targets = {name: np.array(values) for name, values in (tick.sent or {}).items()}
            now.memory = {name: np.array(values) for name, values in policy.memory.items()}
            world.periods.append(now)
        now = Period(seen={}, judged=now.judged, stamp_s=now.stamp_s)
        return sent

    judge = world.judge_tick
    guard.observe, guard.decide = observing, deciding
    policy.step, world.judge_tick = stepping, judging


def replayed(policy: bytes, runs: list[list[Period]]) -> None:
    """Plays the runs side by side in the twin's guard and policy, and compares."""
    twin, count = OnnxPolicy(policy, source="policy"), len(runs)
    guard, gate = Guard(twin.contract, count), StartGate(twin.contract, count)
    shapes = command_shapes(twin.contract.command.fields, twin.contract.timing.control_dt)
    shown = {name: np.zeros((count, len(shape.lower)), np.float32) for name, shape in shapes.items()}
    twin.reset(count)
    names = [name for name in twin.header.inputs if not name.startswith("state.")]
    alive = np.ones(count, bool)
    for number, periods in enumerate(zip(*runs, strict=True)):
        sensed = Sensed(
            stamp_s=np.array([period.stamp_s for period in periods]),
            age_s=np.array([period.age_s for period in periods]),
            joint_pos=_stacked(periods, "joint_pos"),
            joint_vel=_stacked(periods, "joint_vel"),
            sensors={name: np.concatenate([period.seen[name] for period in periods]) for name in names},
            commands={},
        )
        for name, shape in shapes.items():
            asked = np.concatenate([period.asked[name] for period in periods])
            shown[name] = shaped_command(asked, shown[name], shape)
            assert sensed.sensors[name].tobytes() == shown[name].tobytes(), f"period {number}: {name}"
        if not number:
            gate.begin(gate.at_rest(sensed.joint_pos))
        result = decide_on(guard, twin, sensed, np.array([period.late for period in periods]), gate)
        memory = twin.state
        for row, period in enumerate(periods):
            label = f"run {row}, period {number}"
            assert result.state[row] == period.state, label
            assert told(int(result.reasons[row])) == told(period.reasons), label
            for name, values in period.targets.items():
                assert result.targets[name][row].tobytes() == values[0].tobytes(), label
            alive[row] &= period.state == GuardState.RUN
            for name, values in period.memory.items() if alive[row] else ():
                assert memory[name][row].tobytes() == values[0].tobytes(), f"{label}: {name}"


def told(reasons: int) -> Reason:
    """What is wrong; the twin asks a policy that the runtime does not ask, and there is no command in both."""
    found = Reason(reasons & BITS_OF_THE_GUARD)
    if found & Reason.COMMAND_NOT_FINITE:
        found = found & ~Reason.COMMAND_NOT_FINITE | Reason.DEADLINE_MISSED
    return found & ~OF_THE_COMMAND if found & OF_THE_SAMPLE else found


def _stacked(periods: tuple[Period, ...], name: str) -> Array:
    return np.concatenate([period.judged[name] for period in periods])


def test_of_numbers_that_are_not_finite_nothing_is_remembered() -> None:
    policy = OnnxPolicy(arm_policy("incremental"), source="test")
    policy.reset(2)
    fields = {name: np.full((2, 3), 0.1) for name in ("joint_pos", "joint_vel", "goal")}
    fields["joint_pos"][1] = np.nan
    policy(fields, {})
    for name, values in policy.state.items():
        assert np.isfinite(values).all()
        assert not values[1].any(), name
    assert policy.state["started"].tolist() == [[1.0], [0.0]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ARMS)
def test_the_twin_does_what_the_runtime_does(kind: str, tmp_path: Path) -> None:
    policy = arm_policy(kind)
    runs = [recorded(policy, seed=seed, share=0.2 * (seed > 0), folder=tmp_path) for seed in range(6)]
    assert min(map(len, runs)) > 60
    states = [[period.state for period in run] for run in runs]
    assert sum(state == GuardState.RUN for run in states for state in run) > 150
    assert any(max(run) > GuardState.STANDSTILL for run in states)
    length = min(map(len, runs))
    replayed(policy, [run[:length] for run in runs])
    for run in runs[:3]:
        replayed(policy, [run])


def test_the_twin_starts_and_shapes_commands_as_the_runtime_does(tmp_path: Path) -> None:
    """Period by period over a start with a ramp, while the goal that the policy sees follows the one it is given."""
    policy = arm_policy(EASED)
    runs = [recorded(policy, seed=seed, share=0.0, folder=tmp_path) for seed in range(3)]
    length = min(map(len, runs))
    assert length > 40
    replayed(policy, [run[:length] for run in runs])
    moved = np.concatenate([run[number].seen["goal"] for run in runs for number in range(length)])
    asked = np.concatenate([run[number].asked["goal"] for run in runs for number in range(length)])
    assert (moved != asked).any(axis=1).sum() > 20
    # The first command of the ramp of 15 periods is a fifteenth of the way from where the robot stands.
    first, memory = runs[0][0], runs[0][0].memory
    assert memory["previous_action"].any()
    stands = first.judged["joint_pos"][0][[1, 0, 2]]
    assert np.abs(first.targets["joint_pos_target"][0] - stands).max() < 0.25
