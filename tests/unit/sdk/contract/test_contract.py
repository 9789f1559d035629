"""The models: what a contract holds, and every way in which its parts can disagree."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from physai.sdk.base.errors import ContractError, UnknownNameError
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import ChainSegment, JointSpec, SensorField
from physai.sdk.contract.safety_envelope import JointEnvelope
from physai.sdk.contract.terms import TimingSpec


def put(document: Any, path: str, value: Any) -> None:
    """Sets the value at a path such as `robot.joints.0.name`; `...` removes it."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        document = document[part]
    if value is ...:
        del document[last]
    else:
        document[last] = value


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ContractError) as caught:
        parse_contract(json.dumps(document), source="test.json")
    return str(caught.value)


class TestLayout:
    def test_every_term_has_its_range(self, full_contract: PolicyContract) -> None:
        # Widths: gravity 3; gyro 3 x 3 periods; sine and cosine of 3 joints; 4 joints; 1 of 4; a speed of 2;
        # a pose error of 3 + 3; the 3 outputs x 2 periods; the 3 targets.
        assert full_contract.observation_slices == {
            "gravity": slice(0, 3),
            "gyro": slice(3, 12),
            "angles": slice(12, 18),
            "positions": slice(18, 22),
            "speeds": slice(22, 23),
            "goal": slice(23, 25),
            "error": slice(25, 31),
            "last": slice(31, 37),
            "lag": slice(37, 40),
        }
        assert full_contract.observation_size == 40

    def test_joint_index_follows_the_names(self, full_contract: PolicyContract) -> None:
        assert full_contract.robot.joint_index(("passive", "shoulder")) == (3, 0)

    def test_unknown_joint_has_no_index(self, full_contract: PolicyContract) -> None:
        with pytest.raises(UnknownNameError, match="no joint named 'wrist'; known: elbow, passive, shoulder, slide"):
            full_contract.robot.joint_index(("wrist",))

    def test_a_contract_cannot_be_changed(self, small_contract: PolicyContract) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            small_contract.task = "other"  # pyright: ignore[reportAttributeAccessIssue]


OBSERVATION_PROBLEMS: list[tuple[str, Any, str]] = [
    ("0.joints", ["elbow"], "observation.terms[gravity].joints: projected_gravity is not a vector of joints"),
    ("0.source", "imu_quat", "observation.terms[gravity].source: a term of kind projected_gravity has none"),
    ("0.chain", "ee", "observation.terms[gravity].chain: a term of kind projected_gravity has none"),
    ("1.source", None, "observation.terms[gyro].source: a term of kind sensor needs one"),
    ("1.source", "imu_ang_vel", "no sensor named 'imu_ang_vel'; did you mean imu_ang_vel_b"),
    ("1.source", "speed", "observation.terms[gyro].source: no sensor named 'speed'"),
    ("1.joints", ["elbow"], "observation.terms[gyro].joints: imu_ang_vel_b is not a vector of joints"),
    ("2.joints", ["elbow", "elbo"], "observation.terms[angles].joints: no joint named 'elbo'; did you mean elbow"),
    ("2.joints", ["slide"], "observation.terms[angles].joints: slide is prismatic"),
    ("2.joints", None, "observation.terms[angles].joints: slide is prismatic"),
    ("2.joints", ["elbow", "elbow"], "observation term angles: joint 'elbow' occurs twice"),
    ("2.joints", [], "at least 1 item"),
    ("3.source", "joint_pos", "observation.terms[positions].source: a term of kind joint_pos_rel has none"),
    ("5.source", "joint_pos", "observation.terms[goal].source: no command named 'joint_pos'"),
    ("6.source", "speed", "observation.terms[error].source: command 'speed' has size 2, a pose has 7"),
    ("6.source", None, "observation.terms[error].source: a term of kind pose_error needs one"),
    ("6.chain", None, "observation.terms[error].chain: a pose_error needs one, robot arm has ee"),
    ("6.chain", "foot", "observation.terms[error].chain: no chain named 'foot'; known: ee"),
    ("7.source", "joint_pos", "observation.terms[last].source: a term of kind previous_action has none"),
    ("7.joints", ["elbow"], "observation.terms[last].joints: previous_action is not a vector of joints"),
    ("7.history", 65, "observation.terms[7].history"),
    ("7.history", 0, "observation.terms[7].history"),
    ("7.name", "error", "observation term 'error' occurs twice"),
    ("8.source", "joint_pos", "observation.terms[lag].source: a term of kind last_target has none"),
    ("8.joints", ["elbow"], "observation.terms[lag].joints: last_target is not a vector of joints"),
]


