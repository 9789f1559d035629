"""A network between a contract's terms computes what the same network in a policy graph of ours does."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from tests.unit.train.models.test_format_3 import CLOCK, SPEED, VEL, newest
from tests.unit.train.models.test_policy_graph import absolute

from physai.sdk.base.errors import ExportError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.onnx.graph import check_policy
from physai.sdk.policy.header import PolicyHeader
from physai.sim.policies.onnx import OnnxPolicy
from physai.train.models.numpy_policy import seed_torch
from physai.train.models.policy_graph import ActorMLP, PolicyGraph
from physai.train.onnx_export.onnx_graph import build_onnx
from physai.train.onnx_export.spliced import splice

CONTRACTS: dict[str, PolicyContract] = {
    "plain": newest(VEL, {"kind": "joint_pos_rel"}, {"kind": "projected_gravity"}),
    "remembering": newest(
        {"kind": "previous_action"},
        {"kind": "clock", "clock": CLOCK.model_copy(update={"gate": 0.1, "standing_phase": 1.0}), "source": "speed"},
        {"kind": "constant", "values": (0.5, 2.0)},
        action=absolute(output_limit=None),
    ),
    "by time": newest(
        VEL | {"history": 3},
        SPEED | {"history": 3, "elements": (1,)},
        layout={"layout": "time", "newest": "first", "first_fill": "zero"},
    ),
}


def network(actor: ActorMLP) -> bytes:
    """The actor's layers as somebody else would write them."""
    helper: Any = onnx.helper
    tensors: list[Any] = []
    nodes: list[Any] = []
    before = "obs"
    for index, layer in enumerate(actor.layers):
        after = f"out{index}"
        if isinstance(layer, torch.nn.Linear):
            tensors += [
                onnx.numpy_helper.from_array(layer.weight.detach().numpy(), f"w{index}"),
                onnx.numpy_helper.from_array(layer.bias.detach().numpy(), f"b{index}"),
            ]
            nodes.append(helper.make_node("Gemm", [before, f"w{index}", f"b{index}"], [after], transB=1))
        else:
            nodes.append(helper.make_node("Relu", [before], [after]))
        before = after
    inputs, outputs = actor.layers[0].in_features, actor.layers[-1].out_features
    graph = helper.make_graph(
        nodes,
        "actor",
        [helper.make_tensor_value_info("obs", 1, ["n", inputs])],
        [helper.make_tensor_value_info(before, 1, ["n", outputs])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("name", CONTRACTS)
def test_both_compute_the_same_for_many_periods(name: str) -> None:
    made = CONTRACTS[name]
    seed_torch(1)
    actor = ActorMLP(made.observation_size, made.action.size, (16,), "relu")
    with torch.no_grad():
        last: Any = actor.layers[-1]
        last.weight.mul_(200.0)
    graph = PolicyGraph(made, actor)
    ours = build_onnx(graph, PolicyHeader(made, graph.state_sizes)).SerializeToString()
    joined = splice(made, network(actor), provenance={"foreign": "test"})
    assert check_policy(joined, source="joined").provenance == {"foreign": "test"}
    assert joined == splice(made, network(actor), provenance={"foreign": "test"})
    policies = [OnnxPolicy(data, source="test") for data in (ours, joined)]
    for policy in policies:
        policy.reset(4)
    random = np.random.default_rng(0)
    beyond = False
    for _ in range(20):
        fields = {sensor.name: random.standard_normal((4, sensor.size)) for sensor in made.robot.sensors}
        commands = {field.name: random.standard_normal((4, field.size)) for field in made.command.fields}
        first, second = (policy(fields, commands)["joint_pos_target"] for policy in policies)
        np.testing.assert_allclose(first, second, atol=1e-5)
        for label, value in policies[0].state.items():
            np.testing.assert_allclose(value, policies[1].state[label], atol=1e-4)
        beyond |= bool(np.abs(first).max() >= 1.0 - 1e-6)
    assert beyond


def test_a_network_that_does_not_fit_is_refused() -> None:
    made = CONTRACTS["plain"]
    with pytest.raises(ExportError, match="the network reads 6 numbers, the observation terms have 7"):
        splice(made, network(ActorMLP(6, 2, (4,), "relu")), provenance={})
    with pytest.raises(ExportError, match="the network returns 3 numbers, the action terms have 2"):
        splice(made, network(ActorMLP(7, 3, (4,), "relu")), provenance={})


def test_other_operator_sets_and_inputs_are_refused() -> None:
    library: Any = onnx
    model = library.load_model_from_string(network(ActorMLP(7, 2, (4,), "relu")))
    model.graph.input.append(onnx.helper.make_tensor_value_info("hidden", 1, ["n", 8]))
    with pytest.raises(ExportError, match="the network has the inputs obs, hidden"):
        splice(CONTRACTS["plain"], model.SerializeToString(), provenance={})
    del model.graph.input[1]
    model.opset_import[0].version = 17
    with pytest.raises(ExportError, match="operator set 17, expected 18"):
        splice(CONTRACTS["plain"], model.SerializeToString(), provenance={})
