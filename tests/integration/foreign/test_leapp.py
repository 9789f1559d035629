"""LEAPP bundles as NVIDIA's exporter and Isaac ROS Deploy write them: each is one graph with what no file states."""

import functools
import hashlib
import io
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from numpy.typing import NDArray
from tests.integration.train.test_leapp_bundle import expected, needs_leapp, walking, with_leapp, written
from torch import Tensor, nn

from physai.foreign import ForeignPolicyError, PolicyReading, PolicySource, TermDescription, import_policy
from physai.foreign.conversion.fitted_robot import fitted_robot
from physai.foreign.conversion.foreign_contract import foreign_contract
from physai.foreign.leapp.reader import LeappReading, read
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.plugins import contributions
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX
from physai.sim import load_robot
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.onnx_export.leapp_bundle import write_leapp

pytestmark = pytest.mark.slow

Floats = NDArray[np.float32]
Entry = dict[str, Any]
# Legs in another order than the robot has them.
LEGS = ("RR", "RL", "FR", "FL")
JOINTS = [f"{leg}_{part}_joint" for leg in LEGS for part in ("hip", "thigh", "calf")]
POSE = [0.1, 0.8, -1.5] * 4
SETTINGS: dict[str, Any] = {"default_pos": POSE, "command": [[-1, -1, -1], [1, 1, 1]]}


def tensor(name: str, *shape: int, kind: str = "", names: list[Any] | None = None, **others: Any) -> Entry:
    entry: Entry = {"name": name, "dtype": "float32", "shape": list(shape), "type": "tensor"}
    return entry | ({"kind": kind} if kind else {}) | ({"element_names": names} if names else {}) | others


SENSORS = [
    tensor("ang_vel", 1, 3, kind="state/body/angular_velocity", names=[["z", "x", "y"]]),
    tensor("gravity", 1, 3, kind="state/vector3d", isaaclab_connection="state:robot:projected_gravity_b"),
    tensor("q", 1, 12, kind="state/joint/position", names=[JOINTS[::-1]]),
    tensor("dq", 1, 12, kind="state/joint/velocity", names=[[], JOINTS]),
    tensor("cmd", 1, 2, kind="command/body/velocity", names=["ang_vel_z", "lin_vel_x"]),
]
OUTPUTS = [
    tensor("targets", 1, 12, kind="target/joint/position", names=[JOINTS]),
    tensor("kp", 1, 12, kind="kp", names=[JOINTS[::-1]]),
    tensor("kd", 1, 12, kind="kd", names=[JOINTS]),
]
KP, KD = [20.0 + index for index in range(12)], [0.5] * 12


class Network(nn.Module):
    """A policy that sees two samples, its last action and a sum of its own, each of another shape."""

    def __init__(self, gain: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * 32 + 12 + 4, 12)
        self.gain = gain
        generator = torch.Generator().manual_seed(4)
        for weights in self.layer.parameters():
            nn.init.normal_(weights, 0.0, 0.2, generator)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        ang_vel, gravity, q, dq, cmd, last, past, total = values
        seen = torch.cat([ang_vel, gravity, q, dq, cmd], dim=1)
        after = torch.cat([past[:, 1:], seen.unsqueeze(1)], dim=1)
        added = torch.tanh(0.5 * total + 0.1 * seen[:, :4].unsqueeze(0))
        action = torch.tanh(self.layer(torch.cat([after.flatten(1), last, added[0]], dim=1)))
        kp = torch.tensor([KP[::-1]]) + self.gain * cmd[:, :1]
        return 0.3 + 0.25 * action, kp, torch.tensor([KD]), action, after, added


STATES = [tensor("last", 1, 12), tensor("past", 1, 2, 32), tensor("total", 1, 1, 4)]
AFTER = [{**one, "name": f"{one['name']}_out"} for one in STATES]
FEEDBACK = {f"policy/{one['name']}_out": [f"policy/{one['name']}"] for one in STATES}


def exported(module: nn.Module, inputs: list[Entry], outputs: list[Entry]) -> bytes:
    """ONNX of one robot, as LEAPP has torch write it."""
    data = io.BytesIO()
    library: Any = torch.onnx
    library.export(
        module.eval(),
        tuple(torch.zeros(one["shape"]) for one in inputs),
        data,
        dynamo=False,
        input_names=[one["name"] for one in inputs],
        output_names=[one["name"] for one in outputs],
    )
    return data.getvalue()


@functools.cache
def network(gain: float) -> bytes:
    return exported(Network(gain), [*SENSORS, *STATES], [*OUTPUTS, *AFTER])


def traced(module: nn.Module, inputs: list[Entry]) -> bytes:
    data = io.BytesIO()
    library: Any = torch.jit
    library.save(library.trace(module.eval(), tuple(torch.zeros(one["shape"]) for one in inputs)), data)
    return data.getvalue()


