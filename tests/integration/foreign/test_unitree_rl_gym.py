"""unitree_rl_gym's policies: a file for MuJoCo and one for the robot, in the format of its programs, must agree."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.integration.foreign.test_rl_sar import drawn, observed

from physai.foreign import ForeignPolicyError
from physai.foreign.readers.mjcf_joints import joint_order
from physai.foreign.readers.unitree_rl_gym import read
from physai.foreign.reading import PolicyReading, PolicySource

Floats = NDArray[np.float64]

JOINTS = [f"{leg}_{part}_joint" for leg in ("RL", "FR", "RR", "FL") for part in ("hip", "thigh", "calf")]
SHARED: dict[str, Any] = {
    "policy_path": "{LEGGED_GYM_ROOT_DIR}/deploy/pre_train/mutt/motion.pt",
    "kps": [31, 32, 33] * 4,
    "kds": [1, 2, 1.5] * 4,
    "default_angles": [0.1, 0.7, -1.4, -0.1, 0.9, -1.6] * 2,
    "ang_vel_scale": 0.25,
    "dof_pos_scale": 1.5,
    "dof_vel_scale": 0.05,
    "action_scale": 0.3,
    "cmd_scale": [2.0, 2.0, 0.25],
    "num_actions": 12,
    "num_obs": 47,
}
MUJOCO: dict[str, Any] = {
    **SHARED,
    "xml_path": "{LEGGED_GYM_ROOT_DIR}/resources/robots/mutt/scene.xml",
    "simulation_duration": 60.0,
    "simulation_dt": 0.004,
    "control_decimation": 5,
    "cmd_init": [0.5, 0, 0],
}
ROBOT: dict[str, Any] = {
    **SHARED,
    "control_dt": 0.02,
    "msg_type": "hg",
    "imu_type": "torso",
    "leg_joint2motor_idx": list(range(12)),
    "arm_waist_joint2motor_idx": [12],
    "arm_waist_kps": [300],
    "max_cmd": [0.8, 0.5, 1.5],
}
COMMAND = {"command": [[-1, -0.5, -1], [1, 0.5, 1]]}


def legs(names: Sequence[str] = JOINTS, motors: Sequence[str] | None = None) -> str:
    """An MJCF of chains of three joints; in each, the child stands before the joint of its parent."""
    shape = '<geom size="0.1" mass="1"/>'

    def body(chain: Sequence[str]) -> str:
        inner = body(chain[1:]) if len(chain) > 1 else ""
        return f'<body>{inner}<joint name="{chain[0]}" axis="0 1 0"/>{shape}</body>'

    chains = "".join(body(names[first : first + 3]) for first in range(0, len(names), 3))
    driven = "".join(f'<motor joint="{name}"/>' for name in (names if motors is None else motors))
    return (
        '<mujoco><default><joint damping="0.01"/></default><worldbody><body><joint type="free" name="root"/>'
        f"{shape}{chains}</body></worldbody><actuator>{driven}</actuator></mujoco>"
    )


SCENE = (
    '<mujoco><include file="legs.xml"/><worldbody><geom name="floor" type="plane" size="1 1 1"/></worldbody></mujoco>'
)


def write(
    home: Path,
    *,
    simulated: dict[str, Any] | None = None,
    real: dict[str, Any] | None = None,
    models: dict[str, str] | None = None,
) -> Path:
    """A repository with one policy; None leaves a key out. Returns the file for MuJoCo."""
    for place, values, changes in (("deploy_mujoco", MUJOCO, simulated), ("deploy_real", ROBOT, real)):
        folder = home / "deploy" / place / "configs"
        folder.mkdir(parents=True)
        kept = {key: value for key, value in {**values, **(changes or {})}.items() if value is not None}
        (folder / "mutt.yaml").write_text(json.dumps(kept), encoding="utf-8")
    robot = home / "resources" / "robots" / "mutt"
    robot.mkdir(parents=True)
    for name, text in {"scene": SCENE, "legs": legs(), **(models or {})}.items():
        (robot / f"{name}.xml").write_text(text, encoding="utf-8")
    network = home / "deploy" / "pre_train" / "mutt" / "motion.pt"
    network.parent.mkdir(parents=True)
    network.write_bytes(b"a network")
    return home / "deploy" / "deploy_mujoco" / "configs" / "mutt.yaml"


def reading_of(file: Path) -> PolicyReading:
    found = read(PolicySource(file=file, metadata={}))
    assert found is not None
    return found


def refusal(file: Path) -> str:
    with pytest.raises(ForeignPolicyError) as caught:
        reading_of(file).complete({})
    return str(caught.value)


def test_it_starts_between_half_and_one_and_a_half_of_its_pose_and_without_a_ramp(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path))
    pose = found.values["default_pos"]
    for at, least, most in zip(pose, found.values["start_lower"], found.values["start_upper"], strict=True):
        assert least == pytest.approx(min(0.5 * at, 1.5 * at, at - 0.1), abs=1e-6)
        assert most == pytest.approx(max(0.5 * at, 1.5 * at, at + 0.1), abs=1e-6)
    assert found.sources["start_lower"].startswith("code: 0.5 to 1.5 times default_angles (legged_robot.py")
    assert (found.values["start_ramp_s"], found.values.get("command_gate")) == (0.0, None)
    assert any("command_gate=0.2" in line for line in found.unread)


def test_both_files_make_one_description(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path))
    described = found.complete({})
    assert list(described.joints) == JOINTS
    assert list(described.default_pos) == SHARED["default_angles"]
    assert list(described.stiffness) == SHARED["kps"]
    assert list(described.damping) == SHARED["kds"]
    assert (described.action_scale, described.control_dt, described.output_limit) == (0.3, 0.02, None)
    assert described.command == ((-0.8, -0.5, -1.5), (0.8, 0.5, 1.5))
    assert [(term.of, term.elements, term.scale) for term in described.observation] == [
        ("ang_vel", None, 0.25),
        ("gravity", None, 1.0),
        ("command", (0, 1), 2.0),
        ("command", (2,), 0.25),
        ("joint_pos", None, 1.5),
        ("joint_vel", None, 0.05),
        ("last_action", None, 1.0),
        ("clock", None, 1.0),
        ("clock", None, 1.0),
    ]
    sine, cosine = (term.clock for term in described.observation[-2:])
    assert sine is not None
    assert cosine is not None
    assert (sine.wave, cosine.wave) == ("sin", "cos")
    assert (sine.period_s, sine.phases, sine.gate) == (0.8, (0.0,), 0.0)
    assert sine == cosine.model_copy(update={"wave": "sin"})
    assert found.network == tmp_path / "deploy" / "pre_train" / "mutt" / "motion.pt"
    assert sorted(file.name for file in found.files) == ["legs.xml", "mutt.yaml", "mutt.yaml", "scene.xml"]
    assert found.sources["joints"].startswith("deploy_mujoco/configs/mutt.yaml: xml_path, the joints of scene.xml")
    assert found.sources["command"].startswith("deploy_real/configs/mutt.yaml: max_cmd")
    unread = " ".join(found.unread)
    for key in (
        "mujoco/configs/mutt.yaml: cmd_init",
        "real/configs/mutt.yaml: leg_joint2motor_idx",
        "`settings` held={",
    ):
        assert key in unread
    assert "imu_type torso: the program turns" in unread
    assert "policy_path" not in unread


def test_it_is_found_by_either_file_its_network_and_its_folder(tmp_path: Path) -> None:
    file = write(tmp_path)
    network = tmp_path / "deploy" / "pre_train" / "mutt" / "motion.pt"
    real = tmp_path / "deploy" / "deploy_real" / "configs" / "mutt.yaml"
    whole = reading_of(file)
    for given in (real, network, network.parent):
        assert reading_of(given) == whole
    # One without the other leaves open what it has.
    file.rename(file.with_suffix(".off"))
    assert [name for name in ("joints", "command") if name in reading_of(real).values] == ["command"]
    file.with_suffix(".off").rename(file)
    real.unlink()
    assert [name for name in ("joints", "command") if name in reading_of(file).values] == ["joints"]


def test_files_of_others_are_left_to_others(tmp_path: Path) -> None:
    file = write(tmp_path)
    configs, stray = file.parent, tmp_path / "deploy" / "pre_train" / "mutt"
    (configs / "other.yaml").write_text("policy_path: x\nkps: [1]\n", encoding="utf-8")
    (configs / "damaged.yaml").write_text("kps: [1\n", encoding="utf-8")
    (configs / "pathless.yaml").write_text(json.dumps({**MUJOCO, "policy_path": 5}), encoding="utf-8")
    (stray / "other.pt").write_bytes(b"another network")
    (stray / "mutt.yaml").write_text(file.read_text(), encoding="utf-8")
    for given in (
        configs / "other.yaml",
        stray / "other.pt",
        stray / "mutt.yaml",
        configs,
        tmp_path,
        Path("mutt.yaml"),
    ):
        assert read(PolicySource(file=given, metadata={})) is None, given
    # A damaged file of another policy does not matter.
    assert reading_of(file).complete({}).action_scale == 0.3
    assert "damaged.yaml: not YAML" in refusal(configs / "damaged.yaml")


def test_a_folder_with_two_policies_is_asked_which(tmp_path: Path) -> None:
    file = write(tmp_path)
    other = {**MUJOCO, "policy_path": SHARED["policy_path"].replace("motion", "run")}
    file.with_name("run.yaml").write_text(json.dumps(other), encoding="utf-8")
    folder = tmp_path / "deploy" / "pre_train" / "mutt"
    assert "several policies are there: motion.pt, run.pt; name one of them" in refusal(folder)
    assert reading_of(folder / "motion.pt").network.name == "motion.pt"


def program(values: dict[str, Any], samples: list[dict[str, Floats]]) -> Floats:
    """Observations as deploy_mujoco.py makes them, of joints in the policy's order."""
    counter, action = 0, np.zeros(12)
    rows: list[Floats] = []
    for sample in samples:
        counter += int(values["control_decimation"])
        phase = counter * float(values["simulation_dt"]) % 0.8 / 0.8
        w, x, y, z = sample["quat"]
        blocks = [
            sample["ang_vel"] * values["ang_vel_scale"],
            np.array([2 * (w * y - z * x), -2 * (z * y + w * x), 1 - 2 * (w * w + z * z)]),
            sample["command"] * values["cmd_scale"],
            (sample["position"] - values["default_angles"]) * values["dof_pos_scale"],
            sample["speed"] * values["dof_vel_scale"],
            action,
            np.array([np.sin(2 * np.pi * phase), np.cos(2 * np.pi * phase)]),
        ]
        rows.append(np.concatenate(blocks))
        action = sample["output"]
    return np.array(rows)


