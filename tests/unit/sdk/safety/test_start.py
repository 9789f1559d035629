"""Where a policy may take over, how its commands grow from there, and that a change of policies keeps the rates."""

import json
import math
from typing import Any

import numpy as np
import pytest

from physai.sdk.contract.io import ContractError, parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardState, guard_limits
from physai.sdk.safety.start import StartGate, tilt
from physai.sdk.transport.protocol import required_fields

DT = 0.02


def document(start: dict[str, Any] | None, *, imu: bool = True) -> dict[str, Any]:
    joints = ("hip", "knee")
    sensors = [{"name": "joint_pos", "size": 2, "unit": "rad"}, {"name": "joint_vel", "size": 2, "unit": "rad/s"}]
    if imu:
        sensors.append({"name": "imu_quat", "size": 4, "unit": ""})
    safety: dict[str, Any] = {
        "joints": [
            {
                "joint": joint,
                "position_lower": -1.0,
                "position_upper": 1.0,
                "velocity_limit": 4.0,
                "effort_limit": 20.0,
                "acceleration_limit": 50.0,
            }
            for joint in joints
        ]
    }
    if start is not None:
        safety["start"] = start
    return {
        "format_version": 3 if start is not None else 2,
        "task": "stand",
        "robot": {
            "name": "legs",
            "base": "floating" if imu else "fixed",
            "joints": [
                {
                    "name": joint,
                    "kind": "revolute",
                    "effort_limit": 20.0,
                    "velocity_limit": 4.0,
                    "position_lower": -1.0,
                    "position_upper": 1.0,
                    "default_pos": 0.1,
                    "stiffness": 40.0,
                    "damping": 1.0,
                }
                for joint in joints
            ],
            "sensors": sensors,
        },
        "observation": {"terms": [{"name": "q", "kind": "joint_pos_rel"}]},
        "action": {
            "terms": [
                {
                    "kind": "joint_pos",
                    "joints": list(joints),
                    "scale": [1.0, 1.0],
                    "offset": [0.1, 0.1],
                    "lower": [-1.0, -1.0],
                    "upper": [1.0, 1.0],
                }
            ]
        },
        "command": {},
        "timing": {
            "control_dt": DT,
            "physics_dt": 0.002,
            "decimation": 10,
            "deadline_s": 0.01,
            "max_observation_age_s": 0.04,
        },
        "safety": safety,
    }


def contract(start: dict[str, Any] | None, *, imu: bool = True, format_version: int | None = None) -> PolicyContract:
    made = document(start, imu=imu)
    if format_version is not None:
        made["format_version"] = format_version
    return parse_contract(json.dumps(made), source="test")


KNEE = {"joint": "knee", "lower": -0.2, "upper": 0.4, "speed": 0.5}


def obstacle(start: dict[str, Any] | None, pos: list[float], vel: list[float], quat: list[float] | None = None) -> str:
    fields = {"imu_quat": np.array([quat or [1.0, 0.0, 0.0, 0.0]])}
    return StartGate(contract(start)).obstacle(np.array([pos]), np.array([vel]), fields)


def test_inside_nothing_is_in_the_way() -> None:
    assert obstacle(None, [9.0, 9.0], [9.0, 9.0]) == ""
    assert obstacle({"joints": [KNEE], "tilt": 0.3}, [0.9, 0.4], [9.0, -0.5]) == ""


@pytest.mark.parametrize(
    ("pos", "vel", "text"),
    [
        (0.5, 0.0, "knee reads 0.5 rad, the policy starts in [-0.2, 0.4] rad"),
        (-0.21, 0.0, "knee reads -0.21 rad, the policy starts in [-0.2, 0.4] rad"),
        (math.nan, 0.0, "knee reads nan rad, the policy starts in [-0.2, 0.4] rad"),
        (0.0, -0.6, "knee moves at 0.6 rad/s, the policy starts below 0.5 rad/s"),
        (0.0, math.nan, "knee moves at nan rad/s, the policy starts below 0.5 rad/s"),
    ],
)
def test_the_joint_is_named_with_both_values(pos: float, vel: float, text: str) -> None:
    assert obstacle({"joints": [KNEE]}, [0.0, pos], [0.0, vel]) == text


def test_a_tilted_base_is_named_with_both_angles() -> None:
    half = 0.5 * 0.4
    rolled = [math.cos(half), math.sin(half), 0.0, 0.0]
    assert obstacle({"tilt": 0.5}, [0.0, 0.0], [0.0, 0.0], rolled) == ""
    assert obstacle({"tilt": 0.3}, [0.0, 0.0], [0.0, 0.0], rolled) == (
        "the base is tilted by 0.4 rad, the policy starts below 0.3 rad"
    )


def test_turning_about_the_vertical_is_no_tilt() -> None:
    assert tilt(np.array([math.cos(1.0), 0.0, 0.0, math.sin(1.0)])) == pytest.approx(0.0, abs=1e-7)
    assert tilt(np.array([0.0, 1.0, 0.0, 0.0])) == pytest.approx(math.pi)
    assert tilt(np.array([0.0, 0.0, 0.0, 0.0])) == math.inf
    assert tilt(np.array([math.nan, 0.0, 0.0, 0.0])) == math.inf


def test_the_orientation_that_a_start_reads_is_awaited_from_the_robot() -> None:
    assert "imu_quat" in required_fields(contract({"tilt": 0.3}))
    assert "imu_quat" not in required_fields(contract({"joints": [KNEE]}))


