"""Policies for a robot of one joint, and one whose graph takes minutes: a long chain of large matrix products."""

import io
import json
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from tests.harness.fixtures.sample import ROBOT

from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.io import parse_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.golden import FINGERPRINT_NAME
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader

PERIOD_S = 0.04
"""Control period [s]: a busy machine keeps it, or the tests would see other faults than theirs."""
SPEED = 1.0
"""Greatest speed of the position-commanded joint [rad/s]."""
ACCELERATION = 2.5
"""Its greatest acceleration [rad/s²]."""
DAMPING = 0.2
"""Of the effort-commanded joint [N·m·s/rad]."""
PUSH = 0.5
"""What the policy adds to the measured position: its command [rad or N·m]."""


def contract(kind: str) -> PolicyContract:
    """A joint that is commanded by position (`joint_pos`) or effort (`joint_effort`)."""
    effort = kind == "joint_effort"
    bound = 2.5 if effort else 1000.0
    envelope: dict[str, Any] = {"joint": "pivot", "effort_limit": 2.5, "velocity_limit": 20.0 if effort else SPEED}
    drive = {"damping": DAMPING} if effort else {"stiffness": 100.0, "damping": 1.0}
    document = {
        "format_version": 2,
        "task": "push",
        "robot": {
            "name": ROBOT,
            "base": "fixed",
            "joints": [{"name": "pivot", "kind": "continuous", "effort_limit": 2.5, **drive}],
            "sensors": [
                {"name": "joint_pos", "size": 1, "unit": "rad"},
                {"name": "joint_vel", "size": 1, "unit": "rad/s"},
                {"name": "trigger", "size": 1, "unit": "1"},
            ],
        },
        "observation": {
            "terms": [
                {"name": "angle", "kind": "sin_cos"},
                {"name": "trigger", "kind": "sensor", "source": "trigger"},
            ]
        },
        "action": {
            "terms": [
                {
                    "kind": kind,
                    "joints": ["pivot"],
                    "scale": [bound],
                    "offset": [0.0],
                    "lower": [-bound],
                    "upper": [bound],
                }
            ]
        },
        "command": {},
        "timing": {
            "control_dt": PERIOD_S,
            "physics_dt": 0.002,
            "decimation": 20,
            "deadline_s": 0.9 * PERIOD_S,
            "max_observation_age_s": 0.2,
        },
        "safety": {
            "joints": [envelope if effort else {**envelope, "acceleration_limit": ACCELERATION}],
            "max_reused_commands": 10,
        },
    }
    return parse_contract(json.dumps(document), source="hanging policy")


def policy(of: PolicyContract, *, chain: int = 0, width: int = 2048, folded: bool = False) -> dict[str, bytes]:
    """Members of a bundle.

    Args:
        of: the contract.
        chain: matrix products of `width` by `width` that every call computes; 500 of 2048 take minutes of one core.
        width: of these matrices.
        folded: onnxruntime computes them when it loads the graph, before any state is asked.
    """
    header = PolicyHeader(of, {}, {"seed": "0"})
    return {POLICY_FILE: _model(header, chain, width, folded), GOLDEN_FILE: _golden(header)}


def _model(header: PolicyHeader, chain: int, width: int, folded: bool) -> bytes:
    (target,) = graph_interface(header.contract).targets
    nodes = [
        helper.make_node("ReduceMax", ["one" if folded else "trigger"], ["product0"], keepdims=1),
        helper.make_node("Add", ["joint_pos", "push"], ["pushed"]),
    ]
    if chain:
        nodes.append(helper.make_node("Expand", ["product0", "square"], ["matrix"]))
        nodes.append(helper.make_node("Identity", ["matrix"], ["product1"]))
        nodes += [
            helper.make_node("MatMul", [f"product{n}", "matrix"], [f"product{n + 1}"]) for n in range(1, chain + 1)
        ]
    last = f"product{chain + 1}" if chain else "product0"
    nodes += [
        helper.make_node("ReduceMax", [last], ["greatest"], keepdims=0),
        helper.make_node("Mul", ["greatest", "nothing"], ["zero"]),
        helper.make_node("Add", ["pushed", "zero"], [target]),
    ]
    inputs, outputs = header.inputs, header.outputs
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in outputs.items()],
        [
            helper.make_tensor("one", TensorProto.FLOAT, [1, 1], [1.0]),
            helper.make_tensor("nothing", TensorProto.FLOAT, [], [0.0]),
            helper.make_tensor("push", TensorProto.FLOAT, [1], [PUSH]),
            helper.make_tensor("square", TensorProto.INT64, [2], [width, width]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, dict(header.metadata()))
    return bytes(model.SerializeToString())


def _golden(header: PolicyHeader) -> bytes:
    (target,) = graph_interface(header.contract).targets
    angles = np.linspace(-1.0, 1.0, 3, dtype=np.float32)[:, None]
    data = io.BytesIO()
    np.savez(
        data,
        allow_pickle=False,
        **{
            "joint_pos": angles,
            "trigger": np.zeros((3, 1), np.float32),
            target: angles + np.float32(PUSH),
            FINGERPRINT_NAME: np.array(header.contract.fingerprint),
        },
    )
    return data.getvalue()