def test_the_contract_sees_what_the_program_sees(tmp_path: Path) -> None:
    described = reading_of(write(tmp_path / "files")).complete({})
    samples = drawn(45)
    seen = observed(described, JOINTS, samples, tmp_path / "scratch")
    np.testing.assert_allclose(seen, program(MUJOCO, samples), atol=2e-5)


@pytest.mark.parametrize(
    ("real", "phrase"),
    [
        ({"kps": [31, 32, 34] * 4}, "stiffness is [31, 32, 33"),
        ({"kds": [1, 2, 2] * 4}, "(deploy_mujoco/configs/mutt.yaml: kds) and [1, 2, 2"),
        ({"default_angles": [0.0] * 12}, "default_pos is [0.1, 0.7"),
        (
            {"action_scale": 0.25},
            "action_scale is 0.3 (deploy_mujoco/configs/mutt.yaml: action_scale) and 0.25 (deploy_",
        ),
        ({"control_dt": 0.01}, "control_dt is 0.02 (deploy_mujoco/configs/mutt.yaml: simulation_dt · control_decim"),
        ({"dof_vel_scale": 0.1}, "dof_vel_scale is 0.05 (deploy_mujoco/configs/mutt.yaml) and 0.1 (deploy_real/conf"),
        ({"cmd_scale": [2, 2, 1]}, "cmd_scale is [2.0, 2.0, 0.25] (deploy_mujoco/configs/mutt.yaml) and [2, 2, 1]"),
        ({"num_obs": 50}, "num_obs is 47 (deploy_mujoco/configs/mutt.yaml) and 50 (deploy_real/configs/mutt.yaml)"),
    ],
)
def test_files_that_disagree_are_refused_with_both_values(tmp_path: Path, real: dict[str, Any], phrase: str) -> None:
    assert phrase in refusal(write(tmp_path, real=real))


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"num_obs": 48}, "num_obs is 48 (deploy_mujoco/configs/mutt.yaml), 12 joints make 47"),
        (
            {"num_actions": 10, "num_obs": 41},
            "num_actions is 10 (deploy_mujoco/configs/mutt.yaml), the MJCF has 12 joints",
        ),
        ({"kps": [30] * 11}, "stiffness has 11 numbers, joints has 12 names"),
        ({"cmd_scale": [2, 2]}, "cmd_scale has 2 numbers, expected 3"),
        ({"cmd_scale": 2}, "cmd_scale is 2, expected a list of numbers"),
        ({"ang_vel_scale": "fast"}, 'ang_vel_scale is "fast", expected a number'),
        ({"dof_pos_scale": None}, "motion.pt: no file states dof_pos_scale, which its program needs"),
    ],
)
def test_values_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], phrase: str) -> None:
    assert phrase in refusal(write(tmp_path, simulated=changes, real=changes))


