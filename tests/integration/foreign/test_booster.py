"""booster_gym's policies: the deployed program's file, the training's file and a robot, in the formats of both."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.integration.foreign.test_rl_sar import drawn, observed
from tests.integration.foreign.test_unitree_rl_gym import JOINTS, legs

from physai.foreign import ForeignPolicyError
from physai.foreign.readers.booster import read
from physai.foreign.reading import PolicyReading, PolicySource

Floats = NDArray[np.float64]

POSE = [0.1, 0.7, -1.4, -0.1, 0.9, -1.6] * 2
SCALES = {"gravity": 1.5, "lin_vel": 2.0, "ang_vel": 0.5, "dof_pos": 1.25, "dof_vel": 0.1}
DEPLOYED: dict[str, Any] = {
    "common": {
        "dt": 0.004,
        "stiffness": [20.0] * 11 + [31.0, 32.0, 33.0] * 4,
        "damping": [0.2] * 11 + [1.0, 1.5, 2.0] * 4,
        "default_qpos": [0.5] * 11 + POSE,
        "torque_limit": [7.0] * 23,
    },
    "policy": {
        "policy_path": "./models/mutt.pt",
        "num_actions": 12,
        "num_observations": 47,
        "gait_frequency": 1.25,
        "normalization": {**SCALES, "clip_actions": 1.5},
        "control": {"action_scale": 0.4, "decimation": 5},
    },
    "mech": {"parallel_mech_indexes": [15, 16]},
    "prepare": {"stiffness": [5.0] * 23},
}
TRAINED: dict[str, Any] = {
    "env": {"num_observations": 47, "num_actions": 12},
    "sim": {"dt": 0.004},
    "asset": {"file": "resources/mutt.urdf", "mujoco_file": "resources/mutt.xml"},
    "control": {
        "stiffness": {"hip": 31.0, "thigh": 32.0, "calf": 33.0},
        "damping": {"hip": 1.0, "thigh": 1.5, "FL": 9.0, "calf": 2.0, "FR_calf": 0.75},
        "action_scale": 0.4,
        "decimation": 5,
    },
    "commands": {"lin_vel_x": [-1.0, 1.2], "lin_vel_y": [-0.4, 0.5], "ang_vel_yaw": [-1, 2]},
    "normalization": {**SCALES, "filter_weight": 0.1, "clip_actions": 1.5},
}
COMMAND = {"command": [[-1, -0.5, -1], [1, 0.5, 1]]}


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Values with others at paths such as `policy.control.decimation`; None leaves a key out."""
    made = copy.deepcopy(values)
    for path, value in changes.items():
        *owners, name = path.split(".")
        owner = made
        for key in owners:
            owner = owner[key]
        owner[name] = value
        if value is None:
            del owner[name]
    return made


def write(
    home: Path, deployed: dict[str, Any] | None = None, trained: dict[str, Any] | None = None, model: str = ""
) -> Path:
    """A repository with one policy; returns the deployed program's file."""
    for name, text in {
        "deploy/configs/mutt.yaml": json.dumps(changed(DEPLOYED, deployed or {})),
        "envs/mutt.yaml": json.dumps(changed(TRAINED, trained or {})),
        "resources/mutt.xml": model or legs(),
        "deploy/models/mutt.pt": "a network",
    }.items():
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text(text, encoding="utf-8")
    return home / "deploy" / "configs" / "mutt.yaml"


def reading_of(file: Path) -> PolicyReading:
    found = read(PolicySource(file=file, metadata={}))
    assert found is not None
    return found


def refusal(file: Path) -> str:
    with pytest.raises(ForeignPolicyError) as caught:
        reading_of(file).complete({})
    return str(caught.value)


