"""Contracts of older formats keep the graphs they had, bit for bit: exported policies and their golden states hold."""

from pathlib import Path

import pytest

from physai.sdk.contract.io import load_contract
from physai.sdk.policy.header import PolicyHeader
from physai.train.models.policy_graph import ActorMLP, PolicyGraph
from physai.train.onnx_export.onnx_graph import build_onnx


@pytest.mark.parametrize("name", ["ur10e-reach", "go2-velocity", "pendubot-swingup"])
def test_contracts_of_format_1_keep_their_graphs(name: str) -> None:
    """Their memories and operators; of go2-velocity, absolute commands that may jump."""
    path = Path(__file__).parents[2] / "sdk" / "contract" / "format1" / f"{name}.contract.json"
    made = load_contract(path)
    policy = PolicyGraph(made, ActorMLP(made.observation_size, made.action.size, (8,), "tanh"))
    assert (
        policy.state_sizes
        == {
            "ur10e-reach": {"started": 1, "last_joint_pos_target": 6},
            "go2-velocity": {"started": 1, "previous_action": 12},
            "pendubot-swingup": {"started": 1, "last_joint_effort_target": 1},
        }[name]
    )
    model = build_onnx(policy, PolicyHeader(made, policy.state_sizes))
    assert not {node.op_type for node in model.graph.node} & {"Ceil", "Sqrt"}
