"""Writes an exported policy as a LEAPP bundle, NVIDIA's format for deployment: a YAML file and an ONNX file.

The bundle has the policy's sensors and commands as inputs, its targets as outputs, and its memory as feedback. It
computes one robot, and has quaternions as xyzw. The format, here in configuration version 1.3:
https://nvidia-isaac.github.io/leapp/.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from physai.sdk.base.errors import ExportError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.contract.position_limits import POSITION_TARGET
from physai.sdk.contract.robot import JOINT_SENSORS
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import NEXT_PREFIX, POLICY_FILE, STATE_PREFIX, PolicyHeader
from physai.train.onnx_export.spliced import append_graph

BUNDLE_FILE, MODEL_FILE = "leapp.yaml", "leapp.onnx"
CONFIG_VERSION = "1.3"
MODEL = "policy"
QUATERNION = "imu_quat"
WXYZ_OF_XYZW = (3, 0, 1, 2)
KINDS: dict[str, tuple[str, Sequence[str]]] = {
    "joint_pos": ("state/joint/position", ()),
    "joint_vel": ("state/joint/velocity", ()),
    "joint_effort": ("state/joint/effort", ()),
    QUATERNION: ("state/body/rotation", ("x", "y", "z", "w")),
    "imu_ang_vel_b": ("state/body/angular_velocity", ("x", "y", "z")),
    "velocity_command": ("command/body/velocity", ("lin_vel_x", "lin_vel_y", "ang_vel_z")),
    POSITION_TARGET: ("target/joint/position", ()),
    "joint_effort_target": ("target/joint/effort", ()),
}
"""LEAPP's kinds of sensors, commands and targets, and names of their elements; those of joints are the joints'."""

Tensors = dict[str, dict[str, Any]]
"""Tensors as the YAML file describes them, by the policy's names."""


@dataclass(frozen=True)
class LeappExport:
    """A bundle that was written."""

    bundle: str
    """The YAML file; the ONNX file lies next to it."""
    fingerprint: str
    """Fingerprint of the policy's contract."""
    model_sha256: str
    inputs: dict[str, str]
    """Kind of each tensor from the robot or an operator."""
    outputs: dict[str, str]
    """Kind of each tensor to the robot."""


def write_leapp(policy: bytes, folder: Path) -> LeappExport:
    """Write `leapp.yaml` and `leapp.onnx`.

    Args:
        policy: an exported policy, the content of a `policy.onnx`.
        folder: output folder; created if missing.

    Raises:
        ExportError: two tensors would have the same name, or the folder cannot be written.
        PolicyError: the policy is damaged.
    """
    import yaml

    header = check_policy(policy, source=POLICY_FILE)
    gains = _gains(header)
    inputs, outputs = _inputs(header), _outputs(header, gains)
    names = [one["name"] for one in (*inputs.values(), *outputs.values())]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ExportError(f"two tensors of the bundle would be named {twice!r}; rename a sensor, command or memory")
    model = _model(policy, inputs, outputs, gains)
    sha256 = hashlib.sha256(model).hexdigest()
    feedback = {
        f"{MODEL}/{outputs[NEXT_PREFIX + name]['name']}": [f"{MODEL}/{inputs[STATE_PREFIX + name]['name']}"]
        for name in header.state_sizes
    }
    kinds = [{one["name"]: str(one["kind"]) for one in ends.values() if "kind" in one} for ends in (inputs, outputs)]
    parameters = {
        "model_path": MODEL_FILE,
        "md5sum": hashlib.md5(model, usedforsecurity=False).hexdigest(),
        "sha256sum": sha256,
        "backend": "onnx",
        "warp_segments": 0,
    }
    described = {"inputs": list(inputs.values()), "outputs": list(outputs.values()), "parameters": parameters}
    document = {
        "models": {MODEL: described},
        "pipeline": {
            "configs": {"frequency": round(1.0 / header.contract.timing.control_dt, 9)},
            "data_flow": {},
            "feedback_flow": feedback,
            "inputs": {MODEL: list(kinds[0])},
            "outputs": {MODEL: list(kinds[1])},
        },
        "system information": {"leapp config version": CONFIG_VERSION, "exporter": "physai"},
        "physai": {"fingerprint": header.contract.fingerprint, "policy_sha256": hashlib.sha256(policy).hexdigest()},
    }
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
    with oserror_as(ExportError, f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / MODEL_FILE, model)
        write_atomic(folder / BUNDLE_FILE, text.encode())
    return LeappExport(str(folder / BUNDLE_FILE), header.contract.fingerprint, sha256, *kinds)


