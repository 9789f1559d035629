"""rl_sar's policies: two files per policy, of which one replaces keys of the other, in the format of its program."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from physai.foreign import ForeignPolicyError, PolicyDescription
from physai.foreign.conversion.fitted_robot import fitted_robot
from physai.foreign.conversion.foreign_contract import foreign_contract
from physai.foreign.readers.rl_sar import read
from physai.foreign.reading import PolicyReading, PolicySource
from physai.train.models.observation_terms import ObservationTerms

Floats = NDArray[np.float64]

SDK = [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")]
# Not its own inverse, so that the direction counts.
MAPPING = [3, 4, 5, 9, 10, 11, 0, 1, 2, 6, 8, 7]
POLICY = [SDK[index] for index in MAPPING]
BASE: dict[str, Any] = {
    "dt": 0.004,
    "decimation": 5,
    "fixed_kp": [80.0] * 12,
    "num_of_dofs": 12,
    "wheel_indices": [],
    "torque_limits": [20.0] * 12,
    "default_dof_pos": [0.0, 0.8, -1.5] * 4,
    "joint_names": SDK,
    "joint_controller_names": [name.replace("joint", "controller") for name in SDK],
    "joint_mapping": list(range(12)),
}
CONFIG: dict[str, Any] = {
    "model_name": "walk.pt",
    "num_observations": 45,
    "observations": ["commands", "ang_vel", "gravity_vec", "dof_pos", "dof_vel", "actions"],
    "observations_history": [0, 1, 2],
    "observations_history_priority": "time",
    "clip_obs": 3.0,
    "clip_actions_lower": [-4.0] * 12,
    "clip_actions_upper": [4.0] * 12,
    "rl_kp": [21.0, 22.0, 23.0] * 4,
    "rl_kd": [0.5, 0.6, 0.7] * 4,
    "num_of_dofs": 12,
    "action_scale": [0.125, 0.25, 0.5] * 4,
    "wheel_indices": [],
    "lin_vel_scale": 2.0,
    "ang_vel_scale": 0.25,
    "dof_pos_scale": 1.5,
    "dof_vel_scale": 0.05,
    "commands_scale": [2.0, 2.0, 0.25],
    "default_dof_pos": [0.1, 0.7, -1.4, -0.1, 0.9, -1.6, 0.2, 0.6, -1.3, -0.2, -1.5, 0.8],
    "joint_mapping": MAPPING,
}
COMMAND = {"command": [[-1, -0.5, -1], [1, 0.5, 1]]}


def write(home: Path, base: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A folder `policy` with one robot and one policy; None leaves a key out."""
    folder = home / "policy" / "mutt" / "gym" / "walk"
    folder.mkdir(parents=True)
    kept = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    (folder / "config.yaml").write_text(json.dumps({"mutt/gym/walk": kept}), encoding="utf-8")
    robot = {key: value for key, value in {**BASE, **(base or {})}.items() if value is not None}
    (home / "policy" / "mutt" / "base.yaml").write_text(json.dumps({"mutt": robot}), encoding="utf-8")
    (folder / "walk.pt").write_bytes(b"a network")
    return folder / "config.yaml"


def reading_of(file: Path) -> PolicyReading:
    found = read(PolicySource(file=file, metadata={}))
    assert found is not None
    return found


def refusal(file: Path) -> str:
    with pytest.raises(ForeignPolicyError) as caught:
        reading_of(file).complete(COMMAND)
    return str(caught.value)