def test_the_ramp_goes_from_the_commands_at_the_start_to_the_policys() -> None:
    gate = StartGate(contract({"ramp_s": 4 * DT}))
    gate.begin({"joint_pos_target": np.array([[0.0, 0.4]])})
    policy = {"joint_pos_target": np.array([[0.8, 0.0]], np.float32)}
    given: list[list[float]] = []
    while gate.ramps:
        given.append(gate.blend(policy)["joint_pos_target"][0].tolist())
    assert np.array(given) == pytest.approx(np.array([[0.2, 0.3], [0.4, 0.2], [0.6, 0.1], [0.8, 0.0]]), abs=1e-6)


def test_without_a_ramp_the_policy_commands_at_once() -> None:
    gate = StartGate(contract({"joints": [KNEE]}))
    gate.begin({"joint_pos_target": np.array([[0.0, 0.4]])})
    assert not gate.ramps


def test_robots_start_one_by_one_and_each_has_a_ramp_of_its_own() -> None:
    gate = StartGate(contract({"ramp_s": 2 * DT}), 2)
    policy = {"joint_pos_target": np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)}
    assert not gate.ramps
    gate.begin(gate.at_rest(np.array([[0.0, 0.5], [9.0, 9.0]])), np.array([True, False]))
    assert gate.ramping.tolist() == [True, False]
    assert gate.blend(policy)["joint_pos_target"].tolist() == [[0.5, 0.25], [1.0, 0.0]]
    gate.begin(gate.at_rest(np.array([[9.0, 9.0], [0.5, 0.0]])), np.array([False, True]))
    assert gate.blend(policy)["joint_pos_target"].tolist() == [[1.0, 0.0], [0.75, 0.0]]
    assert gate.ramping.tolist() == [False, True]
    assert gate.blend(policy)["joint_pos_target"].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert not gate.ramps


def test_a_period_in_which_the_policy_was_not_asked_is_none_of_the_ramp() -> None:
    gate = StartGate(contract({"ramp_s": 2 * DT}), 2)
    policy = {"joint_pos_target": np.ones((2, 2), np.float32)}
    gate.begin(gate.at_rest(np.zeros((2, 2))))
    gate.blend(policy)
    gate.undo(np.array([True, False]))
    assert gate.blend(policy)["joint_pos_target"].tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert gate.ramping.tolist() == [True, False]


def test_a_policy_may_start_away_from_the_default_pose() -> None:
    """As one does that follows a motion from its first frame; the default is 0.1."""
    assert "joints" in contract({"joints": [{**KNEE, "lower": 0.2}]}).model_dump()["safety"]["start"]


@pytest.mark.parametrize(
    ("start", "imu", "text"),
    [
        ({"joints": [{**KNEE, "joint": "ankle"}]}, True, "joints[ankle]: no joint named 'ankle'"),
        (
            {"joints": [{**KNEE, "lower": 1.1, "upper": 1.2}]},
            True,
            "joints[knee]: [1.1, 1.2] lies outside the robot's range [-1.0, 1.0], so that it could never start",
        ),
        ({"joints": [{**KNEE, "lower": -1.5, "upper": -1.1}]}, True, "[-1.5, -1.1] lies outside the robot's range"),
        ({"joints": [{**KNEE, "upper": -0.3}]}, True, "start of joint knee: lower -0.2 is not below upper -0.3"),
        ({"joints": [KNEE, KNEE]}, True, "start of joint"),
        ({"tilt": 0.3}, False, "tilt: needs the sensor 'imu_quat'"),
        ({"tilt": -0.3}, True, "greater than 0"),
        ({"ramp_s": 11.0}, True, "less than or equal to 10"),
    ],
)
def test_an_envelope_that_cannot_be_meant_is_refused(start: dict[str, Any], imu: bool, text: str) -> None:
    with pytest.raises(ContractError) as caught:
        contract(start, imu=imu)
    assert text in str(caught.value)


def test_it_came_with_format_3_and_older_contracts_keep_their_fingerprint() -> None:
    with pytest.raises(ContractError, match=r"2 has no such safety\.start, which came with format 3"):
        contract({"joints": [KNEE]}, format_version=2)
    assert "start" not in contract(None).model_dump_json()
    assert contract({"joints": [KNEE]}).fingerprint != contract({"joints": [KNEE], "ramp_s": 1.0}).fingerprint


def test_a_change_of_policies_keeps_the_contracts_rates_from_ten_thousand_states() -> None:
    """Whatever the policy before has commanded, and whatever the next one commands."""
    count = 10_000
    made = contract(None)
    limits = guard_limits(made)
    rng = np.random.default_rng(5)
    guard = Guard(made, count)
    speed, change = limits.rate, limits.change
    last = rng.uniform(-0.9, 0.9, (count, 2))
    # Steps of a policy that kept the limits, in reach of a stop before the bounds.
    step = rng.uniform(-0.5, 0.5, (count, 2)) * np.minimum(speed, np.sqrt(2.0 * change * (1.0 - np.abs(last))))
    guard.resume_from(last, step)
    quat = np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))
    for period in range(3):
        guard.observe(
            stamp_s=DT * period,
            joint_pos=guard.last.copy(),
            joint_vel=guard.step / DT,
            sensors={"joint_pos": guard.last.copy(), "joint_vel": guard.step / DT, "imu_quat": quat},
        )
        before, moved = guard.last.copy(), guard.step.copy()
        targets = {"joint_pos_target": rng.uniform(-3.0, 3.0, (count, 2)).astype(np.float32)}
        with np.errstate(all="ignore"):
            result = guard.decide(age_s=0.0, targets=targets)
        sent = result.targets["joint_pos_target"]
        assert (result.state == GuardState.RUN).all()
        assert np.abs(sent - before).max() <= speed.max() + 1e-6
        assert np.abs((sent - before) - moved).max() <= change.max() + 1e-6
        assert np.abs(sent).max() <= 1.0 + 1e-6
        guard.commit()