def safetensors(values: Mapping[str, NDArray[Any]]) -> bytes:
    kinds = {"float32": "F32", "int64": "I64"}
    header, numbers = dict[str, Any](), b""
    for key, value in values.items():
        ends = [len(numbers), len(numbers) + value.nbytes]
        header[key] = {"dtype": kinds[str(value.dtype)], "shape": list(value.shape), "data_offsets": ends}
        numbers += value.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


def model(name: str, data: bytes, inputs: list[Entry], outputs: list[Entry], backend: str = "onnx") -> Entry:
    file = f"{name}.{'pt' if backend == 'jit' else 'onnx'}"
    parameters = {"model_path": file, "sha256sum": hashlib.sha256(data).hexdigest(), "backend": backend}
    return {"inputs": inputs, "outputs": outputs, "parameters": {**parameters, "md5sum": "x", "warp_segments": 0}}


def write(folder: Path, document: Entry, **files: bytes) -> Path:
    """Write a bundle; returns its YAML file."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    path = folder / "walker.yaml"
    text = yaml.safe_dump({key: document[key] for key in document if key != "pipeline"}, sort_keys=False)
    path.write_text(f"{text}\n{yaml.safe_dump({'pipeline': document['pipeline']})}")
    return path


def walker(
    folder: Path,
    change: Callable[[Entry], object] = lambda document: None,
    *,
    gain: float = 0.0,
    initial: Mapping[str, NDArray[Any]] | None = None,
) -> Path:
    """A bundle of one model with all kinds of feedback."""
    inputs, outputs = [*SENSORS, *STATES], [*OUTPUTS, *AFTER]
    data = network(gain)
    document: Entry = {
        "models": {"policy": model("policy", data, inputs, outputs)},
        "pipeline": {
            "configs": {"frequency": 50},
            "data_flow": {},
            "feedback_flow": FEEDBACK,
            "inputs": {"policy": [one["name"] for one in SENSORS]},
            "outputs": {"policy": [one["name"] for one in OUTPUTS]},
        },
        "system information": {"leapp config version": "1.3", "leapp version": "0.7.2"},
    }
    if initial is not None:
        document["pipeline"]["initial_values"] = "first.safetensors"
    document = json.loads(json.dumps(document))
    change(document)
    return write(folder, document, policy__onnx=data, first__safetensors=safetensors(initial or {}))


def reading(path: Path) -> LeappReading:
    found = read(PolicySource(file=path, metadata={}))
    assert isinstance(found, LeappReading)
    return found


def refusal(path: Path) -> str:
    with pytest.raises(PhysaiError) as caught:
        reading(path)
    return str(caught.value)


def contract(found: PolicyReading, folder: Path, **settings: Any) -> PolicyContract:
    folder.mkdir()
    described = found.complete({**SETTINGS, **settings})
    return foreign_contract(described, fitted_robot("go2", described, folder), task="velocity")


def session(data: bytes) -> Any:
    return onnxruntime.InferenceSession(data)


FIVE = [1.0, 4.0, 12.0, 33.0, 88.0]
"""Results of Isaac ROS Deploy's own test: of the first model 1 + its last + the second's last, 1, 3, 8, 21, 55; of the
second that + its last."""


def five_numbers(folder: Path) -> Path:
    """Bundle of Isaac ROS Deploy's own test: two models with feedback of both, for a robot of one joint."""
    helper: Any = onnx.helper

    def adding(reads: list[str], made: list[str]) -> bytes:
        nodes = [helper.make_node("Sum", reads, ["sum"]), *(helper.make_node("Identity", ["sum"], [m]) for m in made)]
        ends = [[helper.make_tensor_value_info(name, 1, [1, 1]) for name in names] for names in (reads, made)]
        graph = helper.make_graph(nodes, "adding", *ends)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    (folder / "a.onnx").write_bytes(adding(["ai1", "ai2", "ai3"], ["ao1", "ao2"]))
    (folder / "b.onnx").write_bytes(adding(["bi1", "bi2"], ["bo1", "bo2", "bo3"]))
    path = folder / "graph.yaml"
    path.write_text(
        """
joints: &names [test_joint]
models:
  a:
    formatting: {input_format: [ai1, ai2, ai3]}
    inputs:
    - {name: ai1, kind: state/joint/position, shape: [1, 1], type: tensor, element_names: [[], *names]}
    - {name: ai2, kind: feedback/ao2, shape: [1, 1], type: tensor}
    - {name: ai3, kind: feedback/bo3, shape: [1, 1], type: tensor}
    outputs: [{name: ao1, shape: [1, 1]}, {name: ao2, shape: [1, 1]}]
    parameters: {model_path: a.onnx, backend: triton, device: cuda}
  b:
    inputs: [{name: bi1, shape: [1, 1]}, {name: bi2, shape: [1, 1]}]
    outputs:
    - {name: bo1, kind: joint_pos_targets, shape: [1, 1], element_names: [[], *names]}
    - {name: bo2, shape: [1, 1]}
    - {name: bo3, shape: [1, 1]}
    parameters: {model_path: b.onnx, backend: triton, device: cuda}
pipeline:
  inputs: {a: [ai1]}
  outputs: {b: [bo1]}
  feedback_connections: {a/ao2: [a/ai2], b/bo3: [a/ai3], b/bo2: [b/bi2]}
  data_flow: {a/ao1: [b/bi1]}
"""
    )
    return path


