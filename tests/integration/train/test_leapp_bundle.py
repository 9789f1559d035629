"""A LEAPP bundle computes what the exported policy does, with memory fed back, by its YAML file alone and by LEAPP."""

import functools
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml
from numpy.typing import NDArray
from tests.unit.train.models.test_policy_graph import contract, randomise, recurrent

from physai.sdk.base.errors import ExportError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX, PolicyError, PolicyHeader
from physai.sim import load_robot
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.registry import load_task
from physai.train.models.policy_graph import ActorGRU, ActorMLP, PolicyGraph
from physai.train.onnx_export.leapp_bundle import write_leapp
from physai.train.onnx_export.onnx_graph import build_onnx

pytestmark = pytest.mark.slow

Floats = NDArray[np.float32]
PERIODS = 60
TOLERANCE = 1e-5
BOUNDS: dict[str, Any] = {"scale": (2.0,), "offset": (0.5,), "lower": (-1.5,), "upper": (1.5,)}
BOTH = (ActionTerm(kind="joint_effort", joints=("a",), **BOUNDS), ActionTerm(kind="joint_pos", joints=("b",), **BOUNDS))


def written(graph: PolicyGraph) -> bytes:
    return build_onnx(graph, PolicyHeader(graph.contract, graph.state_sizes)).SerializeToString()


def walking() -> PolicyGraph:
    made = load_task("go2-velocity").contract
    graph = PolicyGraph(made, ActorGRU(made.observation_size, made.action.size, (16,), "elu", 8))
    randomise(graph)
    return graph


def efforts() -> PolicyGraph:
    """Positions and efforts, a sensor of several numbers and the last targets."""
    made = contract(
        {"kind": "sensor", "source": "joint_temperature", "scale": 0.01},
        {"kind": "last_target"},
        actions=BOTH,
    )
    graph = PolicyGraph(made, ActorMLP(made.observation_size, made.action.size, (8,), "tanh"))
    randomise(graph)
    return graph


POLICIES = {"recurrent": recurrent, "walking": walking, "efforts": efforts}


@functools.cache
def exported(name: str) -> bytes:
    return written(POLICIES[name]())


def samples(made: PolicyContract, header: PolicyHeader) -> list[dict[str, Floats]]:
    """Sensors and commands of successive periods."""
    random = np.random.default_rng(5)
    names = [name for name in header.inputs if not name.startswith(STATE_PREFIX)]
    found: list[dict[str, Floats]] = []
    for _ in range(PERIODS):
        fields = {name: random.standard_normal((1, header.inputs[name])).astype(np.float32) for name in names}
        if "imu_quat" in fields:
            fields["imu_quat"] /= np.linalg.norm(fields["imu_quat"])
        found.append(fields)
    return found


def expected(policy: bytes) -> tuple[list[dict[str, Floats]], list[dict[str, Floats]]]:
    """Samples, and the policy's own targets."""
    loaded = OnnxPolicy(policy, source="policy.onnx")
    header = loaded.header
    memory = {STATE_PREFIX + name: np.zeros((1, size), np.float32) for name, size in header.state_sizes.items()}
    inputs, outputs = samples(header.contract, header), list[dict[str, Floats]]()
    for fields in inputs:
        found = loaded.evaluate({**fields, **memory})
        memory = {STATE_PREFIX + name: np.asarray(found[NEXT_PREFIX + name]) for name in header.state_sizes}
        outputs.append({name: np.asarray(found[name]) for name in header.outputs if not name.startswith(NEXT_PREFIX)})
    return inputs, outputs


def as_bundle(fields: dict[str, Floats]) -> dict[str, Floats]:
    """The same sample with LEAPP's quaternion, which has its real part last."""
    return {
        f"policy/{name}": np.roll(value, -1, axis=1) if name == "imu_quat" else value for name, value in fields.items()
    }


def played(bundle: Path, inputs: list[dict[str, Floats]]) -> list[dict[str, Floats]]:
    """Outputs of a bundle, by what its YAML file says."""
    document = yaml.safe_load(bundle.read_text())
    pipeline, (name, model) = document["pipeline"], next(iter(document["models"].items()))
    session = onnxruntime.InferenceSession(bundle.parent / model["parameters"]["model_path"])
    values = {f"{name}/{one['name']}": np.zeros(one["shape"], np.float32) for one in model["inputs"]}
    found: list[dict[str, Floats]] = []
    for fields in inputs:
        assert set(fields) == {f"{name}/{one}" for one in pipeline["inputs"][name]}
        values |= fields
        feed = {one["name"]: values[f"{name}/{one['name']}"] for one in model["inputs"]}
        results = dict(zip((one["name"] for one in model["outputs"]), session.run(None, feed), strict=True))
        for one in model["outputs"]:
            assert results[one["name"]].shape == tuple(one["shape"])
        for source, targets in pipeline["feedback_flow"].items():
            values |= dict.fromkeys(targets, results[source.split("/")[1]])
        found.append({one: results[one] for one in pipeline["outputs"][name]})
    return found