def test_each_value_comes_from_the_file_that_holds(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path))
    assert found.values["joints"] == POLICY
    assert found.values["default_pos"] == CONFIG["default_dof_pos"]
    assert found.values["stiffness"] == CONFIG["rl_kp"]
    assert found.values["damping"] == CONFIG["rl_kd"]
    assert found.values["action_scale"] == CONFIG["action_scale"]
    assert found.values["effort"] == BASE["torque_limits"]
    assert found.values["control_dt"] == 0.02
    assert found.values["output_limit"] == 4.0
    assert {key: found.values[key] for key in ("layout", "newest", "first_fill")} == {
        "layout": "time",
        "newest": "first",
        "first_fill": "zero",
    }
    assert found.values["observation"] == [
        {"of": "command", "elements": [0, 1], "scale": 2.0, "clip": 1.5, "history": 3},
        {"of": "command", "elements": [2], "scale": 0.25, "clip": 12.0, "history": 3},
        {"of": "ang_vel", "scale": 0.25, "clip": 12.0, "history": 3},
        {"of": "gravity", "clip": 3.0, "history": 3},
        {"of": "joint_pos", "scale": 1.5, "clip": 2.0, "history": 3},
        {"of": "joint_vel", "scale": 0.05, "clip": pytest.approx(60.0), "history": 3},
        {"of": "last_action", "clip": 3.0, "history": 3},
    ]
    assert found.network == tmp_path / "policy" / "mutt" / "gym" / "walk" / "walk.pt"
    assert {file.name for file in found.files} == {"config.yaml", "base.yaml"}
    assert found.unread == ["fixed_kp", "joint_controller_names", "lin_vel_scale"]
    with pytest.raises(ForeignPolicyError) as caught:
        found.complete({})
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == ["command"]


def test_a_source_names_what_was_replaced(tmp_path: Path) -> None:
    sources = reading_of(write(tmp_path, base={"default_dof_pos": [0.3] * 2})).sources
    assert sources["default_pos"] == "config.yaml: default_dof_pos (base.yaml has [0.3, 0.3])"
    assert sources["effort"] == "base.yaml: torque_limits"
    assert sources["stiffness"] == "config.yaml: rl_kp"
    assert sources["control_dt"] == "base.yaml: dt · decimation"
    assert sources["joints"].startswith(
        "base.yaml: joint_names, config.yaml: joint_mapping (base.yaml has [0, 1, 2, 3,"
    )


def test_it_is_found_by_its_folder_and_its_network(tmp_path: Path) -> None:
    file = write(tmp_path)
    for given in (file, file.parent, file.parent / "walk.pt"):
        assert reading_of(given).values["joints"] == POLICY
    (file.parent / "other.pt").write_bytes(b"another network")
    assert "it describes walk.pt, not other.pt" in refusal(file.parent / "other.pt")


def test_files_of_others_are_left_to_others(tmp_path: Path) -> None:
    own = write(tmp_path / "own")
    others = {
        "plain/config.yaml": "robot: {dof: 12}",
        "damaged/config.yaml": "!!python/tuple [",
        "listed/config.yaml": "[1, 2]",
        "policy.yaml": "model_name: walk.pt",
        "robots/base.yaml": "a: {b: 1}",
        "robots/mine/config.yaml": "a: {b: ]",
    }
    for name, text in others.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for file in (*(tmp_path / name for name in others), own.parents[2] / "base.yaml", tmp_path, tmp_path / "absent.pt"):
        assert read(PolicySource(file=file, metadata={})) is None, file


def program(config: dict[str, Any], samples: list[dict[str, Floats]]) -> Floats:
    """Observations as rl_sar's program makes them, shape (samples, size)."""
    scales = {name: config[f"{name}_scale"] for name in ("ang_vel", "dof_pos", "dof_vel", "commands")}
    chosen, terms = config["observations_history"] or [0], [3, 3, 3, 12, 12, 12]
    buffer = [np.zeros(45)] * (max(chosen) + 1)
    action = np.zeros(12)
    rows: list[Floats] = []
    for sample in samples:
        w, x, y, z = sample["quat"]
        blocks = [
            sample["command"] * scales["commands"],
            sample["ang_vel"] * scales["ang_vel"],
            np.array([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1]),
            (sample["position"][MAPPING] - config["default_dof_pos"]) * scales["dof_pos"],
            sample["speed"][MAPPING] * scales["dof_vel"],
            action,
        ]
        buffer = [np.clip(np.concatenate(blocks), -config["clip_obs"], config["clip_obs"]), *buffer[:-1]]
        if config["observations_history_priority"] == "time":
            rows.append(np.concatenate([buffer[step] for step in chosen]))
        else:
            parts = [np.split(buffer[step], np.cumsum(terms)[:-1]) for step in chosen]
            rows.append(np.concatenate([part[term] for term in range(len(terms)) for part in parts]))
        action = np.clip(sample["output"], config["clip_actions_lower"], config["clip_actions_upper"])
    return np.array(rows)


