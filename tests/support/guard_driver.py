"""Drives a guard of one world in tests, tick after tick."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardResult, GuardState, Reason

RUN, STANDSTILL, HOLD, DAMP, STOP = GuardState
EFFORT, POSITION = "joint_effort_target", "joint_pos_target"

Array = npt.NDArray[np.float64]


def contract_of(document: dict[str, Any]) -> PolicyContract:
    return parse_contract(json.dumps(document), source="test")


class Driver:
    """One world, called tick after tick with what a test does not care about filled in."""

    def __init__(self, contract: PolicyContract) -> None:
        self.guard = Guard(contract)
        self.dt = contract.timing.control_dt
        self.step = 0
        self.calm: dict[str, Any] = {
            "joint_pos": np.array([[joint.default_pos for joint in contract.robot.joints]]),
            "joint_vel": np.zeros((1, len(contract.robot.joints))),
            "targets": {name: self.guard.limits.rest[None, part] for name, part in self.guard.limits.slices.items()},
        }

    def tick(
        self, *, age_s: float = 0.0, effort: float | None = None, vel: float | None = None, **given: Any
    ) -> GuardResult:
        now = self.step * self.dt
        self.step += 1
        if effort is not None:
            given["targets"] = self.calm["targets"] | {EFFORT: np.array([[effort]])}
        if vel is not None:
            given["joint_vel"] = np.full_like(self.calm["joint_vel"], vel)
        return self.guard.check(now_s=now, sensor_stamp_s=now - age_s, **self.calm | given)

    def ticks(self, count: int, **given: Any) -> GuardResult:
        return [self.tick(**given) for _ in range(count)][-1]


def reasons(result: GuardResult) -> Reason:
    return Reason(int(result.reasons[0]))


def causes(result: GuardResult) -> Reason:
    return Reason(int(result.causes[0]))


def effort(result: GuardResult) -> float:
    return float(result.targets[EFFORT][0, 0])


def position(result: GuardResult) -> list[float]:
    return result.targets[POSITION][0].tolist()
