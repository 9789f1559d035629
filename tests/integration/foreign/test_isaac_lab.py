"""Runs of Isaac Lab: an environment that names joints by patterns, descriptors that name them in order, or both."""

import os
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from tests.integration.foreign.test_import import network
from tests.integration.foreign.test_rl_sar import drawn
from tests.integration.foreign.test_unitree_deploy import observed

from physai.foreign import ForeignPolicyError
from physai.foreign.readers.isaac.isaac_lab import read
from physai.foreign.readers.isaac.manager_terms import fits, single
from physai.foreign.readers.mjlab import KEYS as MJLAB
from physai.foreign.reading import PolicyReading, PolicySource

Floats = NDArray[np.float64]

LEGS = ("FL", "FR", "RL", "RR")
USD = [f"{leg}_{part}_joint" for part in ("hip", "thigh", "calf") for leg in LEGS]
"""Joints in the order of a USD file: breadth first."""
POSE = [0.1, -0.1, 0.1, -0.1, 0.8, 0.8, 1.0, 1.0, *[-1.5707963] * 4]
STIFFNESS = [20.0] * 4 + [25.5] * 4 + [30.0] * 4
DAMPING = [0.55] * 8 + [0.7] * 4
SCALES = [0.125] * 4 + [0.2475] * 8
LIBRARY = "isaaclab.envs.mdp."
ALL = {"name": "robot", "joint_names": None, "joint_ids": slice(None), "preserve_order": False}
COMMAND = [[-1.0, -0.5, -0.8], [1.5, 0.5, 0.8]]


def term(function: str, **changes: Any) -> dict[str, Any]:
    """A term as `class_to_dict` makes it."""
    plain: dict[str, Any] = {
        "func": f"{LIBRARY}observations:{function}",
        "params": {},
        "modifiers": None,
        "noise": None,
    }
    return {**plain, "clip": None, "scale": None, "history_length": 0, "flatten_history_dim": True, **changes}


TERMS: dict[str, Any] = {
    "base_ang_vel": term("base_ang_vel", scale=0.25, clip=(-8.0, 8.0), noise={"n_min": -0.2, "n_max": 0.2}),
    "projected_gravity": term("projected_gravity"),
    "velocity_commands": term("generated_commands", params={"command_name": "base_velocity"}, scale=(2.0, 2.0, 0.25)),
    "height": None,
    "joint_pos": term("joint_pos_rel", params={"asset_cfg": ALL}, history_length=3),
    "joint_vel": term("joint_vel_rel", scale=0.05, clip=(-50.0, 50.0)),
    "actions": term("last_action", history_length=2),
}
GROUP = {
    "concatenate_terms": True,
    "concatenate_dim": -1,
    "enable_corruption": True,
    "history_length": None,
    "flatten_history_dim": True,
}
RANGES = {"lin_vel_x": (-1.0, 1.5), "lin_vel_y": (-0.5, 0.5), "ang_vel_z": (-0.8, 0.8), "heading": None}
ACTION: dict[str, Any] = {
    "class_type": f"{LIBRARY}actions.joint_actions:JointPositionAction",
    "asset_name": "robot",
    "debug_vis": False,
    "clip": None,
    "joint_names": [".*"],
    "scale": {".*_hip_joint": 0.125, ".*_(thigh|calf)_joint": 0.2475},
    "offset": 0.0,
    "preserve_order": False,
    "use_default_offset": True,
}
IMPLICIT = "isaaclab.actuators.actuator_pd:ImplicitActuator"
ACTUATORS: dict[str, Any] = {
    "upper": {
        "class_type": IMPLICIT,
        "joint_names_expr": [".*_hip_joint", ".*_thigh_joint"],
        "effort_limit": 23.5,
        "stiffness": {".*_hip_.*": 20, "[FR][LR]_thigh_joint": 25.5},
        "damping": 0.55,
        "armature": None,
    },
    "lower": {
        "class_type": "isaaclab.actuators.actuator_pd:DCMotor",
        "joint_names_expr": ".*_calf_joint",
        "stiffness": 30.0,
        "damping": {".*": 0.7},
    },
}
ENVIRONMENT: dict[str, Any] = {
    "viewer": {"eye": (7.5, 7.5, 7.5)},
    "sim": {"dt": 0.005, "gravity": (0.0, 0.0, -9.81)},
    "decimation": 4,
    "scene": {
        "num_envs": 4096,
        "robot": {
            "init_state": {
                "pos": (0.0, 0.0, 0.4),
                "joint_pos": {
                    ".*L_hip_joint": 0.1,
                    ".*R_hip_joint": -0.1,
                    "F[L,R]_thigh_joint": 0.8,
                    "R[L,R]_thigh_joint": 1.0,
                    ".*_calf_joint": -1.5707963,
                },
                "joint_vel": {".*": 0.0},
            },
            "actuators": ACTUATORS,
        },
        "terrain": {"size": (8.0, 8.0)},
    },
    "observations": {"policy": {**GROUP, **TERMS}, "critic": {"base_lin_vel": term("base_lin_vel")}},
    "actions": {"joint_pos": ACTION},
    "commands": {
        "base_velocity": {
            "class_type": f"{LIBRARY}commands.velocity_command:UniformVelocityCommand",
            "heading_command": True,
            "ranges": RANGES,
        }
    },
}
AGENT = {"seed": 42, "algorithm": {"class_name": "PPO"}, "clip_actions": 4.0, "obs_groups": {}}
SIZE = 3 + 3 + 3 + 36 + 12 + 24