def drawn(count: int, joints: int = 12, seed: int = 0) -> list[dict[str, Floats]]:
    """Sensors, commands and outputs of a few periods, some beyond the bounds; joints in the order of the SDK."""
    random = np.random.default_rng(seed)
    quats = random.standard_normal((count, 4))
    return [
        {
            "quat": quat / np.linalg.norm(quat),
            "ang_vel": random.uniform(-20, 20, 3),
            "command": random.uniform(-1, 1, 3) * [2, 2, 14],
            "position": random.uniform(-5, 5, joints),
            "speed": random.uniform(-90, 90, joints),
            "output": random.uniform(-6, 6, joints),
        }
        for quat in quats
    ]


def observed(described: PolicyDescription, names: list[str], samples: list[dict[str, Floats]], scratch: Path) -> Floats:
    """Observations as the contract's graph makes them on the robot go2, shape (samples, size)."""
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
        sensors = {
            "imu_quat": as_row["quat"],
            "imu_ang_vel_b": as_row["ang_vel"],
            "joint_pos": as_row["position"][:, columns],
            "joint_vel": as_row["speed"][:, columns],
        }
        row, after = terms(sensors, {"velocity_command": as_row["command"]}, state)
        rows.append(row[0].double().numpy())
        state |= after | {"started": torch.ones(1, 1), "previous_action": as_row["output"].clamp(-limit, limit)}
    return np.array(rows)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"observations_history": [3, 2, 1, 0]},
        {"observations_history": []},
        {"observations_history": [0]},
        {"observations_history_priority": "term", "commands_scale": [2.0, 2.0, 2.0]},
        {
            "observations_history": [2, 1, 0],
            "observations_history_priority": "term",
            "commands_scale": [2.0, 2.0, 2.0],
        },
    ],
)
def test_the_contract_sees_what_the_program_sees(tmp_path: Path, changes: dict[str, Any]) -> None:
    described = reading_of(write(tmp_path / "files", **changes)).complete(COMMAND)
    samples = drawn(6)
    seen = observed(described, SDK, samples, tmp_path / "scratch")
    made = program({**CONFIG, **changes}, samples)
    assert np.abs(made).max() == CONFIG["clip_obs"]
    np.testing.assert_allclose(seen, made, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        (
            {"wheel_indices": [3, 6]},
            "wheel_indices [3, 6]: the policy commands speeds of wheels (RL_hip_joint, FR_hip_joint), and contracts",
        ),
        ({"wheel_indices": 3}, "wheel_indices 3: the policy commands speeds of wheels ()"),
        ({"observations": ["whole_body_tracking/motion_command"]}, "'whole_body_tracking/motion_command': it tracks"),
        ({"observations": ["RoboMimic_Deploy/phase"]}, "'RoboMimic_Deploy/phase': it tracks a motion"),
        ({"observations": ["height_scan"]}, "'height_scan', which the reader does not know; describe the policy in a"),
        ({"observations": "gravity"}, 'observations "gravity": expected names'),
        ({"ang_vel_scale": None}, "'ang_vel' and no ang_vel_scale is stated, for which the program takes 0"),
        ({"dof_vel_scale": "0.05x"}, 'config.yaml: dof_vel_scale is "0.05x", expected a number'),
        ({"commands_scale": [2.0, 2.0]}, "commands_scale has 2 numbers, expected 3"),
        ({"commands_scale": 2.0}, "commands_scale is 2.0, expected a list of numbers"),
        ({"clip_obs": None}, "clip_obs is null, expected a number"),
        ({"clip_obs": -1.0}, "clip"),
        ({"clip_actions_lower": [-3.0] * 12}, "clip_actions_lower [-3.0, -3.0"),
        ({"clip_actions_upper": [4.0] * 11 + [5.0]}, "expected one x and -x for all joints; other bounds"),
        (
            {"clip_actions_lower": [-4.0] * 11 + [-5.0], "clip_actions_upper": [4.0] * 11 + [5.0]},
            "expected one x and -x for all joints; other bounds",
        ),
        (
            {"clip_actions_lower": [-4.0] * 9, "clip_actions_upper": [4.0] * 9},
            "has 9 numbers, joint_names has 12 names",
        ),
        ({"joint_mapping": [*MAPPING[:11], 12]}, "no order of the 12 joint_names"),
        ({"joint_mapping": [*MAPPING[:11], 6]}, "no order of the 12 joint_names"),
        ({"joint_mapping": [False, True, *range(2, 12)]}, "no order of the 12 joint_names"),
        ({"num_of_dofs": 10}, "num_of_dofs is 10, joint_names has 12 names"),
        ({"num_observations": 48}, "num_observations is 48, its observations make 45"),
        ({"rl_kp": [20.0] * 11}, "stiffness has 11 numbers, joints has 12 names"),
        ({"observations_history": [0, 2, 4]}, "observations_history [0, 2, 4]: expected 0 to the oldest"),
        ({"observations_history": [1, 0, 2]}, "observations_history [1, 0, 2]: expected 0 to the oldest"),
        ({"observations_history": [1, 2]}, "observations_history [1, 2]: expected 0 to the oldest"),
        ({"observations_history": 3}, "observations_history 3: expected 0 to the oldest"),
        ({"observations_history_priority": "age"}, 'priority is "age", expected time or term'),
        ({"observations_history_priority": None}, "priority is null, expected time or term"),
        ({"observations_history_priority": "term"}, "the history of a command with several scales cannot be expressed"),
        ({"dt": 0.01}, "control_dt is 0.02 (base.yaml: dt · decimation) and 0.05 (config.yaml: dt · decimation)"),
        ({"model_name": None, "rl_kp": None}, "model_name names the network, got None"),
        ({"model_name": "a\0.pt"}, "model_name names the network, got"),
        ({"model_name": "../walk.pt"}, "model_name '../walk.pt' is outside its folder"),
        ({"model_name": "/etc/passwd"}, "model_name '/etc/passwd' is outside its folder"),
    ],
)
def test_what_the_program_does_otherwise_is_refused(tmp_path: Path, changes: dict[str, Any], phrase: str) -> None:
    assert phrase in refusal(write(tmp_path, **changes))


