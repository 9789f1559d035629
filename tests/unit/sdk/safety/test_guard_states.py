"""The guard's states by example: every reason, every rise, every fallback; computed by hand."""

from typing import Any

import numpy as np
import pytest
from tests.support.guard_driver import (
    DAMP,
    EFFORT,
    HOLD,
    POSITION,
    RUN,
    STOP,
    Driver,
    causes,
    effort,
    position,
    reasons,
)

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardResult, Reason, Request


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


@pytest.mark.parametrize(
    ("given", "reason"),
    [({"age_s": 1.0}, Reason.SENSOR_STALE), ({"vel": np.nan}, Reason.SENSOR_NOT_FINITE)],
)
def test_hold_without_sensors_becomes_damp(pendulum: PolicyContract, given: dict[str, Any], reason: Reason) -> None:
    """HOLD_S 0.5 s is 50 periods of 10 ms: two reused, fifty held, then DAMP."""
    driver = Driver(pendulum)
    assert driver.ticks(2 + 50, **given).state[0] == HOLD
    damped = driver.tick(**given)
    assert (damped.state[0], causes(damped)) == (DAMP, reason)


def test_hold_without_commands_stays_hold(pendulum: PolicyContract) -> None:
    """Outside RUN the policy is not asked: a command that is missing there says nothing, and is no reason."""
    driver = Driver(pendulum)
    driver.ticks(3, deadline_missed=True)
    later = driver.ticks(200, deadline_missed=True)
    assert (later.state[0], reasons(later), causes(later)) == (HOLD, Reason(0), Reason.DEADLINE_MISSED)