def exact(values: list[float]) -> list[float]:
    """Numbers as a tensor's `tolist` returns them."""
    return np.array(values, np.float32).tolist()


def descriptors(**changes: Any) -> dict[str, Any]:
    """What `get_IO_descriptors` returns for the environment."""
    kinds = {
        "base_ang_vel": ("base_ang_vel", 3),
        "projected_gravity": ("projected_gravity", 3),
        "velocity_commands": ("generated_commands", 3),
        "joint_pos": ("joint_pos_rel", 12),
        "joint_vel": ("joint_vel_rel", 12),
        "actions": ("last_action", 12),
    }
    listed: list[dict[str, Any]] = []
    for name, (function, width) in kinds.items():
        overloads = {key: TERMS[name][key] for key in ("history_length", "flatten_history_dim")}
        overloads |= {"clip": TERMS[name]["clip"] and list(TERMS[name]["clip"])}
        scale = TERMS[name]["scale"]
        overloads |= {"scale": None if scale is None else np.array(scale, np.float32).tolist()}
        one: dict[str, Any] = {
            "name": function,
            "full_path": f"{LIBRARY}observations.{function}",
            "mdp_type": "Observation",
            "overloads": overloads,
            "extras": {"modifiers": None, "units": "rad"},
            "shape": [width],
        }
        if width == 12 and name != "actions":
            one["joint_names"] = USD
            one[f"{name}_offsets"] = exact(POSE) if name == "joint_pos" else [0.0] * 12
        listed.append(one)
    whole = {
        "actions": [
            {
                "name": "joint_position_action",
                "full_path": f"{LIBRARY}actions.joint_actions.JointPositionAction",
                "joint_names": USD,
                "scale": [exact(SCALES)],
                "offset": exact(POSE),
                "clip": None,
                "shape": [12],
            }
        ],
        "articulations": {
            "robot": {
                "joint_names": USD,
                "default_joint_pos": exact(POSE),
                "default_joint_vel": [0.0] * 12,
                "default_joint_stiffness": exact(STIFFNESS),
                "default_joint_damping": exact(DAMPING),
                "default_joint_armature": [0.0] * 12,
            }
        },
        "observations": {"policy": listed},
        "scene": {"physics_dt": 0.005, "dt": 0.02, "decimation": 4},
    }
    return {**whole, **changes}


def changed(document: Any, path: str, value: Any) -> Any:
    """A copy of nested lists and mappings with another value at a path; `REMOVED` leaves it out."""
    first, _, rest = path.partition("/")
    if isinstance(document, list):
        listed = {str(number): one for number, one in enumerate(cast("list[Any]", document))}
        return list(changed(listed, path, value).values())
    kept = {key: one for key, one in document.items() if key != first}
    if not rest and value is REMOVED:
        return kept
    new = changed(document[first], rest, value) if rest else value
    return {key: new if key == first else one for key, one in {**document, first: new}.items()}


REMOVED = object()


def write(home: Path, environment: dict[str, Any] | None, described: dict[str, Any] | None, agent: Any = AGENT) -> Path:
    """A run folder; None leaves a file out. Returns its network."""
    for name in ("params", "exported"):
        (home / name).mkdir(parents=True)
    path = home / "exported" / "policy.onnx"
    network(path, inputs=SIZE)
    files = {"params/env.yaml": environment, "params/agent.yaml": agent}
    for name, content in files.items():
        if content is not None:
            text = yaml.dump(content, default_flow_style=False, sort_keys=False)
            (home / name).write_text(text, encoding="utf-8")
    if described is not None:
        (home / "io_descriptors").mkdir()
        (home / "io_descriptors" / "IO_descriptors.yaml").write_text(yaml.safe_dump(described), encoding="utf-8")
    return path


def reading_of(file: Path) -> PolicyReading:
    found = read(PolicySource(file=file, metadata={}))
    assert found is not None
    return found


def refusal(file: Path, **settings: Any) -> str:
    with pytest.raises(ForeignPolicyError) as caught:
        reading_of(file).complete(settings)
    return str(caught.value)


def asked(file: Path, **settings: Any) -> list[str]:
    return [line.split(":")[0].strip() for line in refusal(file, **settings).splitlines()[1:]]


UNMEASURED = "which no sensor of a robot measures"
OBSERVATION = [
    {"of": "ang_vel", "scale": 0.25, "clip": 8.0},
    {"of": "gravity", "scale": 1.0},
    {"of": "command", "elements": [0, 1], "scale": 2.0},
    {"of": "command", "elements": [2], "scale": 0.25},
    {"of": "joint_pos", "scale": 1.0, "history": 3},
    {"of": "joint_vel", "scale": 0.05, "clip": 50.0},
    {"of": "last_action", "scale": 1.0, "history": 2},
]


