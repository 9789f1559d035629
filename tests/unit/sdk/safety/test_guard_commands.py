"""The guard's treatment of commands by example: what passes, what is cut to what; computed by hand."""

from typing import Any

import numpy as np
import pytest
from tests.support.guard_driver import EFFORT, POSITION, RUN, Driver, contract_of, effort, reasons

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardError, Reason


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


def test_a_stamp_that_is_repeated_grows_old(pendulum: PolicyContract) -> None:
    """A driver that repeats its last sample does not renew it: with 20 ms allowed, the third repetition is stale."""
    driver = Driver(pendulum)
    found = [int(driver.guard.check(now_s=k * 0.01, sensor_stamp_s=0.0, **driver.calm).reasons[0]) for k in range(5)]
    assert found == [0, 0, 0, Reason.SENSOR_STALE, Reason.SENSOR_STALE]


def test_servo_effort_is_kept_inside_the_envelope(full_contract: PolicyContract) -> None:
    """kp 100, kd 5, 40 N·m allowed: with q = -0.3 and v = 1 the elbow's target is at most -0.3 + (40 + 5) / 100."""
    driver = Driver(full_contract)
    driver.tick(joint_pos=np.array([[0.25, 0.14, 0.1, 0.0]]), targets=targets_of(0.14))
    joint_pos = np.array([[0.25, -0.3, 0.1, 0.0]])
    joint_vel = np.array([[0.0, 1.0, 0.0, 0.0]])
    result = driver.tick(joint_pos=joint_pos, joint_vel=joint_vel, targets=targets_of(0.16))
    assert (reasons(result), result.intervened[0]) == (Reason.COMMAND_LIMIT, True)
    assert result.targets[POSITION] == pytest.approx(np.array([[0.15, 0.25]]))
    # 100 · 0.46 - 5 = 41 N·m were asked for.
    assert result.excess == pytest.approx([1.0])
    assert driver.tick(joint_pos=joint_pos, joint_vel=joint_vel, targets=targets_of(0.149)).reasons[0] == 0


def targets_of(elbow: float) -> dict[str, Any]:
    return {POSITION: np.array([[elbow, 0.25]]), EFFORT: np.zeros((1, 1))}


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


def test_a_sound_command_next_to_a_stopped_world_keeps_its_last_digit(pendulum: PolicyContract) -> None:
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


def test_positions_without_limits_on_their_changes_may_have_a_range_that_excludes_zero(
    full_document: dict[str, Any],
) -> None:
    """Where nothing limits accelerations, no position to stop at is computed, and none is compared."""
    term = full_document["action"]["terms"][0]
    term["offset"][0], term["lower"][0], term["upper"][0] = -1.0, -1.4, -0.5
    for joint in full_document["safety"]["joints"]:
        joint.pop("velocity_limit", None)
        joint.pop("acceleration_limit", None)
    for joint in full_document["robot"]["joints"]:
        joint.pop("velocity_limit", None)
    driver = Driver(contract_of(full_document))
    elbow = list(driver.guard.limits.joints).index(1)
    start = driver.calm["joint_pos"].copy()
    start[0, 1] = -1.0
    for target in (-1.0, -0.8, -1.3):
        targets = {name: value.copy() for name, value in driver.calm["targets"].items()}
        targets[POSITION][0, elbow] = target
        result = driver.tick(targets=targets, joint_pos=start)
        assert (reasons(result), bool(result.intervened[0])) == (Reason(0), False)
        assert result.targets[POSITION][0, elbow] == pytest.approx(target)
    targets[POSITION][0, elbow] = -0.2
    result = driver.tick(targets=targets, joint_pos=start)
    assert reasons(result) == Reason.COMMAND_LIMIT
    assert -1.4 <= result.targets[POSITION][0, elbow] <= driver.guard.limits.upper[elbow]
