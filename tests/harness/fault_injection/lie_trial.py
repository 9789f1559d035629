"""Detection of single faults of joints and sensors while a robot moves."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.harness.fault_injection.arm_policies import arm_policy
from tests.harness.fault_injection.composed import ComposedWorld, PlantRobot
from tests.harness.fault_injection.injection import make_rig
from tests.harness.fault_injection.operator_model import NEVER
from tests.harness.fault_injection.plant import SensorFault

from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

CAUGHT = (SensorFault.STUCK, SensorFault.DEGREES, SensorFault.DEAD_VELOCITY, SensorFault.FROZEN, SensorFault.SLIPPED)
"""Faults that a limit of the contract is meant to detect."""

BEGINS = 60
"""Period in which the fault begins; the robot has moved for about 45 periods by then."""

LASTS = 150
_GOAL_PERIODS = 30


@dataclass(frozen=True)
class FaultDetection:
    """Detection of a sensor fault."""

    lie: SensorFault
    periods: int | None
    """Periods from the fault to the first braking command; None if it was not detected."""
    crept: float
    """Maximum change of a commanded position after braking [rad or m]."""
    violations: tuple[str, ...]


class SensorFaultWorld(ComposedWorld):
    """A world with a single fault, in which the robot is always commanded to move."""

    habits = NEVER
    lie = SensorFault.STUCK

    def fault_share(self) -> float:
        """See `World`."""
        return 0.0

    def operate(self) -> None:
        """See `World`."""
        if self.rig is None:
            return
        robot, period = self.rig.robot, self.findings.periods
        assert isinstance(robot, PlantRobot)
        if period % _GOAL_PERIODS == 0:
            for name, lower, upper in robot.goals:
                robot.sample().fields[name][:] = upper if period // _GOAL_PERIODS % 2 else lower
        if period == BEGINS:
            robot.plant.begin(self.lie, self.random)

    def judge_tick(self) -> Array | None:
        """See `World`."""
        sent = super().judge_tick()
        self.seen.append((self.judge.state, self.judge.last))
        return sent

    seen: list[tuple[int, Array | None]]


def tell_lie(lie: SensorFault, *, kind: str, seed: int, health: Path) -> FaultDetection:
    """Drives one of `ARMS` and injects a fault."""
    rig = make_rig(
        arm_policy(kind, seed=seed),
        periods=BEGINS + LASTS,
        seed=seed,
        health=health,
        world=SensorFaultWorld,
        robot=PlantRobot,
    )
    world = rig.world
    assert isinstance(world, SensorFaultWorld)
    world.rig, world.lie, world.seen = rig, lie, []
    rig.loop.run()
    world.deactivated()
    rig.counters.close()
    world.operator.close()
    states = [state for state, _ in world.seen[:-1]]
    moved = states.index(GuardState.RUN) < BEGINS and states[BEGINS - 2] == GuardState.RUN
    stops = [number for number, state in enumerate(states) if number >= BEGINS - 1 and state > GuardState.STANDSTILL]
    found = stops[0] + 2 - BEGINS if moved and stops and stops[0] < BEGINS + LASTS - 1 else None
    return FaultDetection(lie, found, _crept(world, stops[0] if stops else 0), tuple(world.judge.verdict.broken))


def _crept(world: SensorFaultWorld, stop: int) -> float:
    """Range of the commanded positions from one second after the stop."""
    second = round(1.0 / world.contract.timing.control_dt)
    commands = [command for _, command in world.seen[stop + second :] if command is not None]
    servo = world.judge.bounds.servo
    return float(np.ptp(np.array(commands)[:, servo], axis=0).max()) if len(commands) > 1 else 0.0