def test_an_environment_asks_for_the_order_of_the_joints_alone(tmp_path: Path) -> None:
    file = write(tmp_path, ENVIRONMENT, None)
    text = (tmp_path / "params" / "env.yaml").read_text(encoding="utf-8")
    assert "!!python/tuple" in text
    assert "!!python/object/apply:builtins.slice" in text
    assert asked(file) == ["joints"]
    found = reading_of(file)
    assert found.values == {
        "control_dt": 0.02,
        "output_limit": 4.0,
        "command": COMMAND,
        "observation": OBSERVATION,
        "layout": "term",
        "newest": "last",
        "first_fill": "repeat",
    }
    # Another order than the USD file's, in which the numbers have to follow.
    order = [USD[index] for index in (5, 0, 11, 2, 8, 1, 10, 3, 6, 9, 4, 7)]
    described = found.complete({"joints": order})
    by_name = {
        name: dict(zip(USD, values, strict=True))
        for name, values in {
            "default_pos": POSE,
            "stiffness": STIFFNESS,
            "damping": DAMPING,
            "action_scale": SCALES,
        }.items()
    }
    for name, values in by_name.items():
        assert getattr(described, name) == tuple(values[joint] for joint in order)
    assert found.sources["stiffness"] == "env.yaml: scene.robot.actuators.….stiffness, by the names of the joints"
    assert found.sources["joints"] == "user"
    assert {path.name for path in found.files} == {"env.yaml", "agent.yaml"}
    assert found.unread == [
        "env.yaml: scene.robot.actuators.upper.effort_limit: of the simulator that it was trained in",
        "env.yaml: viewer",
    ]


def test_descriptors_ask_for_the_command_alone(tmp_path: Path) -> None:
    file = write(tmp_path, None, descriptors(), None)
    assert asked(file) == ["command"]
    found = reading_of(file)
    assert found.values == {
        "control_dt": 0.02,
        "joints": USD,
        "default_pos": POSE,
        "stiffness": STIFFNESS,
        "damping": DAMPING,
        "action_scale": SCALES,
        "observation": OBSERVATION,
        "layout": "term",
        "newest": "last",
        "first_fill": "repeat",
    }
    assert found.sources["stiffness"] == "IO_descriptors.yaml: articulations.robot.default_joint_stiffness"
    assert found.unread == ["IO_descriptors.yaml: articulations.robot.default_joint_armature"]


def test_both_ask_for_nothing_and_agree(tmp_path: Path) -> None:
    found = reading_of(write(tmp_path, ENVIRONMENT, descriptors()))
    assert found.contradictions == []
    described = found.complete({})
    assert described.joints == tuple(USD)
    assert described.output_limit == 4.0
    assert {path.name for path in found.files} == {"env.yaml", "agent.yaml", "IO_descriptors.yaml"}


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        ("articulations/robot/default_joint_stiffness", [20.0] * 12, "stiffness"),
        ("articulations/robot/default_joint_damping", [0.5] * 12, "damping"),
        ("actions/0/scale", 0.25, "action_scale"),
        ("scene/dt", 0.01, "control_dt"),
        # A term whose function has no descriptor is missing in the file.
        ("observations/policy", descriptors()["observations"]["policy"][1:], "observation"),
        ("observations/policy/5/overloads/history_length", 3, "observation"),
    ],
)
def test_what_both_state_has_to_agree(tmp_path: Path, path: str, value: Any, name: str) -> None:
    file = write(tmp_path, ENVIRONMENT, changed(descriptors(), path, value))
    message = refusal(file)
    assert f"\n  {name} is " in message
    assert "(IO_descriptors.yaml: " in message
    assert "(env.yaml: " in message


def test_what_the_user_states_has_to_agree_with_the_patterns(tmp_path: Path) -> None:
    file = write(tmp_path, ENVIRONMENT, None)
    assert "\n  stiffness is [20.0" in refusal(file, joints=USD, stiffness=[21.0] * 12)
    assert "joints is 5, expected different names" in refusal(file, joints=5)
    assert "expected different names" in refusal(file, joints=[*USD[:11], USD[0]])
    assert "expected different names" in refusal(file, joints=[1, 2])
    one = changed(ENVIRONMENT, "actions/joint_pos/joint_names", [".*_hip_joint", ".*_thigh_joint"])
    assert "no action commands FL_calf_joint, which joints has" in refusal(write(tmp_path / "b", one, None), joints=USD)


def test_a_pose_drawn_anew_when_training_began_is_no_default(tmp_path: Path) -> None:
    """Startup events may change the default pose before the descriptors are written."""
    drawn_pose = exact([one + 0.01 for one in POSE])
    described = changed(descriptors(), "articulations/robot/default_joint_pos", drawn_pose)
    described = changed(described, "actions/0/offset", drawn_pose)
    described = changed(described, "observations/policy/3/joint_pos_offsets", drawn_pose)
    assert "\n  default_pos is [0.11" in refusal(write(tmp_path, ENVIRONMENT, described))