@pytest.mark.parametrize(
    ("simulated", "real", "phrase"),
    [
        ({"simulation_dt": [0.002]}, {}, "simulation_dt is [0.002], expected a number"),
        ({}, {"max_cmd": [0.8, 0.5]}, "max_cmd is [0.8, 0.5], expected three numbers of at least 0"),
        ({}, {"max_cmd": [0.8, -0.5, 1]}, "max_cmd is [0.8, -0.5, 1.0], expected three numbers of at least 0"),
        ({"policy_path": "motion.pt"}, {}, 'policy_path is "motion.pt", expected {LEGGED_GYM_ROOT_DIR}/ and a file of'),
        (
            {"policy_path": "{LEGGED_GYM_ROOT_DIR}/../x.pt"},
            {},
            "expected {LEGGED_GYM_ROOT_DIR}/ and a file of the repo",
        ),
        ({"policy_path": "{LEGGED_GYM_ROOT_DIR}/a\0.pt"}, {}, "expected {LEGGED_GYM_ROOT_DIR}/ and a file of the repo"),
        ({"policy_path": ["x"]}, {}, 'policy_path is ["x"], expected'),
        ({"xml_path": "{LEGGED_GYM_ROOT_DIR}/../x.xml"}, {}, "xml_path is"),
        ({"xml_path": "/etc/passwd"}, {}, 'xml_path is "/etc/passwd", expected'),
    ],
)
def test_values_of_one_file_that_cannot_be_used_are_refused(
    tmp_path: Path, simulated: dict[str, Any], real: dict[str, Any], phrase: str
) -> None:
    assert phrase in refusal(write(tmp_path, simulated=simulated, real=real))


