"""A robot outside its joints' ranges is told apart from one in degrees, and is not driven."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.fixtures.sample import sample_contract

from physai.deploy_jetson.runtime.io.robot_check import misplaced
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import guard_limits

LOWER, UPPER = -3.0, 1.0
MARGIN = 0.01 * (UPPER - LOWER)


def limited(kind: str = "revolute") -> PolicyContract:
    """The sample's pendulum with end stops at -3 and 1."""
    document: dict[str, Any] = sample_contract().model_dump(mode="json")
    stops = {"position_lower": LOWER, "position_upper": UPPER}
    document["robot"]["joints"][0].update(kind=kind, **stops)
    document["safety"]["joints"][0].update(stops)
    if kind == "prismatic":
        document["observation"]["terms"][0]["kind"] = "sensor"
    return parse_contract(json.dumps(document), source="test")


def told(at: float, kind: str = "revolute") -> str:
    return said(limited(kind), at)


def said(contract: PolicyContract, at: float) -> str:
    return misplaced(contract.robot.joints, guard_limits(contract), np.array([[at]]))


def test_degrees_are_recognised() -> None:
    """-90 degrees are -1.571 rad, which lies between the stops."""
    assert told(-90.0) == (
        f"pivot reads -90 rad, its range is [{LOWER - MARGIN:.4g}, {UPPER + MARGIN:.4g}] rad; if the driver sends "
        "degrees, that is -1.571 rad, and it has to send radians"
    )


def test_what_is_no_angle_in_range_is_not_taken_for_degrees() -> None:
    """90 degrees are 1.571 rad, beyond the upper stop."""
    assert told(90.0) == f"pivot reads 90 rad, its range is [{LOWER - MARGIN:.4g}, {UPPER + MARGIN:.4g}] rad"


@given(st.floats(LOWER - MARGIN + 1e-9, UPPER + MARGIN - 1e-9))
def test_inside_nothing_is_told(at: float) -> None:
    assert told(at) == ""


@given(st.floats().filter(lambda at: not LOWER - MARGIN <= at <= UPPER + MARGIN))
def test_outside_something_always_is(at: float) -> None:
    assert told(at).startswith("pivot reads ")
    assert ("degrees" in told(at)) == (LOWER - MARGIN <= math.radians(at) <= UPPER + MARGIN)


@pytest.mark.parametrize("at", [-1e300, 1e300])
def test_a_joint_without_stops_is_never_outside(at: float) -> None:
    assert said(sample_contract(), at) == ""
