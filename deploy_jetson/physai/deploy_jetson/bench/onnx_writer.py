"""ONNX files written field by field, for policies that are made without a learner.

The fields' numbers are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import itertools

import numpy as np
import numpy.typing as npt

from physai.sdk.policy_file import PolicyHeader

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_FLOAT, _INT64, _IR_VERSION, _OPSET = 1, 7, 8, 13
_INT_ATTRIBUTE = 2


class GraphWriter:
    """A graph's nodes and constants, in the order in which they are added; tensors are named by strings."""

    def __init__(self) -> None:
        """An empty graph."""
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._numbers = itertools.count()

    def constant(self, values: Floats | Integers) -> str:
        """Adds a constant; its name."""
        name = f"constant{next(self._numbers)}"
        self._constants.append(_tensor(name, values))
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: int) -> str:
        """Adds a node; the name of its output."""
        name = output or f"value{next(self._numbers)}"
        # NodeProto: input 1, output 2, op_type 4, attribute 5 (name 1, i 3, type 20).
        data = b"".join(_bytes(1, one) for one in inputs) + _bytes(2, name) + _bytes(4, operator)
        for key, value in attributes.items():
            data += _bytes(5, _bytes(1, key) + _number(3, value) + _number(20, _INT_ATTRIBUTE))
        self._nodes.append(data)
        return name

    def model(self, header: PolicyHeader) -> bytes:
        """The file: a ModelProto with the inputs, outputs and metadata of that header."""
        # GraphProto: node 1, name 2, initializer 5, input 11, output 12.
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, "policy")
        graph += b"".join(_bytes(5, constant) for constant in self._constants)
        graph += b"".join(_bytes(11, _row(name, width)) for name, width in header.inputs.items())
        graph += b"".join(_bytes(12, _row(name, width)) for name, width in header.outputs.items())
        # ModelProto: ir_version 1, graph 7, opset_import 8 (version 2), metadata_props 14 (key 1, value 2).
        metadata = (_bytes(14, _bytes(1, key) + _bytes(2, value)) for key, value in header.metadata().items())
        return _number(1, _IR_VERSION) + _bytes(7, graph) + _bytes(8, _number(2, _OPSET)) + b"".join(metadata)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _tensor(name: str, values: Floats | Integers) -> bytes:
    """A TensorProto: dims 1, data_type 2, name 8, raw_data 9."""
    dims = b"".join(_number(1, size) for size in values.shape)
    kind = _FLOAT if values.dtype == np.float32 else _INT64
    return dims + _number(2, kind) + _bytes(8, name) + _bytes(9, values.tobytes())


def _row(name: str, width: int) -> bytes:
    """A ValueInfoProto of float32 [n, width]: name 1, type 2 (tensor_type 1: elem_type 1, shape 2 (dim 1))."""
    shape = _bytes(1, _bytes(2, "n")) + _bytes(1, _number(1, width))
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, _FLOAT) + _bytes(2, shape)))
