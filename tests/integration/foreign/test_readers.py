"""Readers of families: packages made by hand, right ones and ones that contradict themselves."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.integration.foreign.test_import import JOINTS, network

from physai.foreign import ForeignPolicyError, import_policy

pytestmark = pytest.mark.slow

DEFAULT = (0.1, 0.9, -1.8) * 4
ROBOT = f"""from somewhere import RobotConfig
raise SystemExit("this file must not run")
quad = RobotConfig(robot="quad", default_dof_angles={DEFAULT}, dof_names={tuple(JOINTS)}, other=len("x"))
"""
OBSERVATION = """
loco_quad = ObservationConfig(
    obs_dict={"actor_obs": ["dof_pos", "dof_vel", "base_ang_vel", "projected_gravity", "command_lin_vel",
                            "command_ang_vel", "actions", "sin_phase", "cos_phase"]},
    obs_scales={"dof_pos": 1.0, "dof_vel": 0.05, "base_ang_vel": 0.25, "projected_gravity": 1.0, "command_lin_vel": 1.0,
                "command_ang_vel": 1.0, "actions": 1.0, "sin_phase": 1.0, "cos_phase": 1.0},
    history_length_dict={"actor_obs": 1},
)
"""
TASK = "locomotion = TaskConfig(model_path='', rl_rate=50, policy_action_scale=0.25, gait_period=1.0)\n"
METADATA: dict[str, Any] = {
    "dof_names": JOINTS,
    "kp": [20.0] * 12,
    "kd": [0.5] * 12,
    "command_ranges": {"lin_vel_x": [-1.0, 1.0], "lin_vel_y": [-0.5, 0.5], "ang_vel_yaw": [-1.0, 1.0]},
}


def package(home: Path, metadata: dict[str, Any] | None = None, **files: str) -> Path:
    """A package like holosoma_inference, with a network in its models."""
    config = home / "config" / "config_values"
    config.mkdir(parents=True)
    for name, text in {"robot": ROBOT, "observation": OBSERVATION, "task": TASK, **files}.items():
        (config / f"{name}.py").write_text(text, encoding="utf-8")
    path = home / "models" / "policy.onnx"
    path.parent.mkdir()
    network(path, inputs=49)
    library: Any = onnx
    model = library.load(str(path))
    entries = {name: json.dumps(value) for name, value in {**METADATA, **(metadata or {})}.items()}
    library.helper.set_model_props(model, entries)
    library.save(model, str(path))
    return path


def test_a_package_is_read_and_not_run(tmp_path: Path) -> None:
    found = import_policy(package(tmp_path / "h"), model="go2", out=tmp_path / "run")
    names = [term.name for term in found.contract.observation.terms]
    # Sorted by the names that the package has for them, as its program does.
    assert names == [
        "last_action",
        "ang_vel",
        "command",
        "command_2",
        "clock",
        "joint_pos",
        "joint_vel",
        "gravity",
        "clock_2",
    ]
    assert found.contract.observation.terms[2].elements == (2,)
    assert found.contract.action.terms[0].output_limit == 100.0
    assert found.sources["default_pos"] == "robot.py: quad.default_dof_angles"


@pytest.mark.parametrize(
    ("files", "metadata", "phrase"),
    [
        ({"task": f"{TASK}locomotion = REAL\n"}, {}, "written plainly and once"),
        ({"task": f"{TASK}locomotion.rl_rate = 25\n"}, {}, "written plainly and once"),
        ({"task": f"{TASK}if 1:\n    locomotion = TaskConfig(rl_rate=25)\n"}, {}, "written plainly and once"),
        ({"task": f"{TASK}a, locomotion = 1, 2\n"}, {}, "written plainly and once"),
        ({"task": f"{TASK}from x import locomotion\n"}, {}, "written plainly and once"),
        ({"task": "locomotion = TaskConfig(1, rl_rate=50)\n"}, {}, "written plainly and once"),
        ({"task": "locomotion = TaskConfig(rl_rate=50, **more)\n"}, {}, "written plainly and once"),
        ({"task": TASK.replace("rl_rate=50", "rl_rate='50'")}, {}, "'50' is not a number"),
        ({"task": TASK.replace("rl_rate=50", "rl_rate=RATE")}, {}, "not as the reader holosoma expects it: KeyError"),
        ({"robot": ROBOT.replace("(0.1,", "(1j,", 1)}, {}, "default_pos has a complex"),
        ({"robot": ROBOT + "quad = quad\n"}, {}, "0 robots have the joints"),
        ({"robot": ROBOT.replace(str(DEFAULT), "{0.1, 0.2}")}, {}, "is a set, expected numbers in order"),
        ({"robot": ROBOT + "(" * 5000}, {}, "not Python"),
        (
            {},
            {"action_scale": 0.5},
            r"action_scale is 0.25 \(task.py: locomotion.policy_action_scale\) and 0.5 \(policy.onnx",
        ),
        ({}, {"control_dt": 0.1}, "control_dt is 0.02"),
        ({}, {"kp": [20.0] * 11}, "stiffness has 11 numbers, joints has 12 names"),
        (
            {},
            {"command_ranges": {"lin_vel_x": [0, 1, 2], "lin_vel_y": [0, 1], "ang_vel_yaw": [0, 1]}},
            "not two numbers",
        ),
    ],
)
def test_a_package_that_is_not_clear_is_refused(
    files: dict[str, str], metadata: dict[str, Any], phrase: str, tmp_path: Path
) -> None:
    with pytest.raises(ForeignPolicyError, match=phrase):
        import_policy(package(tmp_path / "h", metadata, **files), model="go2", out=tmp_path / "run")


BERKELEY: dict[str, Any] = {
    "policy_checkpoint_path": "checkpoints/policy.onnx",
    "policy_dt": 0.02,
    "ip_robot_addr": "127.0.0.1",
    "num_joints": 12,
    "joints": JOINTS,
    "joint_kp": [20.0] * 12,
    "joint_kd": [0.5] * 12,
    "effort_limits": [20.0] * 12,
    "default_joint_positions": list(DEFAULT),
    "num_observations": 45,
    "history_length": 0,
    "num_actions": 12,
    "action_scale": 0.25,
    "action_indices": list(range(12)),
    "action_limit_lower": -10000,
    "action_limit_upper": 10000,
}
COMMAND = {"command": [[-0.5, -0.5, -1.0], [0.5, 0.5, 1.0]]}


def repository(home: Path, **changes: Any) -> Path:
    (home / "configs").mkdir(parents=True)
    (home / "checkpoints").mkdir()
    network(home / "checkpoints" / "policy.onnx", inputs=45)
    path = home / "configs" / "policy.yaml"
    kept = {name: value for name, value in {**BERKELEY, **changes}.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")
    return path


def test_a_repository_is_read_and_asked_for_one_thing(tmp_path: Path) -> None:
    path = repository(tmp_path / "b", clip_observations=0.5)
    with pytest.raises(ForeignPolicyError) as caught:
        import_policy(path, model="go2", out=tmp_path / "run")
    assert str(caught.value).count("`settings`") == 1
    found = import_policy(path, model="go2", out=tmp_path / "run", settings=COMMAND)
    assert [term.name for term in found.contract.observation.terms] == [
        "command",
        "ang_vel",
        "gravity",
        "joint_pos",
        "joint_vel",
        "last_action",
    ]
    assert found.contract.action.terms[0].output_limit == 10000.0
    assert all(joint.effort_limit == 20.0 for joint in found.contract.robot.joints)
    assert found.unread == ("clip_observations", "ip_robot_addr")
    assert "- clip_observations" in (found.folder / "import.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"num_observations": 999}, "num_observations is 999, its lists make 45"),
        ({"num_actions": 5}, "num_actions is 5, its lists make 12"),
        ({"action_limit_lower": -2.0}, "action_limit_lower -2.0 and action_limit_upper 10000"),
        ({"action_indices": [False, True, *range(2, 12)]}, "action_indices"),
        ({"action_indices": list(range(11))}, "action_indices"),
        ({"history_length": []}, "history_length"),
        ({"policy_checkpoint_path": "../../policy.onnx"}, "outside the repository"),
        ({"policy_checkpoint_path": 5}, "names the ONNX file"),
        ({"joints": None}, "\n  joints: names of the joints"),
    ],
)
def test_a_repository_that_contradicts_itself_is_refused(changes: dict[str, Any], phrase: str, tmp_path: Path) -> None:
    with pytest.raises(ForeignPolicyError, match=phrase):
        import_policy(repository(tmp_path / "b", **changes), model="go2", out=tmp_path / "run", settings=COMMAND)
