"""Operators allowed in a policy's graph, with their inputs, outputs and attributes.

All are plain arithmetic: no control flow, no random numbers, no strings, no sequences, no file access, no outputs
whose size depends on a value. Source: https://github.com/onnx/onnx/blob/main/docs/Operators.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

AttributeKind = Literal["f", "i", "s", "t", "floats", "ints"]

KIND_NUMBERS: dict[AttributeKind, int] = {"f": 1, "i": 2, "s": 3, "t": 4, "floats": 6, "ints": 7}
"""`AttributeProto.AttributeType` of each kind of attribute."""

MANY = 64
"""Maximum number of inputs or outputs of a variadic operator."""


@dataclass(frozen=True)
class Operator:
    """Allowed signature of an operator."""

    inputs: tuple[int, int]
    """Minimum and maximum number of inputs."""
    outputs: tuple[int, int] = (1, 1)
    attributes: Mapping[str, AttributeKind] = field(default_factory=dict[str, AttributeKind])
    sizes: tuple[int, ...] = ()
    """Indices of inputs that determine the size of an output; they must not depend on the graph's inputs."""


_ANY = (1, MANY)
_REDUCE = Operator((1, 2), attributes={"axes": "ints", "keepdims": "i", "noop_with_empty_axes": "i"}, sizes=(1,))
_AXIS: dict[str, AttributeKind] = {"axis": "i"}
_WINDOW: dict[str, AttributeKind] = {
    "auto_pad": "s",
    "dilations": "ints",
    "kernel_shape": "ints",
    "pads": "ints",
    "strides": "ints",
}
_RECURRENT: dict[str, AttributeKind] = {"clip": "f", "direction": "s", "hidden_size": "i", "layout": "i"}


def _same(names: str, operator: Operator) -> dict[str, Operator]:
    return dict.fromkeys(names.split(), operator)


OPERATORS: dict[str, Operator] = {
    **_same(
        "Abs Acos Asin Atan Ceil Cos Cosh Erf Exp Floor HardSwish Identity IsNaN Log Mish Neg Not Reciprocal Relu "
        "Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh GlobalAveragePool",
        Operator((1, 1)),
    ),
    **_same("Elu LeakyRelu Celu", Operator((1, 1), attributes={"alpha": "f"})),
    "Selu": Operator((1, 1), attributes={"alpha": "f", "gamma": "f"}),
    "HardSigmoid": Operator((1, 1), attributes={"alpha": "f", "beta": "f"}),
    "Gelu": Operator((1, 1), attributes={"approximate": "s"}),
    **_same(
        "Add Sub Mul Div Pow PRelu And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual MatMul", Operator((2, 2))
    ),
    "Mod": Operator((2, 2), attributes={"fmod": "i"}),
    **_same("Max Min Sum Mean", Operator(_ANY)),
    "Where": Operator((3, 3)),
    "Clip": Operator((1, 3)),
    "Gemm": Operator((2, 3), attributes={"alpha": "f", "beta": "f", "transA": "i", "transB": "i"}),
    "Conv": Operator((2, 3), attributes={**_WINDOW, "group": "i"}),
    "MaxPool": Operator((1, 1), attributes={**_WINDOW, "ceil_mode": "i", "storage_order": "i"}),
    "AveragePool": Operator((1, 1), attributes={**_WINDOW, "ceil_mode": "i", "count_include_pad": "i"}),
    "GRU": Operator((3, 6), (1, 2), {**_RECURRENT, "linear_before_reset": "i"}),
    "LSTM": Operator((3, 8), (1, 3), {**_RECURRENT, "input_forget": "i"}),
    "RNN": Operator((3, 6), (1, 2), _RECURRENT),
    **_same("Softmax LogSoftmax", Operator((1, 1), attributes=_AXIS)),
    "LayerNormalization": Operator((2, 3), (1, 3), {"axis": "i", "epsilon": "f", "stash_type": "i"}),
    "BatchNormalization": Operator((5, 5), attributes={"epsilon": "f", "momentum": "f"}),
    **_same("ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare", _REDUCE),
    **_same("ArgMax ArgMin", Operator((1, 1), attributes={"axis": "i", "keepdims": "i", "select_last_index": "i"})),
    "Shape": Operator((1, 1), attributes={"start": "i", "end": "i"}),
    **_same("Gather GatherElements", Operator((2, 2), attributes=_AXIS)),
    "Concat": Operator(_ANY, attributes=_AXIS),
    "Slice": Operator((3, 5), sizes=(1, 2, 3, 4)),
    "Split": Operator((1, 2), _ANY, {"axis": "i", "num_outputs": "i"}, sizes=(1,)),
    "Squeeze": Operator((1, 2), sizes=(1,)),
    "Unsqueeze": Operator((2, 2), sizes=(1,)),
    "Reshape": Operator((2, 2), attributes={"allowzero": "i"}, sizes=(1,)),
    "Flatten": Operator((1, 1), attributes=_AXIS),
    "Transpose": Operator((1, 1), attributes={"perm": "ints"}),
    **_same("Expand Tile", Operator((2, 2), sizes=(1,))),
    "Cast": Operator((1, 1), attributes={"to": "i", "saturate": "i"}),
    "Constant": Operator(
        (0, 0),
        attributes={"value": "t", "value_float": "f", "value_floats": "floats", "value_int": "i", "value_ints": "ints"},
    ),
    "QuantizeLinear": Operator((2, 3), attributes={"axis": "i", "saturate": "i"}),
    "DequantizeLinear": Operator((2, 3), attributes=_AXIS),
}
"""Allowed operators by name; every other one is rejected."""