def test_each_value_comes_from_its_file(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path))
    described = found.complete({})
    assert list(described.joints) == JOINTS
    assert list(described.default_pos) == POSE
    assert list(described.stiffness) == [31.0, 32.0, 33.0] * 4
    assert list(described.damping) == [1.0, 1.5, 2.0] * 4
    assert (described.action_scale, described.output_limit, described.control_dt) == (0.4, 1.5, 0.02)
    assert described.command == ((-1.0, -0.4, -1.0), (1.2, 0.5, 2.0))
    # The robot file's hold; and a robot file with legs alone could not be imported with joints that are held.
    assert (described.effort, described.held) == (None, None)
    assert [(term.of, term.elements, term.scale) for term in described.observation] == [
        ("gravity", None, 1.5),
        ("ang_vel", None, 0.5),
        ("command", (0, 1), 2.0),
        ("command", (2,), 0.5),
        ("clock", None, 1.0),
        ("clock", None, 1.0),
        ("joint_pos", None, 1.25),
        ("joint_vel", None, 0.1),
        ("last_action", None, 1.0),
    ]
    cosine, sine = (term.clock for term in described.observation[4:6])
    assert cosine is not None
    assert sine is not None
    assert (cosine.wave, sine.wave) == ("cos", "sin")
    assert (cosine.period_s, cosine.phases, cosine.gate, cosine.standing_phase) == (0.8, (0.0,), 1e-5, None)
    assert cosine == sine.model_copy(update={"wave": "cos"})
    assert found.network == tmp_path / "deploy" / "models" / "mutt.pt"
    assert {file.relative_to(tmp_path).parts[0] for file in found.files} == {"deploy", "envs", "resources"}
    assert found.sources["joints"].startswith("envs/mutt.yaml: asset.mujoco_file, the joints of mutt.xml; code: play_m")
    assert found.sources["stiffness"] == "deploy/configs/mutt.yaml: common.stiffness; code: from number 11 on"
    assert found.sources["command"].startswith("envs/mutt.yaml: commands.lin_vel_x")


def test_its_command_is_slewed_as_its_program_does_it(tmp_path: Path) -> None:
    """By dt · decimation, 0.02, in each period of 0.02 s."""
    found = reading_of(write(tmp_path))
    assert found.values["command_slew"] == [1.0, 1.0, 1.0]
    assert found.sources["command_slew"] == "code: at most dt · decimation per control period (policy.py)"
    assert found.values["start_ramp_s"] == 0.0
    assert "before the policy takes over at once" in found.sources["start_ramp_s"]


def test_what_the_description_cannot_express_is_told(tmp_path: Path) -> None:
    unread = reading_of(write(tmp_path)).unread
    told = " ".join(unread)
    for phrase in (
        "clock runs on while the robot stands",
        "filters targets, 0.2 of the new one",
        "joints 0 to 10 at common.default_qpos",
        "common.torque_limit bounds the motors of mech.parallel_mech_indexes alone",
        "deploy/configs/mutt.yaml: prepare.stiffness",
        "deploy/configs/mutt.yaml: mech.parallel_mech_indexes",
    ):
        assert phrase in told
    # Gains of the training: the last part that fits counts.
    assert [line for line in unread if "control.damping" in line] == [
        "envs/mutt.yaml: control.damping is 0.75 for FR_calf_joint, the deployed program has 2",
        "envs/mutt.yaml: control.damping is 9.0 for FL_hip_joint, the deployed program has 1",
        "envs/mutt.yaml: control.damping is 9.0 for FL_thigh_joint, the deployed program has 1.5",
    ]
    assert "control.stiffness" not in told


def test_it_is_found_by_its_network_and_by_folders(tmp_path: Path) -> None:
    file = write(tmp_path)
    whole = reading_of(file)
    deploy = tmp_path / "deploy"
    for given in (deploy / "models" / "mutt.pt", deploy, deploy / "models", deploy / "configs"):
        assert reading_of(given) == whole
    other = changed(DEPLOYED, {"policy.policy_path": "models/run.pt"})
    file.with_name("run.yaml").write_text(json.dumps(other), encoding="utf-8")
    assert "several files describe a policy there: mutt.yaml, run.yaml; name one of them" in refusal(deploy)
    assert reading_of(deploy / "models" / "mutt.pt") == whole


