"""The guard by example: every reason, every rise of the state, every fallback, computed by hand."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from physai.sdk.contract import PolicyContract
from physai.sdk.contract_io import parse_contract
from physai.sdk.guard_limits import GuardError
from physai.sdk.safety import Guard, GuardResult, GuardState, Reason

RUN, HOLD, DAMP, ESTOP = GuardState
EFFORT, POSITION = "joint_effort_target", "joint_pos_target"

Array = npt.NDArray[np.float64]


def contract_of(document: dict[str, Any]) -> PolicyContract:
    return parse_contract(json.dumps(document), source="test")


@pytest.fixture
def pendulum(small_document: dict[str, Any]) -> PolicyContract:
    """One effort joint, ±2.5 N·m, 0.5 N·m per period of 10 ms, 15 rad/s, two reused commands, samples up to 20 ms."""
    small_document["action"]["terms"][0] |= {"kind": "joint_effort_incremental", "scale": [0.5]}
    return contract_of(small_document)


@pytest.fixture
def arm(full_document: dict[str, Any]) -> PolicyContract:
    """Incremental positions of elbow and shoulder, 0.03 rad per period of 20 ms, and effort of the slide."""
    full_document["action"]["terms"][0] |= {
        "kind": "joint_pos_incremental",
        "scale": [0.03, 0.03],
        "lower": [-1.5, -1.5],
        "upper": [1.5, 1.5],
    }
    return contract_of(full_document)


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


def test_a_sound_command_goes_out_as_it_is(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    for command in (0.5, 1.0, 0.7, 0.2, -0.3):
        result = driver.tick(effort=command)
        assert effort(result) == command
        assert (result.state[0], result.intervened[0], result.reasons[0], result.stopped[0]) == (RUN, False, 0, False)


def test_a_command_beyond_its_limits_is_cut(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    first = driver.tick(effort=9.0)
    assert reasons(first) == Reason.COMMAND_LIMIT | Reason.COMMAND_RATE
    assert effort(first) == pytest.approx(0.5, abs=1e-6)
    for _ in range(3):
        driver.tick(effort=9.0)
    last = driver.tick(effort=2.6)
    assert effort(last) == 2.5
    assert reasons(last) == Reason.COMMAND_LIMIT | Reason.COMMAND_RATE
    only = driver.tick(effort=2.6)
    assert (effort(only), reasons(only), only.intervened[0], only.state[0]) == (2.5, Reason.COMMAND_LIMIT, True, RUN)


def test_a_jerk_is_slowed_to_the_contracts_rate(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    outputs = [effort(driver.tick(effort=2.0)) for _ in range(4)]
    assert outputs == pytest.approx([0.5, 1.0, 1.5, 2.0], abs=1e-5)
    assert driver.tick(effort=2.0).reasons[0] == 0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"effort": np.nan}, Reason.COMMAND_NOT_FINITE),
        ({"effort": np.inf}, Reason.COMMAND_NOT_FINITE),
        ({"effort": 0.9, "deadline_missed": True}, Reason.DEADLINE_MISSED),
        ({"effort": 0.9, "command_age_s": 0.0101}, Reason.COMMAND_STALE),
        ({"effort": 0.9, "command_age_s": np.nan}, Reason.COMMAND_STALE),
        ({"effort": 0.9, "age_s": 0.0201}, Reason.SENSOR_STALE),
        ({"effort": 0.9, "age_s": -0.0101}, Reason.SENSOR_STALE),
        ({"effort": 0.9, "age_s": np.nan}, Reason.SENSOR_STALE),
        ({"effort": 0.9, "vel": np.nan}, Reason.SENSOR_NOT_FINITE),
        ({"effort": 0.9, "joint_pos": np.array([[-np.inf]])}, Reason.SENSOR_NOT_FINITE),
        ({"targets": None}, Reason.DEADLINE_MISSED),
    ],
)
def test_a_missing_command_is_reused_twice_then_held(
    pendulum: PolicyContract, given: dict[str, Any], reason: Reason
) -> None:
    driver = Driver(pendulum)
    driver.tick(effort=0.4)
    for _ in range(2):
        result = driver.tick(**given)
        assert (effort(result), result.state[0], result.intervened[0]) == (0.4, RUN, True)
        assert reasons(result) == reason
        assert causes(result) == Reason(0)
    held = driver.tick(**given)
    assert (held.state[0], causes(held)) == (HOLD, reason)
    # What was missing is back; the state stays.
    later = driver.tick(effort=0.4)
    assert (later.state[0], reasons(later), causes(later)) == (HOLD, Reason(0), reason)
    assert later.intervened[0]


def test_ages_up_to_their_limits_are_fresh(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    driver.step = 123_457
    assert driver.tick(age_s=0.02, command_age_s=0.01).reasons[0] == 0
    assert driver.tick(age_s=-0.009).reasons[0] == 0


def test_no_last_digit_makes_a_sample_old(pendulum: PolicyContract) -> None:
    """k · 0.01 - (k · 0.01 - 0.02) is above 0.02 by a rounding for many k."""
    driver = Driver(pendulum)
    steps = range(1, 300)
    assert any(k * 0.01 - (k * 0.01 - 0.02) > 0.02 for k in steps)
    for driver.step in steps:
        assert driver.tick(age_s=0.02).reasons[0] == 0


def test_a_stamp_that_stands_still_grows_old(pendulum: PolicyContract) -> None:
    """A driver that repeats its last sample does not renew it: with 20 ms allowed, the third repetition is stale."""
    driver = Driver(pendulum)
    found = [int(driver.guard.check(now_s=k * 0.01, sensor_stamp_s=0.0, **driver.calm).reasons[0]) for k in range(5)]
    assert found == [0, 0, 0, Reason.SENSOR_STALE, Reason.SENSOR_STALE]


def test_a_command_in_between_starts_the_count_again(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    for _ in range(10):
        driver.ticks(2, effort=np.nan)
        assert driver.tick(effort=0.0).state[0] == RUN


def test_held_effort_is_braked_within_the_rate(pendulum: PolicyContract) -> None:
    """d = 2.5 / 15 = 1/6; at 6 rad/s the brake is -1 N·m, approached from 0.5 by 0.5 a period: 0, -0.5, -1."""
    driver = Driver(pendulum)
    driver.tick(effort=0.5, vel=6.0)
    driver.ticks(2, effort=np.nan, vel=6.0)
    outputs = [effort(driver.tick(effort=np.nan, vel=6.0)) for _ in range(4)]
    assert outputs == pytest.approx([0.0, -0.5, -1.0, -1.0], abs=1e-5)


def test_hold_without_commands_becomes_damp(pendulum: PolicyContract) -> None:
    """HOLD_S 0.5 s is 50 periods of 10 ms: two reused, fifty held, then DAMP."""
    driver = Driver(pendulum)
    assert driver.ticks(2 + 50, deadline_missed=True).state[0] == HOLD
    damped = driver.tick(deadline_missed=True)
    assert (damped.state[0], causes(damped)) == (DAMP, Reason.DEADLINE_MISSED)


def test_hold_with_commands_back_stays_hold(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    driver.ticks(3, deadline_missed=True)
    assert driver.ticks(200).state[0] == HOLD


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"vel": 15.1}, Reason.JOINT_VELOCITY), ({"vel": -15.1}, Reason.JOINT_VELOCITY)],
)
def test_a_joint_above_its_speed_is_damped_after_two_samples(
    pendulum: PolicyContract, given: dict[str, Any], reason: Reason
) -> None:
    driver = Driver(pendulum)
    for _ in range(2):
        result = driver.tick(**given)
        assert (result.state[0], reasons(result), result.intervened[0]) == (RUN, reason, False)
    result = driver.tick(**given)
    assert (result.state[0], causes(result)) == (DAMP, reason)
    # At once, not at the rate: -(1/6) · 15.1, cut at 2.5.
    assert effort(result) == pytest.approx(-np.sign(given["vel"]) * 2.5)
    assert effort(driver.tick(vel=-3.0)) == pytest.approx(0.5)


def test_a_single_spike_of_the_sensor_does_nothing(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    for _ in range(20):
        driver.ticks(2, vel=400.0)
        assert driver.tick(vel=14.9).state[0] == RUN


def test_a_blind_sample_neither_shows_a_violation_nor_ends_one(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    for vel in (16.0, np.nan, 16.0, np.nan):
        assert driver.tick(vel=vel).state[0] == RUN
    result = driver.tick(vel=16.0)
    assert (result.state[0], causes(result)) == (DAMP, Reason.JOINT_VELOCITY)


def test_a_joint_outside_its_range_is_damped(arm: PolicyContract) -> None:
    """Envelope ±1.5, margin 1 % of 3: 1.52 is inside, 1.54 is not."""
    driver = Driver(arm)
    near, far = driver.calm["joint_pos"].copy(), driver.calm["joint_pos"].copy()
    near[0, 1], far[0, 1] = 1.52, 1.54
    targets = {POSITION: np.array([[1.5, 0.25]]), EFFORT: np.zeros((1, 1))}
    assert driver.ticks(10, joint_pos=near, targets=targets).reasons[0] == 0
    assert reasons(driver.tick(joint_pos=far, targets=targets)) == Reason.JOINT_POSITION
    assert driver.ticks(2, joint_pos=far, targets=targets).state[0] == DAMP


def test_position_joints_hold_their_last_command_and_follow_in_damp(arm: PolicyContract) -> None:
    driver = Driver(arm)
    start = np.array([[0.25, 0.0, 0.1, 0.0]])
    targets = {POSITION: np.array([[0.02, 0.26]]), EFFORT: np.zeros((1, 1))}
    driver.tick(joint_pos=start, targets=targets)
    moved = start + np.array([[0.1, -0.2, 0.0, 0.0]])
    held = driver.ticks(4, joint_pos=moved, targets=targets, deadline_missed=True)
    assert held.state[0] == HOLD
    assert held.targets[POSITION].tolist() == [[0.02, 0.26]]
    damped = driver.ticks(3, joint_pos=moved, targets=targets, vel=2.5)
    assert damped.state[0] == DAMP
    # Elbow towards -0.2, shoulder towards 0.35, each by 0.03 a period.
    assert damped.targets[POSITION] == pytest.approx(np.array([[-0.01, 0.29]]), abs=1e-6)
    # The slide brakes with its own kd of 5: -12.5 N.
    assert effort(damped) == pytest.approx(-12.5)
    there = driver.ticks(10, joint_pos=moved, targets=targets)
    assert there.targets[POSITION] == pytest.approx(np.array([[-0.2, 0.35]]))


def test_servo_effort_is_kept_inside_the_envelope(full_contract: PolicyContract) -> None:
    """kp 100, kd 5, 40 N·m allowed: with q = -0.3 and v = 1 the elbow's target is at most -0.3 + (40 + 5) / 100."""
    driver = Driver(full_contract)
    joint_pos = np.array([[0.25, -0.3, 0.1, 0.0]])
    joint_vel = np.array([[0.0, 1.0, 0.0, 0.0]])
    targets = {POSITION: np.array([[0.16, 0.25]]), EFFORT: np.zeros((1, 1))}
    result = driver.tick(joint_pos=joint_pos, joint_vel=joint_vel, targets=targets)
    assert (reasons(result), result.intervened[0]) == (Reason.COMMAND_LIMIT, True)
    assert result.targets[POSITION] == pytest.approx(np.array([[0.15, 0.25]]))
    targets[POSITION] = np.array([[0.149, 0.25]])
    assert driver.tick(joint_pos=joint_pos, joint_vel=joint_vel, targets=targets).reasons[0] == 0


