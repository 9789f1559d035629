"""Gate `contract`: whatever differs is named, and the cause is the contract."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from physai.gates.checks.contract import ContractGate, contract_problems
from physai.gates.execution.subject import QUANTISED_FILE
from physai.sdk.contract.gaps import contract_lacks
from physai.sdk.contract.io import parse_contract
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sdk.policy.header import GOLDEN_FILE, PolicyHeader
from physai.sim.robots import load_robot
from physai.sim.tasks.task import Task
from physai.twin.model.twin import nominal_twin

Find = Callable[..., Any]


def changed(task: Task, *path: str | int, value: Any) -> dict[str, str]:
    """Metadata of a policy whose contract differs from the task's in one term."""
    document: Any = json.loads(task.contract.model_dump_json())
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return PolicyHeader(parse_contract(json.dumps(document), source="test"), {}).metadata()


def test_equal_contracts_pass(bench: Any, write_policy: Callable[..., Path], find: Find) -> None:
    finding = find(ContractGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.cause is None


def test_what_the_contract_leaves_open_is_noted(
    bench: Any, write_policy: Callable[..., Path], find: Find, task: Task
) -> None:
    finding = find(ContractGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.PASS
    for sentence in contract_lacks(task.contract):
        assert sentence in finding.message
    assert "No frozen_samples, so sensors that repeat one value" in finding.message


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("timing", "deadline_s"), 0.02, "timing.deadline_s"),
        (("safety", "joints", 0, "velocity_limit"), 4.0, "safety.joints[rail].velocity_limit"),
        (("robot", "joints", 0, "default_pos"), 0.1, "robot.joints[rail].default_pos"),
        (("action", "terms", 0, "scale"), [10.0], "action.terms[joint_effort_target].scale[rail]"),
        (("observation", "terms", 0, "scale"), 57.3, "observation.terms[pos].scale"),
    ],
)
def test_a_term_that_differs_is_named(
    bench: Any,
    write_policy: Callable[..., Path],
    find: Find,
    task: Task,
    path: tuple[str | int, ...],
    value: Any,
    named: str,
) -> None:
    finding = find(ContractGate(), bench.context(write_policy(metadata=changed(task, *path, value=value))))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.CONTRACT)
    assert named in finding.message


def test_a_fingerprint_that_was_changed_is_refused(
    bench: Any, write_policy: Callable[..., Path], find: Find, task: Task
) -> None:
    metadata = {**PolicyHeader(task.contract, {}).metadata(), "physai.fingerprint": "0" * 64}
    path = write_policy()
    path.write_bytes(write_policy.__globals__["spring_policy"](task, metadata=metadata))
    finding = find(ContractGate(), bench.context(path))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.CONTRACT)
    assert "one of the two was changed after the export" in finding.message


def test_golden_answers_of_another_contract_are_seen(bench: Any, write_policy: Callable[..., Path], task: Task) -> None:
    other = write_policy("other", metadata=changed(task, "timing", "deadline_s", value=0.02))
    path = write_policy()
    (path.parent / GOLDEN_FILE).write_bytes((other.parent / GOLDEN_FILE).read_bytes())
    problems = list(contract_problems(bench.subject(path)))
    assert len(problems) == 1
    assert "golden.npz was recorded under another contract" in problems[0]
    (path.parent / GOLDEN_FILE).write_bytes(b"nothing")
    assert "(none stated)" in next(contract_problems(bench.subject(path)))


def test_what_lies_beside_the_policy_is_compared_too(bench: Any, write_policy: Callable[..., Path], task: Task) -> None:
    other = write_policy("other", metadata=changed(task, "timing", "deadline_s", value=0.02))
    path = write_policy()
    (path.parent / QUANTISED_FILE).write_bytes(other.read_bytes())
    problems = list(contract_problems(bench.subject(path, baseline=other)))
    assert [problem.split(" and ")[0] for problem in problems] == ["the quantised policy", "the baseline policy"]


def test_a_twin_of_another_robot_is_seen(bench: Any, write_policy: Callable[..., Path]) -> None:
    bench.twin = nominal_twin(load_robot("cartpole"))
    (problem,) = contract_problems(bench.subject(write_policy()))
    assert "the twin's robot has the joints slider, pole, the task's robot pusher has rail" in problem


def test_a_twin_of_another_model_of_the_robot_is_seen(bench: Any, write_policy: Callable[..., Path]) -> None:
    bench.twin = replace(bench.twin, model_sha256="0" * 64)
    assert list(contract_problems(bench.subject(write_policy())))
