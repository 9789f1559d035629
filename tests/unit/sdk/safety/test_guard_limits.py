"""The guard's limits, computed by hand from contracts."""

from typing import Any

import numpy as np
import pytest
from tests.support.guard_driver import contract_of

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import UNLIMITED, GuardError, guard_limits


def outwards(value: float, *, up: bool) -> float:
    """The nearest float32 number that is not inside."""
    single = np.float32(value)
    if (float(single) >= value) if up else (float(single) <= value):
        return float(single)
    return float(np.nextafter(single, np.float32(np.inf if up else -np.inf)))


def test_an_effort_joint(small_contract: PolicyContract) -> None:
    limits = guard_limits(small_contract)
    assert limits.slices == {"joint_effort_target": slice(0, 1)}
    assert (limits.lower, limits.upper) == (-2.5, 2.5)
    assert limits.rate == UNLIMITED
    # Full effort at the envelope's velocity limit: 2.5 / 15.
    assert limits.brake == pytest.approx(2.5 / 15.0)
    assert (limits.speed, limits.still) == (15.0, pytest.approx(0.3))
    assert (limits.position_lower, limits.position_upper) == (-UNLIMITED, UNLIMITED)
    assert limits.rest == 0.0
    assert not limits.holds_position.any()
    assert limits.servos.size == 0


def test_mixed_joints(full_contract: PolicyContract) -> None:
    limits = guard_limits(full_contract)
    assert limits.slices == {"joint_pos_target": slice(0, 2), "joint_effort_target": slice(2, 3)}
    # Commanded order elbow, shoulder, slide; the robot's is shoulder, elbow, slide, passive.
    assert limits.joints.tolist() == [1, 0, 2]
    assert limits.holds_position.tolist() == [True, True, False]
    # elbow: 0 ± 0.5; shoulder: 0.25 ± 0.25; slide: ±30 of its action, within ±40 of its envelope.
    assert limits.lower == pytest.approx([-0.5, 0.0, -30.0], abs=1e-6)
    assert limits.upper == pytest.approx([0.5, 0.5, 30.0], abs=1e-6)
    # What the guard itself may command is the envelope.
    assert limits.hard_lower.tolist() == [-1.5, -1.5, -40.0]
    assert limits.hard_upper.tolist() == [1.5, 1.5, 40.0]
    # Absolute positions change by 2 rad/s · 0.02 s per period, the incremental slide by 2 N.
    assert limits.rate.tolist() == [0.04, 0.04, 2.0]
    # Eight float32 roundings: of 0.5 at most 2^-24 each, of 30 at most 2^-19.
    assert limits.slack.tolist() == [2.0**-21, 2.0**-21, 2.0**-16]
    # The slide's own kd.
    assert limits.brake.tolist() == [0.0, 0.0, 5.0]
    assert limits.rest.tolist() == [0.0, 0.25, 0.0]
    assert limits.speed.tolist() == [2.0, 2.0, 2.0, UNLIMITED]
    assert limits.still.tolist() == [0.04, 0.04, 0.04, 0.1]
    # What these speeds travel in 0.25 s.
    assert limits.still_travel.tolist() == [0.01, 0.01, 0.01, 0.025]
    # A contract of format 1 has none of these.
    for unset in (limits.change, limits.following, limits.mismatch):
        assert (unset == UNLIMITED).all()
    # Ranges of 3, 3, 0.5 and none, each wider by 1 % on both sides.
    assert limits.position_lower.tolist() == pytest.approx([-1.53, -1.53, -0.005, -UNLIMITED])
    assert limits.position_upper.tolist() == pytest.approx([1.53, 1.53, 0.505, UNLIMITED])


def test_limits_of_format_2(newest_contract: PolicyContract) -> None:
    """Commanded order elbow, shoulder, slide for commands; the robot's shoulder, elbow, slide, passive for sensors."""
    limits = guard_limits(newest_contract)
    # 12 rad/s² · (0.02 s)²; the slide is commanded by effort.
    assert limits.change.tolist() == [pytest.approx(0.0048), pytest.approx(0.0048), UNLIMITED]
    assert limits.following.tolist() == [0.2, 0.2, UNLIMITED]
    assert limits.mismatch.tolist() == [0.05, 0.05, UNLIMITED, UNLIMITED]


def test_servos_with_a_narrower_envelope_are_watched(full_contract: PolicyContract) -> None:
    limits = guard_limits(full_contract)
    # Drives give 50, the envelope allows 40, kp 100, kd 5.
    assert limits.servos.tolist() == [0, 1]
    assert limits.effort.tolist() == [40.0, 40.0]
    assert limits.stiffness.tolist() == [100.0, 100.0]
    assert limits.damping.tolist() == [5.0, 5.0]


def test_an_incremental_position_is_no_faster_than_its_joint(full_document: dict[str, Any]) -> None:
    arm = full_document["action"]["terms"][0]
    arm["kind"], arm["scale"] = "joint_pos_incremental", [0.5, 0.01]
    rate = guard_limits(contract_of(full_document)).rate
    # elbow: 2 rad/s · 0.02 s = 0.04 < 0.5; shoulder: 0.01 as trained.
    assert rate[:2].tolist() == [0.04, 0.01]


def test_bounds_are_rounded_outwards_to_float32(full_document: dict[str, Any]) -> None:
    term = full_document["action"]["terms"][0]
    term["kind"], term["lower"], term["upper"] = "joint_pos_incremental", [-0.1, -0.3], [0.1, 0.7]
    limits = guard_limits(contract_of(full_document))
    assert limits.lower[:2].tolist() == [outwards(-0.1, up=False), outwards(-0.3, up=False)]
    assert limits.upper[:2].tolist() == [outwards(0.1, up=True), outwards(0.7, up=True)]
    assert (limits.upper[:2] - [0.1, 0.7] < 1e-7).all()


def test_no_limits_at_all(small_document: dict[str, Any]) -> None:
    joint = small_document["robot"]["joints"][0]
    del joint["velocity_limit"]
    small_document["safety"]["joints"][0] = {"joint": "pivot", "effort_limit": 2.5}
    limits = guard_limits(contract_of(small_document))
    assert limits.speed == UNLIMITED
    assert limits.brake == 0.0


def test_an_envelope_that_leaves_no_command(full_document: dict[str, Any]) -> None:
    full_document["safety"]["joints"][1] |= {"position_lower": -1.5, "position_upper": 0.2}
    full_document["action"]["terms"][0] |= {"offset": [0.9, 0.25], "scale": [0.5, 0.25], "lower": [0.5, -1.0]}
    with pytest.raises(GuardError, match=r"joint elbow: no command is .* one is 0\.5, the smaller upper one 0\.2"):
        guard_limits(contract_of(full_document))