def require_same(outputs: list[dict[str, Floats]], wanted: list[dict[str, Floats]]) -> None:
    assert len(outputs) == PERIODS
    moves = np.ptp([row[name] for row in wanted for name in ("joint_pos_target",)], axis=0).max()
    assert moves > 0.1
    for row, other in zip(outputs, wanted, strict=True):
        for name, value in other.items():
            np.testing.assert_allclose(row[name], value, atol=TOLERANCE)


@pytest.mark.parametrize("name", POLICIES)
def test_the_file_alone_is_enough_to_compute_what_the_policy_does(name: str, tmp_path: Path) -> None:
    policy = exported(name)
    inputs, wanted = expected(policy)
    made = write_leapp(policy, tmp_path / "bundle")
    require_same(played(Path(made.bundle), [as_bundle(fields) for fields in inputs]), wanted)


def test_without_its_memory_it_computes_something_else(tmp_path: Path) -> None:
    """The comparison would find feedback that is missing."""
    policy = exported("recurrent")
    inputs, wanted = expected(policy)
    bundle = Path(write_leapp(policy, tmp_path).bundle)
    document = yaml.safe_load(bundle.read_text())
    document["pipeline"]["feedback_flow"].popitem()
    bundle.write_text(yaml.safe_dump(document))
    with pytest.raises(AssertionError):
        require_same(played(bundle, [as_bundle(fields) for fields in inputs]), wanted)


def test_tensors_have_kinds_and_names_of_their_elements(tmp_path: Path) -> None:
    graph, policy = walking(), exported("walking")
    made = write_leapp(policy, tmp_path)
    robot, action = graph.contract.robot, graph.contract.action.terms[0]
    document = yaml.safe_load(Path(made.bundle).read_text())
    model = document["models"]["policy"]
    found = {one["name"]: one for one in (*model["inputs"], *model["outputs"])}
    joints, commanded = list(robot.joint_names), list(action.joints)
    assert {name: (one["kind"], one["element_names"]) for name, one in found.items() if "kind" in one} == {
        "joint_pos": ("state/joint/position", [joints]),
        "joint_vel": ("state/joint/velocity", [joints]),
        "imu_quat": ("state/body/rotation", [["x", "y", "z", "w"]]),
        "imu_ang_vel_b": ("state/body/angular_velocity", [["x", "y", "z"]]),
        "velocity_command": ("command/body/velocity", [["lin_vel_x", "lin_vel_y", "ang_vel_z"]]),
        "joint_pos_target": ("target/joint/position", [commanded]),
        "kp": ("kp", [commanded]),
        "kd": ("kd", [commanded]),
    }
    assert (found["joint_vel"]["units"], found["imu_ang_vel_b"]["frame"]) == ("rad/s", "b")
    assert document["pipeline"]["configs"]["frequency"] == pytest.approx(1.0 / graph.contract.timing.control_dt)
    assert document["pipeline"]["feedback_flow"] == {
        f"policy/{name}_out": [f"policy/{name}_in"] for name in graph.state_sizes
    }
    assert all("kind" not in found[f"{name}_{end}"] for name in graph.state_sizes for end in ("in", "out"))
    data = (tmp_path / model["parameters"]["model_path"]).read_bytes()
    assert model["parameters"]["sha256sum"] == made.model_sha256 == hashlib.sha256(data).hexdigest()
    assert document["physai"]["policy_sha256"] == hashlib.sha256(policy).hexdigest()
    assert document["system information"]["leapp config version"] == "1.3"
    assert list(made.inputs) == document["pipeline"]["inputs"]["policy"]
    assert made.outputs == {"joint_pos_target": "target/joint/position", "kp": "kp", "kd": "kd"}


def test_gains_are_those_of_the_robot(tmp_path: Path) -> None:
    graph, policy = walking(), exported("walking")
    bundle = Path(write_leapp(policy, tmp_path).bundle)
    first = played(bundle, [as_bundle(expected(policy)[0][0])])[0]
    joints = {joint.name: joint for joint in load_robot("go2").spec.joints}
    commanded = [joints[name] for name in graph.contract.action.terms[0].joints]
    np.testing.assert_allclose(first["kp"][0], [joint.stiffness for joint in commanded], rtol=1e-6)
    np.testing.assert_allclose(first["kd"][0], [joint.damping for joint in commanded], rtol=1e-6)


