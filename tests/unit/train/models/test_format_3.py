"""What came with format 3 of contracts, by numbers worked out by hand: clocks, layouts, elements, unbounded outputs."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tests.unit.train.models.test_policy_graph import absolute, contract, inputs

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm, GaitClock
from physai.sdk.policy.memory import CommandMemory
from physai.sdk.safety.limits import guard_limits
from physai.train.models.policy_graph import ActorMLP, PolicyGraph

Term = dict[str, Any]
SPEED: Term = {"kind": "command", "source": "speed"}
VEL: Term = {"kind": "sensor", "source": "joint_vel"}
# The control period of these contracts is 0.01 s, so that φ advances by a quarter turn per sample.
CLOCK = GaitClock(wave="cos", period_s=0.04, phases=(0.0, math.pi))


def newest(
    *terms: Term, action: ActionTerm | None = None, version: int = 3, layout: dict[str, str] | None = None
) -> PolicyContract:
    """The contract of the other tests in format 3."""
    document = contract({"kind": "joint_pos_rel"}).model_dump()
    named = tuple({"name": f"term{index}", **term} for index, term in enumerate(terms))
    changed: dict[str, Any] = {"format_version": version, "observation": {"terms": named, **(layout or {})}}
    if action is not None:
        changed["action"] = {"terms": (action.model_dump(),)}
    return PolicyContract.model_validate({**document, **changed})


def graph(made: PolicyContract) -> PolicyGraph:
    return PolicyGraph(made, ActorMLP(made.observation_size, made.action.size, (8,), "tanh"))


def play(made: PolicyContract, *samples: dict[str, list[float]]) -> list[list[float]]:
    """Observations of successive samples."""
    policy = graph(made)
    state, seen = policy.initial_state(1), list[list[float]]()
    for sample in samples:
        vector, after = policy.observe(*inputs(1, **sample), state)
        state = {**state, **after, "started": torch.ones(1, 1)}
        seen.append(vector[0].numpy().tolist())
    return seen


def near(*rows: list[float]) -> list[Any]:
    return [pytest.approx(row, abs=1e-6) for row in rows]


def test_a_clock_turns_before_each_sample() -> None:
    made = newest({"kind": "clock", "clock": CLOCK})
    assert play(made, {}, {}, {}, {}, {}) == near([0.0, 0.0], [-1.0, 1.0], [0.0, 0.0], [1.0, -1.0], [0.0, 0.0])


def test_a_clock_stands_below_its_gate_and_begins_anew() -> None:
    clock = CLOCK.model_copy(update={"gate": 0.1, "standing_phase": math.pi})
    made = newest({"kind": "clock", "clock": clock, "source": "speed"})
    stand, go = {"speed": [0.0, 0.05]}, {"speed": [0.0, 0.2]}
    assert play(made, go, stand, stand, go, go) == near([0.0, 0.0], [-1.0, -1.0], [-1.0, -1.0], [1.0, -1.0], [0.0, 0.0])


def test_a_clock_without_a_standing_phase_is_zero() -> None:
    made = newest({"kind": "clock", "clock": CLOCK.model_copy(update={"gate": 0.1}), "source": "speed"})
    assert play(made, {"speed": [0.0, 0.0]}, {}) == near([0.0, 0.0], [1.0, -1.0])


def test_a_clock_is_exact_after_many_turns() -> None:
    clock = GaitClock(wave="sin", period_s=0.7, phases=(0.0,))
    policy = graph(newest({"kind": "clock", "clock": clock}))
    state = policy.initial_state(1)
    with torch.no_grad():
        for _ in range(2000):
            _, after = policy.observe(*inputs(1), state)
            state = {**state, **after}
    assert 0.0 <= float(state["clock_term0"]) < 2.0 * math.pi
    expected = 2000 * 0.01 / 0.7 * 2.0 * math.pi
    assert math.cos(float(state["clock_term0"]) - expected) == pytest.approx(1.0, abs=1e-6)


def test_elements_and_constants() -> None:
    made = newest(SPEED | {"elements": (1,)}, {"kind": "constant", "values": (2.0, 3.0)}, SPEED | {"elements": (1, 0)})
    assert play(made, {"speed": [5.0, 6.0]}) == near([6.0, 2.0, 3.0, 6.0, 5.0])


A, B, C = ({"joint_vel": [x, -x], "speed": [x, 2 * x]} for x in (1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("layout", "first", "third"),
    [
        ({}, [1, -1, 1, -1, 2, 2], [2, -2, 3, -3, 4, 6]),
        ({"newest": "first"}, [1, -1, 1, -1, 2, 2], [3, -3, 2, -2, 6, 4]),
        ({"first_fill": "zero"}, [0, 0, 1, -1, 0, 2], [2, -2, 3, -3, 4, 6]),
        ({"first_fill": "zero", "newest": "first"}, [1, -1, 0, 0, 2, 0], [3, -3, 2, -2, 6, 4]),
        ({"layout": "time"}, [1, -1, 2, 1, -1, 2], [2, -2, 4, 3, -3, 6]),
        ({"layout": "time", "newest": "first", "first_fill": "zero"}, [1, -1, 2, 0, 0, 0], [3, -3, 6, 2, -2, 4]),
    ],
)
def test_layouts_of_histories(layout: dict[str, str], first: list[float], third: list[float]) -> None:
    made = newest(VEL | {"history": 2}, SPEED | {"history": 2, "elements": (1,)}, layout=layout)
    seen = play(made, A, B, C)
    assert [seen[0], seen[2]] == near(first, third)


def test_in_the_order_of_time_all_histories_are_equal() -> None:
    with pytest.raises(ValidationError, match="every term needs the same history"):
        newest(VEL | {"history": 2}, SPEED, layout={"layout": "time"})


@pytest.mark.parametrize(("limit", "outputs"), [(None, [3.0, -0.5]), (1.0, [1.0, -0.5]), (2.0, [2.0, -0.5])])
def test_outputs_are_bounded_as_stated_and_remembered_as_bounded(limit: float | None, outputs: list[float]) -> None:
    action = absolute(output_limit=limit, scale=(0.1, 0.2), offset=(0.25, -0.5))
    policy = graph(newest({"kind": "previous_action"}, action=action))
    targets, memory = policy.command(torch.tensor([[3.0, -0.5]]), inputs(1)[0], policy.initial_state(1))
    expected = [0.25 + 0.1 * outputs[0], -0.5 + 0.2 * outputs[1]]
    assert targets["joint_pos_target"][0].numpy().tolist() == pytest.approx(expected)
    assert memory["previous_action"][0].numpy().tolist() == pytest.approx(outputs)
    # Overwriting the memory with the graph's own commands leaves it as it is.
    held = {"previous_action": memory["previous_action"].numpy().copy()}
    sent = {"joint_pos_target": targets["joint_pos_target"].numpy()}
    CommandMemory(policy.contract).overwrite(held, sent, {"joint_pos_target": np.zeros((1, 2))})
    assert held["previous_action"][0] == pytest.approx(outputs, abs=1e-6)


@pytest.mark.parametrize(
    ("made", "path"),
    [
        ({"terms": ({"kind": "clock", "clock": CLOCK},)}, r"observation.terms\[term0\].kind"),
        ({"terms": ({"kind": "constant", "values": (1.0,)},)}, r"observation.terms\[term0\].kind"),
        ({"terms": (SPEED | {"elements": (0,)},)}, r"observation.terms\[term0\].elements"),
        ({"terms": (VEL,), "layout": {"newest": "first"}}, "observation.newest"),
        ({"terms": (VEL,), "layout": {"layout": "time"}}, "observation.layout"),
        ({"terms": (VEL,), "layout": {"first_fill": "zero"}}, "observation.first_fill"),
        ({"terms": (VEL,), "action": absolute(output_limit=None)}, r"action.terms\[joint_pos_target\].output_limit"),
    ],
)
def test_older_formats_have_none_of_it(made: dict[str, Any], path: str) -> None:
    terms, rest = made["terms"], {name: value for name, value in made.items() if name != "terms"}
    assert newest(*terms, **rest).format_version == 3
    with pytest.raises(ValidationError, match=rf"2 has no such {path}, which came with format 3"):
        newest(*terms, version=2, **rest)


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        ({"kind": "clock"}, "clock: a term of kind clock needs it"),
        ({"kind": "constant"}, "values: a term of kind constant needs it"),
        (VEL | {"clock": CLOCK}, "clock: a term of kind sensor has none"),
        (VEL | {"elements": (0,)}, "elements: joint_vel is no command"),
        (SPEED | {"elements": (2,)}, "elements: 2 of 'speed', which has 0 to 1"),
        ({"kind": "clock", "clock": CLOCK.model_copy(update={"gate": 0.1})}, "source: a term of kind clock needs one"),
        ({"kind": "clock", "clock": CLOCK.model_copy(update={"gate": 0.1}), "source": "joint_vel"}, "no command named"),
    ],
)
def test_what_does_not_belong_together_is_refused(term: Term, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        newest(term)


def test_defaults_leave_no_trace_in_the_document() -> None:
    document = contract(VEL).model_dump(mode="json")
    assert set(document["observation"]) == {"terms"}
    assert not {"elements", "clock", "values"} & set(document["observation"]["terms"][0])
    assert "output_limit" not in document["action"]["terms"][0]


@pytest.mark.parametrize(("limit", "reach"), [(1.0, 0.1), (3.0, 0.3), (None, math.inf)])
def test_the_guard_lets_through_what_the_output_may_ask_for(limit: float | None, reach: float) -> None:
    """It had taken every output for one within ±1, and stopped a robot in its first period."""
    action = absolute(output_limit=limit, scale=(0.1, 0.1), offset=(0.25, -0.5))
    limits = guard_limits(newest(VEL, action=action))
    assert limits.lower.tolist() == pytest.approx([max(-1.0, 0.25 - reach), max(-1.0, -0.5 - reach)], abs=1e-6)
    assert limits.upper.tolist() == pytest.approx([min(1.0, 0.25 + reach), min(1.0, -0.5 + reach)], abs=1e-6)


@pytest.mark.parametrize(("limit", "step"), [(1.0, 0.1), (3.0, 0.3)])
def test_the_guard_knows_how_far_an_increment_may_go(limit: float, step: float) -> None:
    action = absolute(kind="joint_pos_incremental", output_limit=limit, scale=(0.1, 0.1), offset=(0.0, 0.0))
    assert guard_limits(newest(VEL, action=action)).rate.tolist() == pytest.approx([step, step])
