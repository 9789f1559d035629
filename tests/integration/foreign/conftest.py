"""ONNX files as other frameworks write them, made by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Models = Callable[..., Any]


def weights(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def model() -> Models:
    """A network of one layer, 6 → 4, with the shape, operator set and details that are asked for."""

    def made(
        *,
        opset: int = 17,
        ir_version: int = 8,
        shape: Sequence[int | str] = (1, 6),
        out: Sequence[int | str] = (1, 4),
        nodes: Sequence[Any] = (),
        metadata: dict[str, str] | None = None,
    ) -> Any:
        helper: Any = onnx.helper
        last = "hidden" if nodes else "actions"
        layer = helper.make_node("MatMul", ["obs", "w"], [last], doc_string="File policy.py, line 12")
        tensors = [onnx.numpy_helper.from_array(weights(6, 4), "w")]
        graph = helper.make_graph(
            [layer, *nodes],
            "main",
            [helper.make_tensor_value_info("obs", 1, shape)],
            [helper.make_tensor_value_info("actions", 1, out)],
            tensors,
            doc_string="exported",
        )
        found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
        if metadata:
            helper.set_model_props(found, metadata)
        return found

    return made