def test_the_speed_of_the_base_is_named(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path, observations=["lin_vel", "actions"], num_observations=15))
    assert found.values["observation"][0] == {"of": "base_lin_vel", "scale": 2.0, "clip": 1.5, "history": 3}


def test_keys_that_are_nowhere_are_asked_for(tmp_path: Path) -> None:
    base: dict[str, Any] = dict.fromkeys(("joint_names", "dt"))
    absent: dict[str, Any] = dict.fromkeys(("rl_kp", "rl_kd", "action_scale", "observations"))
    message = refusal(write(tmp_path, base=base, **absent))
    asked = [line.split(":")[0].strip() for line in message.splitlines()[1:]]
    assert asked == ["joints", "stiffness", "damping", "action_scale", "control_dt", "observation"]


def test_without_bounds_outputs_are_not_bounded(tmp_path: Path) -> None:
    # The program clips them if both keys are there.
    assert "output_limit" not in reading_of(write(tmp_path, clip_actions_lower=None)).values


def test_a_folder_with_another_name_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path)
    moved = file.parent.rename(file.parent.with_name("run"))
    assert "has mutt/gym/walk, and nothing under 'mutt/gym/run', the name of its folder" in refusal(moved)


def test_a_policy_without_its_robot_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path)
    (tmp_path / "policy" / "mutt" / "base.yaml").unlink()
    assert "no base.yaml in the folders above" in refusal(file)