def test_it_is_found_by_each_of_its_files_and_its_folder(tmp_path: Path) -> None:
    path = write(tmp_path, ENVIRONMENT, descriptors())
    torch_file = path.with_suffix(".pt")
    torch_file.write_bytes(b"a network")
    own = (tmp_path, path, tmp_path / "params" / "env.yaml", tmp_path / "io_descriptors" / "IO_descriptors.yaml")
    for given in own:
        found = reading_of(given)
        assert (found.network, found.values["joints"]) == (path, USD)
    assert reading_of(torch_file).network == torch_file
    path.unlink()
    assert reading_of(tmp_path).network == torch_file
    torch_file.unlink()
    assert "no exported/policy.onnx or exported/policy.pt, which `play.py` writes" in refusal(tmp_path)


def test_files_may_lie_in_one_folder(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    network(path, inputs=SIZE)
    (tmp_path / "go2_flat_IO_descriptors.yaml").write_text(yaml.safe_dump(descriptors()), encoding="utf-8")
    for given in (path, tmp_path, tmp_path / "go2_flat_IO_descriptors.yaml"):
        assert reading_of(given).network == path
    (tmp_path / "go2_rough_IO_descriptors.yaml").write_text(yaml.safe_dump(descriptors()), encoding="utf-8")
    assert "give the one of the policy" in refusal(path)
    assert reading_of(tmp_path / "go2_rough_IO_descriptors.yaml").values["joints"] == USD


def test_a_run_without_a_network_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ENVIRONMENT, None).unlink()
    (tmp_path / "model_1500.pt").write_bytes(b"pickled")
    assert "which `play.py` writes; give a checkpoint by its own name" in refusal(tmp_path)


def test_files_of_others_are_left_to_others(tmp_path: Path) -> None:
    path = write(tmp_path / "own", ENVIRONMENT, None)
    assert read(PolicySource(file=path, metadata=dict.fromkeys(MJLAB, ""))) is None
    mjlab = write(tmp_path / "mjlab", changed(ENVIRONMENT, "sim/mujoco", {"timestep": 0.005}), None)
    unitree = write(tmp_path / "unitree", ENVIRONMENT, None)
    (tmp_path / "unitree" / "params" / "deploy.yaml").write_text("joint_ids_map: [0]", encoding="utf-8")
    other = write(tmp_path / "other", {"name": "conda"}, {"actions": []}, None)
    agent = tmp_path / "own" / "params" / "agent.yaml"
    empty = tmp_path / "empty"
    empty.mkdir()
    for file in (mjlab, unitree, other, agent, empty, empty / "policy.onnx", empty / "x.yaml"):
        assert read(PolicySource(file=file, metadata={})) is None, file
    # The environment of a run of unitree_rl_lab is read if it is named.
    assert reading_of(tmp_path / "unitree" / "params" / "env.yaml").values["control_dt"] == 0.02


def test_a_file_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run", ENVIRONMENT, None)
    file = tmp_path / "run" / "params" / "env.yaml"
    file.rename(tmp_path / "env.yaml")
    file.symlink_to(tmp_path / "env.yaml")
    assert "leads outside the run's folder" in refusal(path)


def test_an_order_that_is_preserved_names_the_joints(tmp_path: Path) -> None:
    order = [USD[index] for index in (1, 5, 9, 0, 4, 8, 3, 7, 11, 2, 6, 10)]
    entity = {**ALL, "joint_names": order, "preserve_order": True}
    environment = changed(ENVIRONMENT, "actions/joint_pos/joint_names", order)
    environment = changed(environment, "actions/joint_pos/preserve_order", True)
    message = refusal(write(tmp_path / "a", environment, None))
    assert "observations.policy.joint_pos is in the order of the USD file, which no file states" in message
    assert "--export_io_descriptors" in message
    for name in ("joint_pos", "joint_vel"):
        environment = changed(environment, f"observations/policy/{name}/params", {"asset_cfg": entity})
    found = reading_of(write(tmp_path / "b", environment, None))
    assert found.values["joints"] == order
    assert found.complete({}).default_pos == tuple(dict(zip(USD, POSE, strict=True))[joint] for joint in order)
    assert found.values["observation"] == OBSERVATION
    # Descriptors have the order of both.
    described = changed(descriptors(), "actions/0/joint_names", order)
    for key, values in (("scale", SCALES), ("offset", POSE)):
        described = changed(described, f"actions/0/{key}", exact([values[USD.index(joint)] for joint in order]))
    whole = changed(
        changed(ENVIRONMENT, "actions/joint_pos/joint_names", order), "actions/joint_pos/preserve_order", True
    )
    both = reading_of(write(tmp_path / "c", whole, described))
    assert both.contradictions == []
    assert both.values["observation"][4] == {"of": "joint_pos", "scale": 1.0, "history": 3, "joints": USD}


