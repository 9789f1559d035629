"""Format 2 beside format 1: old fingerprints hold, unset fields leave no trace, and what lacks a limit says so."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from physai.sdk.base.errors import ContractError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.gaps import contract_lacks, lacks_text
from physai.sdk.contract.io import load_contract, parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.safety_envelope import JointEnvelope, SafetyEnvelope, SensorRange
from physai.sdk.contract.terms import DEFAULT_VERSION

FORMAT_1 = {
    "cartpole-swingup": "ceead4125f7565219360abfbcb20a8f3ff92646b03307e88c9d2dfde5027ef02",
    "pendubot-swingup": "95c1063e962efb9e4c3a2b7f27c61be35c2e326467bca8d2c6cee60965c84b50",
    "acrobot-swingup": "a28c1138c4da48deaea723ce46eda3c376c37e0c2b1e4392662574da0ae23866",
    "ur10e-reach": "33fcc476a69c865dbbd4f71dcc3f6b897d9e80c86655c56e4ad84aced29879ac",
    "go2-velocity": "e7288cab79a651ac233e1f1e9913ee254fae97b2d93e65dd687cadf0ff26c576",
    "pendubot-swingup-realaigym-v2": "847bf9c159456dc4999c75f53490f539d9bf6f35bb59bee26b7dc9ac58bde844",
    "acrobot-swingup-realaigym-v2": "9ad54c9dca688c584ee9b4ed3757712ce0eb74da37070f6173081c41f02f2c98",
}
"""What physai computed for its tasks' contracts when there was only format 1."""

ADDED = (
    "acceleration_limit",
    "following_error_limit",
    "velocity_mismatch_limit",
    "frozen_samples",
    "sensor_ranges",
)


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ContractError) as caught:
        parse_contract(json.dumps(document), source="test.json")
    return str(caught.value)


