"""A small simulated arm with a guard in front of it: what a stop does to a robot, in closed loop."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.support.guard_driver import EFFORT, POSITION, Array

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardResult, Request

SERVOS = np.array([2, 0])
"""Elbow and shoulder, in the order of their commands, among shoulder, slide, elbow and passive."""

Sensors = Callable[[Array, Array], tuple[Array, Array]]


class ServoArm:
    """The arm of `guard_contracts`: position servos of 80 N·m/rad and 4 N·m·s/rad turn 0.5 kg·m² against gravity.

    Its drives know where the joints are. What the guard is told goes through `sensors`.
    """

    gravity: float = 4.0
    """Torque of an outstretched joint [N·m]: it sags by up to 0.05 rad."""

    def __init__(self, contract: PolicyContract, sensors: Sensors = lambda q, v: (q, v)) -> None:
        self.guard, self.dt, self.sensors = Guard(contract), contract.timing.control_dt, sensors
        self.position, self.velocity = np.array([0.3, 0.0, 0.4, 0.0]), np.zeros(4)
        self.periods, self.blocked = 0, False
        self.commands: list[Array] = []
        """Positions commanded to elbow and shoulder, shape (2,) each; only those that were sent."""
        self._noise = np.random.default_rng(5)
        self._drives: Array | None = None

    def tick(self, targets: dict[str, Array] | None, *, age_s: float = 0.0, **asked: Any) -> GuardResult:
        """One control period; `asked` are fields of a `Request`."""
        guard = self.guard
        joint_pos, joint_vel = self.sensors(
            self.position + self._noise.uniform(-1e-5, 1e-5, 4), self.velocity + self._noise.uniform(-1e-3, 1e-3, 4)
        )
        with np.errstate(all="ignore"):
            guard.observe(
                stamp_s=self.periods * self.dt - age_s,
                joint_pos=joint_pos[None],
                joint_vel=joint_vel[None],
                sensors={"imu": np.zeros((1, 2))},
            )
            result = guard.decide(age_s=age_s, targets=targets, request=Request(**asked))
            guard.commit(sent=bool(result.referenced[0]))
        self.periods += 1
        if result.referenced[0]:
            self.commands.append(result.targets[POSITION][0].copy())
            self._drives = self.commands[-1]
        self._move()
        return result

    def ticks(self, count: int, targets: dict[str, Array] | None = None, **given: Any) -> GuardResult:
        return [self.tick(targets, **given) for _ in range(count)][-1]

    def brakes_on(self) -> None:
        """The drives have forgotten their command."""
        self._drives = None

    def _move(self) -> None:
        """Drives without a command keep their brakes on."""
        if self._drives is None or self.blocked:
            self.velocity[:] = 0.0
            return
        q, v = self.position[SERVOS], self.velocity[SERVOS]
        for _ in range(5):
            v = v + self.dt / 5 * (80.0 * (self._drives - q) - 4.0 * v - self.gravity * np.cos(q)) / 0.5
            q = q + self.dt / 5 * v
        self.position[SERVOS], self.velocity[SERVOS] = q, v

    def towards(self, *target: float) -> dict[str, Array]:
        """A policy's command for elbow and shoulder, as far as the last one and the contract's speed allow."""
        last = self.guard.last[0, :2]
        return {POSITION: (last + np.clip(np.array(target) - last, -0.02, 0.02))[None], EFFORT: np.zeros((1, 1))}

    @property
    def travelled(self) -> Array:
        """How far the commanded positions have gone from one command to the next, shape (periods - 1, 2)."""
        return np.diff(np.stack(self.commands), axis=0)