@pytest.mark.parametrize(("path", "value", "message"), OBSERVATION_PROBLEMS)
def test_an_observation_term_must_fit_the_robot(
    full_document: dict[str, Any], path: str, value: Any, message: str
) -> None:
    put(full_document, f"observation.terms.{path}", value)
    assert message in refusal(full_document)


ROBOT_PROBLEMS: list[tuple[str, Any, str]] = [
    ("joints.0.name", "elbow", "joint 'elbow' occurs twice"),
    ("joints.0.name", "", "robot.joints[0].name: String should match pattern"),
    ("joints.0.name", "a\nb", "robot.joints[0].name: String should match pattern"),
    ("joints.0.kind", "ball", "robot.joints[0].kind"),
    ("joints.0.position_lower", None, "give both position limits or none, got None and 2.0"),
    ("joints.0.position_lower", 2.0, "position_lower 2.0 is not below position_upper 2.0"),
    ("joints.0.default_pos", 2.5, "default_pos 2.5 lies outside [-2.0, 2.0]"),
    ("joints.0.velocity_limit", 0.0, "robot.joints[0].velocity_limit: Input should be greater than 0 (got 0.0)"),
    ("joints.0.effort_limit", -1.0, "robot.joints[0].effort_limit"),
    ("joints.0.effort_limit", ..., "robot.joints[0].effort_limit: missing"),
    ("joints.0.effort_limit", "50", "robot.joints[0].effort_limit: Input should be a valid number (got '50')"),
    ("joints.0.effort_limit", True, "robot.joints[0].effort_limit: Input should be a valid number (got True)"),
    ("joints.0.efort_limit", 1.0, "robot.joints[0].efort_limit: unknown field (got 1.0)"),
    ("joints.3.position_lower", -1.0, "robot.joints[3]: joint passive: give both"),
    ("joints", [], "robot: joints: a robot needs at least one"),
    ("sensors.0.size", 3, "sensor joint_pos: size 3 differs from the number of joints 4"),
    ("sensors.0.name", "encoder", "observation.terms[positions].kind: joint_pos_rel needs the sensor 'joint_pos'"),
    ("sensors.0.name", "encoder", "observation.terms[lag].kind: last_target needs the sensor 'joint_pos'"),
    ("sensors.2.size", 3, "sensor imu_quat: size 3, expected 4"),
    ("sensors.2.name", "attitude", "observation.terms[gravity].kind: projected_gravity needs the sensor 'imu_quat'"),
    ("sensors.3.size", 6, "sensor imu_ang_vel_b: size 6, expected 3"),
    ("sensors.3.unit", "rad\x1b[31m", "robot.sensors[3].unit: String should match pattern"),
    ("sensors.1.name", "joint_pos", "sensor 'joint_pos' occurs twice"),
    ("chains.0.segments.1.joint", "shoulder", "chain ee: joint 'shoulder' occurs twice"),
    ("chains.0.segments.1.joint", "wrist", "chain ee: no joint named 'wrist'"),
    ("chains.0.segments.1.axis", [0.0, 0.6, 0.7], "axis (0.0, 0.6, 0.7) has length 0.921954446, expected 1"),
    ("chains.0.segments.1.quat", [0.0, 0.0, 0.0, 0.0], "has length 0, expected 1"),
    ("chains.0.segments.1.quat", [1.0, 0.0, 0.0], "robot.chains[0].segments[1].quat"),
    ("chains.0.segments", [], "robot.chains[0].segments"),
]


@pytest.mark.parametrize(("path", "value", "message"), ROBOT_PROBLEMS)
def test_a_robot_must_be_consistent(full_document: dict[str, Any], path: str, value: Any, message: str) -> None:
    put(full_document, f"robot.{path}", value)
    assert message in refusal(full_document)