def test_several_actions_make_one_vector(tmp_path: Path) -> None:
    first = changed(descriptors(), "actions/0", {**descriptors()["actions"][0], "joint_names": USD[4:], "scale": 0.25})
    rest = {**descriptors()["actions"][0], "joint_names": USD[:4], "scale": 0.125, "offset": exact(POSE[:4])}
    first["actions"] = [changed(first["actions"][0], "offset", exact(POSE[4:])), rest]
    found = reading_of(write(tmp_path / "a", None, first, None))
    assert found.values["joints"] == [*USD[4:], *USD[:4]]
    assert found.values["action_scale"] == [0.25] * 8 + [0.125] * 4
    assert found.values["observation"][4]["joints"] == USD
    legs = {"hips": {**ACTION, "joint_names": [".*hip.*"]}, "legs": {**ACTION, "joint_names": [".*(thigh|calf).*"]}}
    alone = write(tmp_path / "b", {**ENVIRONMENT, "actions": legs}, None)
    assert "is in the order of the USD file, which no file states" in refusal(alone)


@pytest.mark.parametrize("kind", ["environment", "descriptors"])
def test_terms_may_select_joints(tmp_path: Path, kind: str) -> None:
    own = [".*_calf_joint", "FL_hip_joint"]
    entity = {**ALL, "joint_names": own}
    environment = changed(ENVIRONMENT, "observations/policy/joint_pos/params", {"asset_cfg": entity})
    environment = changed(environment, "observations/policy/joint_pos/scale", (1.0, 1.0, 2.0, 2.0, 2.0))
    environment = changed(environment, "observations/policy/joint_pos/history_length", 0)
    chosen = ["FL_hip_joint", *USD[8:]]
    described = changed(descriptors(), "observations/policy/3/joint_names", chosen)
    described = changed(described, "observations/policy/3/joint_pos_offsets", exact([POSE[0], *POSE[8:]]))
    described = changed(described, "observations/policy/3/shape", [5])
    described = changed(described, "observations/policy/3/overloads/scale", [1.0, 1.0, 2.0, 2.0, 2.0])
    described = changed(described, "observations/policy/3/overloads/history_length", 0)
    file = write(tmp_path / "files", environment, None if kind == "environment" else described)
    found = reading_of(file)
    assert ("observation" in found.values) == (kind == "descriptors")
    terms = found.complete({} if kind == "descriptors" else {"joints": USD}).observation
    joints = [(term.joints, term.scale) for term in terms if term.of == "joint_pos"]
    assert joints == [
        (("FL_hip_joint", "FL_calf_joint"), 1.0),
        (("FR_calf_joint", "RL_calf_joint", "RR_calf_joint"), 2.0),
    ]


def test_a_term_may_have_the_order_of_its_patterns(tmp_path: Path) -> None:
    entity = {**ALL, "joint_names": [".*_calf_joint", ".*_hip_joint"], "preserve_order": True}
    environment = changed(ENVIRONMENT, "observations/policy/joint_pos/params", {"asset_cfg": entity})
    found = reading_of(write(tmp_path, environment, None)).complete({"joints": USD})
    assert found.observation[4].joints == (*USD[8:], *USD[:4])


def program(environment: dict[str, Any], samples: list[dict[str, Floats]]) -> list[Floats]:
    """Observations as Isaac Lab's manager makes them."""
    group = environment["observations"]["policy"]
    buffers: dict[str, list[Floats]] = {}
    rows: list[Floats] = []
    action = np.zeros(12)
    for sample in samples:
        w, x, y, z = sample["quat"]
        blocks: list[Floats] = []
        terms: dict[str, dict[str, Any]] = {name: one for name, one in group.items() if isinstance(one, dict)}
        for name, one in terms.items():
            value = {
                "base_ang_vel": sample["ang_vel"],
                "projected_gravity": np.array([2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1]),
                "generated_commands": sample["command"],
                "joint_pos_rel": sample["position"] - POSE,
                "joint_vel_rel": sample["speed"],
                "last_action": action,
            }[one["func"].split(":")[1]]
            if one["clip"]:
                low, high = one["clip"]
                value = np.clip(value, low, high)
            value = value * np.array(1.0 if one["scale"] is None else one["scale"])
            length = group["history_length"] if group["history_length"] is not None else one["history_length"]
            if length:
                before: list[Floats] = buffers.get(name) or [value] * int(length)
                buffers[name] = [*before, value][-int(length) :]
                value = np.concatenate(buffers[name])
            blocks.append(value)
        rows.append(np.concatenate(blocks))
        # The wrapper of rsl_rl clips what the network returns.
        action = np.clip(sample["output"], -4.0, 4.0)
    return rows


