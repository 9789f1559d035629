"""Laws of the guard, for any sequence of inputs whatever."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.contract import PolicyContract
from physai.sdk.contract_io import parse_contract
from physai.sdk.safety import Guard, GuardResult, GuardState

Array = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]


def joint(name: str, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": -2.0, "position_upper": 2.0, "velocity_limit": 3.0, "effort_limit": 50.0}
    return {"name": name, "kind": "revolute", **limits, **fields}


def envelope(name: str, **fields: Any) -> dict[str, Any]:
    limits = {"position_lower": -1.5, "position_upper": 1.3, "velocity_limit": 2.0, "effort_limit": 50.0}
    return {"joint": name, **limits, **fields}


def make_contract(*, incremental: bool, weak: bool) -> PolicyContract:
    """Two position servos (with `weak` less effort than their drive gives), an effort joint, and one without motor."""
    kind = "_incremental" if incremental else ""
    size = 0.1 if incremental else 1.0
    servo = {"stiffness": 80.0, "damping": 4.0}
    effort = {"effort_limit": 30.0} if weak else {}
    document = {
        "format_version": 1,
        "task": "laws",
        "robot": {
            "name": "arm",
            "base": "fixed",
            "joints": [
                joint("shoulder", default_pos=0.2, **servo),
                joint("slide", kind="prismatic"),
                joint("elbow", **servo),
                {"name": "passive", "kind": "continuous", "effort_limit": 0.0},
            ],
            "sensors": [{"name": name, "size": 4, "unit": ""} for name in ("joint_pos", "joint_vel")],
        },
        "observation": {"terms": [{"name": "q", "kind": "joint_pos_rel"}]},
        "action": {
            "terms": [
                {
                    "kind": "joint_pos" + kind,
                    "joints": ["elbow", "shoulder"],
                    "scale": [0.25 * size, 0.25 * size],
                    "offset": [0.0, 0.2],
                    "lower": [-1.1, -0.3],
                    "upper": [1.1, 0.7],
                },
                {
                    "kind": "joint_effort" + kind,
                    "joints": ["slide"],
                    "scale": [33.3 * size],
                    "offset": [0.0],
                    "lower": [-33.3],
                    "upper": [29.7],
                },
            ]
        },
        "command": {},
        "timing": {
            "control_dt": 0.02,
            "physics_dt": 0.005,
            "decimation": 4,
            "deadline_s": 0.015,
            "max_observation_age_s": 0.05,
        },
        "safety": {
            "joints": [
                envelope("shoulder", **effort),
                envelope("slide", effort_limit=40.0),
                envelope("elbow", **effort),
                {"joint": "passive", "effort_limit": 0.0},
            ],
            "max_reused_commands": 2,
        },
    }
    return parse_contract(json.dumps(document), source="laws")


CONTRACTS = {
    f"{'incremental' if incremental else 'absolute'}{'-weak' if weak else ''}": make_contract(
        incremental=incremental, weak=weak
    )
    for incremental in (False, True)
    for weak in (False, True)
}
every_contract = pytest.mark.parametrize("contract", CONTRACTS.values(), ids=CONTRACTS)


@dataclass(frozen=True)
class Tick:
    """What one world's guard is told in one control period, and for how many periods."""

    repeat: int
    age_s: float
    command_age_s: float
    joint_pos: Array
    joint_vel: Array
    commands: Array | Singles
    late: bool
    stop: bool


ODD = [np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 5e-324, -0.0, 1e9, -1e9, 1.0, -4.0, 0.049, 0.051]


@st.composite
def ticks(draw: st.DrawFn, joints: int, commands: int) -> Tick:
    """Ordinary numbers, some within limits and some not, with up to four replaced by anything a float64 can be."""
    row = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(-1.0, 1.0, 2 + 2 * joints + commands)
    row *= np.repeat([0.0, 1.7, 2.5, 40.0], [2, joints, joints, commands])
    if draw(st.booleans()):
        row *= 0.1
    for column in draw(st.lists(st.integers(0, len(row) - 1), max_size=4)):
        row[column] = draw(st.sampled_from(ODD) | st.floats(width=64))
    return Tick(
        repeat=draw(st.sampled_from([1, 1, 1, 1, 3, 28])),
        age_s=row[0],
        command_age_s=row[1],
        joint_pos=row[2 : 2 + joints],
        joint_vel=row[2 + joints : 2 + 2 * joints],
        commands=row[2 + 2 * joints :],
        late=draw(st.sampled_from([False, False, False, True])),
        stop=draw(st.sampled_from([False] * 9 + [True])),
    )


