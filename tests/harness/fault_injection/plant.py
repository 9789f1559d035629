"""Simulated joints with servo dynamics, and sensors with faults, for tests behind a transport.

Position-commanded joints are critically damped servos, effort-commanded ones have inertia and friction; both are
integrated exactly over intervals of constant command. Faults persist until `repair`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array

SERVO_RATE = 30.0
"""Natural frequency of the servos [rad/s]; they lag a ramp by 2 / 30 s."""

TIME_CONSTANT_S = 0.4
"""Time constant of the speed of an effort-commanded joint [s]."""


class SensorFault(StrEnum):
    """Faults of joints and sensors."""

    STUCK = "a joint is stuck"
    OFFSET = "an encoder has an offset"
    SAG = "a joint sags below its target"
    DEGREES = "positions are in degrees"
    DRIFT = "a joint slips"
    DEAD_VELOCITY = "a velocity channel is dead"
    FROZEN = "the sensors repeat themselves under new stamps"
    SLIPPED = "an encoder has slipped"
    NOISE = "the sensors are noisy"
    PUSHED = "something pushes the joints"


@dataclass
class ActiveFaults:
    """Active faults by joint."""

    stuck: npt.NDArray[np.bool_]
    sag: Array
    drift: Array
    offset: Array
    dead: npt.NDArray[np.bool_]
    degrees: bool = False
    frozen: bool = False
    noise: float = 0.0
    lies: set[SensorFault] = field(default_factory=set[SensorFault])

    @classmethod
    def nothing(cls, joints: int) -> "ActiveFaults":
        """No faults."""
        stuck, dead = np.zeros((2, joints), bool)
        sag, drift, offset = np.zeros((3, joints))
        return cls(stuck, sag, drift, offset, dead)


class Plant:
    """Joints and their sensors."""

    def __init__(self, contract: PolicyContract) -> None:
        """Starts at rest in the default positions, which are the targets."""
        robot = contract.robot
        self.position: Array = np.array([joint.default_pos for joint in robot.joints])
        """True positions [rad or m]."""
        self.velocity: Array = np.zeros_like(self.position)
        """True velocities [rad/s or m/s]."""
        self.wrong = ActiveFaults.nothing(len(robot.joints))
        self._target = self.position.copy()
        self._effort = np.zeros_like(self.position)
        self._gain, self._servo = np.zeros_like(self.position), np.zeros(len(robot.joints), bool)
        self._terms = [
            (term.target_name, list(robot.joint_index(term.joints)), term.target_name == "joint_pos_target")
            for term in contract.action.terms
        ]
        speeds = [envelope.velocity_limit or 10.0 for envelope in contract.safety.joints]
        efforts = [envelope.effort_limit or 1.0 for envelope in contract.safety.joints]
        for _, joints, servo in self._terms:
            self._servo[joints] = servo
        # Full effort accelerates a joint to 1.5 times its velocity limit.
        self._gain[:] = 1.5 * np.array(speeds) / np.array(efforts)
        lowest = [-math.inf if joint.position_lower is None else joint.position_lower for joint in robot.joints]
        highest = [math.inf if joint.position_upper is None else joint.position_upper for joint in robot.joints]
        self._lowest, self._highest = np.array(lowest), np.array(highest)
        self._frozen: tuple[Array, Array] = self.position, self.velocity

    def command(self, targets: Mapping[str, Array]) -> None:
        """Sets the targets, which hold until the next ones."""
        for name, joints, servo in self._terms:
            (self._target if servo else self._effort)[joints] = np.asarray(targets[name]).reshape(-1)

    def pass_time(self, seconds: float) -> None:
        """Advances the joints by a time."""
        if not seconds > 0.0:
            return
        wrong, rate = self.wrong, SERVO_RATE
        decay = math.exp(-rate * seconds)
        error = self.position - (self._target - wrong.sag)
        slope = self.velocity + rate * error
        position = self.position + (error + slope * seconds) * decay - error
        velocity = (self.velocity - rate * slope * seconds) * decay
        final = self._gain * self._effort
        rest = math.exp(-seconds / TIME_CONSTANT_S)
        free_velocity = final + (self.velocity - final) * rest
        free = self.position + final * seconds + (self.velocity - final) * TIME_CONSTANT_S * (1.0 - rest)
        moved = np.where(self._servo, position, free) + wrong.drift * seconds
        stopped = np.minimum(np.maximum(moved, self._lowest), self._highest)
        held = wrong.stuck | (stopped != moved)
        self.velocity = np.where(held, 0.0, np.where(self._servo, velocity, free_velocity))
        self.position = np.where(wrong.stuck, self.position, stopped)

    def measured(self, random: Random) -> tuple[Array, Array]:
        """Measured positions and velocities."""
        wrong = self.wrong
        if wrong.frozen:
            return self._frozen
        noise = np.array([random.gauss(0.0, wrong.noise) for _ in range(2 * len(self.position))])
        position = self.position + wrong.offset + noise[: len(self.position)]
        velocity = np.where(wrong.dead, 0.0, self.velocity + wrong.drift + noise[len(self.position) :])
        if wrong.degrees:
            position = np.degrees(position)
        self._frozen = position, velocity
        return self._frozen

    def begin(self, lie: SensorFault, random: Random) -> None:
        """Adds a fault."""
        wrong, joint = self.wrong, random.randrange(len(self.position))
        wrong.lies.add(lie)
        if lie is SensorFault.STUCK:
            wrong.stuck[joint] = True
        elif lie is SensorFault.OFFSET:
            wrong.offset += np.array([random.gauss(0.0, 0.02) for _ in wrong.offset])
        elif lie is SensorFault.SAG:
            wrong.sag[joint] = random.uniform(-0.05, 0.05)
        elif lie is SensorFault.DEGREES:
            wrong.degrees = True
        elif lie is SensorFault.DRIFT:
            wrong.drift[joint] = random.choice((-1.0, 1.0)) * random.uniform(0.01, 0.5)
        elif lie is SensorFault.DEAD_VELOCITY:
            wrong.dead[joint] = True
        elif lie is SensorFault.FROZEN:
            wrong.frozen = True
        elif lie is SensorFault.SLIPPED:
            wrong.offset[joint] += random.choice((-1.0, 1.0)) * random.uniform(0.05, 1.0)
        elif lie is SensorFault.NOISE:
            wrong.noise = 0.002
        elif lie is SensorFault.PUSHED:
            self.velocity = self.velocity + np.array([random.gauss(0.0, 1.0) for _ in self.velocity])

    def repair(self) -> None:
        """Removes all faults."""
        self.wrong = ActiveFaults.nothing(len(self.position))