def test_a_bundle_of_the_same_policy_has_the_same_bytes_and_leaves_the_policy_alone(tmp_path: Path) -> None:
    policy = exported("recurrent")
    (tmp_path / "policy.onnx").write_bytes(policy)
    for folder in (tmp_path, tmp_path / "other"):
        write_leapp(policy, folder)
    assert (tmp_path / "policy.onnx").read_bytes() == policy
    for name in ("leapp.yaml", "leapp.onnx"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_fields_that_would_have_one_name_are_refused(tmp_path: Path) -> None:
    document = json.loads(contract({"kind": "command", "source": "speed"}).model_dump_json())
    document["command"]["fields"].append({**document["command"]["fields"][1], "name": "sp-eed"})
    document["command"]["fields"].append({**document["command"]["fields"][1], "name": "sp.eed"})
    made = PolicyContract.model_validate_json(json.dumps(document))
    graph = PolicyGraph(made, ActorMLP(made.observation_size, made.action.size, (8,), "tanh"))
    with pytest.raises(ExportError, match="would be named 'sp_eed'; rename"):
        write_leapp(written(graph), tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_what_is_no_policy_or_cannot_be_written_is_refused(tmp_path: Path) -> None:
    policy = exported("efforts")
    with pytest.raises(PolicyError):
        write_leapp(policy[:-20], tmp_path / "bundle")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="cannot write into"):
        write_leapp(policy, tmp_path / "file" / "bundle")


needs_leapp = pytest.mark.skipif(
    importlib.util.find_spec("leapp") is None and "LEAPP_WHEEL" not in os.environ,
    reason="leapp is not installed, and LEAPP_WHEEL names no wheel of it",
)

PRELUDE = """
import json, struct, sys, types
sys.path[:0] = [path for path in sys.argv[1:2] if path]
import numpy, torch
try:
    import safetensors.torch
except ImportError:  # LEAPP needs it for initial values alone

    def save_file(tensors, path):
        header, data = {}, b""
        for name, tensor in tensors.items():
            added = tensor.contiguous().numpy().tobytes()
            kind = {"float32": "F32", "int64": "I64", "bool": "BOOL"}[str(tensor.numpy().dtype)]
            offsets = [len(data), len(data) + len(added)]
            header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": offsets}
            data += added
        text = json.dumps(header).encode()
        open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)

    def load_file(path):
        content = open(path, "rb").read()
        size = struct.unpack("<Q", content[:8])[0]
        kinds = {"F32": "<f4", "I64": "<i8", "BOOL": "?"}
        return {
            name: torch.tensor(
                numpy.frombuffer(content[8 + size :][slice(*one["data_offsets"])], kinds[one["dtype"]])
            ).reshape(one["shape"])
            for name, one in json.loads(content[8 : 8 + size]).items()
        }

    stub = types.ModuleType("safetensors.torch")
    stub.load_file, stub.save_file = load_file, save_file
    sys.modules |= {"safetensors": types.ModuleType("safetensors"), "safetensors.torch": stub}


def played(bundle, samples):
    from leapp import InferenceManager

    manager = InferenceManager(bundle)
    given = dict(numpy.load(samples))
    rows = []
    for period in range(len(next(iter(given.values())))):
        rows.append(manager({key: torch.tensor(value[period]) for key, value in given.items()}))
    numpy.savez(samples + ".out.npz", **{key: numpy.stack([row[key].numpy() for row in rows]) for key in rows[0]})


"""


def with_leapp(folder: Path, program: str, *arguments: Any) -> None:
    """Run a program in a process that can import leapp."""
    wheel, home = os.environ.get("LEAPP_WHEEL"), ""
    if wheel is not None:
        home = str(folder / "leapp")
        zipfile.ZipFile(wheel).extractall(home)
    command = [sys.executable, "-c", PRELUDE + program, home, *map(str, arguments)]
    subprocess.run(command, check=True, cwd=folder, timeout=300)


@needs_leapp
@pytest.mark.parametrize("name", POLICIES)
def test_leapps_own_program_computes_what_the_policy_does(name: str, tmp_path: Path) -> None:
    policy = exported(name)
    inputs, wanted = expected(policy)
    bundle = write_leapp(policy, tmp_path / "bundle").bundle
    given = [as_bundle(fields) for fields in inputs]
    np.savez(
        tmp_path / "given.npz", allow_pickle=False, **{key: np.stack([row[key] for row in given]) for key in given[0]}
    )
    with_leapp(tmp_path, "played(*sys.argv[2:])", bundle, tmp_path / "given.npz")
    found = dict(np.load(tmp_path / "given.npz.out.npz"))
    rows = [{key.split("/")[1]: value[period] for key, value in found.items()} for period in range(PERIODS)]
    require_same(rows, wanted)