class Rows:
    """Drives a guard of several worlds with one sequence of ticks for each."""

    def __init__(self, contract: PolicyContract, worlds: int) -> None:
        self.guard = Guard(contract, worlds)
        self.step = 0
        self.dt = contract.timing.control_dt

    def check(self, told: list[Tick]) -> GuardResult:
        now = self.step * self.dt
        self.step += 1
        commands = np.stack([tick.commands for tick in told])
        return self.guard.check(
            now_s=now,
            sensor_stamp_s=now - np.array([tick.age_s for tick in told]),
            joint_pos=np.stack([tick.joint_pos for tick in told]),
            joint_vel=np.stack([tick.joint_vel for tick in told]),
            targets={name: commands[:, part] for name, part in self.guard.limits.slices.items()},
            command_age_s=np.array([tick.command_age_s for tick in told]),
            deadline_missed=np.array([tick.late for tick in told]),
            stop=np.array([tick.stop for tick in told]),
        )


def sizes(contract: PolicyContract) -> tuple[int, int]:
    return len(contract.robot.joints), contract.action.size


def played(contract: PolicyContract, data: st.DataObject, *, most: int = 6) -> list[Tick]:
    drawn = data.draw(st.lists(ticks(*sizes(contract)), min_size=1, max_size=most))
    return [tick for tick in drawn for _ in range(tick.repeat)]


def commanded(result: GuardResult) -> Array:
    return np.concatenate(list(result.targets.values()), axis=1)


@every_contract
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_commands_are_finite_and_inside_their_limits(contract: PolicyContract, data: st.DataObject) -> None:
    rows = Rows(contract, 1)
    limits = rows.guard.limits
    last = limits.rest[None]
    for index, tick in enumerate(played(contract, data)):
        result = rows.check([tick])
        command = commanded(result)
        run = result.state[0] == GuardState.RUN
        assert np.isfinite(command).all()
        assert (command >= (limits.lower if run else limits.hard_lower)).all()
        assert (command <= (limits.upper if run else limits.hard_upper)).all()
        braking = (result.state[0] >= GuardState.DAMP) & ~limits.holds_position
        servo = np.isin(np.arange(len(limits.joints)), limits.servos)
        free = braking | servo | (limits.holds_position & (index == 0))
        assert (free | (np.abs(command - last) <= limits.rate + 1e-12)).all()
        last = command


@every_contract
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_contracts_own_numbers_hold(contract: PolicyContract, data: st.DataObject) -> None:
    """Not the guard's arrays but the contract's entries, but for the rounding to float32."""
    rows = Rows(contract, 1)
    envelopes = {envelope.joint: envelope for envelope in contract.safety.joints}
    for tick in played(contract, data):
        result = rows.check([tick])
        for term in contract.action.terms:
            for name, value in zip(term.joints, result.targets[term.target_name][0], strict=True):
                envelope = envelopes[name]
                if term.target_name == "joint_effort_target":
                    assert abs(value) <= envelope.effort_limit * (1.0 + 1e-6)
                elif envelope.position_lower is not None and envelope.position_upper is not None:
                    assert envelope.position_lower - 1e-6 <= value <= envelope.position_upper + 1e-6


@every_contract
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_states_only_get_worse_until_reset(contract: PolicyContract, data: st.DataObject) -> None:
    rows = Rows(contract, 1)
    worst, known = GuardState.RUN, 0
    for tick in played(contract, data):
        result = rows.check([tick])
        assert result.state[0] >= worst
        assert (result.causes[0] != 0) == (result.state[0] > GuardState.RUN)
        assert int(result.causes[0]) & known == known
        assert result.intervened[0] or (result.state[0] == GuardState.RUN)
        assert not result.stopped[0] or result.state[0] == GuardState.ESTOP
        worst, known = GuardState(int(result.state[0])), int(result.causes[0])
    rows.guard.reset()
    assert rows.guard.check(**calm(contract, rows.guard)).state[0] == GuardState.RUN


