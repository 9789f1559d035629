"""Gate `parity`: recorded answers, random inputs and a quantised sibling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.gates.checks.parity import GoldenStatesError, ParityGate, probe_inputs, read_golden
from physai.gates.execution.subject import QUANTISED_FILE
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sdk.policy.header import GOLDEN_FILE
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task

Find = Callable[..., Any]


def test_a_faithful_export_passes(bench: Any, write_policy: Callable[..., Path], find: Find) -> None:
    finding = find(ParityGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.measured[0].name == "relative_difference"
    assert finding.measured[0].value == 0.0


def test_answers_that_differ_fail(bench: Any, write_policy: Callable[..., Path], find: Find) -> None:
    # The action's scale is 20 N; 0.02 N off is a relative difference of 0.001 where |u| stays below 20 N.
    finding = find(ParityGate(), bench.context(write_policy(error=0.02)))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.NUMERICS)
    assert finding.measured[0].value == pytest.approx(0.001, rel=1e-3)
    assert "joint_effort_target[0]" in finding.message


def test_without_golden_answers_nothing_is_known(bench: Any, write_policy: Callable[..., Path], find: Find) -> None:
    path = write_policy()
    (path.parent / GOLDEN_FILE).unlink()
    finding = find(ParityGate(), bench.context(path))
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
    assert "physai export" in finding.next_step


def test_no_number_for_a_rare_input_fails(bench: Any, write_policy: Callable[..., Path], find: Find) -> None:
    # Golden speeds stay below 1 m/s; probes reach 1.2 times the limit of 5 m/s.
    finding = find(ParityGate(), bench.context(write_policy(nan_above=5.5)))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.NUMERICS)
    assert "joint_effort_target is not finite" in finding.message


def test_golden_files_that_are_none_are_refused(task: Task, write_policy: Callable[..., Path]) -> None:
    path = write_policy()
    policy = OnnxPolicy.load(path)
    data = (path.parent / GOLDEN_FILE).read_bytes()
    assert set(read_golden(data, policy.header)) == {"joint_pos", "joint_vel", "joint_effort_target"}
    with pytest.raises(GoldenStatesError, match="damaged"):
        read_golden(data[: len(data) // 2], policy.header)
    np.savez(path.parent / "other.npz", joint_pos=np.zeros((3, 1), np.float32))
    with pytest.raises(GoldenStatesError, match="holds joint_pos; the graph has joint_pos, joint_vel"):
        read_golden((path.parent / "other.npz").read_bytes(), policy.header)
    shapes = {"joint_pos": (3, 2), "joint_vel": (3, 1), "joint_effort_target": (3, 1)}
    np.savez(path.parent / "wide.npz", **{n: np.zeros(s, np.float32) for n, s in shapes.items()})  # pyright: ignore[reportArgumentType]
    with pytest.raises(GoldenStatesError, match=r"'joint_pos' has shape \(3, 2\), expected \(3, 1\)"):
        read_golden((path.parent / "wide.npz").read_bytes(), policy.header)


@pytest.mark.parametrize("name", ["cartpole-swingup", "ur10e-reach", "go2-velocity"])
def test_probes_reach_a_little_beyond_every_limit(name: str) -> None:
    from physai.sdk.policy.header import PolicyHeader

    contract = load_task(name).contract
    inputs = probe_inputs(PolicyHeader(contract, {"memory": 3}), 512)
    for index, joint in enumerate(contract.robot.joints):
        if joint.position_lower is not None and joint.position_upper is not None:
            middle = 0.5 * (joint.position_lower + joint.position_upper)
            reach = np.abs(inputs["joint_pos"][:, index] - middle).max() / (joint.position_upper - middle)
            assert reach == pytest.approx(1.2, rel=1e-4)
    if "imu_quat" in inputs:
        np.testing.assert_allclose(np.linalg.norm(inputs["imu_quat"], axis=1), 1.0, rtol=1e-5)
    for field in contract.command.fields:
        assert (inputs[field.name] >= np.array(field.lower, np.float32)).all()
    assert (inputs["state.memory"][::2] == 0.0).all()
    assert all(np.isfinite(values).all() for values in inputs.values())


@pytest.mark.parametrize(("damping", "outcome"), [(7.05, VerdictOutcome.PASS), (10.0, VerdictOutcome.FAIL)])
def test_a_quantised_graph_is_compared_in_visited_states(
    bench: Any, write_policy: Callable[..., Path], find: Find, damping: float, outcome: VerdictOutcome
) -> None:
    # Speeds reach about 1.5 m/s: 0.05 · 1.5 = 0.08 N is within the 0.5 N of the contract, 3 · 1.5 = 4.5 N is not.
    path, other = write_policy(), write_policy("other", damping=damping)
    (path.parent / QUANTISED_FILE).write_bytes(other.read_bytes())
    finding = find(ParityGate(), bench.context(path))
    assert finding.outcome is outcome
    names = [m.name for m in finding.measured]
    assert {"relative_difference", "quantised_error", "quantised_error_p99"} <= set(names)
    if outcome is VerdictOutcome.FAIL:
        assert finding.cause is Cause.NUMERICS
        assert "The quantised command is up to" in finding.message


def test_a_quantised_file_that_is_named_itself_is_judged_against_its_float_sibling(
    bench: Any, write_policy: Callable[..., Path], find: Find
) -> None:
    path, other = write_policy(), write_policy("other", damping=7.05)
    quantised = path.parent / QUANTISED_FILE
    quantised.write_bytes(other.read_bytes())
    context = bench.context(quantised)
    assert context.subject.arms["policy"] == context.subject.arms["quantised"] == other.read_bytes()
    # The golden answers are the float graph's: the quantised one need not give them.
    assert find(ParityGate(), context).outcome is VerdictOutcome.PASS