def _gains(header: PolicyHeader) -> dict[str, list[float]]:
    """Gains of the position servos that the policy commands."""
    joints = {joint.name: joint for joint in header.contract.robot.joints}
    for term in header.contract.action.terms:
        if term.target_name == POSITION_TARGET:
            commanded = [joints[name] for name in term.joints]
            return {"kp": [one.stiffness for one in commanded], "kd": [one.damping for one in commanded]}
    return {}


def _inputs(header: PolicyHeader) -> Tensors:
    robot = header.contract.robot
    fields = {field.name: field for field in (*robot.sensors, *header.contract.command.fields)}
    commands = {field.name for field in header.contract.command.fields}
    found: Tensors = {}
    for name, size in header.inputs.items():
        if name.startswith(STATE_PREFIX) and name not in fields:
            found[name] = _tensor(f"{name.removeprefix(STATE_PREFIX)}_in", size)
            continue
        kind, elements = KINDS.get(name, (f"{'command' if name in commands else 'state'}/{name}", ()))
        found[name] = _tensor(name, size, kind, robot.joint_names if name in JOINT_SENSORS else elements)
        # The format has no units and frames; its documentation suggests these keys.
        stated = {"units": fields[name].unit, "frame": fields[name].frame}
        found[name] |= {key: value for key, value in stated.items() if value}
    return found


def _outputs(header: PolicyHeader, gains: Mapping[str, Sequence[float]]) -> Tensors:
    joints = {term.target_name: term.joints for term in header.contract.action.terms}
    found: Tensors = {}
    for name, size in header.outputs.items():
        if name in joints:
            found[name] = _tensor(name, size, KINDS[name][0], joints[name])
        else:
            found[name] = _tensor(f"{name.removeprefix(NEXT_PREFIX)}_out", size)
    return found | {kind: _tensor(kind, len(one), kind, joints[POSITION_TARGET]) for kind, one in gains.items()}


def _tensor(name: str, size: int, kind: str = "", elements: Sequence[str] = ()) -> dict[str, Any]:
    # A slash joins the names of a model and a tensor.
    described = {"name": re.sub(r"[^A-Za-z0-9_]", "_", name), "dtype": "float32", "shape": [1, size], "type": "tensor"}
    return described | ({"kind": kind} if kind else {}) | ({"element_names": [list(elements)]} if elements else {})


def _model(policy: bytes, inputs: Tensors, outputs: Tensors, gains: Mapping[str, Sequence[float]]) -> bytes:
    """The policy's graph for one robot, with the bundle's names."""
    library: Any = onnx
    exported = library.load_model_from_string(policy)
    made: Any = library.ModelProto(ir_version=exported.ir_version, producer_name="physai")
    made.opset_import.extend(exported.opset_import)
    graph, node, constant = made.graph, library.helper.make_node, library.numpy_helper.from_array
    graph.name = MODEL
    if QUATERNION in inputs:
        graph.initializer.append(constant(np.array(WXYZ_OF_XYZW), "bundle.wxyz"))
        graph.node.append(node("Gather", [inputs[QUATERNION]["name"], "bundle.wxyz"], [f"policy.{QUATERNION}"], axis=1))
    kept = {name: one["name"] for name, one in (*inputs.items(), *outputs.items()) if name != QUATERNION}
    append_graph(graph, exported.graph, "policy.", kept)
    for kind, values in gains.items():
        graph.initializer.append(constant(np.array([values], np.float32), f"bundle.{kind}"))
        graph.node.append(node("Identity", [f"bundle.{kind}"], [kind]))
    make = library.helper.make_tensor_value_info
    for values, tensors in ((graph.input, inputs), (graph.output, outputs)):
        values.extend(make(one["name"], library.TensorProto.FLOAT, one["shape"]) for one in tensors.values())
    library.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString(deterministic=True))