def test_incremental_positions_start_where_the_joints_are(arm: PolicyContract) -> None:
    driver = Driver(arm)
    start = np.array([[1.0, -1.2, 0.1, 0.0]])
    targets = {POSITION: np.array([[-1.18, 1.02]]), EFFORT: np.zeros((1, 1))}
    assert driver.tick(joint_pos=start, targets=targets).reasons[0] == 0


def test_a_joint_outside_its_actions_range_starts_at_the_bound(full_document: dict[str, Any]) -> None:
    """As the graph does: clip(1.2 + 0.03 a, -1, 1) is 1, whatever a."""
    full_document["action"]["terms"][0] |= {
        "kind": "joint_pos_incremental",
        "scale": [0.03, 0.03],
        "lower": [-1.0, -1.0],
        "upper": [1.0, 1.0],
    }
    driver = Driver(contract_of(full_document))
    targets = {POSITION: np.array([[1.0, 0.25]]), EFFORT: np.zeros((1, 1))}
    assert driver.tick(joint_pos=np.array([[0.25, 1.2, 0.1, 0.0]]), targets=targets).reasons[0] == 0


@pytest.mark.parametrize("given", [{"age_s": 1.0}, {"joint_pos": np.full((1, 4), np.nan)}])
def test_no_position_is_commanded_before_one_was_measured(arm: PolicyContract, given: dict[str, Any]) -> None:
    driver = Driver(arm)
    result = driver.tick(**given)
    assert result.state[0] == ESTOP
    assert causes(result) & Reason.NO_REFERENCE
    assert np.isfinite(result.targets[POSITION]).all()


