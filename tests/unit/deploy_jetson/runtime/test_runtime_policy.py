"""Policies at fixed addresses compute what the engine computes, and remember only what is sound."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.sdk.onnx.graph import GraphError
from physai.sdk.policy.header import NEXT_PREFIX, POLICY_FILE, STATE_PREFIX, PolicyHeader

POLICIES = Path(__file__).parents[3] / "data" / "policies"


def engine_of(name: str) -> OnnxEngine:
    return OnnxEngine((POLICIES / name / POLICY_FILE).read_bytes(), source=name)


def bound(name: str) -> BoundPolicy:
    header = engine_of(name).header
    return BoundPolicy.onnx((POLICIES / name / POLICY_FILE).read_bytes(), header, source=name)


@pytest.mark.parametrize("name", ["cartpole-00", "reach"])
@pytest.mark.parametrize("kind", ["onnx", "engine"])
def test_a_bound_policy_computes_what_its_engine_computes(name: str, kind: str) -> None:
    engine = engine_of(name)
    policy = bound(name) if kind == "onnx" else BoundPolicy.engine(engine)
    numbers = np.random.default_rng(0)
    memory = {STATE_PREFIX + key: np.zeros((1, size), np.float32) for key, size in engine.header.state_sizes.items()}
    for _ in range(5):
        given: dict[str, Floats] = {}
        for field, row in policy.inputs.named.items():
            row[:] = given[field] = numbers.standard_normal(row.shape).astype(np.float32)
        expected = engine.run({**given, **memory})
        assert policy.step()
        for output, row in policy.targets.named.items():
            np.testing.assert_array_equal(row, expected[output])
        memory = {STATE_PREFIX + key: expected[NEXT_PREFIX + key] for key in engine.header.state_sizes}


def test_what_is_not_finite_is_not_remembered() -> None:
    policy, twin = bound("reach"), bound("reach")
    rows = list(policy.inputs.named.items())
    for each in (policy, twin):
        for _, row in rows:
            row[:] = 0.0
        assert each.step()
    rows[0][1][:] = np.nan
    assert not policy.step()
    rows[0][1][:] = 0.0
    assert policy.step()
    assert twin.step()
    np.testing.assert_array_equal(policy.targets.block, twin.targets.block)


def test_a_reset_policy_has_forgotten() -> None:
    policy, fresh = bound("reach"), bound("reach")
    policy.inputs.block[:] = 0.1
    fresh.inputs.block[:] = 0.2
    policy.step()
    policy.reset()
    policy.inputs.block[:] = 0.2
    policy.step()
    fresh.step()
    np.testing.assert_array_equal(policy.targets.block, fresh.targets.block)


def test_warming_up_leaves_no_memory() -> None:
    policy, fresh = bound("reach"), bound("reach")
    policy.warm_up()
    policy.step()
    fresh.step()
    np.testing.assert_array_equal(policy.targets.block, fresh.targets.block)


class Recurrent:
    """An engine with a history and a hidden state; every step adds one to both."""

    def __init__(self, header: PolicyHeader) -> None:
        self.header = header
        self.versions: dict[str, str] = {}

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        states = {NEXT_PREFIX + name: inputs[STATE_PREFIX + name] + 1.0 for name in self.header.state_sizes}
        return {"joint_effort_target": np.zeros((1, 1), np.float32), **states}


def test_a_successor_takes_the_histories_but_not_the_hidden_state() -> None:
    contract = engine_of("cartpole-00").header.contract
    before = BoundPolicy.engine(Recurrent(PolicyHeader(contract, {"velocities": 2, "hidden": 3, "gone": 1})))
    after = BoundPolicy.engine(Recurrent(PolicyHeader(contract, {"velocities": 2, "hidden": 3, "new": 1})))
    for _ in range(3):
        before.step()
    after.take_over(before)
    (memory,) = [rows for rows in after.memories if rows.block.any()]
    assert memory.named["velocities"].tolist() == [[3.0, 3.0]]
    assert memory.named["hidden"].tolist() == [[0.0, 0.0, 0.0]]
    assert memory.named["new"].tolist() == [[0.0]]


def test_a_beginning_keeps_histories_and_commands_and_nothing_else() -> None:
    """The step after it is the first one of an episode, from the commands that the robot has."""
    contract = engine_of("cartpole-00").header.contract
    names = (
        "started",
        "history_v",
        "hidden",
        "previous_action",
        "last_joint_effort_target",
        "step_joint_effort_target",
    )
    policy = BoundPolicy.engine(Recurrent(PolicyHeader(contract, dict.fromkeys(names, 1))))
    for _ in range(3):
        policy.step()
    assert policy.begin({"joint_effort_target": np.array([[7.0]])}, {"joint_effort_target": np.array([[0.5]])})
    (memory,) = [rows for rows in policy.memories if rows.named["last_joint_effort_target"] == 7.0]
    assert {name: values.item() for name, values in memory.named.items()} == {
        "started": 1.0,
        "history_v": 1.0,
        "hidden": 0.0,
        "previous_action": 0.0,
        "last_joint_effort_target": 7.0,
        "step_joint_effort_target": 0.5,
    }


def test_a_beginning_that_computes_no_numbers_is_none() -> None:
    policy = bound("reach")
    policy.inputs.block[:] = np.nan
    nothing = {name: np.zeros_like(row) for name, row in policy.targets.named.items()}
    assert not policy.begin(nothing, nothing)
    assert not any(rows.block.any() for rows in policy.memories[:1])


def test_a_damaged_policy_does_not_load() -> None:
    data = (POLICIES / "cartpole-00" / POLICY_FILE).read_bytes()
    with pytest.raises(GraphError, match="damaged: not an ONNX model that may be a policy"):
        BoundPolicy.onnx(data[:-500], engine_of("cartpole-00").header, source="damaged")
