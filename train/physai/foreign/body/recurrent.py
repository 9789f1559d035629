"""Make the memory of a recurrent ONNX file one input and one output with a row per robot.

Exporters give each memory an input and an output of its own, of the shape (layers, robots, width) as recurrent layers
have it. Everything here runs in a child process: the file is a stranger's.
"""

import math
from typing import Any

import numpy as np

HIDDEN, NEXT = "physai.hidden", "physai.next"
PREFIX = "physai.memory."
FLOAT = 1
ROBOTS = {2: 0, 3: 1}
"""Axis of the robots by the number of axes."""


def flatten_memory(model: Any) -> bool:
    """Replace the memories by one input and one output after the first; return whether there are any.

    Inputs after the first are memories if as many outputs after the first have the same shapes, of one robot.

    Args:
        model: `onnx.ModelProto` of operator set 18; it is changed.
    """
    graph = model.graph
    inputs, outputs = list(graph.input)[1:], list(graph.output)[1:]
    shapes = [_shape(value) for value in inputs]
    if not inputs or not all(shapes) or shapes != [_shape(value) for value in outputs[: len(inputs)]]:
        return False
    widths = [math.prod(shape) for shape in shapes]
    ends = np.cumsum(widths).tolist()
    new = _Nodes()
    for before, after, shape, width, end in zip(inputs, outputs, shapes, widths, ends, strict=False):
        new.split(before.name, after.name, shape, end - width, end)
    nodes = [*new.before, *(_copied(node) for node in graph.node), *new.after, new.joined()]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(new.constants)
    del graph.input[1:]
    del graph.output[1:]
    graph.input.append(_value(HIDDEN, ends[-1]))
    graph.output.append(_value(NEXT, ends[-1]))
    return True


def _copied(node: Any) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def _value(name: str, width: int) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])


def _shape(value: Any) -> list[int]:
    """Sizes of a memory's axes; empty if it is none."""
    tensor = value.type.tensor_type
    robots = ROBOTS.get(len(tensor.shape.dim))
    # The robots' axis may have a name in place of a size.
    sizes = [dim.dim_value or int(axis == robots) for axis, dim in enumerate(tensor.shape.dim)]
    if robots is None or tensor.elem_type != FLOAT or sizes[robots] != 1 or min(sizes) < 1:
        return []
    return sizes


class _Nodes:
    """Operators before and after those of the file."""

    def __init__(self) -> None:
        self.before: list[Any] = []
        self.after: list[Any] = []
        self.constants: list[Any] = []
        self._parts: list[str] = []

    def split(self, before: str, after: str, shape: list[int], start: int, end: int) -> None:
        """Add what makes a memory from its part of the input, and the part of the output from it."""
        part, rows = f"{PREFIX}{before}.part", f"{PREFIX}{before}.rows"
        limits = [
            self._constant(f"{part}.{label}", [value]) for label, value in (("start", start), ("end", end), ("axis", 1))
        ]
        self._add(self.before, "Slice", [HIDDEN, *limits], part)
        flat = f"{PREFIX}{after}.flat"
        if len(shape) == 2:
            self._add(self.before, "Identity", [part], before)
            self._add(self.after, "Identity", [after], flat)
        else:
            layers, _, width = shape
            self._add(self.before, "Reshape", [part, self._constant(f"{part}.shape", [-1, layers, width])], rows)
            self._add(self.before, "Transpose", [rows], before, perm=[1, 0, 2])
            turned = f"{PREFIX}{after}.rows"
            self._add(self.after, "Transpose", [after], turned, perm=[1, 0, 2])
            self._add(self.after, "Reshape", [turned, self._constant(f"{flat}.shape", [-1, layers * width])], flat)
        self._parts.append(flat)

    def joined(self) -> Any:
        """The operator that joins the parts of the output."""
        from onnx import helper

        return helper.make_node("Concat", self._parts, [NEXT], axis=1)

    def _constant(self, name: str, values: list[int]) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    @staticmethod
    def _add(nodes: list[Any], operator: str, inputs: list[str], output: str, **attributes: Any) -> None:
        from onnx import helper

        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