ACTION_PROBLEMS: list[tuple[str, Any, str]] = [
    ("0.joints", ["elbow", "sholder"], "action.terms[joint_pos_target].joints: no joint named 'sholder'; did you mean"),
    ("0.joints", ["elbow", "passive"], "action.terms[joint_pos_target].joints: passive has no actuator"),
    ("0.joints", ["elbow", "slide"], "commanded joint 'slide' occurs twice"),
    ("0.joints", ["elbow", "elbow"], "action joint 'elbow' occurs twice"),
    ("0.lower", [-1.5, -2.5], "action.terms[joint_pos_target].lower[shoulder]: -2.5 is below the robot's -2.0"),
    ("0.upper", [2.5, 1.0], "action.terms[joint_pos_target].upper[elbow]: 2.5 is above the robot's 2.0"),
    ("0.upper", [-1.5, 1.0], "action joint elbow: lower -1.5 is not below upper -1.5"),
    ("0.upper", [1.5], "action term joint_pos: upper has 1 values for 2 joints"),
    ("0.offset", [0.0, 1.25], "action.terms[joint_pos_target].offset[shoulder]: 1.25 lies outside [-1.0, 1.0]"),
    ("0.scale", [0.5, 0.0], "action.terms[0].scale[1]: Input should be greater than 0 (got 0.0)"),
    ("1.lower", [-51.0], "action.terms[joint_effort_target].lower[slide]: -51.0 is below the robot's -50.0"),
    ("1.upper", [51.0], "action.terms[joint_effort_target].upper[slide]: 51.0 is above the robot's 50.0"),
    ("1.kind", "joint_pos_incremental", "action output 'joint_pos_target' occurs twice"),
    ("1.kind", "joint_vel", "action.terms[1].kind"),
]


@pytest.mark.parametrize(("path", "value", "message"), ACTION_PROBLEMS)
def test_actions_stay_within_the_robot(full_document: dict[str, Any], path: str, value: Any, message: str) -> None:
    put(full_document, f"action.terms.{path}", value)
    assert message in refusal(full_document)


def test_an_incremental_position_needs_the_measured_one(small_document: dict[str, Any]) -> None:
    small_document["observation"]["terms"] = [{"name": "speed", "kind": "sensor", "source": "joint_vel"}]
    small_document["robot"]["sensors"].pop(0)
    parse_contract(json.dumps(small_document), source="test.json")
    small_document["action"]["terms"][0]["kind"] = "joint_pos_incremental"
    message = "action.terms[joint_pos_target].kind: joint_pos_incremental needs the sensor 'joint_pos'"
    assert message in refusal(small_document)


OTHER_PROBLEMS: list[tuple[str, Any, str]] = [
    ("command.fields.0.lower", [-1.0], "command speed: lower has 1 values, size is 2"),
    ("command.fields.0.lower", [-1.0, 0.75], "command speed: lower 0.75 is above upper 0.5"),
    ("command.fields.0.name", "pose", "command 'pose' occurs twice"),
    ("command.fields.0.name", "joint_vel", "command.fields[joint_vel].name: a sensor has this name too"),
    ("timing.control_dt", 0.03, "control_dt 0.03 s differs from physics_dt · decimation = 0.02 s"),
    ("timing.control_dt", 1e-5, "timing.control_dt: Input should be greater than or equal to 0.0001 (got 1e-05)"),
    ("timing.physics_dt", 1.0, "timing.physics_dt"),
    ("timing.decimation", 4.0, "timing.decimation: Input should be a valid integer (got 4.0)"),
    ("timing.deadline_s", 0.021, "deadline_s 0.021 is longer than control_dt 0.02"),
    ("timing.max_observation_age_s", 2.5, "timing.max_observation_age_s: 2.5 s is more than 100 control periods"),
    ("timing.max_observation_age_s", 0.01, "timing.max_observation_age_s: 0.01 s is below deadline_s 0.015 s"),
    ("safety.max_reused_commands", 101, "101 periods of 0.02 s repeat a stale command for 2.02 s, at most 2.0 s"),
    ("safety.joints.0.joint", "wrist", "safety.joints: ['wrist', 'elbow', 'slide', 'passive'] differ from the robot's"),
    ("safety.joints.0.position_lower", -2.5, "safety.joints[shoulder].position_lower: -2.5 is wider than the robot's"),
    ("safety.joints.0.position_upper", 2.5, "safety.joints[shoulder].position_upper: 2.5 is wider than the robot's"),
    ("safety.joints.0.position_upper", None, "joint shoulder: give both position limits or none, got -1.5 and None"),
    ("safety.joints.0.position_upper", -1.5, "joint shoulder: position_lower -1.5 is not below position_upper -1.5"),
    ("safety.joints.0.position_upper", 0.2, "the robot's default_pos 0.25 lies outside [-1.5, 0.2]"),
    (
        "safety.joints.0.velocity_limit",
        None,
        "safety.joints[shoulder].velocity_limit: None is wider than the robot's 3",
    ),
    (
        "safety.joints.0.velocity_limit",
        3.5,
        "safety.joints[shoulder].velocity_limit: 3.5 is wider than the robot's 3.0",
    ),
    ("safety.joints.0.effort_limit", 51.0, "safety.joints[shoulder].effort_limit: 51.0 is wider than the robot's 50.0"),
    ("task", "has space", "task: String should match pattern"),
    ("robot", ..., "robot: missing"),
    ("extra", 1, "extra: unknown field (got 1)"),
]