@pytest.mark.parametrize("name", ["config.yaml", "base.yaml"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    file = write(tmp_path)
    damaged = file if name == "config.yaml" else tmp_path / "policy" / "mutt" / name
    damaged.write_bytes(b"mutt: {a: [1, 2")
    assert f"{name}: not YAML" in refusal(file)
    damaged.write_bytes(b"#" * (1 << 19))
    assert f"{name}: more than {1 << 18} bytes" in refusal(file)


@pytest.mark.parametrize("value", [None, True, -1, 0, "word", [], {}, [1, "a"], [[1]], [{}], {"a": 1}, 2**63])
def test_values_of_any_type_are_read_or_refused(tmp_path: Path, value: Any) -> None:
    """Nothing but our own error leaves the reader."""
    for index, key in enumerate({**BASE, **CONFIG}):
        file = write(tmp_path / str(index), base={key: value} if key not in CONFIG else {}, **{key: value})
        try:
            reading_of(file).complete(COMMAND)
        except ForeignPolicyError:
            continue


REAL: dict[str, str | tuple[int, int]] = {
    "a1/legged_gym": (12, 6),
    "a1/robot_lab": (12, 1),
    "b2/robot_lab": (12, 1),
    "b2w/robot_lab": "wheel_indices [12, 13, 14, 15]",
    "g1/robomimic/charleston": "'RoboMimic_Deploy/phase': it tracks a motion",
    "g1/robomimic/locomotion": (29, 1),
    "g1/whole_body_tracking/dance_102": "'whole_body_tracking/motion_command': it tracks a motion",
    "g1/whole_body_tracking/gangnam_style": "'whole_body_tracking/motion_command': it tracks a motion",
    "go2/himloco": (12, 6),
    "go2/robot_lab": (12, 1),
    "go2w/robot_lab": "wheel_indices [12, 13, 14, 15]",
    "gr1t1/legged_gym": "clip_actions_lower [-0.4391, ",
    "gr1t2/legged_gym": "clip_actions_lower [-0.4391, ",
    "l4w4/legged_gym": "wheel_indices [3, 7, 11, 15]",
    "lite3/himloco": (12, 6),
    "tita/robot_lab": "wheel_indices [6, 7]",
}
"""Numbers of joints and of observations in a history, or the reason of the refusal."""


@pytest.mark.skipif("FOREIGN_FILES" not in os.environ, reason="FOREIGN_FILES names no folder with the repositories")
def test_the_published_policies_are_read_or_refused_by_name() -> None:
    home = Path(os.environ["FOREIGN_FILES"]) / "rlsar" / "policy"
    files = {file.parent.relative_to(home).as_posix(): file for file in home.rglob("config.yaml")}
    assert sorted(files) == sorted(REAL)
    for name, file in files.items():
        expected = REAL[name]
        if isinstance(expected, str):
            assert expected in refusal(file)
            continue
        found = reading_of(file).complete(COMMAND)
        assert (len(found.joints), found.observation[0].history) == expected
        assert found.control_dt == 0.02
        assert found.output_limit == 100.0
    mapped = reading_of(files["go2/himloco"]).values
    assert mapped["joints"][:3] == ["FL_hip_joint", "FL_thigh_joint", "FL_calf_joint"]
    assert mapped["default_pos"][:3] == [0.1, 0.8, -1.5]
    assert mapped["newest"] == "first"
    assert reading_of(files["a1/legged_gym"]).values["newest"] == "last"
