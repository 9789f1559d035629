"""Recurrent ONNX files, whose memories are inputs and outputs of the shape (layers, robots, width)."""

import io
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from physai.foreign.body.apart import read_body

pytestmark = pytest.mark.slow
WIDTH = 8


class Recurrent(nn.Module):
    def __init__(self, kind: str, layers: int) -> None:
        super().__init__()
        self.rnn: Any = (nn.LSTM if kind == "lstm" else nn.GRU)(5, WIDTH, layers)
        self.actor = nn.Linear(WIDTH, 3)

    def forward(self, obs: Tensor, hidden: Tensor, cell: Tensor | None = None) -> tuple[Tensor, ...]:
        if cell is None:
            out, hidden = self.rnn(obs.unsqueeze(0), hidden)
            return self.actor(out.squeeze(0)), hidden
        out, after = self.rnn(obs.unsqueeze(0), (hidden, cell))
        return self.actor(out.squeeze(0)), *after


def exported(module: Recurrent, layers: int, memories: int, *, dynamo: bool) -> bytes:
    example = (torch.zeros(1, 5), *(torch.zeros(layers, 1, WIDTH) for _ in range(memories)))
    names = {"input_names": ["obs", "h_in", "c_in"][: memories + 1], "output_names": ["act", "h", "c"][: memories + 1]}
    library: Any = torch.onnx
    if dynamo:
        return library.export(module, example, dynamo=True, verbose=False, **names).model_proto.SerializeToString()
    data = io.BytesIO()
    library.export(module, example, data, dynamo=False, opset_version=11, **names)
    return data.getvalue()


@pytest.mark.parametrize("dynamo", [False, True], ids=["old exporter", "new exporter"])
@pytest.mark.parametrize(("kind", "layers"), [("lstm", 1), ("lstm", 2), ("gru", 1), ("gru", 2)])
def test_its_memories_become_one_with_a_row_per_robot(kind: str, layers: int, dynamo: bool) -> None:
    module = Recurrent(kind, layers).eval()
    memories = 2 if kind == "lstm" else 1
    facts, graph = read_body(exported(module, layers, memories, dynamo=dynamo), source="policy.onnx", folder=None)
    assert "refused" not in facts
    assert "memories are one input and one output with a row per robot" in facts["changes"]
    session = onnxruntime.InferenceSession(graph)
    assert [value.shape[1] for value in session.get_inputs()] == [5, memories * layers * WIDTH]
    names = [value.name for value in session.get_inputs()]
    hidden = np.zeros((3, memories * layers * WIDTH), np.float32)
    state = [torch.zeros(layers, 3, WIDTH) for _ in range(memories)]
    random = np.random.default_rng(0)
    for _ in range(6):
        observation = random.standard_normal((3, 5)).astype(np.float32)
        action, hidden = session.run(None, {names[0]: observation, names[1]: hidden})
        with torch.no_grad():
            expected, *state = module(torch.tensor(observation), *state)
        np.testing.assert_allclose(action, expected.numpy(), atol=1e-6)


def test_inputs_without_an_output_of_their_shape_are_no_memory() -> None:
    """A counter of steps, of which the file looks something up."""
    helper: Any = onnx.helper
    nodes = [
        helper.make_node("Concat", ["obs", "time_step"], ["both"], axis=1),
        helper.make_node("Elu", ["both"], ["a"]),
    ]
    inputs = [helper.make_tensor_value_info(name, 1, [1, size]) for name, size in (("obs", 5), ("time_step", 1))]
    outputs = [helper.make_tensor_value_info("a", 1, [1, 6]), helper.make_tensor_value_info("both", 1, [1, 6])]
    graph = helper.make_graph(nodes, "main", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    facts, _ = read_body(model.SerializeToString(), source="policy.onnx", folder=None)
    assert "refused" not in facts
    assert not any("memories" in change for change in facts["changes"])