def five_results(found: LeappReading) -> list[float]:
    """Results of five periods with the input 1."""
    graph = session(found.graph)
    names = [value.name for value in graph.get_inputs()]
    memory, results = np.zeros((1, 3), np.float32), list[float]()
    for _ in range(5):
        action, memory = graph.run(None, {names[0]: np.ones((1, 1), np.float32), names[1]: memory})
        results.append(float(action[0, 0]))
    return results


def test_the_bundle_of_isaac_ros_deploys_own_test_gives_its_five_numbers(tmp_path: Path) -> None:
    """Two models, the feedback of both, names with an axis for the robot, aliases, and no versions and hashes."""
    found = reading(five_numbers(tmp_path))
    assert five_results(found) == FIVE
    assert found.values["joints"] == ["test_joint"]
    assert "stiffness" not in found.values
    assert "control_dt" not in found.values
    assert {"joints", "models.a.formatting", "models.a.parameters.device"} <= set(found.unread)
    assert any("no sha256sum" in line for line in found.unread)


def test_each_value_is_stated_with_its_place(tmp_path: Path) -> None:
    found = reading(walker(tmp_path))
    assert found.values == {
        "joints": JOINTS,
        "stiffness": KP,
        "damping": KD,
        "action_scale": 1.0,
        "control_dt": 0.02,
        "observation": [
            {"of": "ang_vel", "elements": [2, 0, 1]},
            {"of": "gravity"},
            {"of": "joint_pos", "joints": JOINTS[::-1]},
            {"of": "joint_vel", "joints": JOINTS},
            {"of": "command", "elements": [2, 0]},
        ],
    }
    assert found.sources["joints"] == "walker.yaml: element_names of policy/targets"
    assert found.sources["stiffness"] == "walker.yaml: policy/kp, computed"
    assert found.sources["control_dt"] == "walker.yaml: pipeline.configs.frequency"
    assert found.sources["action_scale"].startswith("code: ")
    assert {path.name for path in found.files} == {"walker.yaml", "policy.onnx"}
    assert found.unread == []
    with pytest.raises(ForeignPolicyError) as caught:
        found.complete({})
    asked = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert asked == ["default_pos", "command"]


@pytest.mark.parametrize("point_at", ["walker.yaml", "policy.onnx", "."])
def test_the_file_a_model_and_the_folder_are_the_same_bundle(point_at: str, tmp_path: Path) -> None:
    walker(tmp_path)
    assert reading(tmp_path / point_at).values["joints"] == JOINTS


def test_files_of_others_are_left_to_their_readers(tmp_path: Path) -> None:
    for name, text in (("other.yaml", "models: 1\n"), ("more.yaml", "a: [1\n"), ("policy.onnx", "x")):
        (tmp_path / name).write_text(text)
        assert read(PolicySource(file=tmp_path / name, metadata={})) is None
    for path in (tmp_path, tmp_path / "absent" / "policy.pt", tmp_path / "absent.yaml"):
        assert read(PolicySource(file=path, metadata={})) is None


def test_two_bundles_in_one_folder_are_told_apart_by_the_file(tmp_path: Path) -> None:
    path = walker(tmp_path)
    (tmp_path / "second.yaml").write_text(path.read_text())
    assert "give one LEAPP bundle: second.yaml, walker.yaml" in refusal(tmp_path)
    assert reading(path).values["joints"] == JOINTS


def played(found: LeappReading, made: PolicyContract, program: nn.Module, first: list[Tensor], rows: int) -> float:
    """Greatest difference of targets between the graph and the program, for rows with inputs of their own."""
    graph, random = session(found.body(made).graph), np.random.default_rng(2)
    default = {joint.name: joint.default_pos for joint in made.robot.joints}
    hidden = np.zeros((rows, graph.get_inputs()[1].shape[1]), np.float32)
    states = [first for _ in range(rows)]
    greatest = 0.0
    for _ in range(20):
        seen = random.standard_normal((rows, 32)).astype(np.float32)
        observation = seen.copy()
        observation[:, 6:18] -= np.array([default[name] for name in JOINTS[::-1]], np.float32)
        action, hidden = graph.run(None, {"observation": observation, "hidden": hidden})
        for row in range(rows):
            parts = torch.split(torch.tensor(seen[row : row + 1]), [3, 3, 12, 12, 2], dim=1)
            with torch.no_grad():
                wanted, _, _, *states[row] = program(*parts, *states[row])
            found_targets = action[row] + np.array([default[name] for name in JOINTS], np.float32)
            greatest = max(greatest, float(np.abs(found_targets - wanted[0].numpy()).max()))
    return greatest


