"""What a policy sees of a command: within its range, zero below the gate, and no faster than its slew."""

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.fault_injection.arm_policies import EASED, arm_contract

from physai.sdk.contract.contract_schema import contract_schema
from physai.sdk.contract.io import ContractError, parse_contract
from physai.sdk.contract.terms import CommandField
from physai.sdk.policy.command_shaping import CommandShape, command_shapes, shaped_command

DT = 0.02
LOWER, UPPER, SLEW = (-1.0, -0.5, -2.0), (1.5, 0.5, 2.0), (1.0, 2.0, 0.5)
numbers = st.floats(-5.0, 5.0, width=32)
asks = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=30)


def command(**changes: Any) -> CommandField:
    fields: dict[str, Any] = {"name": "c", "size": 3, "unit": "m/s", "lower": LOWER, "upper": UPPER, **changes}
    return CommandField(**fields)


def seen(field: CommandField, asked: list[tuple[float, float, float]]) -> np.ndarray[Any, Any]:
    shape, before = CommandShape.of(field, DT), np.zeros(3, np.float32)
    found: list[Any] = []
    for one in asked:
        before = shaped_command(np.array(one, np.float32), before, shape)
        found.append(before)
    return np.array(found, np.float64)


@given(asks, st.booleans(), st.booleans())
def test_it_stays_in_its_range(asked: list[tuple[float, float, float]], slews: bool, gated: bool) -> None:
    found = seen(command(slew=SLEW if slews else None, gate=0.3 if gated else None), asked)
    assert (found >= np.array(LOWER, np.float32)).all()
    assert (found <= np.array(UPPER, np.float32)).all()


@given(asks, st.booleans())
def test_it_changes_no_faster_than_its_slew_from_zero_on(asked: list[tuple[float, float, float]], gated: bool) -> None:
    found = seen(command(slew=SLEW, gate=0.3 if gated else None), asked)
    changes = np.abs(np.diff(np.concatenate([np.zeros((1, 3)), found]), axis=0))
    assert (changes <= DT * np.array(SLEW) + 1e-6).all()


@given(st.tuples(numbers, numbers, numbers), st.booleans())
def test_it_reaches_what_is_asked_for_and_stays_there(asked: tuple[float, float, float], gated: bool) -> None:
    # 2 m/s at 0.5 m/s² take 4 s.
    found = seen(command(slew=SLEW, gate=0.3 if gated else None), [asked] * 202)
    wanted = np.clip(np.array(asked, np.float32), np.array(LOWER, np.float32), np.array(UPPER, np.float32))
    if gated and float((wanted * wanted).sum()) < 0.3 * 0.3:
        wanted = np.zeros(3)
    assert np.array_equal(found[-2], wanted)
    assert np.array_equal(found[-1], wanted)


@given(st.tuples(numbers, numbers, numbers))
def test_without_slew_and_gate_it_is_cut_to_its_range_alone(asked: tuple[float, float, float]) -> None:
    cut = np.clip(np.array(asked, np.float32), np.array(LOWER, np.float32), np.array(UPPER, np.float32))
    assert np.array_equal(seen(command(), [asked])[0], cut)


def test_the_gate_looks_at_the_norm_of_what_is_within_the_range() -> None:
    field = command(gate=0.5)
    assert seen(field, [(0.3, 0.3, 0.2)])[0].tolist() == [0.0, 0.0, 0.0]
    assert seen(field, [(0.3, 0.4, 0.0)])[0] == pytest.approx([0.3, 0.4, 0.0])
    # 0.5 of the 5 that are asked for count.
    assert seen(field, [(0.0, 5.0, 0.0)])[0] == pytest.approx([0.0, 0.5, 0.0])


def test_the_gate_brings_a_moving_command_to_zero_as_fast_as_the_slew_lets_it() -> None:
    found = seen(command(slew=SLEW, gate=0.5), [(1.0, 0.0, 0.0)] * 5 + [(0.4, 0.0, 0.0)] * 7)
    assert found[:, 0] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.08, 0.06, 0.04, 0.02, 0.0, 0.0, 0.0], abs=1e-6)


def test_a_number_that_is_not_finite_stays_so() -> None:
    assert math.isnan(seen(command(slew=SLEW, gate=0.5), [(math.nan, 0.0, 0.0)])[0][0])


def test_a_narrower_range_holds_at_once() -> None:
    shape = CommandShape.of(command(slew=SLEW, upper=(0.2, 0.5, 2.0)), DT)
    assert shaped_command(np.ones(3, np.float32), np.ones(3, np.float32), shape)[0] == pytest.approx(0.2)


@pytest.mark.slow
@given(asks)
def test_tensors_give_the_same_bit_for_bit(asked: list[tuple[float, float, float]]) -> None:
    torch = pytest.importorskip("torch")
    field = command(slew=SLEW, gate=0.3)
    shape, before = CommandShape.of(field, DT, lambda values: torch.tensor(values)), torch.zeros(1, 3)
    for one, wanted in zip(asked, seen(field, asked), strict=True):
        before = shaped_command(torch.tensor([one], dtype=torch.float32), before, shape)
        assert np.array_equal(before.numpy()[0], wanted.astype(np.float32))


def test_only_fields_with_a_slew_or_a_gate_are_shaped() -> None:
    fields = (command(), command(name="d", gate=0.1), command(name="e", slew=SLEW))
    assert list(command_shapes(fields, DT)) == ["d", "e"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"slew": (1.0, 2.0)}, "command c: slew has 2 values, size is 3"),
        ({"slew": ()}, "command c: slew has 0 values, size is 3"),
        ({"slew": (1.0, 2.0, 0.0)}, "greater than 0"),
        ({"slew": (1.0, 2.0, math.inf)}, "finite"),
        ({"gate": 0.0}, "greater than 0"),
        ({"gate": 0.1, "lower": (0.2, -0.5, -2.0)}, "also sees 0, which lies outside [0.2, 1.5]"),
        ({"slew": SLEW, "upper": (1.5, -0.1, 2.0)}, "also sees 0, which lies outside [-0.5, -0.1]"),
    ],
)
def test_a_shape_that_cannot_be_meant_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        command(**changes)


def test_both_came_with_format_3_and_other_contracts_keep_their_document() -> None:
    made = arm_contract(EASED)
    document = json.loads(made.model_dump_json())
    for name in ("slew", "gate"):
        changed = json.loads(json.dumps(document))
        changed["format_version"], changed["safety"] = 2, {**changed["safety"]}
        del changed["safety"]["start"]
        other = "gate" if name == "slew" else "slew"
        del changed["command"]["fields"][0][other]
        with pytest.raises(ContractError, match=rf"2 has no such command\.fields\[goal\]\.{name}, which came with"):
            parse_contract(json.dumps(changed), source="test")
    plain = arm_contract("absolute").model_dump(mode="json")["command"]["fields"][0]
    assert not {"slew", "gate"} & set(plain)
    assert "slew" in json.dumps(contract_schema())
