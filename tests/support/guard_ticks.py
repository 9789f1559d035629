"""Anything that a guard may be told in a control period, as hypothesis strategies, and guards that are told it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.support.guard_contracts import graph_sensors
from tests.support.guard_driver import Array

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import NOTHING, Guard, GuardResult, Request

ODD = [np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 5e-324, -0.0, 1e9, -1e9, 1.0, -4.0, 0.049, 0.051]


@dataclass(frozen=True)
class Tick:
    """What one world's guard is told in one control period, and for how many periods."""

    repeat: int = 1
    age_s: float = 0.0
    command_age_s: float = 0.0
    joint_pos: Any = None
    joint_vel: Any = None
    imu: Any = None
    commands: Any = None
    late: bool = False
    stop: bool = False
    ask: str = ""
    """`reset` or `start`, with the number that was read back last."""
    sent: bool = True
    """Whether the robot gets the command."""
    stamped: bool = True
    """Whether the sample has a stamp of its own, or the last one's."""


@st.composite
def ticks(draw: st.DrawFn, contract: PolicyContract) -> Tick:
    """Ordinary numbers, some within limits and some not, with up to four replaced by anything a float64 can be.

    Half of the robots rest where they were made, and are told what a policy could tell them.
    """
    joints, commands = len(contract.robot.joints), contract.action.size
    rests = draw(st.booleans())
    row = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(-1.0, 1.0, 4 + 2 * joints + commands)
    row *= np.repeat([0.0, 1.1, 1.7, 2.5, 40.0], [2, 2, joints, joints, commands])
    if draw(st.booleans()):
        row *= 0.1
    if rests:
        row[4 : 4 + joints] = [joint.default_pos for joint in contract.robot.joints] + 1e-5 * row[4 : 4 + joints]
        row[4 + joints : 4 + 2 * joints] *= 1e-3
        row[2:4] *= 0.5
    for column in draw(st.lists(st.integers(0, len(row) - 1), max_size=1 if rests else 4)):
        row[column] = draw(st.sampled_from(ODD) | st.floats(width=64))
    return Tick(
        repeat=draw(st.sampled_from([1, 1, 1, 1, 3, 28])),
        age_s=row[0],
        command_age_s=row[1],
        imu=row[2:4],
        joint_pos=row[4 : 4 + joints],
        joint_vel=row[4 + joints : 4 + 2 * joints],
        commands=row[4 + 2 * joints :],
        late=draw(st.sampled_from([False, False, False, True])),
        stop=draw(st.sampled_from([False] * 9 + [True])),
        ask=draw(st.sampled_from(["", "", "reset", "start"])),
        sent=draw(st.sampled_from([True] * 9 + [False])),
        stamped=draw(st.sampled_from([True] * 9 + [False])),
    )


def played(contract: PolicyContract, data: st.DataObject, *, most: int = 6) -> list[Tick]:
    """Control periods one by one."""
    drawn = data.draw(st.lists(ticks(contract), min_size=1, max_size=most))
    return [tick for tick in drawn for _ in range(tick.repeat)]


def life(contract: PolicyContract, data: st.DataObject) -> list[Tick]:
    """A robot that runs, is stopped, rests, is reset and started, with anything in between."""
    rest = calm(contract)
    parts = [played(contract, data, most=2) for _ in range(4)]
    stop, (reset, start) = replace(rest, stop=True), (replace(rest, ask=label) for label in ASKED)
    return [*parts[0], stop, *[rest] * 30, *parts[1], *[rest] * 30, reset, *parts[2], rest, rest, start, *parts[3]]


ASKED = ("reset", "start")


def calm(contract: PolicyContract) -> Tick:
    """At rest at the default position, commanding just that."""
    joints = contract.robot.joints
    return Tick(
        joint_pos=np.array([joint.default_pos for joint in joints]),
        joint_vel=np.zeros(len(joints)),
        imu=np.zeros(2),
        commands=Guard(contract).limits.rest,
    )


class Rows:
    """Drives a guard of several worlds with one sequence of ticks for each."""

    def __init__(self, contract: PolicyContract, worlds: int) -> None:
        self.guard = Guard(contract, worlds)
        self.step = 0
        self.dt = contract.timing.control_dt
        self.stamp_s = np.zeros(worlds)
        self.read_back = 0
        self._imu = graph_sensors(contract)

    def check(self, told: list[Tick]) -> GuardResult:
        """One period; requests carry the first world's number, and are the first tick's."""
        now, guard, first = self.step * self.dt, self.guard, told[0]
        self.step += 1
        commands = np.stack([tick.commands for tick in told])
        stamped = np.array([tick.stamped for tick in told])
        self.stamp_s = np.where(stamped, now - np.array([tick.age_s for tick in told]), self.stamp_s)
        asked = {label: self.read_back if first.ask == label else NOTHING for label in ASKED}
        with np.errstate(all="ignore"):
            guard.observe(
                stamp_s=self.stamp_s,
                joint_pos=np.stack([tick.joint_pos for tick in told]),
                joint_vel=np.stack([tick.joint_vel for tick in told]),
                sensors={"imu": np.stack([tick.imu for tick in told])} if self._imu else {},
            )
            result = guard.decide(
                age_s=now - self.stamp_s,
                targets={name: commands[:, part] for name, part in guard.limits.slices.items()},
                command_age_s=np.array([tick.command_age_s for tick in told]),
                deadline_missed=np.array([tick.late for tick in told]),
                request=Request(stop=np.array([tick.stop for tick in told]), **asked),
            )
            guard.commit(sent=first.sent)
        self.read_back = int(result.read_back[0])
        return result


def commanded(result: GuardResult) -> Array:
    """All commands, shape (num_worlds, A)."""
    return np.concatenate(list(result.targets.values()), axis=1)