def calm(contract: PolicyContract, guard: Guard) -> dict[str, Any]:
    """At rest at the default position, commanding just that."""
    joints = contract.robot.joints
    return {
        "now_s": 0.0,
        "sensor_stamp_s": 0.0,
        "joint_pos": np.array([[joint.default_pos for joint in joints]]),
        "joint_vel": np.zeros((1, len(joints))),
        "targets": {name: guard.limits.rest[None, part] for name, part in guard.limits.slices.items()},
    }


@every_contract
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_worlds_at_once_are_worlds_alone(contract: PolicyContract, data: st.DataObject) -> None:
    worlds = data.draw(st.integers(2, 4))
    sequences = [played(contract, data, most=4) for _ in range(worlds)]
    length = max(map(len, sequences))
    sequences = [sequence + [sequence[-1]] * (length - len(sequence)) for sequence in sequences]
    resets = data.draw(st.lists(st.booleans(), min_size=worlds, max_size=worlds))
    together, alone = Rows(contract, worlds), [Rows(contract, 1) for _ in range(worlds)]
    for step, told in enumerate(zip(*sequences, strict=True)):
        if step == length // 2:
            together.guard.reset(np.array(resets))
            for single, again in zip(alone, resets, strict=True):
                single.guard.reset(np.array([again]))
        result = together.check(list(told))
        singles = [single.check([tick]) for single, tick in zip(alone, told, strict=True)]
        np.testing.assert_array_equal(commanded(result), np.concatenate([commanded(one) for one in singles]))
        for field in ("state", "intervened", "reasons", "causes", "stopped"):
            expected = np.concatenate([getattr(one, field) for one in singles])
            np.testing.assert_array_equal(getattr(result, field), expected)


@every_contract
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_clean_policy_is_never_touched(contract: PolicyContract, data: st.DataObject) -> None:
    """Commands computed as a graph does, in float32, from any network output in [-1, 1]; any state within limits."""
    rows = Rows(contract, 1)
    joints, commands = sizes(contract)
    speeds = np.array([1.0 if e.velocity_limit is None else e.velocity_limit for e in contract.safety.joints])
    middle = np.array([j.default_pos for j in contract.robot.joints])
    share = st.floats(-1.0, 1.0, width=32)
    position = middle
    memory = np.zeros(commands, np.float32)
    for step in range(data.draw(st.integers(1, 12))):
        shares = np.array(data.draw(st.lists(share, min_size=joints + commands, max_size=joints + commands)))
        command = graph_command(contract, shares[joints:].astype(np.float32), memory, position, first=step == 0)
        age = data.draw(st.floats(0.0, contract.timing.max_observation_age_s))
        result = rows.check([Tick(1, age, 0.0, position, shares[:joints] * speeds, command, False, False)])
        assert commanded(result).tolist() == [command.tolist()]
        assert (result.state[0], result.reasons[0], result.intervened[0]) == (GuardState.RUN, 0, False)
        memory = command
        # The joints follow, so that a weak servo is never asked for more than 80 · 0.25 + 4 · 2 = 28 N·m of its 30.
        position = follow(contract, position, command)


def graph_command(
    contract: PolicyContract, actions: Singles, memory: Singles, position: Array, *, first: bool
) -> Singles:
    """What the policy graph commands, in float32 throughout."""
    parts: list[Singles] = []
    start = 0
    for term in contract.action.terms:
        own = slice(start, start + len(term.joints))
        start = own.stop
        scale, offset, lower, upper = (
            np.array(values, np.float32) for values in (term.scale, term.offset, term.lower, term.upper)
        )
        begin = offset
        if term.kind.endswith("_incremental"):
            measured = position[list(contract.robot.joint_index(term.joints))].astype(np.float32)
            begin = measured if first and term.kind == "joint_pos_incremental" else memory[own]
        parts.append(np.clip(begin + scale * actions[own], lower, upper).astype(np.float32))
    return np.concatenate(parts)


def follow(contract: PolicyContract, position: Array, command: Singles) -> Array:
    """Position-commanded joints where they were told to be."""
    following = position.copy()
    for term in contract.action.terms:
        if term.kind == "joint_pos_incremental":
            following[list(contract.robot.joint_index(term.joints))] = command[: len(term.joints)]
    return following