@pytest.mark.parametrize("length", [None, 0, 4])
def test_the_contract_sees_what_isaac_lab_sees(tmp_path: Path, length: int | None) -> None:
    environment = changed(ENVIRONMENT, "observations/policy/history_length", length)
    if length:
        environment = changed(environment, "observations/policy/velocity_commands/scale", None)
    described = reading_of(write(tmp_path / "files", environment, None)).complete({"joints": USD})
    samples = drawn(6)
    seen = observed(described, USD, samples, tmp_path / "scratch")
    for row, expected in zip(seen, program(environment, samples), strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_bounds_of_targets_are_read_from_descriptors(tmp_path: Path) -> None:
    clip = [[-1.0 - 0.01 * at, 1.0 + 0.02 * at] for at in range(12)]
    found = reading_of(write(tmp_path / "run", None, changed(descriptors(), "actions/0/clip", clip)))
    assert found.values["target_lower"] == [pair[0] for pair in clip]
    assert found.values["target_upper"] == [pair[1] for pair in clip]


def test_gains_that_no_file_states_are_asked_for(tmp_path: Path) -> None:
    usd = changed(ENVIRONMENT, "scene/robot/actuators/lower/stiffness", None)
    assert asked(write(tmp_path / "a", usd, None), joints=USD) == ["stiffness"]
    net = changed(
        ENVIRONMENT, "scene/robot/actuators/lower/class_type", "isaaclab.actuators.actuator_net:ActuatorNetMLP"
    )
    assert asked(write(tmp_path / "b", net, None), joints=USD) == ["stiffness", "damping"]
    none = changed(ENVIRONMENT, "scene/robot/actuators/upper/joint_names_expr", [".*_hip_joint"])
    assert asked(write(tmp_path / "c", none, None), joints=USD) == ["stiffness", "damping"]
    zero = changed(descriptors(), "articulations/robot/default_joint_stiffness", [0.0] * 12)
    file = write(tmp_path / "d", None, zero, None)
    assert asked(file) == ["stiffness", "damping", "command"]
    assert reading_of(file).unread[0].endswith("default_joint_stiffness: 0 stands for gains that no file states")


def test_joints_that_no_pattern_matches_are_at_zero(tmp_path: Path) -> None:
    some = changed(ENVIRONMENT, "scene/robot/init_state/joint_pos", {".*_calf_joint": -1.5})
    found = reading_of(write(tmp_path, some, None)).complete({"joints": USD})
    assert found.default_pos == (*[0.0] * 8, *[-1.5] * 4)


def test_the_greatest_ranges_of_a_curriculum_are_those_of_the_command(tmp_path: Path) -> None:
    limits = {"lin_vel_x": (-2.0, 2.0), "lin_vel_y": (-1.0, 1.0), "ang_vel_z": (-1.0, 1.0)}
    grown = changed(ENVIRONMENT, "commands/base_velocity/limit_ranges", limits)
    found = reading_of(write(tmp_path / "a", grown, None))
    assert found.values["command"] == [[-2.0, -1.0, -1.0], [2.0, 1.0, 1.0]]
    assert found.sources["command"] == "env.yaml: commands.base_velocity.limit_ranges"
    # A command of another distribution has no ranges.
    normal = changed(ENVIRONMENT, "commands/base_velocity/ranges", {"mean_vel": (1.0, 0.0, 0.0)})
    assert asked(write(tmp_path / "b", normal, None), joints=USD) == ["command"]


def test_joints_that_no_action_commands_are_held_where_their_target_is(tmp_path: Path) -> None:
    robot = descriptors()["articulations"]["robot"]
    more = {**robot, "joint_names": [*USD, "head_yaw"]}
    for key in ("default_joint_pos", "default_joint_vel", "default_joint_armature"):
        more[key] = [*robot[key], 0.0]
    more |= {"default_joint_stiffness": [*robot["default_joint_stiffness"], 12.0]}
    more |= {"default_joint_damping": [*robot["default_joint_damping"], 0.25]}
    wide = changed(descriptors(), "articulations", {"robot": more, "box": {"joint_names": ["lid"]}})
    wide = changed(wide, "observations/policy/4/joint_names", more["joint_names"])
    wide = changed(wide, "observations/policy/4/joint_vel_offsets", [0.0] * 13)
    wide = changed(wide, "observations/policy/4/shape", [13])
    found = reading_of(write(tmp_path / "a", None, wide, None))
    assert found.values["held"] == {"head_yaw": {"position": 0.0, "stiffness": 12.0, "damping": 0.25}}
    assert found.values["observation"][5]["joints"] == [*USD, "head_yaw"]
    away = changed(wide, "articulations/robot/default_joint_pos", [*robot["default_joint_pos"], 0.5])
    assert "observes head_yaw, which no action commands and whose target is in no file" in refusal(
        write(tmp_path / "b", None, away, None)
    )


@pytest.mark.parametrize(
    ("path", "value", "phrase"),
    [
        ("observations", REMOVED, "an environment without managers"),
        ("actions", REMOVED, "an environment without managers"),
        ("actions", {}, "actions command nothing, expected one robot of the scene"),
        ("actions/joint_pos/asset_name", "arm", "actions command arm, expected one robot of the scene"),
        ("actions/joint_pos/class_type", f"{LIBRARY}actions.joint_actions:JointVelocityAction", "JointVelocityAction"),
        ("actions/joint_pos/class_type", "mine.actions.joint_actions:JointPositionAction", "mine.actions"),
        ("actions/joint_pos/clip", {".*": (-1.0, 1.0)}, "clip bounds targets to [-1.0, 1.0] rad"),
        ("actions/joint_pos/use_default_offset", False, "actions and observed positions are relative to different"),
        ("actions/joint_pos/scale", "much", 'actions.joint_pos.scale is "much", expected a number'),
        ("actions/joint_pos/scale", {".*": 0.25, "FL.*": 0.5}, "FL_hip_joint matches .* and FL.*, expected one"),
        ("actions/joint_pos/joint_names", None, "joint_names is null, expected patterns of names"),
        ("actions/joint_pos/joint_names", ["(a+)+"], "has the pattern"),
        ("actions/joint_pos/joint_names", ["[a"], "which is no pattern"),
        ("sim/dt", "fast", 'sim.dt is "fast", expected a number'),
        ("decimation", None, "decimation is null, expected a number"),
        ("sim", 5, "sim is 5, expected names with values"),
        ("scene/robot/init_state/joint_vel", {".*": 0.5}, "default speeds are not read so far"),
        ("scene/robot/init_state/joint_pos", {".*": "bent"}, 'init_state.joint_pos is "bent", expected a number'),
        ("scene/robot/actuators", {"all": [1]}, "expected names with values"),
        ("scene/robot/actuators/lower/joint_names_expr", [".*"], "lower: FL_hip_joint has another actuator, too"),
        ("observations/policy", {}, "observations.policy: there are no terms"),
        ("observations/policy/concatenate_terms", False, "its terms are not one vector"),
        (
            "observations/policy/base_ang_vel/func",
            f"{LIBRARY}observations:height_scan",
            "which the reader does not know",
        ),
        (
            "observations/policy/base_ang_vel/func",
            "mine.mdp.observations:base_ang_vel",
            "which the reader does not know",
        ),
        ("observations/policy/base_ang_vel/func", "lambda env: 0", "which the reader does not know"),
        (
            "observations/policy/base_ang_vel/func",
            f"{LIBRARY}observations:base_lin_vel",
            UNMEASURED,
        ),
        ("observations/policy/base_ang_vel/clip", (-1.0, 2.0), "clip is [-1.0, 2.0], expected -x and x"),
        ("observations/policy/base_ang_vel/scale", (1.0, 2.0), "scale has 2 numbers, expected 3"),
        ("observations/policy/base_ang_vel/modifiers", [{"func": "bias"}], "modifiers change the value"),
        ("observations/policy/base_ang_vel/history_length", "long", 'history_length is "long"'),
        ("observations/policy/joint_pos/flatten_history_dim", False, "its history is not part of one vector"),
        ("observations/policy/joint_pos/params", {"asset_cfg": {"name": "box"}}, 'observes "box", the actions command'),
        ("observations/policy/joint_pos/params", {"asset_cfg": {"joint_ids": [0, 1]}}, "selects joints by number"),
        ("observations/policy/velocity_commands/params", {"command_name": "pose"}, 'the command "pose", which is null'),
        ("commands/base_velocity/class_type", f"{LIBRARY}commands.pose_command:PoseCommand", "that follow a velocity"),
        ("commands/base_velocity/ranges/lin_vel_x", (0.0, 1.0, 2.0), "has not two numbers for each of lin_vel_x"),
        ("observations/policy/velocity_commands/history_length", 3, "this cannot be expressed"),
    ],
)
def test_an_environment_that_is_not_clear_is_refused(tmp_path: Path, path: str, value: Any, phrase: str) -> None:
    environment = changed(ENVIRONMENT, path, value)
    file = write(tmp_path / "files", environment, None)
    if phrase != UNMEASURED:
        assert phrase in refusal(file, joints=USD)
        return
    described = reading_of(file).complete({"joints": USD})
    with pytest.raises(ForeignPolicyError, match=UNMEASURED):
        observed(described, USD, drawn(1), tmp_path / "scratch")


@pytest.mark.parametrize(
    ("path", "value", "phrase"),
    [
        ("actions", [], "actions command [], expected different joints"),
        ("actions", {"joint_pos": {}}, "expected a list"),
        ("actions/0/full_path", f"{LIBRARY}actions.joint_actions.JointEffortAction", "JointEffortAction"),
        ("actions/0/joint_names", REMOVED, "joint_names is null, expected different names"),
        ("actions/0/joint_names", [*USD[:11], USD[0]], "expected different names"),
        ("actions/0/joint_names", [*USD[:11], "tail"], "articulations: 0 have the joints of the actions"),
        ("actions/0/scale", [0.25] * 11, "scale has 11 numbers for 12 joints"),
        ("actions/0/scale", [[0.25] * 12, [0.5] * 12], "expected a number"),
        ("actions/0/offset", 0.0, "actions and observed positions are relative to different poses"),
        ("actions/0/clip", [[-1.0, 1.0]] * 11, "expected a lower and a greater number for each joint"),
        ("actions/0/clip", [[1.0, -1.0]] * 12, "expected a lower and a greater number for each joint"),
        ("actions/0/clip", {".*": [-1.0, 1.0]}, "expected a list"),
        ("articulations", {}, "articulations: 0 have the joints of the actions"),
        ("articulations/robot/default_joint_pos", REMOVED, "default_joint_pos is"),
        ("articulations/robot/default_joint_vel", [0.5] * 12, "default speeds are not read so far"),
        ("observations", {"critic": []}, "observations.policy is null, expected a list"),
        ("observations/policy/0/full_path", f"{LIBRARY}observations.height_scan", "which the reader does not know"),
        ("observations/policy/2/shape", [15], "shape is [15], expected 3; so far policies that follow a velocity"),
        ("observations/policy/5/shape", [13], "shape is [13], expected 12"),
        ("observations/policy/3/joint_pos_offsets", [0.0] * 12, "which is not the robot's default"),
        ("observations/policy/4/joint_vel_offsets", [1.0] * 12, "which is not the robot's default"),
        ("observations/policy/0/extras/modifiers", ["bias"], "modifiers change the value"),
        ("scene/dt", "0.02 s", 'scene.dt is "0.02 s", expected a number'),
    ],
)
def test_descriptors_that_are_not_clear_are_refused(tmp_path: Path, path: str, value: Any, phrase: str) -> None:
    assert phrase in refusal(write(tmp_path, None, changed(descriptors(), path, value), None), command=COMMAND)


@pytest.mark.parametrize(
    ("agent", "phrase"),
    [
        ({"params": {"env": {"clip_observations": 5.0}}}, "not of rsl_rl; what other libraries do around a network"),
        ({**AGENT, "clip_actions": "no"}, 'clip_actions is "no", expected a number'),
        ({**AGENT, "obs_groups": {"policy": ["policy", "scan"]}}, "so far policies of one group are imported"),
        ({**AGENT, "obs_groups": {"actor": "policy"}}, "so far policies of one group are imported"),
        ({**AGENT, "obs_groups": {"policy": ["other"]}}, "observations.other: there are no terms"),
    ],
)
def test_an_agent_that_is_not_clear_is_refused(tmp_path: Path, agent: dict[str, Any], phrase: str) -> None:
    assert phrase in refusal(write(tmp_path, ENVIRONMENT, None, agent), joints=USD)


def test_the_agent_names_the_group_and_bounds_the_outputs(tmp_path: Path) -> None:
    renamed = changed(ENVIRONMENT, "observations", {"proprio": ENVIRONMENT["observations"]["policy"]})
    agent = {**AGENT, "clip_actions": None, "obs_groups": {"actor": ["proprio"], "critic": ["a", "b"]}}
    found = reading_of(write(tmp_path, renamed, None, agent))
    assert found.sources["observation"] == "env.yaml: observations.proprio"
    assert "output_limit" not in found.values


@pytest.mark.parametrize("text", ["sim: [", "sim: 1\nsim: 2", "sim: !other {dt: 1}", "{a: &a [*a]}"])
def test_a_damaged_environment_is_refused(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, ENVIRONMENT, None)
    (tmp_path / "params" / "env.yaml").write_text(text, encoding="utf-8")
    assert "not YAML" in refusal(file)


def test_patterns_match_whole_names_in_little_time() -> None:
    assert fits("F[L,R]_(hip|thigh)_joint", "FL_hip_joint", "here")
    assert not fits("hip", "FL_hip_joint", "here")
    assert not fits(".*", "j" * 65, "here")
    begin = time.perf_counter()
    assert not fits(".*a.*a.*ab", "a" * 64, "here")
    assert time.perf_counter() - begin < 0.5
    for pattern in ("(a+)+b", ".*.*.*.*", "(?!a).*", "a{9}", r"\d", "a" * 65, "(a)(b)(c)(d)", "[a", "[[a]"):
        with pytest.raises(ForeignPolicyError, match="pattern"):
            fits(pattern, "a", "here")


def test_numbers_of_single_precision_are_those_that_were_written() -> None:
    assert [single(float(np.float32(one))) for one in (0.1, -1.5707963, 25.0, 0.05, 1e-4)] == [
        0.1,
        -1.5707963,
        25.0,
        0.05,
        1e-4,
    ]
    assert single(1e300) == 1e300


def folder(name: str) -> Path:
    """A repository in FOREIGN_FILES."""
    found = Path(os.environ.get("FOREIGN_FILES", "")) / name
    if "FOREIGN_FILES" not in os.environ or not found.is_dir():
        pytest.skip(f"FOREIGN_FILES names no folder with {name}")
    return found


def test_published_descriptors_are_read() -> None:
    """A walk of the Go2: Chemauto/legged_ros2 21b0017, config/rl_policy of go2_description."""
    home = folder("legged_ros2")
    assert asked(home / "policy.onnx") == ["command"]
    described = reading_of(home).complete({"command": COMMAND})
    assert described.joints == tuple(USD)
    assert described.default_pos == (0.1, -0.1, 0.1, -0.1, 0.8, 0.8, 1.0, 1.0, -1.5, -1.5, -1.5, -1.5)
    assert {*described.stiffness, *described.damping} == {25.0, 0.5}
    assert [(term.of, term.history) for term in described.observation] == [
        (kind, 5) for kind in ("ang_vel", "gravity", "command", "joint_pos", "joint_vel", "last_action")
    ]


def test_published_environments_are_refused_by_name() -> None:
    """Walks of a Spot with an arm: DevMarkusLejon/RLonSpot."""
    runs = folder("rlonspot") / "trained_policies"
    (legs,), (whole,) = runs.glob("warmstart*"), runs.glob("standing*")
    assert "actions.arm_stow is " in refusal(legs / "exported" / "policy.onnx")
    assert "joint_pos is in the order of the USD file" in refusal(whole / "exported" / "policy.onnx")