def keys(value: Any) -> set[str]:
    """Every key anywhere in a JSON document."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return set(found).union(*map(keys, found.values()))
    return set[str]().union(*map(keys, cast("list[Any]", value))) if isinstance(value, list) else set()


class TestFormat1:
    @pytest.mark.parametrize("name", FORMAT_1)
    def test_fingerprints_are_what_they_were(self, name: str) -> None:
        path = Path(__file__).with_name("format1") / f"{name}.contract.json"
        contract = load_contract(path)
        assert contract.format_version == 1
        assert contract.fingerprint == FORMAT_1[name]
        assert canonical_json(contract) == path.read_bytes()
        assert keys(json.loads(contract.model_dump_json())).isdisjoint(ADDED)

    def test_it_has_no_field_of_format_2(self, newest_document: dict[str, Any]) -> None:
        newest_document["format_version"] = 1
        message = refusal(newest_document)
        assert "format_version: 1 has no safety.joints[shoulder].acceleration_limit, " in message
        assert "and 5 more, which came with format 2; say format_version 2, or leave them out" in message

    @pytest.mark.parametrize(("field", "value"), [("frozen_samples", 5), ("frozen_samples", None)])
    def test_not_even_an_empty_one(self, small_document: dict[str, Any], field: str, value: Any) -> None:
        small_document["safety"][field] = value
        assert f"format_version: 1 has no safety.{field}, which came with format 2" in refusal(small_document)

    def test_nor_one_built_in_python(self, newest_contract: PolicyContract) -> None:
        parts = {name: getattr(newest_contract, name) for name in PolicyContract.model_fields}
        assert PolicyContract(**parts) == newest_contract
        parts["format_version"] = 1
        with pytest.raises(ValidationError, match="say format_version 2, or leave them out"):
            PolicyContract(**parts)


class TestFormat2:
    def test_new_contracts_have_it(self, full_contract: PolicyContract) -> None:
        parts = {name: getattr(full_contract, name) for name in PolicyContract.model_fields if name != "format_version"}
        contract = PolicyContract(**parts)
        assert contract.format_version == DEFAULT_VERSION == 2
        assert contract.fingerprint != full_contract.fingerprint

    @given(data=st.data())
    @settings(max_examples=50, deadline=None)
    def test_unset_fields_leave_no_trace(
        self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
    ) -> None:
        contract = data.draw(contracts)
        document = json.loads(canonical_json(contract))
        safety = contract.safety
        given_fields = {name for name in ("frozen_samples", "sensor_ranges") if getattr(safety, name) is not None}
        assert set(document["safety"]) & set(ADDED) == given_fields
        for envelope, written in zip(safety.joints, document["safety"]["joints"], strict=True):
            assert set(written) & set(ADDED) == {label for label in ADDED if getattr(envelope, label, None) is not None}
            assert {"position_lower", "velocity_limit"} <= set(written)
        assert json.loads(contract.model_dump_json()) == contract.model_dump(mode="json")

    def test_null_is_unset(self, newest_document: dict[str, Any]) -> None:
        safety = newest_document["safety"]
        del safety["frozen_samples"], safety["joints"][0]["following_error_limit"]
        without = parse_contract(json.dumps(newest_document), source="without")
        safety["frozen_samples"] = safety["joints"][0]["following_error_limit"] = None
        null = parse_contract(json.dumps(newest_document), source="null")
        assert null == without
        assert null.fingerprint == without.fingerprint

    def test_every_field_counts(self, newest_document: dict[str, Any], newest_contract: PolicyContract) -> None:
        for holder in (newest_document["safety"], newest_document["safety"]["joints"][0]):
            for label in set(holder) & set(ADDED):
                value = holder.pop(label)
                changed = parse_contract(json.dumps(newest_document), source="changed")
                assert changed.fingerprint != newest_contract.fingerprint
                holder[label] = value


PROBLEMS: list[tuple[str, Any, str]] = [
    ("joints.0.acceleration_limit", 0.0, "safety.joints[0].acceleration_limit: Input should be greater than 0"),
    ("joints.2.acceleration_limit", 9.0, "safety.joints[slide].acceleration_limit: 9.0 limits a commanded position"),
    ("joints.3.following_error_limit", 0.5, "no action term commands the position of passive; leave it out"),
    ("frozen_samples", 1, "safety.frozen_samples: Input should be greater than or equal to 2 (got 1)"),
    ("frozen_samples", 10_001, "safety.frozen_samples: Input should be less than or equal to 10000"),
    ("frozen_samples", 5.0, "safety.frozen_samples: Input should be a valid integer"),
    ("sensor_ranges", [], "safety.sensor_ranges: Tuple should have at least 1 item"),
    ("sensor_ranges.0.name", "joint_effort", "safety.sensor_ranges[joint_effort].name: no sensor named 'joint_effort'"),
    ("sensor_ranges.0.name", "imu_quat", "sensor range 'imu_quat' occurs twice"),
    ("sensor_ranges.1.lower", [0.0], "sensor range imu_quat: lower has 1 values, upper has 4"),
    ("sensor_ranges.1.lower", [-1.0, 1.5, -1.0, -1.0], "sensor range imu_quat: lower[1] 1.5 is above upper[1] 1.01"),
    ("sensor_ranges.1.name", "joint_vel", "safety.sensor_ranges[joint_vel].lower[shoulder]: -1.01 is above -2.0"),
    ("sensor_ranges.1.name", "joint_vel", "safety.sensor_ranges[joint_vel].upper[elbow]: 1.01 is below 2.0, which the"),
    ("sensor_ranges.1.name", "imu_ang_vel_b", "safety.sensor_ranges[imu_ang_vel_b].lower: 4 values for the 3 of"),
    ("sensor_ranges.0.lower", [-1.0, -2.5, -0.1, None], "lower[shoulder]: -1.0 is above -1.5, which the envelope"),
]


@pytest.mark.parametrize(("path", "value", "message"), PROBLEMS)
def test_a_field_of_format_2_must_fit(newest_document: dict[str, Any], path: str, value: Any, message: str) -> None:
    inner: Any = newest_document["safety"]
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        inner = inner[part]
    inner[last] = value
    assert message in refusal(newest_document)


def test_what_is_watched_must_be_measured(small_document: dict[str, Any]) -> None:
    small_document["format_version"] = 2
    small_document["observation"]["terms"] = [{"name": "angle", "kind": "sin_cos"}]
    sensors, envelope = small_document["robot"]["sensors"], small_document["safety"]["joints"][0]
    envelope["velocity_mismatch_limit"] = 0.1
    del sensors[1]
    parse_contract(json.dumps(small_document), source="test.json")
    del envelope["velocity_limit"], small_document["robot"]["joints"][0]["velocity_limit"]
    message = refusal(small_document)
    assert "velocity_mismatch_limit: needs the sensor 'joint_vel' or a velocity_limit of the joint" in message
    sensors[0]["name"] = "joint_vel"
    small_document["observation"]["terms"] = [{"name": "speed", "kind": "sensor", "source": "joint_vel"}]
    small_document["safety"]["frozen_samples"] = 5
    message = refusal(small_document)
    assert "safety.joints[pivot].velocity_mismatch_limit: needs the sensor 'joint_pos', robot pendulum has" in message
    assert "safety.frozen_samples: needs the sensor 'joint_pos'" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_no_new_limit_is_nan_or_infinite(value: float) -> None:
    for label in ADDED[:3]:
        with pytest.raises(ValidationError):
            JointEnvelope.model_validate({"joint": "a", "effort_limit": 1.0, label: value})
    if not value < 0.0:
        with pytest.raises(ValidationError):
            SensorRange(name="a", lower=(value,), upper=(value,))


class TestLacks:
    def test_a_contract_of_format_1(self, full_contract: PolicyContract) -> None:
        lacks = contract_lacks(full_contract)
        assert [sentence.split(", so ")[0] for sentence in lacks] == [
            "Joints shoulder, elbow: no acceleration_limit",
            "Joints shoulder, elbow: no following_error_limit",
            "Joint passive: no velocity_limit",
            "Every joint: no velocity_mismatch_limit",
            "No frozen_samples",
            "Sensors joint_pos, joint_vel, imu_quat, imu_ang_vel_b: no sensor_ranges",
        ]
        assert lacks_text(full_contract) == ("the contract (format 1) lacks 6 protections, see `physai contract show`")

    def test_a_contract_with_some(self, newest_contract: PolicyContract) -> None:
        assert [sentence.split(", so ")[0] for sentence in contract_lacks(newest_contract)] == [
            "Joint passive: no velocity_limit",
            "Joints slide, passive: no velocity_mismatch_limit",
            "Sensors joint_vel, imu_ang_vel_b: no sensor_ranges",
        ]

    def test_a_contract_with_all(self, small_document: dict[str, Any]) -> None:
        small_document["format_version"] = 2
        safety = small_document["safety"]
        safety["joints"][0]["velocity_mismatch_limit"] = 0.1
        safety["frozen_samples"] = 10
        bounds = {"lower": [-20.0], "upper": [20.0]}
        safety["sensor_ranges"] = [{"name": "joint_pos", **bounds}, {"name": "joint_vel", **bounds}]
        contract = parse_contract(json.dumps(small_document), source="all")
        assert contract_lacks(contract) == ()
        assert lacks_text(contract) == ""
        safety["sensor_ranges"][0] = {"name": "joint_pos", "lower": [None], "upper": [None]}
        (sentence,) = contract_lacks(parse_contract(json.dumps(small_document), source="unbounded"))
        assert sentence.startswith("Sensor joint_pos: no sensor_ranges")

    def test_many_names_are_counted(self) -> None:
        path = Path(__file__).with_name("format1") / "go2-velocity.contract.json"
        document = json.loads(path.read_bytes())
        document["format_version"] = 2
        document["safety"]["joints"][0]["acceleration_limit"] = 400.0
        contract = parse_contract(json.dumps(document), source="go2")
        (sentence,) = [s for s in contract_lacks(contract) if "acceleration_limit" in s]
        assert sentence.startswith("Joints ")
        assert " and 5 more: no acceleration_limit" in sentence

    @given(data=st.data())
    @settings(max_examples=30, deadline=None)
    def test_sentences_are_short_and_one_a_protection(
        self, contracts: st.SearchStrategy[PolicyContract], data: st.DataObject
    ) -> None:
        lacks = contract_lacks(data.draw(contracts))
        assert len(lacks) == len(set(lacks)) <= 7
        assert all(sentence.endswith(".") and len(sentence) < 800 for sentence in lacks)


def test_the_envelope_says_which_new_fields_it_was_given() -> None:
    joints = (JointEnvelope(joint="a", effort_limit=1.0, following_error_limit=0.1),)
    envelope = SafetyEnvelope(joints=joints, frozen_samples=3)
    assert list(envelope.fields_since_2()) == ["joints[a].following_error_limit", "frozen_samples"]
