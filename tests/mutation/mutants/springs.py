"""Policies written by hand, plain and with a history: what they should do can be computed."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from physai.sdk.policy.header import PolicyHeader
from physai.sim.tasks.task import Task

CONTROL_DT = 0.02
MEMORY = "past"
"""Memory of the policy with a history: the two positions before the present one, oldest first."""


def _tensor(value: Any) -> Any:
    """Arrays are indices; everything else is float32."""
    array = np.asarray(value)
    return array.astype(np.int64 if isinstance(value, np.ndarray) else np.float32)


def _model(header: PolicyHeader, nodes: list[Any], constants: dict[str, Any]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in header.inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in header.outputs.items()],
        [numpy_helper.from_array(_tensor(v), name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, header.metadata())
    return model.SerializeToString()


def spring(
    task: Task, *, stiffness: float = 12.0, damping: float = 7.0, push: float = 0.0, limit: float = 20.0
) -> bytes:
    """u = clip(push - stiffness · x - damping · v, ±limit), joint by joint."""
    joints = len(task.robot.spec.joint_names)
    nodes = [
        helper.make_node("Concat", ["joint_pos", "joint_vel"], ["seen"], axis=1),
        helper.make_node("Gemm", ["seen", "weight", "bias"], ["force"], transB=1),
        helper.make_node("Clip", ["force", "lower", "upper"], ["joint_effort_target"]),
    ]
    weights = np.hstack([-stiffness * np.eye(joints), -damping * np.eye(joints)]).tolist()
    constants = {"weight": weights, "bias": [push] * joints, "lower": -limit, "upper": limit}
    return _model(PolicyHeader(task.contract, {}), nodes, constants)


def with_history(task: Task, *, reversed_history: bool = False, stiffness: float = 12.0, damping: float = 7.0) -> bytes:
    """The pusher's spring from positions alone: speed is the difference to the position two periods ago.

    The memory starts at zero, as every memory does, so that the first two commands rest on a wrong speed; they are
    bounded, and short.
    """
    per_second = damping / (2.0 * CONTROL_DT)
    weights = [per_second, 0.0, -stiffness - per_second]
    if reversed_history:
        weights.reverse()
    nodes = [
        helper.make_node("Concat", [f"state.{MEMORY}", "joint_pos"], ["seen"], axis=1),
        helper.make_node("Gemm", ["seen", "weight", "bias"], ["force"], transB=1),
        helper.make_node("Clip", ["force", "lower", "upper"], ["joint_effort_target"]),
        helper.make_node("Slice", ["seen", "one", "three", "axis"], [f"next.{MEMORY}"]),
        helper.make_node("Mul", ["joint_vel", "zero"], ["unused"]),
    ]
    constants = {"weight": [weights], "bias": [0.0], "lower": -20.0, "upper": 20.0, "zero": 0.0}
    places = {"one": np.array([1]), "three": np.array([3]), "axis": np.array([1])}
    return _model(PolicyHeader(task.contract, {MEMORY: 2}), nodes, {**constants, **places})