def test_files_of_others_are_left_to_others(tmp_path: Path) -> None:
    file = write(tmp_path)
    texts = {"configs/other.yaml": "common: {dt: 1}", "configs/broken.yaml": "!!a [", "mutt.yaml": file.read_text()}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "deploy" / "models" / "other.pt").write_bytes(b"another network")
    for given in (*texts, "envs/mutt.yaml", "deploy/models/other.pt", "resources/mutt.xml", "resources", "absent.pt"):
        assert read(PolicySource(file=tmp_path / given, metadata={})) is None, given


def program(samples: list[dict[str, Floats]]) -> Floats:
    """Observations as policy.py makes them once its command has arrived, of joints in the policy's order."""
    action, clock = np.zeros(12), 0.0
    rows: list[Floats] = []
    for sample in samples:
        moves = float(np.linalg.norm(sample["command"])) >= 1e-5
        # A clock that runs on from the time at which the robot begins to walk.
        clock = clock + 0.02 if moves else -0.02
        process = np.fmod(clock * 1.25, 1.0)
        w, x, y, z = sample["quat"]
        blocks = [
            np.array([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1]) * 1.5,
            sample["ang_vel"] * 0.5,
            sample["command"] * [2.0, 2.0, 0.5] * moves,
            np.array([np.cos(2 * np.pi * process), np.sin(2 * np.pi * process)]) * moves,
            (sample["position"] - POSE) * 1.25,
            sample["speed"] * 0.1,
            action,
        ]
        rows.append(np.concatenate(blocks))
        action = np.clip(sample["output"], -1.5, 1.5)
    return np.array(rows)


def test_the_contract_sees_what_the_program_sees(tmp_path: Path) -> None:
    described = reading_of(write(tmp_path / "files")).complete({})
    samples = drawn(60)
    for sample in samples[20:25]:
        sample["command"] *= 1e-9
    seen, made = observed(described, JOINTS, samples, tmp_path / "scratch"), program(samples)
    assert not made[22, 9:11].any()
    np.testing.assert_allclose(seen, made, atol=2e-5)


