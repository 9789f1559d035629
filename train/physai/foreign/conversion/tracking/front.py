"""The graph before the actions of a policy that follows a motion: number of the period, motion, and observation."""

from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor, nn

from physai.foreign.body import probe
from physai.foreign.body.networks import ACTION, HIDDEN, NEXT, OBSERVATION
from physai.foreign.conversion.tracking.lookup import Floats, body_id, split, wxyz
from physai.foreign.description import PolicyDescription
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.robots.loader import Robot
from physai.train.onnx_export.onnx_graph import IR_VERSION, OPSET, export_flat
from physai.train.onnx_export.spliced import append_graph

ATTITUDE, PATH = "attitude", "path"
"""Terms of the contract that the orientation is computed from: the base's quaternion, and the joints from the base to
the body."""
REFERENCE = ("reference.joint_pos", "reference.joint_vel", "reference.orientation")
MEMORY = 2
"""Number of the period, and heading of the body at the start [rad]."""


def path_joints(robot: Robot, body: str) -> tuple[str, ...]:
    """Return the joints from the base to a body."""
    model: Any = robot.model
    names: list[str] = []
    at = body_id(robot, body)
    while model.body_parentid[at] != 0:
        start, count = int(model.body_jntadr[at]), int(model.body_jntnum[at])
        names += [str(model.joint(start + index).name) for index in reversed(range(count))]
        at = int(model.body_parentid[at])
    return tuple(reversed(names))


class _Front(nn.Module):
    """Observation of the network from the contract's terms, the memory and the motion."""

    def __init__(self, described: PolicyDescription, contract: PolicyContract, robot: Robot, start: Floats) -> None:
        super().__init__()
        assert described.motion is not None
        self._terms = described.observation
        self._slices = list(contract.observation_slices.items())
        self._xyzw = described.motion.quaternion == "xyzw"
        self._start = torch.tensor(_matrix(start), dtype=torch.float32)
        self._fixed, self._axes = _chain(robot, described.motion.body)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The network's observation, shape (n, size), and the memory after it, shape (n, 2)."""
        observation, memory, joint_pos, joint_vel, quat = inputs
        parts = {name: observation[:, where] for name, where in self._slices}
        body = self._body(parts)
        first = memory[:, :1] < 0.5
        heading = torch.where(first, torch.atan2(body[:, 1, 0], body[:, 0, 0])[:, None], memory[:, 1:])
        wanted = _matrices(torch.roll(quat, 1, dims=1) if self._xyzw else quat)
        away = torch.atan2(self._start[1, 0], self._start[0, 0])
        motion = _turned(-away.expand_as(heading), wanted)
        error = torch.matmul(_turned(-heading, body).transpose(1, 2), motion)
        blocks: list[Tensor] = []
        measured = iter(self._slices)
        for term in self._terms:
            if term.of == "motion":
                value = torch.cat([joint_pos, joint_vel], dim=1)
            elif term.of == "motion_orientation":
                value = error[:, :, :2].reshape(-1, 6)
            else:
                blocks.append(parts[next(measured)[0]])
                continue
            blocks.append((value - term.offset) * term.scale)
        return torch.cat(blocks, dim=1), torch.cat([memory[:, :1] + 1.0, heading], dim=1)

    def _body(self, parts: dict[str, Tensor]) -> Tensor:
        """Rotation of the body, shape (n, 3, 3)."""
        rotation = _matrices(parts[ATTITUDE])
        for index, axis in enumerate(self._axes):
            rotation = torch.matmul(rotation, self._fixed[index])
            if axis is not None:
                rotation = torch.matmul(
                    rotation, _about(axis, parts[PATH][:, self._column(index) : self._column(index) + 1])
                )
        return rotation

    def _column(self, index: int) -> int:
        return sum(axis is not None for axis in self._axes[:index])


def _chain(robot: Robot, body: str) -> tuple[list[Tensor], list[tuple[float, float, float] | None]]:
    """Fixed rotations and axes of hinges from the base to a body, in this order."""
    model: Any = robot.model
    fixed: list[Tensor] = []
    axes: list[tuple[float, float, float] | None] = []
    at = body_id(robot, body)
    while model.body_parentid[at] != 0:
        start, count = int(model.body_jntadr[at]), int(model.body_jntnum[at])
        for index in reversed(range(count)):
            rotation = _matrix(model.body_quat[at]) if index == 0 else np.eye(3)
            fixed.append(torch.tensor(rotation, dtype=torch.float32))
            axes.append(tuple(float(value) for value in model.jnt_axis[start + index]))  # pyright: ignore[reportArgumentType]
        if not count:
            fixed.append(torch.tensor(_matrix(model.body_quat[at]), dtype=torch.float32))
            axes.append(None)
        at = int(model.body_parentid[at])
    return fixed[::-1], axes[::-1]


