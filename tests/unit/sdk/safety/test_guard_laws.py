"""Laws of the guard, for any sequence of inputs whatever."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.guard_contracts import every_contract
from tests.support.guard_driver import DAMP, HOLD, RUN, STANDSTILL, Array
from tests.support.guard_ticks import Rows, Tick, calm, commanded, life, played

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardResult, RequestAnswer
from physai.sdk.safety.trajectory import largest_step

Singles = npt.NDArray[np.float32]


class Limits:
    """Every limit of a contract on commands, counted from what was sent last."""

    def __init__(self, contract: PolicyContract) -> None:
        self.rows = Rows(contract, 1)
        self.limits = limits = self.rows.guard.limits
        self.last, self.step = limits.rest, np.zeros(len(limits.joints))
        self.referenced = False

    def check(self, tick: Tick) -> GuardResult:
        """Asserts them for one more control period."""
        limits, result = self.limits, self.rows.check([tick])
        command, holds, slack = commanded(result)[0], limits.holds_position, limits.slack + 1e-12
        run = result.state[0] == RUN
        assert np.isfinite(command).all()
        assert (command >= np.where(run | holds, limits.lower - slack, limits.hard_lower)).all()
        assert (command <= np.where(run | holds, limits.upper + slack, limits.hard_upper)).all()
        if result.referenced[0] and not self.referenced:
            measured = np.clip(tick.joint_pos[limits.joints], limits.lower, limits.upper)
            self.last = np.where(holds, measured, self.last)
        self.referenced = bool(result.referenced[0])
        step = command - self.last
        braking = (result.state[0] >= DAMP) & ~holds
        assert (braking | (np.abs(step) <= limits.rate + slack)).all()
        assert (np.abs(step - self.step) <= limits.change + 2.0 * slack)[holds].all()
        if tick.sent:
            self.last, self.step = command, step
        else:
            self.step = np.zeros_like(step)
        return result


@every_contract
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_commands_are_finite_and_inside_their_limits(contract: PolicyContract, data: st.DataObject) -> None:
    """Position, speed and acceleration of positions in every state, rates of efforts while a state has them.

    Changes count from the command sent last; before there is one, from the measured position, inside the limits.
    """
    limits = Limits(contract)
    for tick in played(contract, data):
        limits.check(tick)


@every_contract
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_commands_are_inside_their_limits_through_stop_reset_and_start(
    contract: PolicyContract, data: st.DataObject
) -> None:
    limits = Limits(contract)
    for tick in life(contract, data):
        limits.check(tick)


@every_contract
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_positions_come_to_rest_outside_run_and_stay(contract: PolicyContract, data: st.DataObject) -> None:
    """Within the time that braking takes from the speed limit; no sample moves them again."""
    rows = Rows(contract, 1)
    limits = rows.guard.limits
    holds = limits.holds_position
    periods = int(np.ceil(limits.rate / limits.change)[holds].max())
    stopped = 0
    for tick in played(contract, data):
        before = rows.guard.last.copy()
        result = rows.check([replace(tick, ask="")])
        stopped = stopped + 1 if result.state[0] > RUN and result.referenced[0] else 0
        if stopped > periods:
            np.testing.assert_array_equal(commanded(result)[0, holds], before[0, holds])


@every_contract
@settings(max_examples=12, deadline=None)
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
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_states_only_get_worse_until_reset(contract: PolicyContract, data: st.DataObject) -> None:
    rows = Rows(contract, 1)
    state, number, known, unnamed = int(RUN), 0, 0, False
    for tick in life(contract, data):
        result = rows.check([tick])
        down, up = result.reset[0] == RequestAnswer.OBEYED, result.start[0] == RequestAnswer.OBEYED
        assert not (down and up)
        if down:
            assert state > STANDSTILL
            assert result.state[0] == STANDSTILL
        elif up:
            assert (state, result.state[0]) == (STANDSTILL, RUN)
        else:
            assert result.state[0] >= state
            assert int(result.causes[0]) & known == known
        assert (result.number[0] > number) == (down or up or tick.stop or result.state[0] > state)
        assert result.read_back[0] <= result.number[0]
        # A joint that moves at standstill leads to HOLD; no other reason is needed for that.
        unnamed = unnamed * (result.state[0] == HOLD) or (state, result.state[0]) == (STANDSTILL, HOLD)
        assert unnamed or (result.causes[0] != 0) == (result.state[0] > STANDSTILL)
        assert result.intervened[0] or (result.state[0] == RUN)
        assert not result.stopped[0] or result.state[0] > RUN
        assert (result.reset[0] != RequestAnswer.NONE) == (tick.ask == "reset")
        assert (result.start[0] != RequestAnswer.NONE) == (tick.ask == "start")
        state, number, known = int(result.state[0]), int(result.number[0]), int(result.causes[0])
    rows.guard.reset()
    assert rows.check([calm(contract)]).state[0] == RUN


FIELDS = (
    *("state", "intervened", "reasons", "causes", "stopped", "number", "read_back", "reset", "start"),
    *("referenced", "excess"),
)


@every_contract
@settings(max_examples=8, deadline=None)
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
        # Requests are the same for all worlds, and so is whether they are sent.
        told = [replace(tick, ask=told[0].ask, sent=told[0].sent) for tick in told]
        for single in alone:
            single.read_back = together.read_back
        result = together.check(told)
        singles = [single.check([tick]) for single, tick in zip(alone, told, strict=True)]
        np.testing.assert_array_equal(commanded(result), np.concatenate([commanded(one) for one in singles]))
        for field in FIELDS:
            expected = np.concatenate([getattr(one, field) for one in singles])
            np.testing.assert_array_equal(getattr(result, field), expected)


@every_contract
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_clean_policy_is_never_touched(contract: PolicyContract, data: st.DataObject) -> None:
    """Commands computed as a graph does, in float32, from any network output in [-1, 1]; the joints follow.

    Positions keep the contract's speed and acceleration, and can stop before their bounds.
    """
    rows, graph = Rows(contract, 1), Graph(contract)
    joints, commands = len(contract.robot.joints), contract.action.size
    speeds = np.array([1.0 if e.velocity_limit is None else e.velocity_limit for e in contract.safety.joints])
    share = st.floats(-1.0, 1.0, width=32)
    age = data.draw(st.floats(0.0, contract.timing.max_observation_age_s))
    position: Array = calm(contract).joint_pos
    velocity = np.zeros(joints)
    for _ in range(data.draw(st.integers(1, 12))):
        shares = np.array(data.draw(st.lists(share, min_size=joints + commands, max_size=joints + commands)))
        command = graph.command(shares[joints:].astype(np.float32), position)
        # Where nothing compares velocities with positions, they may be any.
        measured = np.clip(velocity + 0.05 * shares[:joints], -speeds, speeds)
        if contract.format_version == 1:
            measured = shares[:joints] * speeds
        told = replace(calm(contract), joint_pos=position, joint_vel=measured, commands=command, age_s=age)
        result = rows.check([told])
        assert commanded(result).tolist() == [command.tolist()]
        assert (result.state[0], result.reasons[0], result.intervened[0]) == (RUN, 0, False)
        before, position = position, follow(contract, position, command)
        velocity = (position - before) / rows.dt


class Graph:
    """What a policy graph commands, in float32 throughout."""

    def __init__(self, contract: PolicyContract) -> None:
        self._contract = contract
        self._last: list[Singles] = []
        self._steps: list[Singles] = []

    def command(self, actions: Singles, position: Array) -> Singles:
        """The commands of the next control period, in the order of the action terms."""
        contract, start, targets, steps = self._contract, 0, list[Singles](), list[Singles]()
        for index, term in enumerate(contract.action.terms):
            action = actions[start : start + len(term.joints)]
            start += len(term.joints)
            scale, offset, lower, upper = (
                np.array(values, np.float32) for values in (term.scale, term.offset, term.lower, term.upper)
            )
            joints = list(contract.robot.joint_index(term.joints))
            positions = term.kind.startswith("joint_pos")
            last = position[joints].astype(np.float32) if positions else np.zeros_like(scale)
            last = self._last[index] if self._last else last
            begin = last if term.kind.endswith("_incremental") else offset
            command = np.clip(begin + scale * action, lower, upper).astype(np.float32)
            if positions:
                before = self._steps[index] if self._steps else np.zeros_like(scale)
                command = last + limited(contract, joints, command - last, before, (last - lower, upper - last))
            targets.append(command)
            steps.append(targets[-1] - last)
        self._last, self._steps = targets, steps
        return np.concatenate(targets)


def limited(
    contract: PolicyContract, joints: list[int], step: Singles, before: Singles, room: tuple[Singles, Singles]
) -> Singles:
    """A step within the contract's speed and acceleration; see `physai.sdk.safety.trajectory`."""
    dt = contract.timing.control_dt
    envelopes = [contract.safety.joints[joint] for joint in joints]
    speed = inwards([1e9 if e.velocity_limit is None else e.velocity_limit * dt for e in envelopes])
    change = inwards([1e9 if e.acceleration_limit is None else e.acceleration_limit * dt**2 for e in envelopes])
    below, above = (
        largest_step(side.astype(np.float64), change.astype(np.float64)).astype(np.float32) for side in room
    )
    step = np.clip(step, -below, above)
    step = np.clip(step, before - change, before + change)
    return np.clip(step, -speed, speed)


def inwards(values: list[float]) -> Singles:
    """The greatest float32 numbers below the values."""
    return np.nextafter(np.array(values, np.float32), np.float32(0.0))


def follow(contract: PolicyContract, position: Array, command: Singles) -> Array:
    """Position-commanded joints where they were told to be; every encoder moves a little."""
    following = position + 1e-6
    term = contract.action.terms[0]
    following[list(contract.robot.joint_index(term.joints))] = command[: len(term.joints)]
    return following
