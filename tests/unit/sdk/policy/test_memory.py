"""A graph's memory of commands, overwritten by what was sent; numbers worked out by hand."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import PolicyError
from physai.sdk.policy.memory import CommandMemory

Arrays = dict[str, npt.NDArray[Any]]

POSITION: dict[str, Any] = {
    "kind": "joint_pos",
    "joints": ["elbow", "shoulder"],
    "scale": [0.5, 0.25],
    "offset": [0.25, 0.0],
    "lower": [-1.0, -1.0],
    "upper": [1.0, 1.0],
}
EFFORT: dict[str, Any] = {
    "kind": "joint_effort",
    "joints": ["slide"],
    "scale": [4.0],
    "offset": [1.0],
    "lower": [-20.0],
    "upper": [20.0],
}
SENT: Arrays = {
    "joint_pos_target": np.array([[0.5, -0.125], [0.0, 0.5]]),
    "joint_effort_target": np.array([[3.0], [-11.0]]),
}
STEPS: Arrays = {
    "joint_pos_target": np.array([[0.125, -0.125], [-0.25, 0.75]]),
    "joint_effort_target": np.array([[1.0], [-6.0]]),
}


@pytest.fixture
def absolute(full_document: dict[str, Any]) -> PolicyContract:
    full_document["action"]["terms"] = [POSITION, EFFORT]
    return parse_contract(json.dumps(full_document), source="absolute")


@pytest.fixture
def incremental(full_document: dict[str, Any]) -> PolicyContract:
    kinds = ({"kind": "joint_pos_incremental"}, {"kind": "joint_effort_incremental"})
    full_document["action"]["terms"] = [POSITION | kinds[0], EFFORT | kinds[1]]
    return parse_contract(json.dumps(full_document), source="incremental")


def memory() -> Arrays:
    """Two worlds' memories of every kind, all 9."""
    sizes = {
        "started": 1,
        "history_gyro": 9,
        "last_joint_pos_target": 2,
        "step_joint_pos_target": 2,
        "last_joint_effort_target": 1,
        "previous_action": 3,
        "hidden": 5,
    }
    return {name: np.full((2, size), 9.0, np.float32) for name, size in sizes.items()}


def test_what_was_sent_is_remembered(absolute: PolicyContract) -> None:
    """Actions: (0.5 - 0.25) / 0.5, -0.125 / 0.25, (3 - 1) / 4. Two of the second world's are out of reach: ±1."""
    found = memory()
    CommandMemory(absolute).overwrite(found, SENT, STEPS)
    assert found["last_joint_pos_target"].tolist() == [[0.5, -0.125], [0.0, 0.5]]
    assert found["step_joint_pos_target"].tolist() == [[0.125, -0.125], [-0.25, 0.75]]
    assert found["last_joint_effort_target"].tolist() == [[3.0], [-11.0]]
    assert found["previous_action"].tolist() == [[0.5, -0.5, 0.5], [-0.5, 1.0, -1.0]]
    assert all((found[name] == 9.0).all() for name in ("started", "history_gyro", "hidden"))
    assert all(values.dtype == np.float32 for values in found.values())


def test_the_action_of_an_incremental_command_is_its_step(incremental: PolicyContract) -> None:
    """0.125 / 0.5, -0.125 / 0.25, 1 / 4."""
    found = memory()
    CommandMemory(incremental).overwrite(found, SENT, STEPS)
    assert found["previous_action"].tolist() == [[0.25, -0.5, 0.25], [-0.5, 1.0, -1.0]]


def test_worlds_that_are_not_masked_keep_theirs(absolute: PolicyContract) -> None:
    found = memory()
    CommandMemory(absolute).overwrite(found, SENT, STEPS, np.array([False, True]))
    assert found["last_joint_pos_target"].tolist() == [[9.0, 9.0], [0.0, 0.5]]
    assert found["step_joint_pos_target"].tolist() == [[9.0, 9.0], [-0.25, 0.75]]
    assert found["previous_action"].tolist() == [[9.0, 9.0, 9.0], [-0.5, 1.0, -1.0]]


def test_memories_that_a_graph_does_not_have_are_not_made(absolute: PolicyContract) -> None:
    found = {name: memory()[name] for name in ("started", "last_joint_effort_target")}
    CommandMemory(absolute).overwrite(found, SENT, STEPS)
    assert list(found) == ["started", "last_joint_effort_target"]
    assert found["last_joint_effort_target"].tolist() == [[3.0], [-11.0]]


def test_a_view_of_the_memory_is_written_in_place(absolute: PolicyContract) -> None:
    """The runtime's memories lie in one block."""
    block = np.full(6, 9.0, np.float32)
    views = {"last_joint_pos_target": block[1:3].reshape(1, 2), "previous_action": block[3:6].reshape(1, 3)}
    CommandMemory(absolute).overwrite(views, _first(SENT), _first(STEPS))
    assert block.tolist() == [9.0, 0.5, -0.125, 0.5, -0.5, 0.5]


def test_numbers_are_rounded_to_float32(absolute: PolicyContract) -> None:
    found = memory()
    CommandMemory(absolute).overwrite(found, {**SENT, "joint_pos_target": np.full((2, 2), 0.1)}, STEPS)
    assert (found["last_joint_pos_target"] == np.float32(0.1)).all()


@pytest.mark.parametrize(
    ("sent", "steps", "message"),
    [
        ({"joint_pos_target": SENT["joint_pos_target"]}, STEPS, "sent lacks the output 'joint_effort_target', it has"),
        (SENT, {}, "steps lacks the output 'joint_pos_target', it has none"),
        ({**SENT, "joint_effort_target": np.zeros((2, 2))}, STEPS, r"sent: .*shape \(2, 2\), expected \(n, 1\)"),
        (SENT, {**STEPS, "joint_pos_target": np.zeros(2)}, r"steps: .*shape \(2,\), expected \(n, 2\)"),
    ],
)
def test_commands_that_do_not_fit_are_refused(
    absolute: PolicyContract, sent: Arrays, steps: Arrays, message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        CommandMemory(absolute).overwrite(memory(), sent, steps)


def _first(arrays: Arrays) -> Arrays:
    return {name: values[:1] for name, values in arrays.items()}
