"""How far a quantised policy's commands lie from the float one's."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.contract.io import load_contract
from physai.sdk.policy.header import PolicyError, PolicyHeader
from physai.sdk.policy.parity import (
    NO_NUMBER,
    SOURCE_KEY,
    command_errors,
    greatest_error,
    joint_errors,
    require_made_of,
)

CONTRACT = load_contract(Path(__file__).parents[1] / "contract" / "pendulum.contract.json")
NAME = "joint_effort_target"


def test_errors_are_in_joint_units() -> None:
    wanted = {NAME: np.array([[1.0], [2.0], [-1.0], [0.0]], np.float32), "next.started": np.ones((4, 1))}
    found = {NAME: np.array([[1.5], [2.0], [-2.0], [0.25]], np.float32), "next.started": np.zeros((4, 1))}
    errors = command_errors(CONTRACT, wanted, found)
    assert list(errors) == [NAME], "a memory has no unit"
    assert errors[NAME][:, 0].tolist() == [0.5, 0.0, 1.0, 0.25]
    assert greatest_error(errors) == 1.0
    (joint,) = joint_errors(CONTRACT, errors)
    assert (joint.joint, joint.unit, joint.max, joint.mean) == ("pivot", "N·m", 1.0, 0.4375)
    # Of 0, 0.25, 0.5 and 1 the 99th percentile lies 0.97 of the way from the third to the fourth.
    assert joint.p99 == pytest.approx(0.5 + 0.97 * 0.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_as_wrong_as_can_be(bad: float) -> None:
    wanted = {NAME: np.zeros((2, 1))}
    errors = command_errors(CONTRACT, wanted, {NAME: np.array([[0.0], [bad]])})
    assert greatest_error(errors) == NO_NUMBER
    assert greatest_error(command_errors(CONTRACT, {NAME: np.array([[bad], [0.0]])}, wanted)) == NO_NUMBER


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=8), st.floats(-1, 1, width=32))
def test_a_shift_is_the_error_of_every_state(values: list[float], shift: float) -> None:
    wanted = np.array(values)[:, None]
    errors = command_errors(CONTRACT, {NAME: wanted}, {NAME: wanted + shift})
    (joint,) = joint_errors(CONTRACT, errors)
    assert joint.max == pytest.approx(abs(shift), abs=1e-12)
    assert joint.mean == pytest.approx(abs(shift), abs=1e-12)


def test_a_quantised_policy_belongs_to_its_float_graph() -> None:
    header = PolicyHeader(CONTRACT, {"started": 1}, {SOURCE_KEY: "a" * 64})
    require_made_of(header, "a" * 64, source="policy.int8.onnx")
    with pytest.raises(PolicyError, match="was made from aaaaaaaaaaaa; the float policy is bbbbbbbbbbbb"):
        require_made_of(header, "b" * 64, source="policy.int8.onnx")
    with pytest.raises(PolicyError, match="does not state which"):
        require_made_of(PolicyHeader(CONTRACT, {"started": 1}), "a" * 64, source="policy.int8.onnx")