def zeros() -> list[Tensor]:
    return [torch.zeros(one["shape"]) for one in STATES]


def test_targets_are_those_of_its_own_program(tmp_path: Path) -> None:
    found = reading(walker(tmp_path / "bundle"))
    made = contract(found, tmp_path / "robot")
    assert made.observation_size == 32
    assert played(found, made, Network(), zeros(), rows=3) < 1e-6
    # The comparison would find another program.
    other = Network()
    nn.init.normal_(other.layer.weight)
    assert played(found, made, other, zeros(), rows=3) > 0.1


def test_feedback_starts_at_its_initial_values(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values: dict[str, Floats] = {
        one["name"]: np.asarray(random.standard_normal(one["shape"]), np.float32) for one in STATES[1:]
    }
    initial = {f"policy/{name}": value for name, value in values.items()}
    found = reading(walker(tmp_path / "bundle", initial=initial))
    made = contract(found, tmp_path / "robot")
    first = [torch.zeros(1, 12), *(torch.tensor(value) for value in values.values())]
    assert played(found, made, Network(), first, rows=2) < 1e-6
    assert played(found, made, Network(), zeros(), rows=2) > 0.01
    assert "first.safetensors" in {path.name for path in found.files}


class Encoder(nn.Module):
    def forward(self, q: Tensor, cmd: Tensor, last: Tensor) -> Tensor:
        return torch.tanh(torch.cat([q, cmd, last], dim=1)[:, 3:11])


class Counter(nn.Module):
    """A program that counts its calls in a buffer, and in whole numbers that it is given."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, 1))

    def forward(self, code: Tensor, cmd: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1.0
        target = torch.cat([code, code[:, :4]], dim=1) * cmd[:, :1] + 0.1 * self.calls
        return target + 0.01 * count.to(torch.float32), count + 2


class Delay(nn.Module):
    """A history of one sample, whose two axes of size 1 look alike, in operators that are written for one robot."""

    def forward(self, q: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(q - past[:, -1]) + past.reshape(1, -1), q.unsqueeze(1)


def test_the_axis_of_the_robots_is_found_by_computing_several(tmp_path: Path) -> None:
    ends = ([SENSORS[2], tensor("past", 1, 1, 12)], [OUTPUTS[0], tensor("past_out", 1, 1, 12)])
    data = exported(Delay(), *ends)
    document: Entry = {
        "models": {"policy": model("policy", data, *ends)},
        "pipeline": {
            "inputs": {"policy": ["q"]},
            "outputs": {"policy": ["targets"]},
            "feedback_flow": {"policy/past_out": ["policy/past"]},
        },
    }
    graph = session(reading(write(tmp_path, document, policy__onnx=data)).graph)
    names = [value.name for value in graph.get_inputs()]
    random = np.random.default_rng(0)
    memory = past = np.zeros((3, 12), np.float32)
    for _ in range(3):
        q = np.asarray(random.standard_normal((3, 12)), np.float32)
        targets, memory = graph.run(None, {names[0]: q, names[1]: memory})
        np.testing.assert_allclose(targets, np.tanh(q - past) + past, atol=1e-6)
        past = q


def test_a_policy_without_feedback_has_no_memory(tmp_path: Path) -> None:
    data = exported(Encoder(), SENSORS[2:5], [tensor("targets", 1, 8)])
    outputs = [tensor("targets", 1, 8, kind="target/joint/position", names=[JOINTS[:8]])]
    document: Entry = {
        "models": {"policy": model("policy", data, SENSORS[2:5], outputs)},
        "pipeline": {"inputs": {"policy": ["q", "dq", "cmd"]}, "outputs": {"policy": ["targets"]}},
    }
    found = reading(write(tmp_path / "bundle", document, policy__onnx=data))
    assert len(session(found.graph).get_inputs()) == 1
    pairs = zip(JOINTS[8:], POSE[8:], strict=True)
    held = {name: {"position": angle, "stiffness": 20.0, "damping": 1.0} for name, angle in pairs}
    gains = {"stiffness": [20.0] * 8, "damping": [0.5] * 8, "control_dt": 0.02}
    made = contract(found, tmp_path / "robot", **gains, held=held, default_pos=POSE[:8])
    graph = session(found.body(made).graph)
    observation = np.random.default_rng(0).standard_normal((2, 26)).astype(np.float32)
    (action,) = graph.run(None, {"observation": observation})
    default = {joint.name: joint.default_pos for joint in made.robot.joints}
    seen = observation + np.array([*(default[name] for name in JOINTS[::-1]), *[0.0] * 14], np.float32)
    targets = action + np.array([default[name] for name in JOINTS[:8]], np.float32)
    np.testing.assert_allclose(targets, np.tanh(seen[:, 3:11]), atol=1e-6)


def test_models_of_both_kinds_share_a_command_and_remember(tmp_path: Path) -> None:
    command = tensor("cmd", 1, 3, kind="command/body/velocity", names=[["lin_x", "lin_y", "ang_z"]])
    first = ([SENSORS[2], command, tensor("last", 1, 12)], [tensor("code", 1, 8)])
    second = (
        [tensor("code", 1, 8), command, tensor("count", 1, 1, dtype="int64")],
        [OUTPUTS[0], tensor("count", 1, 1, dtype="int64")],
    )
    files = {"encoder": exported(Encoder(), *first)}
    library: Any = torch.jit
    data = io.BytesIO()
    library.save(library.script(Counter()), data)
    files["actor"] = data.getvalue()
    document: Entry = {
        "models": {
            "encoder": model("encoder", files["encoder"], *first),
            "actor": model("actor", files["actor"], *second, backend="jit"),
        },
        "pipeline": {
            "inputs": {"encoder": ["q", "cmd"], "actor": ["cmd"]},
            "outputs": {"actor": ["targets"]},
            "data_flow": {"encoder/code": ["actor/code"]},
            "feedback_flow": {"actor/targets": ["encoder/last"], "actor/count": ["actor/count"]},
            "initial_values": "first.safetensors",
        },
    }
    path = write(
        tmp_path / "bundle",
        document,
        encoder__onnx=files["encoder"],
        actor__pt=files["actor"],
        first__safetensors=safetensors({"actor/count": np.array([[40]])}),
    )
    found = reading(path)
    # The command of both models is one term.
    assert [term["of"] for term in found.values["observation"]] == ["joint_pos", "command"]
    assert "its memory (net.calls) is an input and an output" in " ".join(found.changes)
    settings = {"stiffness": [20.0] * 12, "damping": [0.5] * 12, "control_dt": 0.02}
    made = contract(found, tmp_path / "robot", **settings)
    graph, random = session(found.body(made).graph), np.random.default_rng(7)
    hidden = np.zeros((2, graph.get_inputs()[1].shape[1]), np.float32)
    default = {joint.name: joint.default_pos for joint in made.robot.joints}
    last = np.zeros((2, 12))
    for period in range(10):
        q, cmd = random.standard_normal((2, 12)), random.standard_normal((2, 3))
        observation = np.concatenate([q - [default[name] for name in JOINTS[::-1]], cmd], axis=1).astype(np.float32)
        action, hidden = graph.run(None, {"observation": observation, "hidden": hidden})
        code = np.tanh(np.concatenate([q, cmd, last], axis=1)[:, 3:11])
        last = np.concatenate([code, code[:, :4]], axis=1) * cmd[:, :1] + 0.1 * (period + 1)
        last += 0.01 * (40 + 2 * period)
        np.testing.assert_allclose(action + [default[name] for name in JOINTS], last, atol=1e-5)


def policy(document: Entry) -> Entry:
    return document["models"]["policy"]


def stated(document: Entry, label: str, name: str) -> Entry:
    return next(one for one in policy(document)[label] if one["name"] == name)


REFUSED: dict[str, tuple[Callable[[Entry], object], str]] = {
    "version": (lambda d: d["system information"].update({"leapp config version": "2.0"}), "version is 2.0"),
    "native": (lambda d: policy(d)["parameters"].update(warp_segments=2), "is 2: .*Warp segments are native code"),
    "warp": (lambda d: policy(d)["parameters"].update(backend="warp"), "backend is warp: .*native code"),
    "pt2": (lambda d: policy(d)["parameters"].update(backend="pt2"), "backend is pt2: .*'onnx', 'triton' or 'jit'"),
    "hash": (lambda d: policy(d)["parameters"].update(sha256sum="ab" * 32), "states abababababab…"),
    "outside": (lambda d: policy(d)["parameters"].update(model_path="../policy.onnx"), "'../policy.onnx', expected a"),
    "absent": (lambda d: policy(d)["parameters"].update(model_path="other.onnx"), "other.onnx: cannot be read"),
    "no inputs": (lambda d: policy(d)["inputs"].clear(), "models.policy.inputs is .*at least 1 item"),
    "no outputs": (lambda d: d["pipeline"].pop("outputs"), "pipeline.outputs is .*: Field required"),
    "shape": (lambda d: stated(d, "inputs", "q").update(shape=[1, -12]), "shape.1 is -12: "),
    "no axis": (lambda d: stated(d, "inputs", "q").update(shape=[3, 4]), "q has the shape .3, 4., without an axis"),
    "type": (lambda d: stated(d, "inputs", "q").update(dtype="float64"), "dtype is float64: "),
    "slash": (lambda d: stated(d, "inputs", "q").update(name="a/b"), "name is a/b: "),
    "twice": (lambda d: stated(d, "inputs", "q").update(name="dq"), "two tensors of a model have one name"),
    "names": (
        lambda d: stated(d, "inputs", "q").update(element_names=[JOINTS[:11]]),
        "the input walker.yaml: policy/q has 11 element_names for 12 elements",
    ),
    "no names": (lambda d: stated(d, "inputs", "q").pop("element_names"), "policy/q .* has no element_names"),
    "chunk": (
        lambda d: stated(d, "outputs", "targets").update(element_names=["__temporal_axis__", JOINTS]),
        "policy/targets .*has a chunk of samples",
    ),
    "no joints": (lambda d: stated(d, "outputs", "targets").pop("element_names"), "targets .* has no element_names"),
    "kind": (
        lambda d: stated(d, "inputs", "dq").update(kind="state/joint/effort"),
        "the kind state/joint/effort, which",
    ),
    "no kind": (lambda d: stated(d, "inputs", "dq").pop("kind"), "policy/dq has the kind none, which is not supported"),
    "command": (
        lambda d: stated(d, "inputs", "cmd").update(element_names=[["ang_vel_z", "height"]]),
        r"policy/cmd \(command/body/velocity\) has height, expected lin_vel_x, lin_vel_y, ang_vel_z",
    ),
    "axis twice": (
        lambda d: stated(d, "inputs", "ang_vel").update(element_names=[["x", "x", "z"]]),
        "has an element twice, expected x, y, z",
    ),
    "world": (
        lambda d: stated(d, "inputs", "ang_vel").update(isaaclab_connection="state:robot:root_ang_vel_w"),
        "is root_ang_vel_w of Isaac Lab, expected root_ang_vel_b",
    ),
    "gravity": (
        lambda d: stated(d, "inputs", "gravity").update(element_names=[["z", "y", "x"]]),
        "is gravity with the elements .*expected x, y, z",
    ),
    "no inputs at all": (lambda d: d["pipeline"]["inputs"].clear(), "names nothing that the robot measures"),
    "vector": (lambda d: stated(d, "inputs", "q").update(shape=[12]), "at least 2 items.*one axis has size 1"),
    "history": (
        lambda d: stated(d, "inputs", "q").update(history_length=5),
        "history_length is 5: .*outside the network",
    ),
    "efforts": (
        lambda d: stated(d, "outputs", "targets").update(kind="target/joint/effort"),
        "targets are positions so",
    ),
    "no targets": (
        lambda d: stated(d, "outputs", "targets").pop("kind"),
        "no output has the kind target/joint/position",
    ),
    "gains": (
        lambda d: stated(d, "outputs", "kd").update(element_names=[[*JOINTS[:11], "tail"]]),
        "damping is for .*tail, the targets for",
    ),
    "controller": (
        lambda d: d["pipeline"]["configs"].update(isaaclab={"controller_owned_writes": {"requirements": [1]}}),
        "controller_owned_writes is .*asks the controller for more than targets",
    ),
    "frequency": (lambda d: d["pipeline"]["configs"].update(frequency=0), "frequency is 0: "),
    "unfed": (lambda d: d["pipeline"]["inputs"]["policy"].remove("q"), "the input policy/q gets 0 values"),
    "fed twice": (lambda d: d["pipeline"]["inputs"]["policy"].append("last"), "the input policy/last gets 2 values"),
    "unknown end": (lambda d: d["pipeline"]["inputs"]["policy"].append("z"), "pipeline names policy/z, which no model"),
    "unknown edge": (
        lambda d: d["pipeline"]["feedback_flow"].update({"policy/z": ["policy/q"]}),
        "feedback leads from policy/z to policy/q, and the models have no such tensors",
    ),
    "two sources": (
        lambda d: d["pipeline"].update(feedback_connections={"policy/targets": ["policy/last"]}),
        "policy/last gets both policy/last_out and policy/targets",
    ),
    "backwards": (
        lambda d: d["pipeline"].update(data_flow=d["pipeline"].pop("feedback_flow")),
        "data_flow leads from policy/last_out to policy/last, against the order",
    ),
    "other shape": (
        lambda d: d["pipeline"]["feedback_flow"].update({"policy/kp": ["policy/past"], "policy/past_out": []}),
        r"policy/kp is float32 \[1, 12\], policy/past, which gets it, float32 \[1, 2, 32\]",
    ),
    "other file": (
        lambda d: policy(d)["inputs"].reverse(),
        "its inputs are .*'ang_vel', .1, 3.*, and the bundle states .*'total', .1, 1, 4.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_refused_with_its_value(name: str, tmp_path: Path) -> None:
    change, phrase = REFUSED[name]
    with pytest.raises(PhysaiError, match=phrase):
        reading(walker(tmp_path, change))


def test_gains_that_vary_are_refused_by_name(tmp_path: Path) -> None:
    # Of the twelve, in the order of the output's own names.
    assert f"stiffness of {JOINTS[-1]} varies" in refusal(walker(tmp_path, gain=0.1))


def test_a_quaternion_needs_the_names_of_its_elements(tmp_path: Path) -> None:
    """Programs differ in its order where none are."""

    def turned(names: list[str] | None, width: int = 4) -> Callable[[Entry], object]:
        def change(document: Entry) -> None:
            entry = stated(document, "inputs", "gravity")
            entry.update(kind="state/body/rotation", shape=[1, width], isaaclab_connection="state:robot:root_quat_w")
            entry.update(element_names=[names] if names else None)

        return change

    assert "has no element_names" in refusal(walker(tmp_path / "none", turned(None)))
    assert "has 3 element_names for 4 elements" in refusal(walker(tmp_path / "three", turned(["qx", "qy", "qz"])))
    assert "has 3 elements, expected 4" in refusal(walker(tmp_path / "narrow", turned(["x", "y", "z"], width=3)))


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "a header of 0 bytes in a file of 0"),
    "long header": (struct.pack("<Q", 1 << 40), "a header of 1099511627776 bytes"),
    "no header": (struct.pack("<Q", 3) + b"{x}", "its header is damaged"),
    "offsets": (
        safetensors({"policy/last": np.zeros((1, 12), np.float32)})[:-8],
        r"policy/last is at 0 to 48 of 40 bytes, its shape \[1, 12\] takes 48",
    ),
    "values": (safetensors({"policy/last": np.full((1, 12), np.nan, np.float32)}), "values that are not finite"),
    "width": (safetensors({"policy/last": np.zeros((1, 3), np.float32)}), "has 3 numbers for policy/last, .* has 12"),
    "no feedback": (
        safetensors({"policy/q": np.zeros((1, 12), np.float32)}),
        "for policy/q, whose input has no feedback",
    ),
    "type": (safetensors({"policy/last": np.zeros(12, np.int64)}).replace(b'"I64"', b'"F16"'), "is of type F16"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_initial_values_are_refused(name: str, tmp_path: Path) -> None:
    data, phrase = DAMAGED[name]
    path = walker(tmp_path, initial={})
    (tmp_path / "first.safetensors").write_bytes(data)
    with pytest.raises(ForeignPolicyError, match=phrase):
        reading(path)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    def claimed(backend: str) -> Callable[[Entry], object]:
        return lambda d: policy(d)["parameters"].update(backend=backend, sha256sum=None)

    for backend, phrase in (("onnx", "policy.onnx: not an ONNX file"), ("jit", "policy.onnx: not a TorchScript file")):
        path = walker(tmp_path / backend, claimed(backend))
        (path.parent / "policy.onnx").write_bytes(b"\x08\x07garbage")
        assert phrase in refusal(path)


def test_a_program_with_other_inputs_is_refused(tmp_path: Path) -> None:
    path = walker(tmp_path, lambda d: policy(d)["parameters"].update(backend="jit", sha256sum=None))
    (tmp_path / "policy.onnx").write_bytes(traced(Encoder(), [SENSORS[2], SENSORS[4], STATES[0]]))
    assert "the program takes 3 inputs, the bundle states 8" in refusal(path)


def test_a_warp_segment_in_the_graph_is_refused_by_name(tmp_path: Path) -> None:
    path = walker(tmp_path, lambda d: policy(d)["parameters"].update(sha256sum=None))
    library: Any = onnx
    found = library.load(str(tmp_path / "policy.onnx"))
    found.graph.node[0].domain, found.graph.node[0].op_type = "com.nvidia.warp", "WrpRunner"
    library.save(found, str(tmp_path / "policy.onnx"))
    assert "it has a Warp segment (WrpRunner), which is native code" in refusal(path)


def test_aliases_that_repeat_without_end_are_refused(tmp_path: Path) -> None:
    path = walker(tmp_path)
    laughs = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 9))
    path.write_text(f"l0: &l0 [1]\n{laughs}{path.read_text()}")
    assert "aliases are too many" in refusal(path)


@pytest.mark.skipif(
    "leapp" not in contributions("physai.policy_readers")
    or "orientation" not in get_args(TermDescription.model_fields["of"].annotation),
    reason="the reader is no entry point yet",
)
def test_an_exported_policy_comes_back_as_it_was(tmp_path: Path) -> None:
    """From our own bundle, with an orientation and recurrent, to a run folder."""
    ours = written(walking())
    write_leapp(ours, tmp_path / "bundle")
    home = {joint.name: joint.default_pos for joint in load_robot("go2").spec.joints}
    joints = reading(tmp_path / "bundle").values["joints"]
    settings: dict[str, Any] = {"default_pos": [home[name] for name in joints], "command": SETTINGS["command"]}
    found = import_policy(tmp_path / "bundle", model="go2", out=tmp_path / "run", settings=settings)
    assert found.family == "leapp"
    assert [term.kind for term in found.contract.observation.terms].count("sensor") == 3
    inputs, wanted = expected(ours)
    policy = OnnxPolicy((tmp_path / "run" / "export" / "policy.onnx").read_bytes(), source="policy.onnx")
    sizes = policy.header.state_sizes
    memory = {STATE_PREFIX + name: np.zeros((1, size), np.float32) for name, size in sizes.items()}
    columns = [list(joints).index(name) for name in policy.header.contract.action.terms[0].joints]
    for fields, targets in zip(inputs, wanted, strict=True):
        results = policy.evaluate({**fields, **memory})
        memory = {STATE_PREFIX + name: np.asarray(results[NEXT_PREFIX + name]) for name in sizes}
        np.testing.assert_allclose(results["joint_pos_target"], targets["joint_pos_target"][:, columns], atol=1e-5)


BUNDLES = """
import leapp
from leapp import GraphConfigs, TensorSemantics, annotate
from torch import nn

J = [f"j{i}" for i in range(6)]
torch.manual_seed(0)
net, gru, default = nn.Linear(19, 6), nn.GRU(18, 8), torch.linspace(-1, 1, 6)[None]


def made(name, backend, recurrent):
    leapp.start(name, save_path=sys.argv[2])
    with torch.no_grad():
        w, p, v = annotate.input_tensors("policy", [
            TensorSemantics("w", torch.randn(1, 3), kind="state/body/angular_velocity", element_names=["x", "y", "z"]),
            TensorSemantics("p", torch.randn(1, 6), kind="state/joint/position", element_names=J),
            TensorSemantics("v", torch.randn(1, 6), kind="state/joint/velocity", element_names=J[::-1]),
        ])
        c = annotate.input_tensors("policy", TensorSemantics(
            "c", torch.randn(1, 3), kind="command/body/velocity",
            element_names=["lin_vel_x", "lin_vel_y", "ang_vel_z"]))
        first = torch.full((1, 1, 8), 0.25) if recurrent else torch.zeros(1, 2, 3)
        last, past = annotate.state_tensors("policy", {"last": torch.zeros(1, 1), "past": first})
        seen = torch.cat([w, p - default, v, c], dim=-1)
        if recurrent:
            out, past = gru(seen[None], past)
            action = net(torch.cat([out[0], out[0], c], dim=-1)) + last
        else:
            past = torch.cat([past[:, 1:], w[:, None]], dim=1)
            action = net(torch.cat([seen, last], dim=-1)) + past.reshape(1, -1)
        annotate.update_state("policy", {"last": action[:, :1], "past": past})
        annotate.output_tensors(
            "policy",
            [TensorSemantics("t", 0.25 * action + default, kind="target/joint/position", element_names=J)],
            static_outputs=[TensorSemantics("kp", torch.full((1, 6), 20.5), kind="kp", element_names=J)],
            export_with=backend,
        )
    leapp.stop()
    leapp.compile_graph(visualize=False, graph_configs=GraphConfigs(frequency=100))
    played(f"{sys.argv[2]}/{name}/{name}.yaml", sys.argv[3])
    import shutil
    shutil.move(sys.argv[3] + ".out.npz", f"{sys.argv[2]}/{name}/wanted.npz")


net = nn.Linear(19, 6)
made("dynamo", "onnx", False)
made("torchscript", "onnx-torchscript", True)
made("recurrent", "onnx", True)
made("script", "jit", True)
"""


@needs_leapp
def test_bundles_of_leapps_own_exporter_compute_what_its_own_program_does(tmp_path: Path) -> None:
    """Of one network with ONNX of both exporters and TorchScript, with a history, and recurrent from another start."""
    random = np.random.default_rng(3)
    sizes = {"w": 3, "p": 6, "v": 6, "c": 3}
    given = {f"policy/{name}": np.asarray(random.standard_normal((20, 1, n)), np.float32) for name, n in sizes.items()}
    np.savez(tmp_path / "given.npz", allow_pickle=False, **given)
    with_leapp(tmp_path, BUNDLES, tmp_path, tmp_path / "given.npz")
    for name in ("dynamo", "torchscript", "recurrent", "script"):
        found = reading(tmp_path / name)
        assert found.values["control_dt"] == 0.01
        assert found.values["stiffness"] == [20.5] * 6
        assert found.unread == []
        graph = session(found.graph)
        names = [value.name for value in graph.get_inputs()]
        hidden = np.zeros((1, graph.get_inputs()[1].shape[1]), np.float32)
        wanted = np.load(tmp_path / name / "wanted.npz")["policy/t"]
        for period in range(20):
            observation = np.concatenate([value[period] for value in given.values()], axis=1)
            results, hidden = graph.run(None, {names[0]: observation, names[1]: hidden})
            np.testing.assert_allclose(results[:, :6], wanted[period], atol=1e-5)