def _matrix(quat: Floats) -> Floats:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat, np.float64))
    return matrix.reshape(3, 3)


def _matrices(quat: Tensor) -> Tensor:
    """Rotations of quaternions wxyz, shape (n, 4) to (n, 3, 3)."""
    quat = quat / torch.sqrt((quat * quat).sum(dim=1, keepdim=True) + 1e-12)
    w, x, y, z = (quat[:, index : index + 1] for index in range(4))
    rows = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    ]
    return torch.cat(rows, dim=1).reshape(-1, 3, 3)


def _about(axis: tuple[float, float, float], angle: Tensor) -> Tensor:
    """Rotations about an axis, shape (n, 1) to (n, 3, 3)."""
    half = 0.5 * angle
    sine = torch.sin(half)
    return _matrices(torch.cat([torch.cos(half), *(sine * value for value in axis)], dim=1))


def _turned(angle: Tensor, rotation: Tensor) -> Tensor:
    """Rotations after a turn about the world's z axis, shapes (n, 1) and (n, 3, 3)."""
    return torch.matmul(_about((0.0, 0.0, 1.0), angle), rotation)


def tracking_body(graph: bytes, described: PolicyDescription, contract: PolicyContract, robot: Robot) -> bytes:
    """Join a network with what counts periods, looks its motion up and makes its observation.

    Args:
        graph: the network, admitted.
        described: the policy, which follows a motion.
        contract: of the policy; its observation has the measured terms, then `ATTITUDE` and perhaps `PATH`.
        robot: with the joints and the body.

    Returns:
        ONNX with the inputs `observation` and `hidden` and the outputs `action` and `next`.

    Raises:
        ForeignPolicyError: the network is none of such a policy.
    """
    import onnx

    motion = described.motion
    assert motion is not None
    lookup, actor = split(graph, described)
    session = probe.session(lookup)
    names = [value.name for value in session.get_outputs()]
    first = dict(zip(names, probe.run(session, {motion.index: np.zeros((1, 1), np.float32)}), strict=True))
    start = wxyz(np.asarray(first[motion.orientation], np.float64), motion.quaternion)[0]
    count = len(described.joints)
    sizes = {OBSERVATION: contract.observation_size, HIDDEN: MEMORY}
    reference = dict(zip(REFERENCE, (count, count, 4), strict=True))
    front = export_flat(_Front(described, contract, robot, start).eval(), {**sizes, **reference}, ["seen", NEXT])
    library: Any = onnx
    joined: Any = library.ModelProto()
    joined.ir_version = IR_VERSION
    joined.opset_import.add(domain="", version=OPSET)
    joined.graph.name = "networks"
    _add_index(joined.graph, motion.lag)
    shared = {name: name for name in (*sizes, *reference, "seen", NEXT)}
    looked = dict(zip((motion.joint_pos, motion.joint_vel, motion.orientation), REFERENCE, strict=True))
    append_graph(
        joined.graph, library.load_model_from_string(lookup).graph, "motion.", {motion.index: "index", **looked}
    )
    append_graph(joined.graph, front.graph, "seen.", shared)
    act = library.load_model_from_string(actor).graph
    append_graph(joined.graph, act, "net.", {act.input[0].name: "seen", act.output[0].name: ACTION})
    make = library.helper.make_tensor_value_info
    results = {ACTION: count, NEXT: MEMORY}
    for values, named in ((joined.graph.input, sizes), (joined.graph.output, results)):
        values.extend(make(name, library.TensorProto.FLOAT, ["n", size]) for name, size in named.items())
    return bytes(joined.SerializeToString(deterministic=True))


def _add_index(graph: Any, lag: int) -> None:
    """Add the number of the frame that is seen: that of the period less the lag, and not below 0."""
    from onnx import helper, numpy_helper

    constants = {"zero": np.array([0], np.int64), "lag": np.array(lag, np.float32)}
    graph.initializer.extend(numpy_helper.from_array(value, f"index.{name}") for name, value in constants.items())
    graph.node.append(helper.make_node("Gather", [HIDDEN, "index.zero"], ["index.period"], "index.period", axis=1))
    graph.node.append(helper.make_node("Sub", ["index.period", "index.lag"], ["index.late"], "index.late"))
    graph.node.append(helper.make_node("Relu", ["index.late"], ["index"], "index"))
