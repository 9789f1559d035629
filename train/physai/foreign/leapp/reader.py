"""Reader of LEAPP bundles, NVIDIA's exported policies: `NAME.yaml` with a file per model.

A bundle reads what the robot measures and writes its targets; its feedback becomes the network's memory. The program
(`leapp/inference_manager.py` of 0.7.2) gives targets as they are, which no file states.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.foreign.body import probe
from physai.foreign.body.networks import ACTION, HIDDEN, NEXT, OBSERVATION, PolicyBody
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.leapp.bundle import LeappBundle, read_bundle
from physai.foreign.leapp.document import find_document
from physai.foreign.leapp.pipeline import joined_models
from physai.foreign.leapp.sensors import element_names, sensor_term
from physai.foreign.reading import PolicyReading, PolicySource
from physai.sdk.contract.policy_contract import PolicyContract

TARGET, STIFFNESS, DAMPING = "target/joint/position", "stiffness", "damping"
KINDS = {
    **dict.fromkeys((TARGET, "joint_pos_targets"), TARGET),
    **dict.fromkeys(("kp", "stiffness_targets"), STIFFNESS),
    **dict.fromkeys(("kd", "damping_targets"), DAMPING),
}
"""Meaning of outputs by kind; the second kinds are those of an older exporter, which Isaac ROS Deploy replaces."""
OTHER_TARGETS = ("target/", "joint_vel_targets", "joint_effort_targets")
SAMPLES, CONSTANT = 64, 1e-5
"""Random states in which gains are computed, and the greatest change, relative above 1, of one that is constant."""


@dataclass(kw_only=True)
class LeappReading(PolicyReading):
    """A reading with the bundle as one graph."""

    graph: bytes
    """From what the robot measures to the targets and the gains; see `joined_models`."""
    changes: list[str]

    def body(self, contract: PolicyContract) -> PolicyBody:
        """Return the graph between the terms of a contract, which are relative to the default pose."""
        hashes = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.files))
        return PolicyBody(
            graph=_absolute(self.graph, contract),
            sha256=hashlib.sha256(hashes.encode()).hexdigest(),
            changes=(*self.changes, "the default pose is added to positions and taken from targets"),
        )


def _absolute(network: bytes, contract: PolicyContract) -> bytes:
    """Add the default pose before a network and take it off after it."""
    import onnx

    from physai.train.onnx_export.onnx_graph import IR_VERSION, OPSET
    from physai.train.onnx_export.spliced import append_graph

    library: Any = onnx
    pose = np.zeros((1, contract.observation_size), np.float32)
    default = {joint.name: joint.default_pos for joint in contract.robot.joints}
    for term in contract.observation.terms:
        if term.kind == "joint_pos_rel":
            pose[0, contract.observation_slices[term.name]] = [default[name] for name in term.joints or default]
    action = contract.action.terms[0]
    constants = {
        "pose": pose,
        "targets": np.arange(len(action.joints)),
        "offset": np.array([action.offset], np.float32),
    }
    part = library.load_model_from_string(network).graph
    made: Any = library.ModelProto(ir_version=IR_VERSION)
    made.opset_import.add(domain="", version=OPSET)
    graph, node, make = made.graph, library.helper.make_node, library.helper.make_tensor_value_info
    graph.name = "bundle"
    graph.initializer.extend(library.numpy_helper.from_array(value, name) for name, value in constants.items())
    graph.node.append(node("Add", [OBSERVATION, "pose"], ["seen"], "seen"))
    kept = dict(zip((value.name for value in part.input), ("seen", HIDDEN), strict=False))
    kept |= dict(zip((value.name for value in part.output), ("results", NEXT), strict=False))
    append_graph(graph, part, "net.", kept)
    graph.node.append(node("Gather", ["results", "targets"], ["absolute"], "absolute", axis=1))
    graph.node.append(node("Sub", ["absolute", "offset"], [ACTION], ACTION))
    graph.input.append(make(OBSERVATION, 1, ["n", pose.size]))
    graph.output.append(make(ACTION, 1, ["n", len(action.joints)]))
    for values, name, given in ((graph.input, HIDDEN, part.input[1:]), (graph.output, NEXT, part.output[1:])):
        values.extend(make(name, 1, ["n", one.type.tensor_type.shape.dim[1].dim_value]) for one in given)
    return bytes(made.SerializeToString(deterministic=True))


def read(source: PolicySource) -> PolicyReading | None:
    """Read a bundle from its YAML file, one of its models or its folder; None for other files.

    Raises:
        PhysaiError: the bundle is damaged, or has what is not supported, or a child process failed.
    """
    file = find_document(source.file)
    if file is None:
        return None
    bundle = read_bundle(file)
    outputs = _outputs(bundle)
    terms: list[dict[str, Any]] = []
    starts, places = [0], dict[str, int]()
    for key, tensor in bundle.inputs.items():
        term = sensor_term(f"{file.name}: {key}", tensor)
        if term not in terms:
            terms.append(term)
            starts.append(starts[-1] + tensor.width)
        places[key] = starts[terms.index(term)]
    graph, changes = joined_models(bundle, places, [key for found in outputs.values() for key in found])
    targets = outputs[TARGET]
    joints = [name for names in targets.values() for name in names]
    reading = LeappReading(
        family="leapp",
        network=bundle.networks[list(targets)[-1].partition("/")[0]],
        files=bundle.files,
        unread=bundle.unread,
        graph=graph,
        changes=changes,
    )
    reading.state("joints", joints, f"{file.name}: element_names of {', '.join(targets)}")
    start = len(joints)
    for what in [what for what in outputs if what != TARGET]:
        names = [name for one in outputs[what].values() for name in one]
        gains = _constants(graph, range(start, start + len(names)), [f"{file}: {what} of {name}" for name in names])
        start += len(names)
        if sorted(names) != sorted(joints):
            raise ForeignPolicyError(f"{file}: {what} is for {', '.join(names)}, the targets for {', '.join(joints)}")
        by_joint = dict(zip(names, gains, strict=True))
        reading.state(what, [by_joint[name] for name in joints], f"{file.name}: {', '.join(outputs[what])}, computed")
    reading.state("action_scale", 1.0, "code: a target is the position itself")
    if bundle.frequency is not None:
        reading.state("control_dt", 1.0 / bundle.frequency, f"{file.name}: pipeline.configs.frequency")
    reading.state(
        "observation", terms, f"{file.name}: inputs; code: Isaac ROS Deploy gives what joints and the IMU measure"
    )
    return reading


def _outputs(bundle: LeappBundle) -> dict[str, dict[str, list[str]]]:
    """Outputs with their joints, by what they are, the targets first."""
    found: dict[str, dict[str, list[str]]] = {TARGET: {}}
    for key, tensor in bundle.outputs.items():
        where = f"{bundle.file}: the output {key} ({tensor.kind})"
        if tensor.kind in KINDS:
            names = element_names(where, tensor)
            if not names:
                raise ForeignPolicyError(f"{where} has no element_names, which alone tell the order of joints")
            found.setdefault(KINDS[tensor.kind], {})[key] = names
        elif tensor.kind.startswith(OTHER_TARGETS):
            raise ForeignPolicyError(f"{where}: targets are positions so far")
        else:
            bundle.unread.append(f"the output {key} of the kind {tensor.kind}")
    if not found[TARGET]:
        raise ForeignPolicyError(f"{bundle.file}: no output has the kind {TARGET}")
    return found


def _constants(network: bytes, columns: range, names: Sequence[str]) -> list[float]:
    """Values of results that never change.

    Raises:
        ForeignPolicyError: one of these names changes.
    """
    graph, random = probe.session(network), np.random.default_rng(0)
    feed: dict[str, probe.Floats] = {}
    for one in graph.get_inputs():
        values = random.standard_normal((SAMPLES, one.shape[1])).astype(np.float32)
        feed[one.name] = np.concatenate([0.0 * values[:1], values, 10.0 * values])
    found = probe.run(graph, feed)[0][:, columns.start : columns.stop]
    change = np.abs(found - found[:1]).max(axis=0) / np.maximum(1.0, np.abs(found[0]))
    for name, value in zip(names, change, strict=True):
        if not value <= CONSTANT:
            raise ForeignPolicyError(f"{name} varies, and gains that are constant are supported")
    # The shortest number with this value in float32.
    return [float(str(value)) for value in found[0]]
