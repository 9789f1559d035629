"""Policies that follow a motion: the graph counts, looks up and turns as its own program would, and the task judges."""

import json
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from tests.integration.foreign.test_import import JOINTS, Plain

from physai.foreign import ForeignPolicyError, import_policy
from physai.foreign.conversion.tracking.motion import load_motion
from physai.foreign.conversion.tracking.task import LOST_M, track
from physai.sdk.base.errors import TaskError
from physai.sim import load_robot
from physai.sim.envs.environment import Environment
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.policies.resolve import find_origin
from physai.sim.robots.spec import home_qpos

pytestmark = pytest.mark.slow

FRAMES, SIZE = 40, 12 + 3 + 12 + 12 + 24 + 6
DESCRIPTION: dict[str, Any] = {
    "network": "network.onnx",
    "joints": JOINTS,
    "default_pos": [0.1, 0.8, -1.5] * 4,
    "stiffness": [60.0] * 12,
    "damping": [2.0] * 12,
    "action_scale": 0.25,
    "control_dt": 0.02,
    "observation": [
        {"of": "last_action"},
        {"of": "ang_vel", "scale": 0.25},
        {"of": "joint_pos"},
        {"of": "joint_vel", "scale": 0.05},
        {"of": "motion"},
        {"of": "motion_orientation", "scale": 0.5},
    ],
    "motion": {
        "index": "time_step",
        "position": "where",
        "orientation": "turned",
        "quaternion": "xyzw",
        "body": "FL_thigh",
        "lag": 1,
    },
}


def tables() -> dict[str, Any]:
    """A motion that sways the legs and turns the body, from a heading of 1 rad."""
    time = np.arange(FRAMES)[:, None] / FRAMES
    sway = 0.1 * np.sin(2 * np.pi * time + np.arange(12))
    angle = 1.0 + 0.2 * time
    tilt = 0.1 * time
    # About z, then about x.
    quat = [np.cos(angle / 2) * np.sin(tilt / 2), np.sin(angle / 2) * np.sin(tilt / 2)]
    quat += [np.sin(angle / 2) * np.cos(tilt / 2), np.cos(angle / 2) * np.cos(tilt / 2)]
    found = {
        "joint_pos": np.array([0.1, 0.8, -1.5] * 4) + sway,
        "joint_vel": 3.0 * np.cos(time + np.arange(12)),
        "where": np.concatenate([time, 0 * time, 0.3 + 0 * time], axis=1),
        "turned": np.concatenate(quat, axis=1),
    }
    return {name: value.astype(np.float32) for name, value in found.items()}


def network(path: Path, *, motion: dict[str, Any] | None = None, direct: bool = False) -> None:
    """A layer, and tables that are looked up by the number of the period; `direct` adds that number to the actions."""
    helper: Any = onnx.helper
    random = np.random.default_rng(3)
    found = tables() if motion is None else motion
    tensors = {
        "w": random.uniform(-0.1, 0.1, (SIZE, 12)).astype(np.float32),
        "last": np.array(len(found["joint_pos"]) - 1, np.int64),
        "axis": np.array([1], np.int64),
        **{f"table.{name}": value for name, value in found.items()},
    }
    nodes = [
        helper.make_node("MatMul", ["obs", "w"], ["layer"]),
        helper.make_node("Add", ["layer", "time_step"], ["actions"])
        if direct
        else helper.make_node("Elu", ["layer"], ["actions"]),
        helper.make_node("Cast", ["time_step"], ["whole"], to=7),
        helper.make_node("Squeeze", ["whole", "axis"], ["row"]),
        helper.make_node("Clip", ["row", "", "last"], ["frame"]),
        *(helper.make_node("Gather", [f"table.{name}", "frame"], [name], axis=0) for name in found),
    ]
    widths = {"actions": 12, **{name: value.shape[1] for name, value in found.items()}}
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info(name, 1, [1, size]) for name, size in (("obs", SIZE), ("time_step", 1))],
        [helper.make_tensor_value_info(name, 1, [1, size]) for name, size in widths.items()],
        [onnx.numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def write(folder: Path, *, frames: dict[str, Any] | None = None, direct: bool = False, **changes: Any) -> Path:
    folder.mkdir()
    network(folder / "network.onnx", motion=frames, direct=direct)
    path = folder / "physai.yaml"
    path.write_text(yaml.dump({**DESCRIPTION, **changes}, Dumper=Plain), encoding="utf-8")
    return path


def matrix(quat: Any) -> Any:
    """Rotation of a quaternion wxyz."""
    found = np.zeros(9)
    mujoco.mju_quat2Mat(found, np.asarray(quat, np.float64) / np.linalg.norm(quat))
    return found.reshape(3, 3)


def about_z(angle: float) -> Any:
    return np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])