@pytest.mark.parametrize(
    ("deployed", "trained", "phrase"),
    [
        ({"policy.num_observations": 48}, {}, "num_observations is 48, 12 joints make 47"),
        ({"policy.num_actions": 10}, {}, "common.stiffness has 23 numbers, 11 and num_actions are 21"),
        ({"common.stiffness": [20.0] * 20}, {}, "stiffness has 9 numbers, joints has 12 names"),
        ({"common.damping": 3.0}, {}, "deploy/configs/mutt.yaml: common.damping is 3.0, expected a list of numbers"),
        ({"common.default_qpos": ["a"] * 23}, {}, 'common.default_qpos is "a", expected a number'),
        ({"common.dt": "0.004s"}, {}, 'common.dt is "0.004s", expected a number'),
        ({"policy.gait_frequency": 0.0}, {}, "policy.gait_frequency is 0, expected above 0 [Hz]"),
        ({"policy.gait_frequency": None}, {}, "policy.gait_frequency is null, expected a number"),
        ({"policy.normalization.dof_vel": None}, {}, "normalization.dof_vel is null, expected a number"),
        ({"policy.normalization.clip_actions": -1.0}, {"normalization.clip_actions": -1.0}, "output_limit"),
        (
            {"policy.policy_path": "../../mutt.pt"},
            {},
            "policy.policy_path '../../mutt.pt' leads outside the repository",
        ),
        ({"policy.policy_path": "/etc/passwd"}, {}, "'/etc/passwd' leads outside the repository"),
        ({"policy.policy_path": "a\0.pt"}, {}, "policy.policy_path names the network, got"),
        ({"policy.policy_path": 5}, {}, "policy.policy_path names the network, got 5"),
        ({}, {"sim.dt": 0.002}, "common.dt is 0.004 (deploy/configs/mutt.yaml), sim.dt is 0.002 (envs/mutt.yaml)"),
        (
            {},
            {"control.decimation": 4},
            "policy.control.decimation is 5 (deploy/configs/mutt.yaml), control.decimation",
        ),
        ({}, {"control.action_scale": 1.0}, "policy.control.action_scale is 0.4 (deploy/configs/mutt.yaml), control."),
        ({}, {"normalization.dof_vel": 0.05}, "normalization.dof_vel is 0.05 (envs/mutt.yaml)"),
        ({}, {"env.num_actions": 10}, "env.num_actions is 10 (envs/mutt.yaml)"),
        ({}, {"commands.lin_vel_y": [1.0]}, "envs/mutt.yaml: expected two numbers for each of commands.lin_vel_x"),
        ({}, {"commands.lin_vel_y": 1.0}, "envs/mutt.yaml: commands.lin_vel_y is 1.0, expected a list of numbers"),
        ({}, {"asset.mujoco_file": "../../../../../etc/passwd"}, "outside the repository"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, deployed: dict[str, Any], trained: dict[str, Any], phrase: str
) -> None:
    assert phrase in refusal(write(tmp_path, deployed, trained))


def test_a_model_that_is_not_clear_is_refused(tmp_path: Path) -> None:
    assert "the program pairs them by number" in refusal(write(tmp_path / "a", model=legs(motors=JOINTS[::-1])))
    assert "default_pos has 12 numbers, joints has 9 names" in refusal(write(tmp_path / "b", model=legs(JOINTS[:9])))


def test_a_network_elsewhere_in_the_repository_is_taken(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path, {"policy.policy_path": "../logs/run/mutt.pt"}))
    assert found.network == tmp_path / "logs" / "run" / "mutt.pt"


@pytest.mark.parametrize("name", ["envs/mutt.yaml", "resources/mutt.xml"])
def test_what_is_not_there_is_asked_for(tmp_path: Path, name: str) -> None:
    file = write(tmp_path)
    (tmp_path / name).unlink()
    asked = [line.split(":")[0].strip() for line in refusal(file).splitlines()[1:]]
    assert asked == (["joints", "command"] if name.startswith("envs") else ["joints"])


@pytest.mark.parametrize("name", ["envs/mutt.yaml", "deploy/configs/mutt.yaml", "resources/mutt.xml"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    file = write(tmp_path)
    (tmp_path / name).write_bytes(b"a: [1, 2")
    assert f"{name.rsplit('/', 1)[1]}:" in refusal(file)


@pytest.mark.parametrize("value", [None, True, -1, 0, "word", [], {}, [1, "a"], [[1]], [{}], {"a": 1}, 2**63])
def test_values_of_any_type_are_read_or_refused(tmp_path: Path, value: Any) -> None:
    """Nothing but our own error leaves the reader."""
    parts = ("common", "policy", "policy.normalization", "policy.control")
    paths = [f"{part}.{key}" for part in parts for key in _keys(part)]
    trained = [
        "asset.mujoco_file",
        "commands.lin_vel_x",
        "control.damping",
        "control",
        "sim.dt",
        "normalization.dof_pos",
    ]
    for index, path in enumerate([*paths, *trained]):
        changes = {path: value}
        deployed, other = (changes, None) if path in paths else (None, changes)
        file = write(tmp_path / str(index), deployed, other)
        try:
            if found := read(PolicySource(file=file, metadata={})):
                found.complete({} if "command" in found.values else COMMAND)
        except ForeignPolicyError:
            continue


def _keys(part: str) -> list[str]:
    owner = DEPLOYED
    for name in part.split("."):
        owner = owner[name]
    return list(owner)


@pytest.mark.skipif("FOREIGN_FILES" not in os.environ, reason="FOREIGN_FILES names no folder with the repositories")
def test_the_published_policy_is_read() -> None:
    home = Path(os.environ["FOREIGN_FILES"]) / "booster"
    files = sorted((home / "deploy" / "configs").glob("*.yaml"))
    assert [file.name for file in files] == ["T1.yaml"]
    described = reading_of(files[0]).complete({})
    assert described.joints[:2] == ("Left_Hip_Pitch", "Left_Hip_Roll")
    assert (len(described.joints), described.control_dt, described.output_limit) == (12, 0.02, 1.0)
    assert described.default_pos[:4] == (-0.2, 0.0, 0.0, 0.4)
    assert described.damping[4:6] == (3.0, 3.0)
    assert described.command == ((-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