def test_effort_joints_need_no_reference(pendulum: PolicyContract) -> None:
    assert Driver(pendulum).tick(age_s=1.0).state[0] == RUN


def test_blind_braking_is_no_effort(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    driver.ticks(3, vel=16.0)
    result = driver.tick(vel=np.nan)
    assert (effort(result), result.state[0]) == (0.0, DAMP)


def test_damping_without_effect_becomes_an_emergency(pendulum: PolicyContract) -> None:
    """EFFECT_S 1 s is 100 periods above the speed limit in DAMP, which begins in the third."""
    driver = Driver(pendulum)
    assert driver.ticks(2 + 100, vel=16.0).state[0] == DAMP
    result = driver.tick(vel=16.0)
    assert (result.state[0], causes(result)) == (ESTOP, Reason.JOINT_VELOCITY)


def test_damping_with_effect_does_not(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    driver.ticks(3, vel=16.0)
    assert driver.ticks(500, vel=14.0).state[0] == DAMP


def test_a_stop_is_obeyed_at_once_and_believed_when_read_back(pendulum: PolicyContract) -> None:
    """Rest is below 2 % of 15 rad/s for STILL_S 0.25 s, 25 periods."""
    driver = Driver(pendulum)
    result = driver.tick(vel=6.0, stop=True)
    assert (result.state[0], effort(result)) == (ESTOP, pytest.approx(-1.0))
    assert causes(result) == Reason.STOP_REQUESTED
    driver.ticks(24, vel=0.29)
    assert not driver.tick(vel=0.31).stopped[0]
    assert not driver.ticks(24, vel=0.29).stopped[0]
    assert driver.tick(vel=-0.29).stopped[0]
    # Long after: what was read back is not reported as missing.
    assert driver.ticks(300).reasons[0] == 0
    moving_again = driver.tick(vel=1.0)
    assert (moving_again.state[0], moving_again.stopped[0]) == (ESTOP, False)


@pytest.mark.parametrize("given", [{"vel": 1.0}, {"vel": np.nan}, {"age_s": 5.0}])
def test_a_stop_without_effect_is_reported(pendulum: PolicyContract, given: dict[str, Any]) -> None:
    """CONFIRM_S 2 s is 200 periods; a sensor that is gone or stands still shows no rest."""
    driver = Driver(pendulum)
    driver.tick(stop=True)
    before = driver.ticks(199, **given)
    assert not reasons(before) & Reason.STOP_NOT_CONFIRMED
    after = driver.tick(**given)
    assert reasons(after) & Reason.STOP_NOT_CONFIRMED
    assert not after.stopped[0]


def test_reset_returns_the_masked_worlds_only(pendulum: PolicyContract) -> None:
    guard = Guard(pendulum, 3)
    zeros = np.zeros((3, 1))
    calm: dict[str, Any] = {"now_s": 0.0, "sensor_stamp_s": 0.0, "joint_pos": zeros, "joint_vel": zeros}
    targets = {EFFORT: np.full((3, 1), 0.4)}
    guard.check(**calm, targets=targets, stop=np.array([True, False, True]))
    guard.reset(np.array([True, False, False]))
    result = guard.check(**calm, targets=targets)
    assert result.state.tolist() == [RUN, RUN, ESTOP]
    assert result.causes.tolist() == [0, 0, Reason.STOP_REQUESTED]
    assert result.intervened.tolist() == [False, False, True]
    guard.reset()
    assert guard.check(**calm, targets=targets).state.tolist() == [RUN, RUN, RUN]


@pytest.mark.parametrize("given", [{"vel": 16.0}, {"effort": np.nan}, {"deadline_missed": True}])
def test_reset_forgets_what_was_counted(pendulum: PolicyContract, given: dict[str, Any]) -> None:
    driver = Driver(pendulum)
    for _ in range(5):
        assert driver.ticks(2, **given).state[0] == RUN
        driver.guard.reset()


def test_a_sound_command_beside_a_stopped_world_keeps_its_last_digit(pendulum: PolicyContract) -> None:
    """A change of exactly the rate, where last + rate rounds below the command."""
    guard = Guard(pendulum, 2)
    rate, zeros = float(guard.limits.rate[0]), np.zeros((2, 1))
    random = np.random.default_rng(1)
    calm: dict[str, Any] = {"now_s": 0.0, "sensor_stamp_s": 0.0, "joint_pos": zeros, "joint_vel": zeros}
    found = 0
    for last in random.uniform(0.1, rate, 300):
        command = np.nextafter(last + rate, np.inf)
        if not command - last <= rate:
            continue
        found += 1
        guard.reset()
        guard.check(**calm, targets={EFFORT: np.array([[last], [0.0]])}, stop=np.array([False, True]))
        result = guard.check(**calm, targets={EFFORT: np.array([[command], [0.0]])})
        assert result.targets[EFFORT][0, 0] == command
        assert not result.intervened[0]
    assert found > 10


def test_results_belong_to_the_caller(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    first = driver.tick(effort=0.4)
    bad = driver.tick(effort=np.nan)
    kept = (effort(first), bad.state.copy(), bad.reasons.copy())
    driver.ticks(5, effort=np.nan, vel=3.0)
    assert (effort(first), bad.state, bad.reasons) == kept


def test_float32_commands_of_a_float32_graph_pass(small_document: dict[str, Any]) -> None:
    """A graph that sums float32(0.1) up to float32(2.3) must not be cut by a rounding."""
    term = small_document["action"]["terms"][0]
    term |= {"kind": "joint_effort_incremental", "scale": [0.1], "lower": [-2.3], "upper": [2.3]}
    driver = Driver(contract_of(small_document))
    command, scale, bound = np.float32(0.0), np.float32(0.1), np.float32(2.3)
    for step in range(200):
        command = np.clip(command + (scale if step % 60 < 30 else -scale), -bound, bound).astype(np.float32)
        result = driver.tick(targets={EFFORT: np.array([[command]], np.float32)})
        assert (effort(result), result.reasons[0]) == (float(command), 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"joint_pos": np.zeros((2, 1))}, r"joint_pos has shape \(2, 1\), expected \(1, 1\)"),
        ({"joint_vel": np.zeros(1)}, r"joint_vel has shape \(1,\), expected \(1, 1\)"),
        ({"targets": {EFFORT: np.zeros((1, 2))}}, r"joint_effort_target has shape \(1, 2\), expected \(1, 1\)"),
        ({"targets": {"torque": np.zeros((1, 1))}}, "no command 'joint_effort_target' among torque"),
        ({"now_s": np.zeros(2)}, r"now_s - sensor_stamp_s has shape \(2,\)"),
        ({"command_age_s": np.zeros((1, 1))}, r"command_age_s has shape \(1, 1\)"),
        ({"deadline_missed": np.zeros(2, bool)}, r"deadline_missed has shape \(2,\), expected \(1,\)"),
        ({"stop": np.zeros(2, bool)}, r"stop has shape \(2,\), expected \(1,\)"),
    ],
)
def test_other_shapes_are_refused(pendulum: PolicyContract, given: dict[str, Any], message: str) -> None:
    driver = Driver(pendulum)
    with pytest.raises(GuardError, match=message):
        driver.guard.check(**dict[str, Any](now_s=0.0, sensor_stamp_s=0.0) | driver.calm | given)


def test_impossible_guards_are_refused(pendulum: PolicyContract) -> None:
    with pytest.raises(GuardError, match="at least one world, got 0"):
        Guard(pendulum, 0)
    with pytest.raises(GuardError, match=r"reset mask has shape \(3,\), expected \(2,\)"):
        Guard(pendulum, 2).reset(np.ones(3, bool))