@pytest.mark.parametrize(("body", "lag"), [("FL_thigh", 1), ("base", 0), ("RR_calf", 2)])
def test_it_sees_the_motion_as_its_program_would_over_its_periods(tmp_path: Path, body: str, lag: int) -> None:
    file = write(tmp_path / "policy", motion={**DESCRIPTION["motion"], "body": body, "lag": lag})
    import_policy(file, model="go2", out=tmp_path / "run")
    policy = OnnxPolicy.load(tmp_path / "run")
    contract = policy.header.contract
    names = list(contract.robot.joint_names)
    columns = [names.index(name) for name in JOINTS]
    default = np.array(DESCRIPTION["default_pos"])
    session = onnxruntime.InferenceSession(str(file.parent / "network.onnx"))
    model: Any = load_robot("go2").model
    data = mujoco.MjData(model)
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, body)
    motion, random, last = tables(), np.random.default_rng(0), np.zeros(12)
    away = robot_away = 0.0
    policy.reset(1)
    for period in range(FRAMES + 5):
        sensors = {f.name: random.standard_normal((1, f.size)).astype(np.float32) for f in contract.robot.sensors}
        sensors["imu_quat"] /= np.linalg.norm(sensors["imu_quat"])
        data.qpos[:3], data.qpos[3:7] = 0.0, sensors["imu_quat"][0]
        for name in names:
            data.qpos[model.joint(name).qposadr[0]] = sensors["joint_pos"][0, names.index(name)]
        mujoco.mj_kinematics(model, data)
        rotation = data.xmat[number].reshape(3, 3)
        frame = min(max(period - lag, 0), FRAMES - 1)
        wanted = matrix(np.roll(motion["turned"][frame], 1))
        if period == 0:
            start = matrix(np.roll(motion["turned"][0], 1))
            away, robot_away = np.arctan2(start[1, 0], start[0, 0]), np.arctan2(rotation[1, 0], rotation[0, 0])
        error = (about_z(-robot_away) @ rotation).T @ about_z(-away) @ wanted
        seen = np.concatenate(
            [
                last,
                0.25 * sensors["imu_ang_vel_b"][0],
                sensors["joint_pos"][0, columns] - default,
                0.05 * sensors["joint_vel"][0, columns],
                motion["joint_pos"][frame],
                motion["joint_vel"][frame],
                0.5 * error[:, :2].ravel(),
            ]
        )
        feed = {"obs": seen[None].astype(np.float32), "time_step": np.array([[period]], np.float32)}
        last = session.run(["actions"], feed)[0][0]
        action = contract.action.terms[0]
        expected = np.clip(default + 0.25 * last, action.lower, action.upper)
        np.testing.assert_allclose(policy(sensors, {})["joint_pos_target"][0], expected, atol=2e-5, err_msg=str(period))