def test_another_network_is_another_policy(tmp_path: Path) -> None:
    other = SHARED["policy_path"].replace("motion", "run")
    found = reading_of(write(tmp_path, real={"policy_path": other, "action_scale": 0.9}))
    assert found.values["action_scale"] == 0.3
    assert "command" not in found.values
    assert not found.contradictions


def test_a_model_that_is_not_there_leaves_the_joints_open(tmp_path: Path) -> None:
    missing = "{LEGGED_GYM_ROOT_DIR}/resources/robots/mutt/absent.xml"
    message = refusal(write(tmp_path, simulated={"xml_path": missing}))
    assert [line.split(":")[0].strip() for line in message.splitlines()[1:]] == ["joints"]


@pytest.mark.parametrize("scene", [SCENE, SCENE.replace("<include", "<worldbody/><include")])
def test_the_order_of_the_joints_is_that_of_mujoco(tmp_path: Path, scene: str) -> None:
    """Of children before the joint of their parent, and of a second worldbody after the included one."""
    tail = '<body><joint name="tail"/><geom size="0.1"/></body></worldbody><actuator><motor joint="tail"/></actuator>'
    write(tmp_path, models={"scene": scene.replace("</worldbody>", tail)})
    file = tmp_path / "resources" / "robots" / "mutt" / "scene.xml"
    library: Any = mujoco
    model = library.MjModel.from_xml_path(str(file))
    compiled = [model.joint(joint).name for joint in range(1, model.njnt)]
    names, files = joint_order(file, tmp_path)
    assert names == compiled == [*JOINTS, "tail"]
    assert files == {file, file.with_name("legs.xml")}


