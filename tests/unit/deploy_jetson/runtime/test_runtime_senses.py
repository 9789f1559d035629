"""From the newest sample to what policy and guard read."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.fault_injection.arm_policies import EASED, arm_policy
from tests.harness.fixtures.sample import sample_contract, sample_policy

from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.io.robot_check import check_robot
from physai.deploy_jetson.runtime.io.sensor_input import SensorInput
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.sdk.base.errors import ContractMismatchError
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import RobotSpec
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.signing.status.status_document import NarrowedCommand
from physai.sdk.transport.protocol import Array, Sample, TransportError, empty_sample

POLICIES = Path(__file__).parents[3] / "data" / "policies"
MILLISECOND = 1_000_000


def made(data: bytes) -> tuple[PolicyContract, Sample, BoundPolicy, SensorInput]:
    engine = OnnxEngine(data, source="policy.onnx")
    contract = engine.header.contract
    sample, policy = empty_sample(contract), BoundPolicy.engine(engine)
    for values in sample.fields.values():
        values[:] = 0.0
    return contract, sample, policy, SensorInput(contract, sample, policy.inputs)


def reach() -> tuple[PolicyContract, Sample, BoundPolicy, SensorInput]:
    return made((POLICIES / "reach" / POLICY_FILE).read_bytes())


def pendulum() -> tuple[PolicyContract, Sample, BoundPolicy, SensorInput]:
    """Measures its angle only."""
    return made(sample_policy()[POLICY_FILE])


def test_every_input_is_copied() -> None:
    _, sample, policy, senses = reach()
    for number, values in enumerate(sample.fields.values()):
        values[:] = 0.001 * number
    senses.read()
    for name, row in policy.inputs.named.items():
        if name in sample.fields and name.startswith("joint"):
            np.testing.assert_array_equal(row[0], sample.fields[name].astype(np.float32))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e39, -1e300])
def test_what_is_no_float32_is_no_measurement(wrong: float) -> None:
    _, sample, policy, senses = reach()
    with np.errstate(all="ignore"):
        for name in policy.inputs.named:
            for values in sample.fields.values():
                values[:] = 0.0
            sample.fields[name][-1] = wrong
            assert senses.read() & RuntimeFault.FIELD_NOT_FINITE, name
            if name in ("joint_pos", "joint_vel"):
                guarded = senses.joint_pos if name == "joint_pos" else senses.joint_vel
                assert not np.isfinite(guarded[0, -1])


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1e39, -1e300])
def test_what_only_the_guard_reads_is_checked_too(wrong: float) -> None:
    _, sample, policy, senses = pendulum()
    policy.inputs.named.pop("joint_pos")
    senses.bind(policy.inputs)
    with np.errstate(all="ignore"):
        sample.fields["joint_pos"][-1] = wrong
        senses.read()
    assert np.isnan(senses.joint_pos[0, -1])


def float32(values: Array) -> object:
    return values.astype(np.float32)


def big_endian(values: Array) -> object:
    return values.astype(">f8")


def row(values: Array) -> object:
    return values[None]


def read_only(values: Array) -> object:
    values.flags.writeable = False
    return values


def numbers(values: Array) -> object:
    return values.tolist()


@pytest.mark.parametrize("field", ["joint_pos", "joint_vel", "ee_pose_target"])
@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (float32, r"a writable array, float32 of shape \(\d,\)"),
        (big_endian, r"a writable array, >f8 of shape \(\d,\)"),
        (row, r"a writable array, float64 of shape \(1, \d\)"),
        (read_only, r"a read-only array, float64 of shape \(\d,\)"),
        (numbers, r"list, float64 of shape \(\d,\)"),
    ],
)
def test_a_sample_of_another_type_or_shape_is_refused(field: str, made: Callable[[Array], Any], shown: str) -> None:
    """The square of a float32 infinity is no more than that of the greatest float32, which is infinite as well."""
    contract, sample, policy, _ = reach()
    sample.fields[field] = made(sample.fields[field])
    expected = r"expected a writable array, float64 of shape \(\d,\); make the sample with physai.sdk.empty_sample"
    with pytest.raises(TransportError, match=f"sample has {field} as {shown}, {expected}"):
        SensorInput(contract, sample, policy.inputs)


def test_a_command_is_cut_to_what_was_trained() -> None:
    contract, sample, policy, senses = reach()
    (field, *_) = contract.command.fields
    sample.fields[field.name][:] = np.array(field.upper) + 5.0
    assert senses.read() == RuntimeFault.COMMAND_CUT
    np.testing.assert_array_equal(policy.inputs.named[field.name][0], np.array(field.upper, np.float32))
    sample.fields[field.name][:] = field.lower
    assert senses.read() == 0


def test_age_is_the_stamps_but_at_least_the_time_since_arrival() -> None:
    _, sample, _, senses = pendulum()
    sample.stamp_ns, sample.received_ns = 1000 * MILLISECOND, 50 * MILLISECOND
    assert senses.age_ns(1007 * MILLISECOND, 52 * MILLISECOND) == 7 * MILLISECOND
    assert senses.age_ns(1007 * MILLISECOND, 80 * MILLISECOND) == 30 * MILLISECOND
    assert senses.age_ns(990 * MILLISECOND, 80 * MILLISECOND) == -10 * MILLISECOND


def test_a_velocity_that_is_not_measured_is_estimated() -> None:
    _, sample, _, senses = pendulum()
    speeds: list[float] = []
    for tick, angle in enumerate((0.1, 0.1, 0.2, 3.1, -3.1)):
        sample.fields["joint_pos"][:] = angle
        sample.stamp_ns = (1 + tick) * 10 * MILLISECOND
        senses.read()
        speeds.append(senses.joint_vel[0, 0])
    # 0.1 rad in 10 ms; the last step goes the short way round: 2 pi - 6.2 = 0.0832 rad.
    assert speeds == pytest.approx([0.0, 0.0, 10.0, 290.0, 100.0 * (2.0 * math.pi - 6.2)])
    senses.read()
    assert senses.joint_vel[0, 0] == pytest.approx(100.0 * (2.0 * math.pi - 6.2))


def test_a_clock_that_was_set_back_leaves_no_velocity() -> None:
    """Of a joint that moves, 0 would be believed: a sample is blind that says nothing of its speed."""
    _, sample, _, senses = pendulum()
    speeds: list[float] = []
    for tick, angle in ((5, 0.1), (6, 0.2), (1, 0.3), (2, 0.4)):
        sample.fields["joint_pos"][:] = angle
        sample.stamp_ns = tick * 10 * MILLISECOND
        senses.read()
        speeds.append(senses.joint_vel[0, 0])
    assert speeds == pytest.approx([0.0, 10.0, math.nan, 10.0], nan_ok=True)


def test_a_lost_angle_leaves_no_velocity() -> None:
    _, sample, _, senses = pendulum()
    for tick, angle in enumerate((0.1, math.nan, 0.1)):
        sample.fields["joint_pos"][:] = angle
        sample.stamp_ns = (1 + tick) * 10 * MILLISECOND
        senses.read()
    assert np.isnan(senses.joint_vel[0, 0])


def test_what_is_no_number_is_named_by_its_joint() -> None:
    _, sample, _, senses = pendulum()
    sample.fields["joint_pos"][:] = math.nan
    assert senses.read() == RuntimeFault.FIELD_NOT_FINITE
    assert senses.complaint() == "joint_pos of pivot is nan"


@pytest.mark.parametrize(("at", "degrees"), [(-114.6, True), (4.1, False), (1e9, False)])
def test_an_implausible_angle_is_named_by_its_joint_and_degrees_are_recognised(at: float, degrees: bool) -> None:
    document = sample_contract().model_dump(mode="json")
    document["safety"]["sensor_ranges"] = [{"name": "joint_pos", "lower": [-2.5], "upper": [4.0]}]
    contract = parse_contract(json.dumps(document | {"format_version": 2}), source="test")
    sample, policy = empty_sample(contract), BoundPolicy.engine(OnnxEngine(sample_policy()[POLICY_FILE], source="p"))
    senses = SensorInput(contract, sample, policy.inputs)
    sample.fields["joint_pos"][:] = at
    assert senses.read() == 0
    assert senses.complaint().startswith(f"joint_pos of pivot = {at:.4g} is outside [-2.5, 4]")
    assert ("if the driver sends degrees, that is -2 rad" in senses.complaint()) == degrees


def test_a_robot_without_positions_cannot_be_guarded() -> None:
    contract = sample_contract()
    policy = BoundPolicy.engine(OnnxEngine(sample_policy()[POLICY_FILE], source="policy.onnx"))
    with pytest.raises(ContractMismatchError, match="measures no joint_pos"):
        SensorInput(contract, Sample(fields={}), policy.inputs)


def robot(**changes: Any) -> RobotSpec:
    (joint,) = sample_contract().robot.joints
    changed = joint.model_copy(update=changes)
    return sample_contract().robot.model_copy(update={"joints": (changed,)})


def test_the_contracts_own_robot_fits() -> None:
    check_robot(sample_contract(), robot())
    check_robot(sample_contract(), robot(effort_limit=3.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "elbow"}, "joint pivot: the robot has none, but elbow"),
        ({"kind": "prismatic"}, "joint pivot: continuous in the contract, prismatic on the robot"),
        ({"effort_limit": 1.0}, "joint pivot: effort up to 2.5 in the contract, 1 on the robot"),
        ({"position_lower": -1.0, "position_upper": 1.0}, r"no position limits in the contract, \[-1, 1\]"),
    ],
)
def test_another_robot_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractMismatchError, match=message):
        check_robot(sample_contract(), robot(**changes))


def eased() -> tuple[Sample, BoundPolicy, SensorInput]:
    """Its goal changes by at most 1.0, 0.8 and 0.25 per second, and is zero where its norm is below 0.6."""
    _, sample, policy, senses = made(arm_policy(EASED))
    return sample, policy, senses


def shown(sample: Sample, policy: BoundPolicy, senses: SensorInput, goal: list[float]) -> list[float]:
    """What the policy sees in the next period."""
    sample.fields["goal"][:] = goal
    trouble = senses.read()
    assert not trouble & ~int(RuntimeFault.COMMAND_CUT)
    senses.shape_commands(trouble)
    return policy.inputs.named["goal"][0].tolist()


def test_a_command_grows_no_faster_than_its_slew_and_begins_at_zero_at_each_start() -> None:
    sample, policy, senses = eased()
    assert shown(sample, policy, senses, [9.0, -1.0, 0.5]) == pytest.approx([0.02, -0.016, 0.005], abs=1e-6)
    assert shown(sample, policy, senses, [9.0, -1.0, 0.5]) == pytest.approx([0.04, -0.032, 0.01], abs=1e-6)
    senses.rest_commands()
    assert shown(sample, policy, senses, [9.0, -1.0, 0.5]) == pytest.approx([0.02, -0.016, 0.005], abs=1e-6)


def test_a_command_below_its_gate_counts_as_zero() -> None:
    sample, policy, senses = eased()
    assert shown(sample, policy, senses, [0.4, 0.4, 0.0]) == [0.0, 0.0, 0.0]


def test_a_policy_that_runs_along_continues_with_the_command_of_the_robot() -> None:
    sample, policy, senses = eased()
    senses.resume_commands()
    assert shown(sample, policy, senses, [1.0, -1.0, 0.5]) == pytest.approx([1.0, -1.0, 0.5])
    assert shown(sample, policy, senses, [0.0, -1.0, 0.5]) == pytest.approx([0.98, -1.0, 0.5])


def test_another_policy_of_the_same_contract_sees_the_command_go_on() -> None:
    sample, policy, senses = eased()
    shown(sample, policy, senses, [1.0, -1.0, 0.5])
    other = BoundPolicy.engine(OnnxEngine(arm_policy(EASED, seed=1), source="policy.onnx"))
    senses.bind(other.inputs)
    assert shown(sample, other, senses, [1.0, -1.0, 0.5]) == pytest.approx([0.04, -0.032, 0.01], abs=1e-6)


def test_a_narrowed_range_holds_at_once_for_a_command_with_a_slew() -> None:
    sample, policy, senses = eased()
    senses.resume_commands()
    shown(sample, policy, senses, [1.0, -1.0, 0.5])
    senses.narrow([("goal", NarrowedCommand(lower=(-0.2, -0.2, -0.2), upper=(0.2, 0.2, 0.2)))])
    found = shown(sample, policy, senses, [1.0, -1.0, 0.5])
    assert found == pytest.approx([0.2, -0.2, 0.2])


def test_a_sample_that_is_not_valid_leaves_the_command_where_it_was() -> None:
    sample, policy, senses = eased()
    shown(sample, policy, senses, [1.0, -1.0, 0.5])
    sample.fields["goal"][0] = math.nan
    senses.shape_commands(senses.read())
    assert shown(sample, policy, senses, [1.0, -1.0, 0.5]) == pytest.approx([0.04, -0.032, 0.01], abs=1e-6)