def test_the_run_keeps_the_whole_motion_and_the_task_plays_it(tmp_path: Path) -> None:
    file = write(tmp_path / "policy")
    import_policy(file, model="go2", out=tmp_path / "run")
    motion = load_motion(tmp_path / "run" / "task" / "motion.npz")
    found = tables()
    assert (motion.frames, motion.joints, motion.control_dt) == (FRAMES, tuple(JOINTS), 0.02)
    np.testing.assert_allclose(motion.joint_pos, found["joint_pos"], atol=1e-6)
    # The body is where the motion has it if the base is where it is computed to be.
    model: Any = load_robot("go2").model
    data = mujoco.MjData(model)
    for frame in (0, FRAMES // 2, FRAMES - 1):
        data.qpos[:7] = [*motion.base_pos[frame], *motion.base_quat[frame]]
        for column, name in enumerate(JOINTS):
            data.qpos[model.joint(name).qposadr[0]] = motion.joint_pos[frame, column]
        mujoco.mj_kinematics(model, data)
        np.testing.assert_allclose(data.body("FL_thigh").xpos, found["where"][frame], atol=1e-5)
        np.testing.assert_allclose(
            data.body("FL_thigh").xmat.reshape(3, 3), matrix(np.roll(found["turned"][frame], 1)), atol=1e-5
        )
    task = find_origin(tmp_path / "run" / "export" / "policy.onnx").load()
    assert task.episode_length_s == pytest.approx(FRAMES * 0.02)
    assert not task.contract.command.fields
    record = json.loads((tmp_path / "run" / "import.json").read_text(encoding="utf-8"))
    assert record["description"]["motion"]["body"] == "FL_thigh"


def test_a_motion_that_was_changed_is_not_played(tmp_path: Path) -> None:
    import_policy(write(tmp_path / "policy"), model="go2", out=tmp_path / "run")
    motion = tmp_path / "run" / "task" / "motion.npz"
    motion.write_bytes(motion.read_bytes() + b"\0")
    with pytest.raises(TaskError, match="was changed after the run began"):
        find_origin(tmp_path / "run" / "export" / "policy.onnx")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"motion": {**DESCRIPTION["motion"], "body": "torso"}}, "has no body 'torso'"),
        ({"motion": {**DESCRIPTION["motion"], "index": "period"}}, "has no input 'period'"),
        ({"motion": {**DESCRIPTION["motion"], "position": "place"}}, "has no output 'place'"),
        ({"motion": {**DESCRIPTION["motion"], "position": "turned"}}, r"turned has the shape \(200000, 4\)"),
        ({"direct": True}, "actions depends on 'time_step', expected obs alone"),
        ({"observation": [*DESCRIPTION["observation"][:-1], {"of": "motion", "history": 2}]}, "has a history"),
    ],
)
def test_a_motion_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ForeignPolicyError, match=message):
        import_policy(write(tmp_path / "policy", **changes), model="go2", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_terms_of_a_motion_need_one(tmp_path: Path) -> None:
    file = write(tmp_path / "policy")
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    del described["motion"]
    file.write_text(yaml.dump({**described, "command": [[-1, -1, -1], [1, 1, 1]]}, Dumper=Plain), encoding="utf-8")
    with pytest.raises(ForeignPolicyError, match="has the term motion, and no `motion` is stated"):
        import_policy(file, model="go2", out=tmp_path / "run")


@pytest.mark.parametrize("quat", [[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
def test_orientations_that_are_no_rotations_are_refused(tmp_path: Path, quat: list[float]) -> None:
    wrong = {**tables(), "turned": np.tile(np.array(quat, np.float32), (FRAMES, 1))}
    with pytest.raises(ForeignPolicyError, match="quaternions that are no rotations"):
        import_policy(write(tmp_path / "policy", frames=wrong), model="go2", out=tmp_path / "run")


def test_the_task_begins_on_the_floor_at_any_heading_and_is_lost_by_a_fall() -> None:
    task = track()
    env = Environment(task, 16, seed=0, randomise=False)
    env.reset()
    headings = 2.0 * np.arctan2(env.view.qpos[:, 6], env.view.qpos[:, 3])
    assert np.ptp(headings) > 2.0
    np.testing.assert_allclose(env.view.qpos[:, 2], home_qpos(task.robot.model)[2], atol=0.02)
    assert not task.terminations["lost"](env.view).any()
    env.view.qpos[0, 2] -= LOST_M + 0.05
    env.view.qpos[1, 3:7] = [np.cos(0.45), np.sin(0.45), 0.0, 0.0]
    env.view.shared.clear()
    assert task.terminations["lost"](env.view).tolist() == [True, True, *[False] * 14]


def test_a_robot_that_holds_its_home_pose_follows_it() -> None:
    task = track()
    env = Environment(task, 4, seed=0, randomise=False)
    env.reset()
    home = home_qpos(task.robot.model)[7:]
    targets = {"joint_pos_target": np.tile(home.astype(np.float32), (4, 1))}
    result = env.step(targets)
    for _ in range(round(task.episode_length_s / task.contract.timing.control_dt) - 1):
        result = env.step(targets)
    assert result.judged.all()
    assert result.succeeded.all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_pos": None}, "not a motion"),
        ({"joint_pos": np.zeros((5, 11))}, "joint_pos has the shape"),
        ({"joint_vel": np.full((5, 12), np.nan)}, "joint_vel has the shape"),
        ({"base_quat": np.tile([2.0, 0.0, 0.0, 0.0], (5, 1))}, "no rotations"),
        ({"joints": np.arange(12)}, "joints are names"),
        ({"control_dt": np.array(-1.0)}, "control_dt is a number of seconds"),
    ],
)
def test_damaged_motions_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {
        "joints": np.array(JOINTS),
        "control_dt": np.array(0.02),
        "joint_pos": np.zeros((5, 12)),
        "joint_vel": np.zeros((5, 12)),
        "base_pos": np.zeros((5, 3)),
        "base_quat": np.tile([1.0, 0.0, 0.0, 0.0], (5, 1)),
    }
    np.savez(tmp_path / "right.npz", **arrays)
    assert load_motion(tmp_path / "right.npz").frames == 5
    wrong = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    np.savez(tmp_path / "wrong.npz", **wrong)
    with pytest.raises(TaskError, match=message):
        load_motion(tmp_path / "wrong.npz")


@pytest.mark.parametrize("data", [b"", b"text", b"PK\x03\x04"])
def test_what_is_no_motion_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "motion.npz").write_bytes(data)
    with pytest.raises(TaskError, match="not a motion"):
        load_motion(tmp_path / "motion.npz")