@pytest.mark.parametrize(
    ("models", "phrase"),
    [
        ({"legs": legs(motors=JOINTS[::-1])}, "the program pairs them by number"),
        ({"legs": legs(motors=JOINTS[:11])}, "the program pairs them by number"),
        ({"legs": legs().replace(f'name="{JOINTS[4]}" ', "")}, "has a joint without a name"),
        ({"legs": legs().replace("<joint name", '<joint type="ball" name', 1)}, "or one that is a ball"),
        ({"legs": legs().replace("damping", 'type="slide" damping')}, "has a default type of joints"),
        (
            {"legs": legs().replace("<actuator>", "<worldbody><replicate/></worldbody><actuator>")},
            "has replicate, with",
        ),
        ({"legs": legs().replace("<mujoco>", "<mujoco>&lol;")}, "not well-formed"),
        ({"legs": "<!DOCTYPE m [<!ENTITY a 'b'>]><mujoco/>"}, "may not have a <!DOCTYPE>"),
        ({"legs": SCENE}, "legs.xml: outside the repository, included twice"),
        ({"scene": SCENE.replace("legs.xml", "absent.xml")}, "absent.xml: no such file"),
        ({"scene": SCENE.replace("legs.xml", "../../../../out.xml")}, "outside the repository"),
        ({"scene": SCENE.replace("legs.xml", "/etc/passwd")}, "/etc/passwd: outside the repository"),
        ({"scene": SCENE.replace("<worldbody>", '<include file="legs.xml"/><worldbody>')}, "included twice"),
    ],
)
def test_a_model_whose_order_is_not_clear_is_refused(tmp_path: Path, models: dict[str, str], phrase: str) -> None:
    assert phrase in refusal(write(tmp_path, models=models))


@pytest.mark.parametrize("value", [None, True, -1, 0, "word", [], {}, [1, "a"], [[1]], [{}], {"a": 1}, 2**63])
def test_values_of_any_type_are_read_or_refused(tmp_path: Path, value: Any) -> None:
    """Nothing but our own error leaves the reader."""
    for index, key in enumerate({**MUJOCO, **ROBOT}):
        changes = {key: value}
        file = write(tmp_path / str(index), simulated=changes, real=changes)
        try:
            if found := read(PolicySource(file=file, metadata={})):
                found.complete({} if "command" in found.values else COMMAND)
        except ForeignPolicyError:
            continue


@pytest.mark.skipif("FOREIGN_FILES" not in os.environ, reason="FOREIGN_FILES names no folder with the repositories")
@pytest.mark.parametrize(("robot", "joints"), [("g1", 12), ("h1", 10), ("h1_2", 12)])
def test_the_published_policies_are_read(robot: str, joints: int) -> None:
    home = Path(os.environ["FOREIGN_FILES"]) / "ugym"
    found = reading_of(home / "deploy" / "pre_train" / robot / "motion.pt")
    described = found.complete({})
    assert len(described.joints) == joints
    assert {file.relative_to(home).parts[1] for file in found.files} == {"deploy_mujoco", "deploy_real", "robots"}
    assert (described.control_dt, described.action_scale, described.output_limit) == (0.02, 0.25, None)
    assert described.command == ((-0.8, -0.5, -1.57), (0.8, 0.5, 1.57))
    assert described.joints[0] == {"g1": "left_hip_pitch_joint"}.get(robot, "left_hip_yaw_joint")
