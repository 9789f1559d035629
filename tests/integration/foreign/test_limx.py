"""Policies of two networks, as LimX's program runs them: an encoder of ten samples, then the policy."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml
from tests.integration.foreign.test_import import network
from tests.support.foreign_reference import gravity

from physai.foreign import ForeignPolicyError, import_policy
from physai.foreign.readers.limx import read
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sim.policies.onnx import OnnxPolicy

LEFT = [f"{leg}_{part}_joint" for leg in ("FL", "RL") for part in ("hip", "thigh", "calf")]
RIGHT = [f"{leg}_{part}_joint" for leg in ("FR", "RR") for part in ("hip", "thigh", "calf")]
POSE = {name: (0.05, 0.9, -1.7)[at % 3] for at, name in enumerate([*LEFT, *RIGHT])}
HISTORY, LATENT, FRAME = 4, 3, 3 + 3 + 12 + 12 + 12 + 2 + 4
SETTINGS: dict[str, Any] = {
    "loop_frequency": 500,
    "joint_names": [*LEFT, *RIGHT],
    "init_state": {"default_joint_angle": POSE},
    "control": {
        "stiffness": 30.0,
        "damping": 1.5,
        "action_scale_pos": 0.25,
        "decimation": 10,
        "user_torque_limit": 40,
    },
    "normalization": {
        "clip_scales": {"clip_observations": 100.0, "clip_actions": 6.0},
        "obs_scales": {"lin_vel": 2.0, "ang_vel": 0.25, "dof_pos": 1.5, "dof_vel": 0.05},
    },
    "size": {"obs_history_length": HISTORY, "commands_size": 3},
    "imu_orientation_offset": {"roll": 0.0, "pitch": 0.0, "yaw": 0.0},
    "user_cmd_scales": {"lin_vel_x": 1.5, "lin_vel_y": 1.0, "ang_vel_yaw": 0.5},
}


def folder(home: Path, settings: dict[str, Any] | None = None, kinds: tuple[str, ...] = ("isaacgym",)) -> Path:
    """The folder of a robot, whose networks have random weights."""
    home.mkdir(parents=True)
    section = {**SETTINGS, **(settings or {})}
    (home / "params.yaml").write_text(yaml.safe_dump({"PointfootCfg": section}), encoding="utf-8")
    commands = section["size"]["commands_size"]
    for number, kind in enumerate(kinds):
        (home / "policy" / kind).mkdir(parents=True)
        network(home / "policy" / kind / "encoder.onnx", inputs=HISTORY * FRAME, outputs=LATENT, gain=1.0 + number)
        network(home / "policy" / kind / "policy.onnx", inputs=LATENT + FRAME + commands, outputs=12)
    return home


def reading_of(file: Path) -> PolicyReading:
    found = read(PolicySource(file=file, metadata={}))
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["isaacgym", "isaaclab"])
def test_it_wants_what_the_program_wants_over_its_first_twelve_periods(tmp_path: Path, kind: str) -> None:
    home = folder(tmp_path / "robot", kinds=(kind,))
    import_policy(home, model="go2", out=tmp_path / "run")
    policy = OnnxPolicy.load(tmp_path / "run")
    contract = policy.header.contract
    robot = list(contract.robot.joint_names)
    names = [*LEFT, *RIGHT]
    if kind == "isaaclab":
        names = [name for pair in zip(LEFT, RIGHT, strict=True) for name in pair]
    columns = [robot.index(name) for name in names]
    default = np.array([POSE[name] for name in names])
    sessions = {
        name: onnxruntime.InferenceSession(str(home / "policy" / kind / f"{name}.onnx"))
        for name in ("encoder", "policy")
    }

    def run(name: str, values: Any) -> Any:
        return sessions[name].run(None, {"obs": values[None].astype(np.float32)})[0][0]

    random = np.random.default_rng(5)
    policy.reset(1)
    frames: list[Any] = []
    last, turn = np.zeros(12), 0.0
    for _ in range(12):
        quat = random.standard_normal(4)
        sensors = {
            field.name: random.standard_normal((1, field.size)).astype(np.float32) for field in contract.robot.sensors
        }
        sensors["imu_quat"] = (quat / np.linalg.norm(quat))[None].astype(np.float32)
        command = random.uniform(-0.2, 0.2, (1, 3)).astype(np.float32)
        turn = (turn + 0.02 * 2.0) % 1.0
        frame = np.concatenate(
            [
                sensors["imu_ang_vel_b"][0] * 0.25,
                gravity(sensors["imu_quat"].astype(np.float64))[0],
                (sensors["joint_pos"][0, columns] - default) * 1.5,
                sensors["joint_vel"][0, columns] * 0.05,
                last,
                [math.sin(2 * math.pi * turn), math.cos(2 * math.pi * turn)],
                [2.0, 0.5, 0.5, 0.1],
            ]
        )
        frames = [*frames, frame][-HISTORY:] if frames else [frame] * HISTORY
        latent = run("encoder", np.concatenate(frames))
        output = np.clip(run("policy", np.concatenate([latent, frame, command[0]])), -6.0, 6.0)
        last = output
        targets = policy(sensors, {"velocity_command": command})["joint_pos_target"][0]
        action = contract.action.terms[0]
        assert list(action.joints) == names
        np.testing.assert_allclose(targets, np.clip(default + 0.25 * output, action.lower, action.upper), atol=2e-5)


def test_it_states_what_its_files_state(tmp_path: Path) -> None:
    found = reading_of(folder(tmp_path / "robot") / "policy" / "isaacgym" / "policy.onnx")
    assert found.values["stiffness"] == [30.0] * 12
    assert found.values["effort"] == [40.0] * 12
    assert found.values["control_dt"] == pytest.approx(0.02)
    # A full stick is 0.5, of which 1.5, 1 and 0.5 are made.
    assert found.values["command"] == [[-0.75, -0.5, -0.25], [0.75, 0.5, 0.25]]
    assert found.sources["default_pos"] == "params.yaml: init_state.default_joint_angle"


def test_ankles_have_their_own_damping_and_effort(tmp_path: Path) -> None:
    names = ["hip_L", "ankle_L", "hip_R", "ankle_R"]
    control = {**SETTINGS["control"], "ankle_joint_damping": 0.8, "ankle_joint_torque_limit": 20}
    settings = {
        "joint_names": names,
        "init_state": {"default_joint_angle": dict.fromkeys(names, 0.0)},
        "control": control,
        "gait": {"frequencies": 1.3, "swing_height": 0.12},
        "size": {"obs_history_length": HISTORY, "commands_size": 5},
    }
    found = reading_of(folder(tmp_path / "robot", settings))
    assert (found.values["damping"], found.values["effort"]) == ([1.5, 0.8, 1.5, 0.8], [40.0, 20.0, 40.0, 20.0])
    constants = [term["values"] for term in found.values["observation"] if term["of"] == "constant"]
    assert constants == [[1.3, 0.5, 0.5, 0.12], [0.0, 0.0]]


def test_of_two_policies_in_a_folder_one_has_to_be_chosen(tmp_path: Path) -> None:
    home = folder(tmp_path / "robot", kinds=("isaacgym", "isaaclab"))
    with pytest.raises(ForeignPolicyError, match=r"give the file of one policy \(.*isaacgym.*isaaclab"):
        read(PolicySource(file=home, metadata={}))


def test_a_copy_above_is_that_of_the_folder_with_the_same_bytes(tmp_path: Path) -> None:
    home = folder(tmp_path / "robot", kinds=("isaaclab",))
    copy = home / "policy" / "policy.onnx"
    copy.write_bytes((home / "policy" / "isaaclab" / "policy.onnx").read_bytes())
    assert reading_of(copy).values["joints"][:2] == [LEFT[0], RIGHT[0]]
    copy.write_bytes(copy.read_bytes() + b"\0")
    with pytest.raises(ForeignPolicyError, match="tells the order of joints, and it is in none"):
        read(PolicySource(file=copy, metadata={}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"joint_names": ["a", "wheel_L", "b", "wheel_R"]},
            r"commands speeds of wheels \(wheel_L, wheel_R\), and contracts have",
        ),
        ({"joint_names": ["a"]}, "joint_names has no names for two legs"),
        ({"loop_frequency": "fast"}, 'loop_frequency is "fast", expected a number'),
        (
            {"size": {"obs_history_length": 0.5, "commands_size": 3}},
            "obs_history_length is 0.5, expected a whole number",
        ),
        ({"imu_orientation_offset": {"roll": 0.1}}, "imu_orientation_offset turns the IMU"),
        ({"gait": {"frequencies": 0.0, "swing_height": 0.1}}, "gait.frequencies is 0, expected more than 0"),
        ({"control": []}, "control.stiffness is null, expected a number"),
    ],
)
def test_settings_that_say_something_else_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ForeignPolicyError, match=message):
        read(PolicySource(file=folder(tmp_path / "robot", settings), metadata={}))


@pytest.mark.parametrize("text", ["", "[1]", "PointfootCfg: 3", "other: {}"])
def test_other_settings_are_of_another_family(tmp_path: Path, text: str) -> None:
    home = folder(tmp_path / "robot")
    (home / "params.yaml").write_text(text, encoding="utf-8")
    assert read(PolicySource(file=home, metadata={})) is None
    assert read(PolicySource(file=home / "policy" / "isaacgym" / "other.onnx", metadata={})) is None


@pytest.mark.slow
def test_an_encoder_that_reads_another_history_is_refused_with_both_numbers(tmp_path: Path) -> None:
    home = folder(tmp_path / "robot")
    network(home / "policy" / "isaacgym" / "encoder.onnx", inputs=2 * HISTORY * FRAME, outputs=LATENT)
    with pytest.raises(
        ForeignPolicyError, match=rf"encoder.onnx reads {2 * HISTORY * FRAME} numbers, and {HISTORY * FRAME} are given"
    ):
        import_policy(home, model="go2", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif("FOREIGN_FILES" not in os.environ, reason="FOREIGN_FILES names no folder with LimX's repository")
def test_each_policy_of_the_public_repository_is_read() -> None:
    models = Path(os.environ["FOREIGN_FILES"]) / "limx" / "controllers" / "model"
    files = sorted(models.glob("[PS]F_*/policy/isaac*/policy.onnx"))
    assert len(files) >= 10
    for file in files:
        found = reading_of(file)
        assert len(found.values["joints"]) in (6, 8)
        assert not found.contradictions