@pytest.mark.parametrize(("path", "value", "message"), OTHER_PROBLEMS)
def test_the_parts_must_agree(full_document: dict[str, Any], path: str, value: Any, message: str) -> None:
    put(full_document, path, value)
    assert message in refusal(full_document)


def test_both_limits_missing_is_wider_than_limits(full_document: dict[str, Any]) -> None:
    full_document["safety"]["joints"][0].update(position_lower=None, position_upper=None)
    assert "safety.joints[shoulder].position_lower: None is wider than the robot's -2.0" in refusal(full_document)


def test_every_problem_is_listed(full_document: dict[str, Any]) -> None:
    put(full_document, "observation.terms.1.source", "gyroscope")
    put(full_document, "action.terms.1.lower", [-51.0])
    put(full_document, "safety.joints.0.effort_limit", 51.0)
    lines = refusal(full_document).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == [
        "test.json",
        "observation.terms[gyro].source",
        "action.terms[joint_effort_target].lower[slide]",
        "safety.joints[shoulder].effort_limit",
    ]


def test_the_observation_is_bounded(small_document: dict[str, Any]) -> None:
    small_document["robot"]["sensors"].append({"name": "pixels", "size": 4096, "unit": ""})
    term = {"name": "image", "kind": "sensor", "source": "pixels", "history": 24}
    small_document["observation"]["terms"] = [term]
    assert parse_contract(json.dumps(small_document), source="test.json").observation_size == 98_304
    term["history"] = 25
    assert "observation: 102400 elements, at most 100000 are allowed" in refusal(small_document)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_no_number_is_infinite_or_nan(value: float) -> None:
    for build in (
        lambda: JointSpec(name="a", kind="revolute", effort_limit=value),
        lambda: JointSpec(name="a", kind="revolute", effort_limit=1.0, default_pos=value),
        lambda: JointSpec(name="a", kind="revolute", effort_limit=1.0, velocity_limit=value),
        lambda: ChainSegment(translation=(0.0, value, 0.0), quat=(1.0, 0.0, 0.0, 0.0)),
        lambda: JointEnvelope(joint="a", effort_limit=value),
        lambda: TimingSpec(
            control_dt=value, physics_dt=0.01, decimation=1, deadline_s=0.01, max_observation_age_s=0.01
        ),
        lambda: TimingSpec(
            control_dt=0.01, physics_dt=0.01, decimation=1, deadline_s=value, max_observation_age_s=0.01
        ),
        lambda: TimingSpec(
            control_dt=0.01, physics_dt=0.01, decimation=1, deadline_s=0.01, max_observation_age_s=value
        ),
    ):
        with pytest.raises(ValidationError):
            build()


def test_a_sensor_has_a_bounded_size() -> None:
    with pytest.raises(ValidationError, match="less than or equal to 4096"):
        SensorField(name="lidar", size=4097, unit="m")
