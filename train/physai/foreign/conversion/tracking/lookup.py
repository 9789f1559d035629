"""Takes a network that looks a motion up apart: the motion by the number of the period, and the actions."""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from physai.foreign.body import probe
from physai.foreign.conversion.tracking.motion import MAX_FRAMES, Floats, ReferenceMotion
from physai.foreign.description import PolicyDescription
from physai.foreign.errors import ForeignPolicyError
from physai.sim.robots.loader import Robot


def split(graph: bytes, described: PolicyDescription) -> tuple[bytes, bytes]:
    """Return the part that looks the motion up, and the part that computes the actions.

    Args:
        graph: the network, admitted.
        described: the policy, which follows a motion.

    Raises:
        ForeignPolicyError: the network lacks an input or an output that is named, or its actions depend on the number
            of the period in another way than by the observation.
    """
    import onnx

    library: Any = onnx
    motion = described.motion
    assert motion is not None
    model = library.load_model_from_string(graph)
    inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
    named = (motion.joint_pos, motion.joint_vel, motion.position, motion.orientation)
    for name, known, kind in ((motion.index, inputs, "input"), *((name, outputs, "output") for name in named)):
        if name not in known:
            raise ForeignPolicyError(f"the network has no {kind} {name!r}, which the motion names: {', '.join(known)}")
    if len(inputs) != 2 or inputs[0] == motion.index:
        raise ForeignPolicyError(
            f"the network has the inputs {', '.join(inputs)}, expected the observation and {motion.index}"
        )
    lookup, actor = subgraph(model, [motion.index], named), subgraph(model, [inputs[0]], outputs[:1])
    return lookup, actor


def subgraph(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return the operators that compute tensors of a model from others alone, as a model of its own.

    Args:
        model: parsed ONNX.
        inputs: tensors that are given; those that the model computes get the shape (n, any).
        outputs: tensors to compute.

    Raises:
        ForeignPolicyError: an output depends on another input of the model.
    """
    from onnx import TensorProto, helper

    made = {name: node for node in model.graph.node for name in node.output}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    needed, seen = list(outputs), set[str]()
    while needed:
        name = needed.pop()
        if name in seen or not name:
            continue
        seen.add(name)
        if name in made and name not in inputs:
            needed += made[name].input
        elif name not in weights and name not in inputs:
            raise ForeignPolicyError(f"{outputs[0]} depends on {name!r}, expected {', '.join(inputs)} alone")
    part = type(model)()
    part.ir_version = model.ir_version
    part.opset_import.extend(model.opset_import)
    part.graph.name = model.graph.name
    part.graph.node.extend(node for node in model.graph.node if seen.intersection(node.output).difference(inputs))
    part.graph.initializer.extend(tensor for name, tensor in weights.items() if name in seen)
    known = {value.name: value for value in (*model.graph.input, *model.graph.output)}
    for values, names in ((part.graph.input, inputs), (part.graph.output, outputs)):
        for name in names:
            values.append(known.get(name) or helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return bytes(part.SerializeToString(deterministic=True))


def read_motion(lookup: bytes, described: PolicyDescription, robot: Robot) -> ReferenceMotion:
    """Return the whole motion, which ends where the network gives its last frame again and again.

    Args:
        lookup: see `split`.
        described: the policy.
        robot: with its joints and the body.

    Raises:
        ForeignPolicyError: the network's motion has no frames, no end, or frames that are no poses of the robot.
    """
    motion = described.motion
    assert motion is not None
    session = probe.session(lookup)
    frames = np.arange(MAX_FRAMES, dtype=np.float32)[:, None]
    found = dict(
        zip([value.name for value in session.get_outputs()], probe.run(session, {motion.index: frames}), strict=True)
    )
    count = len(described.joints)
    for name, width in (
        (motion.joint_pos, count),
        (motion.joint_vel, count),
        (motion.position, 3),
        (motion.orientation, 4),
    ):
        if found[name].shape != (MAX_FRAMES, width) or not np.isfinite(found[name]).all():
            raise ForeignPolicyError(
                f"{name} has the shape {found[name].shape} for {MAX_FRAMES} periods, expected {width} finite numbers "
                "for each"
            )
    differ = np.any([np.any(value != value[-1], axis=1) for value in found.values()], axis=0)
    last = int(np.flatnonzero(differ)[-1]) + 1 if differ.any() else 0
    if not 2 <= last + 1 < MAX_FRAMES:
        raise ForeignPolicyError(f"the motion has {last + 1} frames, expected 2 to {MAX_FRAMES - 1}")
    kept = {name: np.asarray(value[: last + 1], np.float64) for name, value in found.items()}
    quat = wxyz(kept[motion.orientation], motion.quaternion)
    if not np.allclose(np.linalg.norm(quat, axis=1), 1.0, atol=1e-3):
        raise ForeignPolicyError(f"{motion.orientation} has quaternions that are no rotations")
    base_pos, base_quat = _base(robot, described, kept[motion.joint_pos], kept[motion.position], quat)
    return ReferenceMotion(
        joints=described.joints,
        control_dt=described.control_dt,
        joint_pos=kept[motion.joint_pos],
        joint_vel=kept[motion.joint_vel],
        base_pos=base_pos,
        base_quat=base_quat,
    )


def wxyz(quat: Floats, order: str) -> Floats:
    """Return quaternions with their real part first, shape (n, 4)."""
    return quat if order == "wxyz" else np.roll(quat, 1, axis=1)


def body_id(robot: Robot, name: str) -> int:
    """Return the number of a body.

    Raises:
        ForeignPolicyError: the robot has none of this name.
    """
    found = mujoco.mj_name2id(robot.model, mujoco.mjtObj.mjOBJ_BODY, name)
    if found < 0:
        raise ForeignPolicyError(f"{robot.name} has no body {name!r}, whose orientation the policy compares")
    return found


def _base(
    robot: Robot, described: PolicyDescription, joints: Floats, pos: Floats, quat: Floats
) -> tuple[Floats, Floats]:
    """Position and orientation of the base in each frame, from those of a body."""
    assert described.motion is not None
    model: Any = robot.model
    data, body = mujoco.MjData(model), body_id(robot, described.motion.body)
    columns = [int(model.joint(name).qposadr[0]) for name in described.joints]
    base_pos, base_quat = np.zeros_like(pos), np.zeros_like(quat)
    back, turned = np.zeros(4), np.zeros(3)
    data.qpos[:] = model.key("home").qpos
    data.qpos[:7] = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    for frame, positions in enumerate(joints):
        data.qpos[columns] = positions
        mujoco.mj_kinematics(model, data)
        # With the base at the origin, the body is where it is in the base's frame.
        mujoco.mju_negQuat(back, data.xquat[body])
        mujoco.mju_mulQuat(base_quat[frame], quat[frame], back)
        mujoco.mju_normalize4(base_quat[frame])
        mujoco.mju_rotVecQuat(turned, data.xpos[body], base_quat[frame])
        base_pos[frame] = pos[frame] - turned
    return base_pos, base_quat
