"""An import says where its policy may take over, and the twin's episodes begin there as the robot's runtime starts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.foreign.test_import import DESCRIPTION, JOINTS, refusal, write

from physai.foreign import ForeignPolicyError, import_policy
from physai.foreign.readers.isaac.start_events import state_start
from physai.foreign.reading import PolicyReading
from physai.sdk.contract.io import load_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.safety_envelope import StartEnvelope
from physai.sdk.safety.start import StartGate
from physai.sim.envs.environment import Environment
from physai.sim.policies.evaluate import EVALUATION_SEED, play_episodes
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_origin
from physai.sim.tasks.task import Task

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "start_lower": [-0.2, 0.6, -1.7] * 4,
    "start_upper": [0.4, 1.0, -1.3] * 4,
    "start_speed": 2.0,
    "start_tilt": 0.3,
    "start_ramp_s": 0.2,
    "command_slew": [2.0, 1.0, 3.0],
    "command_gate": 0.3,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of which no file states where it starts."""
    folder = tmp_path_factory.mktemp("plain")
    import_policy(write(folder / "policy"), model="go2", out=folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose start and commands the user states."""
    folder = tmp_path_factory.mktemp("stated")
    import_policy(write(folder / "policy"), model="go2", out=folder / "run", settings=SETTINGS)
    return folder / "run"


def contract_of(run: Path) -> PolicyContract:
    return load_contract(run / "task" / "contract.json")


def start_of(run: Path) -> StartEnvelope:
    start = contract_of(run).safety.start
    assert start is not None
    return start


def task_of(run: Path) -> Task:
    return find_origin(run / "export" / "policy.onnx").load()


def test_what_no_file_states_is_around_the_default_pose(plain: Path) -> None:
    start = start_of(plain)
    pose = dict(zip(JOINTS, DESCRIPTION["default_pos"], strict=True))
    assert [one.joint for one in start.joints] == JOINTS
    for one in start.joints:
        assert (one.lower, one.upper) == pytest.approx((pose[one.joint] - 0.1, pose[one.joint] + 0.1))
        assert one.speed == 0.5
    assert (start.tilt, start.ramp_s) == (0.05, 0.0)


def test_the_page_and_the_record_name_the_source_of_each_field(plain: Path, stated: Path) -> None:
    record = json.loads((plain / "import.json").read_text())
    page = (plain / "import.md").read_text()
    assert record["sources"]["start_lower"] == "default: default_pos ± 0.1 rad within the joint's range"
    assert "| start_ramp_s | 0.0 | default: the policy commands at once |" in page
    assert "| start_tilt | 0.05 | default: default_pos ± 0.05 rad |" in page
    record = json.loads((stated / "import.json").read_text())
    assert {record["sources"][name] for name in SETTINGS} == {"user"}
    assert record["description"]["start_tilt"] == 0.3
    assert record["description"]["command_slew"] == [2.0, 1.0, 3.0]


def test_what_the_user_states_holds(stated: Path) -> None:
    start = start_of(stated)
    assert (start.joints[1].lower, start.joints[1].upper, start.joints[1].speed) == (0.6, 1.0, 2.0)
    assert (start.tilt, start.ramp_s) == (0.3, 0.2)
    command = contract_of(stated).command.fields[0]
    assert (command.slew, command.gate) == ((2.0, 1.0, 3.0), 0.3)


def test_a_rule_of_the_program_may_be_replaced_and_a_property_of_the_network_may_not(tmp_path: Path) -> None:
    reading = PolicyReading(family="test", network=tmp_path / "policy.onnx", values=dict(DESCRIPTION))
    del reading.values["network"]
    reading.sources = dict.fromkeys(reading.values, "test.yaml")
    reading.state("start_ramp_s", 0.0, "code: stands up")
    assert reading.complete({"start_ramp_s": 0.4}).start_ramp_s == 0.4
    assert reading.sources["start_ramp_s"] == "user, in place of code: stands up"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"start_lower": [0.0] * 11}, "start_lower has 11 numbers, joints has 12 names"),
        ({"start_lower": [1.0] * 12}, "start of joint RR_hip_joint: lower 1.0 is not below upper 0.2"),
        ({"start_lower": [-9.0] * 12, "start_upper": [-8.0] * 12}, "lies outside the robot's range"),
        ({"start_speed": 0.0}, "greater than 0"),
        ({"start_tilt": -0.1}, "greater than 0"),
        ({"start_ramp_s": 11.0}, "less than or equal to 10"),
        ({"command_slew": [1.0, 1.0, 0.0]}, "greater than 0"),
        ({"command_gate": -1.0}, "greater than 0"),
        ({"command_gate": 0.1, "command": [[0.2, -0.5, -1.0], [1.0, 0.5, 1.0]]}, "lies outside [0.2, 1.0]"),
    ],
)
def test_a_start_that_cannot_be_meant_is_refused(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    assert text in refusal(tmp_path, settings=settings)


def test_episodes_begin_where_the_robot_would_let_it_start(stated: Path) -> None:
    env = Environment(task_of(stated), 64, seed=5, randomise=False)
    env.reset()
    gate = StartGate(contract_of(stated))
    assert env.view.joint_vel.any()
    for qpos, qvel in zip(env.view.qpos, env.view.qvel, strict=True):
        assert gate.obstacle(qpos[None, 7:], qvel[None, 6:], {"imu_quat": qpos[None, 3:7]}) == ""


def test_its_graph_has_golden_states_of_the_commands_that_it_sees(stated: Path) -> None:
    golden = np.load(stated / "export" / "golden.npz")["velocity_command"]
    norms = np.linalg.norm(golden, axis=1)
    # Commands that were asked for are zero or beyond the gate; what is seen lies between while it grows.
    assert ((norms > 1e-4) & (norms < 0.3)).any()


def test_an_evaluation_on_a_device_is_the_same(stated: Path) -> None:
    pytest.importorskip("torch")
    from tests.support.torch_mujoco import TorchMujoco

    from physai.sim.envs.device.device_environment import DeviceEnvironment
    from physai.sim.policies.device_evaluate import play_on_device
    from physai.sim.policies.device_policy import DevicePolicy

    task, data = task_of(stated), (stated / "export" / "policy.onnx").read_bytes()
    wanted = play_episodes(OnnxPolicy(data, source="test"), task, episodes=4)
    environment = DeviceEnvironment(task, TorchMujoco(task, 4), seed=EVALUATION_SEED)
    found = play_on_device(DevicePolicy(data, source="test"), environment)
    assert (found.judged, found.succeeded) == (wanted.judged, wanted.succeeded)
    assert found.metrics == pytest.approx(wanted.metrics, rel=2e-2)


def reading_of(pose: list[float]) -> PolicyReading:
    return PolicyReading(family="test", network=Path("policy.pt"), values={"default_pos": pose}, sources={})


def event(function: str, **params: Any) -> dict[str, Any]:
    return {"func": f"isaaclab.envs.mdp.events:{function}", "mode": "reset", "params": params}


def test_the_resets_of_isaac_lab_tell_the_range_the_speed_and_the_tilt() -> None:
    reading = reading_of([0.1, 0.8, -1.5])
    legs = {"name": "robot", "joint_names": [".*_thigh_joint", ".*_calf_joint"]}
    events = {
        "reset_robot_joints": event("reset_joints_by_scale", position_range=[0.5, 1.5], asset_cfg=legs),
        "reset_hips": event(
            "reset_joints_by_offset",
            position_range=[-0.3, 0.2],
            velocity_range=[-1.0, 0.5],
            asset_cfg={"name": "robot", "joint_names": ".*_hip_joint"},
        ),
        "reset_base": event("reset_root_state_uniform", pose_range={"roll": [-0.3, 0.3], "pitch": [-0.4, 0.1]}),
        "other": event("reset_joints_by_scale", position_range=[0.0, 9.0], asset_cfg={"name": "table"}),
        "startup": {**event("reset_joints_by_scale", position_range=[0.0, 9.0]), "mode": "startup"},
        "none": None,
    }
    state_start(reading, events, ["FL_hip_joint", "FL_thigh_joint", "FL_calf_joint"], "robot", "env.yaml")
    assert reading.values["start_lower"] == pytest.approx([-0.2, 0.4, -2.25])
    assert reading.values["start_upper"] == pytest.approx([0.3, 1.2, -0.75])
    assert reading.values["start_speed"] == 1.0
    assert reading.values["start_tilt"] == pytest.approx(0.5)
    assert reading.sources["start_lower"].startswith("env.yaml: events.reset_robot_joints, reset_hips.params.position")


def test_a_range_that_no_robot_can_stand_in_is_at_least_the_default_one() -> None:
    reading = reading_of([0.0])
    state_start(reading, {"r": event("reset_joints_by_scale", position_range=[1.0, 1.0])}, ["hip"], "robot", "env.yaml")
    assert (reading.values["start_lower"], reading.values["start_upper"]) == ([-0.1], [0.1])
    assert reading.sources["start_lower"].endswith("at least default_pos ± 0.1 rad")


def test_without_resets_nothing_is_stated() -> None:
    reading = reading_of([0.0])
    state_start(reading, None, ["hip"], "robot", "env.yaml")
    assert set(reading.values) == {"default_pos"}


@pytest.mark.parametrize(
    ("given", "text"), [([1.0], "has 1 numbers, expected"), ("half", "expected a list"), (None, "null")]
)
def test_a_range_that_is_none_is_refused(given: Any, text: str) -> None:
    with pytest.raises(ForeignPolicyError, match=text):
        state_start(
            reading_of([0.0]), {"r": event("reset_joints_by_scale", position_range=given)}, ["hip"], "robot", "env.yaml"
        )
