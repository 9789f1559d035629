"""Policies of holosoma's wheels on PyPI: imported without a question, they see and want what their own program would,
and walk as far as they do in plain MuJoCo.

The reference distances are of the same files in MuJoCo with the policies' own gains: 10 s at 0.5 m/s forwards.
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.test_docs_commands import run_page
from tests.support.foreign_reference import observed, wanted

from physai.foreign import ForeignPolicyError, OpenQuestionsError, audit, import_policy
from physai.sdk.contract.io import load_contract
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_origin

pytestmark = pytest.mark.slow

WHEELS = ("holosoma-inference==0.1.3", "holosoma==0.0.3")
DISTANCES_M = {"g1": 3.65, "t1": 4.04}
SECONDS = 10.0


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels: HOLOSOMA_WHEELS, else downloaded."""
    given = os.environ.get("HOLOSOMA_WHEELS")
    folder = Path(given) if given else tmp_path_factory.mktemp("wheels")
    if not given:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", str(folder), *WHEELS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"holosoma's wheels cannot be had here: {done.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(scope="module")
def holosoma(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheels."""
    unpacked = tmp_path_factory.mktemp("holosoma")
    for wheel in wheels.glob("holosoma*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
    return unpacked


def network(holosoma: Path, robot: str) -> Path:
    kind = f"{robot}_29dof"
    return holosoma / "holosoma_inference" / "models" / "loco" / kind / f"ppo_{kind}.onnx"


@pytest.fixture(scope="module", params=["g1", "t1"])
def run(request: pytest.FixtureRequest, holosoma: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    robot = request.param
    folder = tmp_path_factory.mktemp(robot) / "run"
    model = holosoma / "holosoma" / "data" / "robots" / robot / f"{robot}_29dof.xml"
    import_policy(network(holosoma, robot), model=model, out=folder)
    return robot, folder


def test_it_sees_and_wants_what_its_own_program_would(run: tuple[str, Path], holosoma: Path) -> None:
    robot, folder = run
    described = json.loads((folder / "import.json").read_text(encoding="utf-8"))["description"]
    # As its program sorts them.
    kinds = [term["of"] for term in described["observation"]]
    expected = ["last_action", "ang_vel", "command", "command", "clock", "joint_pos", "joint_vel", "gravity", "clock"]
    assert kinds == expected
    contract = load_contract(folder / "task" / "contract.json")
    golden = dict(np.load(folder / "export" / "golden.npz"))
    inputs = {name: np.asarray(value, np.float64) for name, value in golden.items() if name != "fingerprint"}
    targets = wanted(described, network(holosoma, robot), observed(described, list(contract.robot.joint_names), inputs))
    action = contract.action.terms[0]
    np.testing.assert_allclose(golden["joint_pos_target"], np.clip(targets, action.lower, action.upper), atol=1e-5)


def test_it_walks_as_far_as_in_plain_mujoco(run: tuple[str, Path]) -> None:
    robot, folder = run
    policy, task = OnnxPolicy.load(folder), find_origin(folder / "export" / "policy.onnx").load()
    worlds = 8
    env = Environment(task, worlds, seed=3, randomise=False)
    now = env.reset()
    policy.reset(worlds)
    command = {"velocity_command": np.tile(np.array([0.5, 0.0, 0.0], np.float32), (worlds, 1))}
    start = env.view.qpos[:, :2].copy()
    for _ in range(round(SECONDS / task.contract.timing.control_dt)):
        now = env.step(policy(now.sensors, command))
        assert not now.terminated.any()
    # Any heading, and a straight line: an angular velocity in the world's frame fell at 180° alone.
    distances = np.linalg.norm(env.view.qpos[:, :2] - start, axis=1)
    np.testing.assert_allclose(distances, DISTANCES_M[robot], rtol=0.1)


def test_its_contract_has_the_gains_of_the_metadata(run: tuple[str, Path]) -> None:
    _, folder = run
    record = json.loads((folder / "import.json").read_text(encoding="utf-8"))
    joints = {joint.name: joint for joint in load_contract(folder / "task" / "contract.json").robot.joints}
    described = record["description"]
    for name, stiffness, damping in zip(described["joints"], described["stiffness"], described["damping"], strict=True):
        # The robot's file has six digits.
        assert (joints[name].stiffness, joints[name].damping) == pytest.approx((stiffness, damping), rel=1e-5)
    assert record["sources"]["stiffness"].endswith(".onnx: kp")


def test_the_audit_has_no_alarm_about_a_right_log(run: tuple[str, Path], tmp_path: Path) -> None:
    """What the robot of the twin saw and did while it walked, as its own program would write it."""
    _, folder = run
    described = json.loads((folder / "import.json").read_text(encoding="utf-8"))["description"]
    policy, task = OnnxPolicy.load(folder), find_origin(folder / "export" / "policy.onnx").load()
    env = Environment(task, 1, seed=4)
    now = env.reset()
    policy.reset(1)
    rows: list[dict[str, Any]] = []
    for number in range(150):
        fields = {name: np.asarray(value, np.float64) for name, value in {**now.sensors, **now.commands}.items()}
        state = {f"state.{name}": np.asarray(value, np.float64) for name, value in policy.state.items()}
        seen = observed(described, list(task.contract.robot.joint_names), {**fields, **state})
        targets = policy(now.sensors, now.commands)
        outputs = {
            "observation": seen,
            "target": targets["joint_pos_target"],
            "action": policy.state["previous_action"],
        }
        own = {name: value for name, value in fields.items() if name != "joint_effort"}
        rows.append({**own, **outputs, "time": np.array([[number * task.contract.timing.control_dt]])})
        now = env.step(targets)
    arrays: dict[str, Any] = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    np.savez(tmp_path / "log.npz", **arrays)
    found = {one.part: (one.outcome, one.text) for one in audit(tmp_path / "log.npz", folder).findings}
    assert {outcome for outcome, _ in found.values()} <= {"agrees", "undetermined", "absent"}, found
    # A command is the same for 4 s, and tells nothing of its order.
    assert found["command"][0] == "undetermined"
    moving = {"last_action", "ang_vel", "gravity", "joint_pos", "joint_vel", "clock", "target", "period"}
    assert moving <= {part for part, (outcome, _) in found.items() if outcome == "agrees"}


def test_the_tutorial_runs(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word, with wheels that were downloaded before."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    page = Path(__file__).parents[3] / "docs" / "tutorials" / "somebody-elses-policy.md"
    said = run_page(page, tmp_path, slow=True, smaller=True)
    assert "imported from holosoma: 100 numbers seen, 29 joints" in said
    assert "96 of 96 succeeded" in said
    assert (tmp_path / "g1.mp4").is_file()


def test_a_dance_is_followed_to_its_end_at_any_heading(holosoma: Path, tmp_path: Path) -> None:
    file = holosoma / "holosoma_inference" / "models" / "wbt" / "ppo_g1_29dof_dancing.onnx"
    model = holosoma / "holosoma" / "data" / "robots" / "g1" / "g1_29dof.xml"
    found = import_policy(file, model=model, out=tmp_path / "run")
    assert found.sources["action_scale"].endswith("control.action_scale · dof_effort_limit_list / kp")
    # As gaits of G1's motors of each kind: a quarter of effort over gain.
    scales = dict(zip(found.contract.action.terms[0].joints, found.contract.action.terms[0].scale, strict=True))
    assert scales["left_hip_roll_joint"] == pytest.approx(0.25 * 139.0 / 99.098427777, rel=1e-6)
    policy, task = OnnxPolicy.load(tmp_path / "run"), find_origin(tmp_path / "run" / "export" / "policy.onnx").load()
    assert task.episode_length_s == pytest.approx(131.5, abs=0.1)
    env = Environment(task, 3, seed=3, randomise=False)
    now = env.reset()
    policy.reset(3)
    errors: list[Any] = []
    for _ in range(round(task.episode_length_s / task.contract.timing.control_dt) - 1):
        now = env.step(policy(now.sensors, {}))
        assert not now.terminated.any()
        errors.append(task.metrics["joint_error_rad"](env.view))
    assert np.mean(errors) < 0.2


def test_a_dance_whose_scale_no_file_states_is_asked_for(holosoma: Path, tmp_path: Path) -> None:
    file = holosoma / "holosoma_inference" / "models" / "wbt" / "fastsac_g1_29dof_dancing.onnx"
    with pytest.raises(OpenQuestionsError, match=r"action_scale: target = default_pos \+ action_scale · output"):
        import_policy(file, model="go2", out=tmp_path / "run")


def test_outside_its_package_it_says_where_its_observation_stands(holosoma: Path, tmp_path: Path) -> None:
    bare = tmp_path / "policy.onnx"
    bare.write_bytes(network(holosoma, "g1").read_bytes())
    with pytest.raises(ForeignPolicyError, match=r"observation\.py of holosoma_inference"):
        import_policy(bare, model="go2", out=tmp_path / "run")
