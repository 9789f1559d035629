"""Files of unitree_rl_lab and unitree_rl_mjlab: what their common program does with them, and what it cannot mean."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from tests.integration.foreign.test_import import network
from tests.integration.foreign.test_rl_sar import drawn

from physai.foreign import ForeignPolicyError, PolicyDescription
from physai.foreign.conversion.assembly import assembled
from physai.foreign.conversion.fitted_robot import fitted_robot
from physai.foreign.conversion.foreign_contract import foreign_contract
from physai.foreign.readers.isaac.unitree_deploy import read
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.models.observation_terms import ObservationTerms

Floats = NDArray[np.float64]

SDK = [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")]
# Not its own inverse, so that the direction counts.
MAP = [3, 4, 5, 9, 10, 11, 0, 1, 2, 6, 8, 7]
POLICY = [SDK[motor] for motor in MAP]
POSE = [0.1, 0.7, -1.4, -0.1, 0.9, -1.6, 0.2, 0.6, -1.3, -0.2, -1.5, 0.8]
SCALES = [0.125, 0.25, 0.5] * 4
DEPLOY: dict[str, Any] = {
    "joint_ids_map": MAP,
    "step_dt": 0.02,
    "stiffness": [20.0 + motor for motor in range(12)],
    "damping": [0.5 + 0.1 * motor for motor in range(12)],
    "default_joint_pos": POSE,
    "commands": {
        "base_velocity": {
            "ranges": {"lin_vel_x": [-0.5, 1.0], "lin_vel_y": [-0.3, 0.3], "ang_vel_z": [-0.2, 0.4], "heading": None}
        }
    },
    "actions": {
        "JointPositionAction": {
            "clip": None,
            "joint_names": [".*"],
            "scale": SCALES,
            "offset": POSE,
            "joint_ids": slice(None),
        }
    },
}
COUNTS = {
    "base_ang_vel": 3,
    "projected_gravity": 3,
    "velocity_commands": 3,
    "joint_pos_rel": 12,
    "joint_vel_rel": 12,
    "last_action": 12,
    "gait_phase": 2,
}
METADATA = {
    "joint_names": ",".join(POLICY),
    "joint_stiffness": ",".join(f"{20.0 + motor:.3f}" for motor in MAP),
    "joint_damping": ",".join(f"{0.5 + 0.1 * motor:.3f}" for motor in MAP),
    "default_joint_pos": ",".join(f"{one:.3f}" for one in POSE),
    "action_scale": ",".join(f"{one:.3f}" for one in SCALES),
}


def observations(**changes: dict[str, Any] | None) -> dict[str, Any]:
    """Terms as both projects write them; None leaves one out."""
    terms: dict[str, Any] = {
        name: {"params": {}, "clip": None, "scale": [1.0] * count, "history_length": 1}
        for name, count in COUNTS.items()
        if name != "gait_phase"
    }
    terms["velocity_commands"]["params"] = {"command_name": "base_velocity"}
    for name, change in changes.items():
        terms[name] = {"params": {}, "clip": None, "history_length": 1, **terms.get(name, {}), **(change or {})}
    return {name: term for name, term in terms.items() if changes.get(name, {}) is not None}


def write(home: Path, robot: str = "go2", *, inputs: int = 45, **changes: Any) -> Path:
    """A policy in the folder of its robot; None leaves a key out. Returns deploy.yaml."""
    folder = home / "deploy" / "robots" / robot / "config" / "policy" / "velocity" / "v0"
    (folder / "params").mkdir(parents=True)
    (folder / "exported").mkdir()
    network(folder / "exported" / "policy.onnx", inputs=inputs)
    values = {"observations": observations(), **DEPLOY, **changes}
    file = folder / "params" / "deploy.yaml"
    kept = {key: value for key, value in values.items() if value is not None}
    # As its exporter writes it, with tags of Python and aliases of equal lists.
    file.write_text(yaml.dump(kept, default_flow_style=None, sort_keys=False), encoding="utf-8")
    return file


def reading_of(file: Path, metadata: dict[str, str] | None = None) -> PolicyReading:
    found = read(PolicySource(file=file, metadata=metadata or {}))
    assert found is not None
    return found


def refusal(file: Path, metadata: dict[str, str] | None = None) -> str:
    with pytest.raises(ForeignPolicyError) as caught:
        reading_of(file, metadata).complete({})
    return str(caught.value)


def action(**changes: Any) -> dict[str, Any]:
    return {"JointPositionAction": {**DEPLOY["actions"]["JointPositionAction"], **changes}}


def test_each_value_is_in_the_order_that_the_program_gives_it(tmp_path: Path) -> None:
    file = write(tmp_path)
    text = file.read_text(encoding="utf-8")
    assert "!!python/object/apply:builtins.slice [null, null, null]" in text
    assert "*id001" in text
    found = reading_of(file)
    assert found.values == {
        "joints": POLICY,
        "start_ramp_s": 0.0,
        "default_pos": POSE,
        "stiffness": [20.0 + motor for motor in MAP],
        "damping": [0.5 + 0.1 * motor for motor in MAP],
        "action_scale": SCALES,
        "control_dt": 0.02,
        "command": [[-0.5, -0.3, -0.2], [1.0, 0.3, 0.4]],
        "observation": [
            {"of": "ang_vel", "scale": 1.0},
            {"of": "gravity", "scale": 1.0},
            {"of": "command", "scale": 1.0},
            {"of": "joint_pos", "scale": 1.0},
            {"of": "joint_vel", "scale": 1.0},
            {"of": "last_action", "scale": 1.0},
        ],
    }
    assert found.sources["joints"] == (
        "code: order of the motors in unitree_sdk2 (robots/go2); deploy.yaml: joint_ids_map"
    )
    assert found.sources["stiffness"] == "deploy.yaml: stiffness, joint_ids_map; code: in the order of the motors"
    assert found.network == file.parents[1] / "exported" / "policy.onnx"
    assert (found.files, found.unread, found.contradictions) == ({file}, [], [])
    assert found.complete({}).output_limit is None


def test_it_is_found_by_its_network_its_file_and_its_folder(tmp_path: Path) -> None:
    file = write(tmp_path)
    home = file.parents[1]
    (home / "exported" / "policy.pt").write_bytes(b"a network")
    for given in (file, home, home / "exported" / "policy.onnx"):
        assert reading_of(given).network == home / "exported" / "policy.onnx"
    assert reading_of(home / "exported" / "policy.pt").network == home / "exported" / "policy.pt"
    (home / "exported" / "policy.onnx").unlink()
    assert reading_of(file).network == home / "exported" / "policy.pt"
    (home / "exported" / "policy.pt").unlink()
    assert "no policy.onnx or policy.pt in exported/" in refusal(file)


def test_files_of_others_are_left_to_others(tmp_path: Path) -> None:
    own = write(tmp_path / "own")
    others = {
        "run/params/env.yaml": "sim: {dt: 0.005}",
        "run/exported/policy.onnx": "",
        "deploy.yaml": "joint_ids_map: [0]",
        "list/params/deploy.yaml": "[1, 2]",
        "plain/params/deploy.yaml": "image: nginx",
        "plain/exported/policy.onnx": "",
    }
    for name, text in others.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for file in (*(tmp_path / name for name in others), tmp_path, own.parent, tmp_path / "absent.onnx"):
        assert read(PolicySource(file=file, metadata={})) is None, file


def test_a_file_that_leads_elsewhere_is_not_followed(tmp_path: Path) -> None:
    file = write(tmp_path / "a")
    other = write(tmp_path / "b")
    file.unlink()
    file.symlink_to(other)
    assert read(PolicySource(file=file.parents[1], metadata={})) is None
    network = other.parents[1] / "exported" / "policy.onnx"
    network.unlink()
    network.symlink_to(file.parents[1] / "exported" / "policy.onnx")
    assert "leads outside the policy's folder" in refusal(other)


@pytest.mark.parametrize(
    ("robot", "motor", "name"),
    [
        ("a1", 3, "FL_hip_joint"),
        ("b2", 11, "RL_calf_joint"),
        ("g1", 13, "waist_roll_joint"),
        ("g1_23dof", 22, "right_shoulder_pitch_joint"),
        ("g1_29dof", 28, "right_wrist_yaw_joint"),
        ("h1", 8, "right_hip_yaw_joint"),
        ("h1", 19, "left_elbow_joint"),
        ("h1_2", 1, "left_hip_pitch_joint"),
        ("h1_2", 12, "torso_joint"),
        ("h1_2", 26, "right_wrist_yaw_joint"),
    ],
)
def test_a_folder_tells_the_order_of_the_motors(tmp_path: Path, robot: str, motor: int, name: str) -> None:
    one = action(scale=[0.25], offset=[0.0])
    terms = observations(joint_pos_rel={"scale": [1.0]}, joint_vel_rel={"scale": [1.0]}, last_action={"scale": [1.0]})
    changes: dict[str, Any] = {"joint_ids_map": [motor], "default_joint_pos": [0.0]}
    changes |= {"stiffness": [float(n) for n in range(30)], "damping": [1.0] * 30}
    found = reading_of(write(tmp_path, robot, actions=one, observations=terms, **changes))
    assert found.values["joints"] == [name]
    assert found.values["stiffness"] == [float(motor)]


def test_the_reserved_motor_of_h1_is_no_joint(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "h1", joint_ids_map=[*range(8), 9, 10, 11, 12], stiffness=[1.0] * 20))
    assert "joint_ids_map names a motor that has no joint (code: order of the motors" in message


@pytest.mark.parametrize("robot", ["go2w", "mine"])
def test_joints_of_an_unknown_robot_are_asked_for(tmp_path: Path, robot: str) -> None:
    file = write(tmp_path, robot)
    assert [line.split(":")[0].strip() for line in refusal(file).splitlines()[1:]] == ["joints"]
    assert reading_of(file).complete({"joints": POLICY}).joints == tuple(POLICY)


def test_the_environment_of_the_run_names_the_motors(tmp_path: Path) -> None:
    file = write(tmp_path, "mine")
    scene: dict[str, Any] = {"robot": {"joint_sdk_names": SDK, "size": (1, 2)}}
    file.with_name("env.yaml").write_text(yaml.dump({"scene": scene}), encoding="utf-8")
    found = reading_of(file)
    assert found.values["joints"] == POLICY
    assert found.sources["joints"] == "env.yaml: scene.robot.joint_sdk_names; deploy.yaml: joint_ids_map"
    assert {path.name for path in found.files} == {"deploy.yaml", "env.yaml"}
    other = write(tmp_path / "other", "go2")
    scene["robot"]["joint_sdk_names"] = [*SDK[:10], SDK[11], SDK[10]]
    other.with_name("env.yaml").write_text(yaml.dump({"scene": scene}), encoding="utf-8")
    assert "\n  joints is " in refusal(other)


def test_metadata_of_mjlab_name_the_joints_and_have_to_agree(tmp_path: Path) -> None:
    network = write(tmp_path, "mine").parents[1] / "exported" / "policy.onnx"
    found = reading_of(network, METADATA)
    assert found.values["joints"] == POLICY
    assert found.sources["joints"] == "policy.onnx: joint_names"
    assert found.contradictions == []
    # Files have two or three digits, metadata three decimals.
    rounded = {"action_scale": ",".join(f"{one * 1.001:.3f}" for one in SCALES)}
    assert reading_of(network, METADATA | rounded).contradictions == []
    assert reading_of(network, METADATA | {"joint_stiffness": "20.000"}).contradictions[0].startswith("stiffness is ")
    for key, text, name in (
        ("action_scale", ",".join(["0.125,0.548,0.500"] * 4), "action_scale"),
        ("default_joint_pos", ",".join(f"{one + 0.1:.3f}" for one in POSE), "default_pos"),
        ("joint_damping", "0.5,0.5", "damping"),
    ):
        assert f"\n  {name} is [" in refusal(network, METADATA | {key: text})
    assert "metadata joint_damping has" in refusal(network, METADATA | {"joint_damping": "a,b"})
    other = write(tmp_path / "other", "go2").parents[1] / "exported" / "policy.onnx"
    assert "\n  joints is " in refusal(other, METADATA | {"joint_names": ",".join(SDK)})


def observed(described: PolicyDescription, names: list[str], samples: list[dict[str, Floats]], scratch: Path) -> Floats:
    """Observations as the contract makes them on the robot go2, shape (samples, size).

    Args:
        described: the policy.
        names: joints of the samples in their order.
        samples: sensors, commands and outputs.
        scratch: a new folder.
    """
    scratch.mkdir()
    contract = foreign_contract(described, fitted_robot("go2", described, scratch), task="velocity")
    terms = ObservationTerms(contract)
    columns = [names.index(name) for name in contract.robot.joint_names]
    limit = described.output_limit or np.inf
    sizes = {"started": 1, "previous_action": len(described.joints), **terms.history_sizes()}
    state = {name: torch.zeros(1, size) for name, size in sizes.items()}
    rows: list[Floats] = []
    for sample in samples:
        as_row = {name: torch.tensor(value, dtype=torch.float32)[None] for name, value in sample.items()}
        sensors = {"imu_quat": as_row["quat"], "imu_ang_vel_b": as_row["ang_vel"]}
        sensors |= {"joint_pos": as_row["position"][:, columns], "joint_vel": as_row["speed"][:, columns]}
        row, after = terms(sensors, {"velocity_command": as_row["command"]}, state)
        rows.append(row[0].double().numpy())
        state |= after | {"started": torch.ones(1, 1), "previous_action": as_row["output"].clamp(-limit, limit)}
    return np.array(rows)


class Program:
    """What the programs of both projects compute, term after term of the file."""

    def __init__(self, terms: dict[str, Any]) -> None:
        self.by_time = terms.get("use_gym_history", False)
        self.terms: list[tuple[str, dict[str, Any], bool]] = []
        scale_first = False
        for name, term in terms.items():
            scale_first = term if name == "scale_first" else scale_first
            if name not in ("scale_first", "use_gym_history"):
                self.terms.append((name, term, scale_first))
        self.phase, self.action = 0.0, np.zeros(12)
        self.buffers: list[list[Floats]] = []

    def value(self, name: str, term: dict[str, Any], scale_first: bool, sample: dict[str, Floats]) -> Floats:
        w, x, y, z = sample["quat"]
        ids = term["params"].get("asset_cfg", {}).get("joint_ids", list(range(12)))
        if name == "gait_phase":
            self.phase = (self.phase + 0.02 / term["params"]["period"]) % 1.0
        made = {
            "base_ang_vel": sample["ang_vel"],
            "projected_gravity": np.array([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1]),
            "velocity_commands": sample["command"],
            "joint_pos_rel": (sample["position"][MAP] - POSE)[ids],
            "joint_vel_rel": sample["speed"][MAP][ids],
            "last_action": self.action,
            "gait_phase": np.array([np.sin(2 * np.pi * self.phase), np.cos(2 * np.pi * self.phase)]),
        }[name]
        scale = np.array(term["scale"] or 1.0)
        low, high = term["clip"] or (-np.inf, np.inf)
        return np.clip(made * scale, low, high) if scale_first else np.clip(made, low, high) * scale

    def observe(self, sample: dict[str, Floats]) -> Floats:
        values = [self.value(*term, sample) for term in self.terms]
        lengths = [term["history_length"] for _, term, _ in self.terms]
        if not self.buffers:
            # The program's `reset` observes once before its first step.
            self.buffers = [[value] * length for value, length in zip(values, lengths, strict=True)]
            values = [self.value(*term, sample) for term in self.terms]
        for buffer, value in zip(self.buffers, values, strict=True):
            buffer[:] = [*buffer, value][1:]
        if self.by_time:
            return np.concatenate([buffer[step] for step in range(lengths[0]) for buffer in self.buffers])
        return np.concatenate([value for buffer in self.buffers for value in buffer])


VARIANTS: list[dict[str, Any]] = [
    observations(),
    observations(
        base_ang_vel={"scale": [0.2, 0.3, 0.3], "clip": [-5.0, 5.0]},
        velocity_commands={"scale": [2.0, 2.0, 0.25]},
        joint_pos_rel={"history_length": 3, "clip": [-0.5, 0.5]},
        joint_vel_rel={"scale": [0.05] * 12, "clip": [-40.0, 40.0], "history_length": 5},
        last_action={"history_length": 2, "scale": [0.5] * 12},
        gait_phase={"params": {"period": 0.7}, "scale": [1.0, 1.0]},
    ),
    {
        "projected_gravity": {"params": {}, "clip": None, "scale": None, "history_length": 1},
        **observations(
            joint_pos_rel={"params": {"asset_cfg": {"joint_ids": [7, 0, 3]}}, "scale": [1.5, 2.0, 2.0]},
            joint_vel_rel={"params": {"asset_cfg": {"joint_ids": [2, 1]}}, "scale": [0.05, 0.05], "history_length": 2},
            velocity_commands=None,
        ),
    },
    {
        **observations(joint_vel_rel={"clip": [-40.0, 40.0], "scale": [0.05] * 12}),
        "scale_first": True,
        "gait_phase": {"params": {"period": 0.9}, "clip": [-0.5, 0.5], "scale": [2.0, -2.0], "history_length": 1},
    },
    {
        "use_gym_history": True,
        **{
            name: {
                **term,
                "history_length": 4,
                "scale": [1.0, 1.0, 3.0] if name == "velocity_commands" else term["scale"],
            }
            for name, term in observations().items()
        },
    },
]


FLAT = [terms for terms in VARIANTS if isinstance(next(iter(terms.values())), dict)]
"""Those whose first entry tells the program that there is one input."""


@pytest.mark.parametrize(
    ("terms", "grouped"), [*((terms, False) for terms in FLAT), *((terms, True) for terms in VARIANTS)]
)
def test_the_contract_sees_what_the_program_sees(tmp_path: Path, terms: dict[str, Any], grouped: bool) -> None:
    file = write(tmp_path / "files", observations={"policy": terms} if grouped else terms)
    described = reading_of(file).complete({})
    samples = drawn(6)
    seen = observed(described, SDK, samples, tmp_path / "scratch")
    program = Program(terms)
    for sample, row in zip(samples, seen, strict=True):
        np.testing.assert_allclose(row, program.observe(sample), atol=1e-5)
        program.action = sample["output"]


@pytest.mark.slow
def test_the_run_folder_commands_the_motors_as_the_program_does(tmp_path: Path) -> None:
    terms = observations(joint_pos_rel={"history_length": 3})
    reading = reading_of(write(tmp_path / "files", observations=terms, inputs=69))
    found = assembled(reading, reading.complete({}), "go2", tmp_path / "run", lambda share: None)
    robot = {joint.name: joint for joint in found.contract.robot.joints}
    for motor, name in enumerate(SDK):
        assert (robot[name].stiffness, robot[name].damping) == (
            DEPLOY["stiffness"][motor],
            pytest.approx(DEPLOY["damping"][motor]),
        )
        assert robot[name].default_pos == pytest.approx(POSE[MAP.index(motor)])
    import onnxruntime

    session: Any = onnxruntime.InferenceSession(str(reading.network), providers=["CPUExecutionProvider"])
    policy, program = OnnxPolicy.load(tmp_path / "run"), Program(terms)
    policy.reset(1)
    bounds = found.contract.action.terms[0]
    columns = [SDK.index(name) for name in found.contract.robot.joint_names]
    for sample in drawn(5):
        row = program.observe(sample).astype(np.float32)
        program.action = session.run(None, {"obs": row[None]})[0][0].astype(np.float64)
        motors = np.zeros(12)
        motors[MAP] = program.action * SCALES + POSE
        sensors = {
            "imu_quat": sample["quat"],
            "imu_ang_vel_b": sample["ang_vel"],
            "joint_pos": sample["position"][columns],
            "joint_vel": sample["speed"][columns],
        }
        rows = {name: value[None].astype(np.float32) for name, value in sensors.items()}
        target = policy(rows, {"velocity_command": sample["command"][None].astype(np.float32)})["joint_pos_target"][0]
        expected = np.clip([motors[SDK.index(name)] for name in bounds.joints], bounds.lower, bounds.upper)
        by_name = dict(zip(bounds.joints, expected, strict=True))
        np.testing.assert_allclose(target, [by_name[name] for name in bounds.joints], atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"stiffness": None}, "has no stiffness, which its program needs"),
        ({"joint_ids_map": 3}, "joint_ids_map is 3, expected a list of numbers"),
        ({"joint_ids_map": [*MAP[:11], 3]}, "expected the number of a motor per joint"),
        ({"joint_ids_map": [*MAP[:11], -1]}, "expected the number of a motor per joint"),
        ({"joint_ids_map": [*MAP[:11], 0.5]}, "expected the number of a motor per joint"),
        ({"joint_ids_map": []}, "expected the number of a motor per joint"),
        ({"joint_ids_map": [*MAP[:11], 12]}, "joint_ids_map names a motor that has no joint"),
        ({"default_joint_pos": POSE[:11]}, "default_joint_pos has 11 numbers, joint_ids_map has 12"),
        ({"stiffness": [20.0] * 10}, "stiffness has 10 numbers (deploy.yaml), and joint_ids_map names motor 11"),
        ({"damping": "soft"}, 'damping is "soft", expected a list of numbers'),
        ({"step_dt": "fast"}, "control_dt"),
        ({"actions": {}}, "actions are [], so far policies with one JointPositionAction"),
        ({"actions": {"JointVelocityAction": {}}}, 'actions are ["JointVelocityAction"]'),
        ({"actions": action(joint_ids=[0, 1, 2])}, "joint_ids is [0, 1, 2]: commands some joints"),
        ({"actions": action(scale=[0.25] * 11)}, "scale has 11 numbers, joint_ids_map has 12"),
        ({"actions": action(scale=0.25)}, "scale is 0.25, expected a list of numbers"),
        ({"actions": action(offset=None)}, "actions and observed positions are relative to different poses"),
        ({"actions": action(offset=[0.0] * 12)}, "offset is [0.0, 0.0"),
        ({"actions": action(clip=[[-1.0, 1.0]] * 11)}, "expected a lower and a greater number per joint"),
        ({"actions": action(clip=[[-100.0]] * 12)}, "expected a lower and a greater number per joint"),
        ({"actions": action(clip=[[1.0, -1.0]] * 12)}, "expected a lower and a greater number per joint"),
        ({"actions": action(clip=3.0)}, "clip is 3.0, expected a list"),
        (
            {"observations": observations(motion_command={"scale": [1.0] * 24})},
            "motion_command: the policy tracks a motion",
        ),
        (
            {"observations": observations(height_scan={"scale": [1.0]})},
            "height_scan: a term that the reader does not know",
        ),
        (
            {"observations": observations(gait_phase_my={"scale": [1.0] * 2})},
            "gait_phase_my: a term that the reader does",
        ),
        ({"observations": observations(base_lin_vel={"scale": [1.0] * 3})}, "which no sensor of a robot measures"),
        ({"observations": observations(joint_pos_rel={"scale": [1.0] * 11})}, "scale has 11 numbers, expected 12"),
        ({"observations": observations(base_ang_vel={"scale": [1.0, 2.0]})}, "scale has 2 numbers, expected 3"),
        ({"observations": observations(base_ang_vel={"clip": [-1.0, 2.0]})}, "clip is [-1.0, 2.0], expected -x and x"),
        ({"observations": observations(base_ang_vel={"clip": 3.0})}, "clip is 3.0, expected a list of numbers"),
        (
            {"observations": observations(base_ang_vel={"history_length": 0})},
            "history_length is 0, expected at least 1",
        ),
        ({"observations": observations(base_ang_vel={"history_length": "5"})}, 'history_length is "5"'),
        (
            {"observations": observations(velocity_commands={"scale": [2.0, 2.0, 0.25], "history_length": 5})},
            "a history of 5 samples that have all elements together; this cannot be expressed",
        ),
        ({"observations": observations(projected_gravity={"scale": [1.0, 1.0, 2.0]})}, "which of gravity cannot be"),
        ({"observations": observations(last_action={"scale": [1.0] * 11 + [2.0]})}, "which of last_action cannot be"),
        ({"observations": observations(gait_phase={"scale": None})}, "params.period is null, expected a number"),
        (
            {"observations": observations(joint_pos_rel={"params": {"asset_cfg": {"joint_ids": [12]}}, "scale": None})},
            "joint_ids is [12], the policy has 12 joints",
        ),
        ({"observations": {"obs": observations(), "image": observations()}}, 'has the inputs ["obs", "image"]'),
        ({"observations": {}}, "has the inputs []"),
        ({"observations": [1]}, "observations is [1], expected names with values"),
        ({"observations": {**observations(), "use_gym_history": 1}}, "use_gym_history is 1, expected true or false"),
        (
            {"observations": {**observations(base_ang_vel={"history_length": 2}), "use_gym_history": True}},
            "terms with histories of different lengths",
        ),
        (
            {"commands": {"base_velocity": {"ranges": {"lin_vel_x": [1], "lin_vel_y": [0, 1], "ang_vel_z": [0, 1]}}}},
            "has not two numbers for each of lin_vel_x",
        ),
        ({"commands": {}}, "\n  command: least and greatest"),
    ],
)
def test_what_the_program_could_not_mean_is_refused(tmp_path: Path, changes: dict[str, Any], phrase: str) -> None:
    file = write(tmp_path / "files", **changes)
    if phrase.startswith("which no sensor"):
        described = reading_of(file).complete({})
        with pytest.raises(ForeignPolicyError, match=phrase):
            observed(described, SDK, drawn(1), tmp_path / "scratch")
    else:
        assert phrase in refusal(file)


def test_joints_that_no_file_names_cannot_be_selected(tmp_path: Path) -> None:
    chosen = observations(joint_pos_rel={"params": {"asset_cfg": {"joint_ids": [1, 0]}}, "scale": [1.0, 1.0]})
    assert "selects joints by number, and no file names them" in refusal(write(tmp_path, "mine", observations=chosen))


def test_what_is_not_read_is_listed(tmp_path: Path) -> None:
    terms = observations(base_ang_vel={"delay": 1})
    file = write(tmp_path, actions=action(clip=[[-100.0, 100.0]] * 12, ema=0.9), observations=terms, gait="trot")
    assert reading_of(file).unread == [
        "actions.JointPositionAction.ema",
        "observations.base_ang_vel.delay",
        "gait",
    ]


@pytest.mark.parametrize("text", ["joint_ids_map: [", "joint_ids_map: 1\njoint_ids_map: 2", "a: !other 1"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    file = write(tmp_path)
    file.write_text(text, encoding="utf-8")
    assert "not YAML" in refusal(file)


REAL = {
    "ulab/deploy/robots/g1": (29, 480, "left_hip_pitch_joint", "right_hip_pitch_joint"),
    "umjlab/deploy/robots/g1": (29, 96, "left_hip_pitch_joint", "left_hip_roll_joint"),
    "umjlab/deploy/robots/go2": (12, 45, "FL_hip_joint", "FL_thigh_joint"),
    "umjlab/deploy/robots/h1_2": (27, 90, "left_hip_yaw_joint", "left_hip_pitch_joint"),
    "umjlab/deploy/robots/g1_23dof": "stiffness has 23 numbers (deploy.yaml), and joint_ids_map names motor 26",
}
"""Numbers of joints and of the observation, and the first two joints; or the reason of the refusal."""


@pytest.mark.skipif("FOREIGN_FILES" not in os.environ, reason="FOREIGN_FILES names no folder with the repositories")
@pytest.mark.parametrize("place", REAL)
def test_the_published_files_are_read_or_refused_by_name(place: str, tmp_path: Path) -> None:
    home = Path(os.environ["FOREIGN_FILES"]) / place
    copied = tmp_path / "robots" / home.name
    shutil.copytree(home, copied)
    files = sorted(copied.rglob("params/deploy.yaml"))
    for file in files:
        # Most are published without their network.
        (file.parents[1] / "exported").mkdir(exist_ok=True)
        (file.parents[1] / "exported" / "policy.onnx").touch()
    expected = REAL[place]
    for file in files:
        if "mimic" in file.parts:
            assert "tracks a motion" in refusal(file)
        elif isinstance(expected, str):
            assert expected in refusal(file)
        else:
            described = reading_of(file).complete({})
            count = len(described.joints)
            sizes = {"joint_pos": count, "joint_vel": count, "last_action": count}
            total = sum(sizes.get(term.of, 3) * term.history for term in described.observation)
            assert (count, total, *described.joints[:2]) == expected
            assert described.control_dt == 0.02


def test_bounds_of_targets_are_those_of_the_contract_within_the_ranges(tmp_path: Path) -> None:
    within = {"hip": (-0.5, 0.5), "thigh": (-9.0, 1.5), "calf": (-2.0, 9.0)}
    clip = [list(within[name.split("_")[1]]) for name in POLICY]
    found = reading_of(write(tmp_path / "go2", actions=action(clip=clip)))
    described = found.complete({})
    (tmp_path / "robot").mkdir()
    fitted = fitted_robot("go2", described, tmp_path / "robot")
    term = foreign_contract(described, fitted, task="velocity").action.terms[0]
    joints = {joint.name: joint for joint in fitted.robot.spec.joints}
    for at, name in enumerate(term.joints):
        low, high = joints[name].position_lower, joints[name].position_upper
        assert low is not None
        assert high is not None
        assert (term.lower[at], term.upper[at]) == (max(clip[at][0], low), min(clip[at][1], high))