def test_hold_with_commands_back_stays_hold(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    driver.ticks(3, deadline_missed=True)
    assert driver.ticks(200).state[0] == HOLD


def test_missed_commands_do_not_count_for_damp(pendulum: PolicyContract) -> None:
    """HOLD came from the policy; 52 periods without sensors are then counted from the first of them, not from there."""
    driver = Driver(pendulum)
    driver.ticks(40, deadline_missed=True)
    assert driver.ticks(2 + 50, age_s=1.0).state[0] == HOLD
    assert driver.tick(age_s=1.0).state[0] == DAMP


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


def test_position_joints_keep_their_last_command_in_every_state(arm: PolicyContract) -> None:
    """A contract without acceleration limits brakes in one period; where the joints are measured does not matter."""
    driver = Driver(arm)
    start = np.array([[0.25, 0.0, 0.1, 0.0]])
    targets = {POSITION: np.array([[0.02, 0.26]]), EFFORT: np.zeros((1, 1))}
    driver.tick(joint_pos=start, targets=targets)
    moved = start + np.array([[0.1, -0.2, 0.0, 0.0]])
    held = driver.ticks(4, joint_pos=moved, targets=targets, deadline_missed=True)
    assert (held.state[0], position(held)) == (HOLD, [0.02, 0.26])
    damped = driver.ticks(3, joint_pos=moved, targets=targets, vel=2.5)
    assert (damped.state[0], position(damped)) == (DAMP, [0.02, 0.26])
    # The slide brakes with its own kd of 5: -12.5 N.
    assert effort(damped) == pytest.approx(-12.5)
    stopped = driver.ticks(100, joint_pos=moved, targets=targets, stop=True)
    assert (stopped.state[0], position(stopped)) == (STOP, [0.02, 0.26])


@pytest.mark.parametrize("given", [{"age_s": 1.0}, {"joint_pos": np.full((1, 4), np.nan)}])
def test_no_position_is_commanded_before_one_was_measured(arm: PolicyContract, given: dict[str, Any]) -> None:
    driver = Driver(arm)
    result = driver.tick(**given)
    assert result.state[0] == STOP
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
    """EFFECT_S 1 s is 100 periods above the speed limit after the third, in which DAMP begins."""
    driver = Driver(pendulum)
    assert driver.ticks(3 + 100, vel=16.0).state[0] == DAMP
    result = driver.tick(vel=16.0)
    assert (result.state[0], causes(result)) == (STOP, Reason.JOINT_VELOCITY)


def test_damping_with_effect_does_not(pendulum: PolicyContract) -> None:
    driver = Driver(pendulum)
    driver.ticks(3, vel=16.0)
    assert driver.ticks(500, vel=14.0).state[0] == DAMP


def test_a_stop_is_obeyed_at_once_and_believed_when_read_back(pendulum: PolicyContract) -> None:
    """Rest is below 2 % of 15 rad/s for STILL_S 0.25 s: a sample at rest, and the 25 periods after it.

    The first sample at rest says where the joint is; rest is that it stays there.
    """
    driver = Driver(pendulum)
    result = driver.tick(vel=6.0, stop=True)
    assert (result.state[0], effort(result)) == (STOP, pytest.approx(-1.0))
    assert causes(result) == Reason.STOP_REQUESTED
    driver.ticks(25, vel=0.29)
    assert not driver.tick(vel=0.31).stopped[0]
    assert not driver.ticks(25, vel=0.29).stopped[0]
    assert driver.tick(vel=-0.29).stopped[0]
    # Long after: what was read back is not reported as missing.
    assert driver.ticks(300).reasons[0] == 0
    moving_again = driver.tick(vel=1.0)
    assert (moving_again.state[0], moving_again.stopped[0]) == (STOP, False)


@pytest.mark.parametrize("given", [{"vel": 1.0}, {"vel": np.nan}, {"age_s": 5.0}])
def test_a_stop_without_effect_is_reported(pendulum: PolicyContract, given: dict[str, Any]) -> None:
    """CONFIRM_S 2 s is 200 periods; a sensor that is gone or repeats itself shows no rest."""
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
    assert result.state.tolist() == [RUN, RUN, STOP]
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


def standstill(driver: Driver, **given: Any) -> GuardResult:
    """A tick with the request that its driver has no argument for."""
    guard, calm = driver.guard, driver.calm | given
    now = driver.step * driver.dt
    driver.step += 1
    guard.observe(stamp_s=now, joint_pos=calm["joint_pos"], joint_vel=calm["joint_vel"])
    result = guard.decide(age_s=0.0, targets=None, request=Request(start=guard.read_back))
    guard.commit()
    return result


def test_a_robot_left_alone_is_not_commanded_where_a_spike_was(arm: PolicyContract) -> None:
    """Its first sample was the position target: a spike of the encoder moved it by as much."""
    driver = Driver(arm)
    driver.guard.activate()
    rest = driver.calm["joint_pos"]
    assert not standstill(driver, joint_pos=rest + 0.4).referenced[0]
    assert not standstill(driver).referenced[0]
    result = standstill(driver)
    assert result.referenced[0]
    joints = driver.guard.limits.joints[driver.guard.limits.holds_position]
    assert position(result) == rest[0, joints].tolist()


def test_a_robot_that_moves_is_not_commanded_before_it_rests(arm: PolicyContract) -> None:
    driver = Driver(arm)
    driver.guard.activate()
    moved = driver.calm["joint_pos"]
    for _ in range(20):
        moved = moved + 0.02
        assert not standstill(driver, joint_pos=moved, joint_vel=np.ones_like(moved)).referenced[0]
    assert not standstill(driver, joint_pos=moved).referenced[0]
    assert standstill(driver, joint_pos=moved).referenced[0]


def test_a_neighbour_does_not_change_when_a_standstill_is_shown(pendulum: PolicyContract) -> None:
    """What a world alone does not look at in RUN, it does not look at beside one that is in trouble, either."""
    alone, together = Guard(pendulum), Guard(pendulum, 2)
    for guard in (alone, together):
        guard.activate()
    shown: list[list[bool]] = [[], []]
    for period in range(60):
        moves = 10 <= period < 20
        for guard, found in zip((alone, together), shown, strict=True):
            count = guard.num_worlds
            vel = np.full((count, 1), 5.0 if moves else 0.0)
            vel[1:] = np.nan
            # At rest a joint may go 0.075 rad: from where it rests now, not from where it rested before it ran.
            pos = np.full((count, 1), 0.06 * min(max(period - 19, 0), 2))
            guard.observe(stamp_s=0.01 * period, joint_pos=pos, joint_vel=vel)
            asked: dict[str, Any] = (
                {"request": Request(start=guard.read_back, stop=period == 20)} if period in (0, 1, 20) else {}
            )
            result = guard.decide(age_s=0.0, targets={EFFORT: np.zeros((count, 1))}, **asked)
            guard.commit()
            found.append(bool(result.stopped[0]))
            assert (result.state[0] == RUN) == (1 <= period < 20)
    assert shown[0] == shown[1]
    assert shown[0][-1]
