"""Allowlist parser for the protobuf fields of an ONNX policy; every other field is rejected.

Field numbers and types are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto. Functions, training info,
external data, sparse tensors and subgraphs (`If`, `Loop`) are not on the list.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any, Literal

from physai.sdk.base.formats.protobuf import BYTES, FIXED32, VARINT, MalformedError, Value, fields, signed, varint

Kind = Literal["int", "float", "text", "bytes"]

MAX_FIELDS = 200_000
"""Maximum number of fields in a file."""

MAX_TEXT_BYTES = 512
"""Maximum length of a name in a graph."""

Found = dict[str, Any]
"""Fields of a message by name: int, float, str, memoryview, Found, or a list of one of these."""


@dataclass(frozen=True)
class OnnxField:
    """One field of a message."""

    name: str
    kind: "Kind | Message"
    many: bool = False


@dataclass(frozen=True)
class Message:
    """A message type and its allowed fields by number."""

    name: str
    fields: dict[int, OnnxField]


TENSOR = Message(
    "TensorProto",
    {
        1: OnnxField("dims", "int", many=True),
        2: OnnxField("data_type", "int"),
        4: OnnxField("float_data", "bytes"),
        5: OnnxField("int32_data", "bytes"),
        7: OnnxField("int64_data", "bytes"),
        8: OnnxField("name", "text"),
        9: OnnxField("raw_data", "bytes"),
        14: OnnxField("data_location", "int"),
    },
)
ATTRIBUTE = Message(
    "AttributeProto",
    {
        1: OnnxField("name", "text"),
        2: OnnxField("f", "float"),
        3: OnnxField("i", "int"),
        4: OnnxField("s", "text"),
        5: OnnxField("t", TENSOR),
        7: OnnxField("floats", "float", many=True),
        8: OnnxField("ints", "int", many=True),
        20: OnnxField("type", "int"),
    },
)
NODE = Message(
    "NodeProto",
    {
        1: OnnxField("input", "text", many=True),
        2: OnnxField("output", "text", many=True),
        3: OnnxField("name", "text"),
        4: OnnxField("op_type", "text"),
        5: OnnxField("attribute", ATTRIBUTE, many=True),
        7: OnnxField("domain", "text"),
    },
)
_DIMENSION = Message("Dimension", {1: OnnxField("dim_value", "int"), 2: OnnxField("dim_param", "text")})
_SHAPE = Message("TensorShapeProto", {1: OnnxField("dim", _DIMENSION, many=True)})
_TENSOR_TYPE = Message("TypeProto.Tensor", {1: OnnxField("elem_type", "int"), 2: OnnxField("shape", _SHAPE)})
_TYPE = Message("TypeProto", {1: OnnxField("tensor_type", _TENSOR_TYPE)})
VALUE_INFO = Message("ValueInfoProto", {1: OnnxField("name", "text"), 2: OnnxField("type", _TYPE)})
GRAPH = Message(
    "GraphProto",
    {
        1: OnnxField("node", NODE, many=True),
        2: OnnxField("name", "text"),
        5: OnnxField("initializer", TENSOR, many=True),
        11: OnnxField("input", VALUE_INFO, many=True),
        12: OnnxField("output", VALUE_INFO, many=True),
    },
)
_OPSET = Message("OperatorSetIdProto", {1: OnnxField("domain", "text"), 2: OnnxField("version", "int")})
MODEL = Message(
    "ModelProto",
    {
        1: OnnxField("ir_version", "int"),
        2: OnnxField("producer_name", "text"),
        3: OnnxField("producer_version", "text"),
        4: OnnxField("domain", "text"),
        5: OnnxField("model_version", "int"),
        7: OnnxField("graph", GRAPH),
        8: OnnxField("opset_import", _OPSET, many=True),
        14: OnnxField("metadata_props", "bytes", many=True),
    },
)

REFUSED = {
    ("ModelProto", 6): "doc_string",
    ("ModelProto", 20): "training_info",
    ("ModelProto", 25): "functions",
    ("GraphProto", 10): "doc_string",
    ("GraphProto", 13): "value_info",
    ("GraphProto", 14): "quantization_annotation",
    ("GraphProto", 15): "sparse_initializer",
    ("NodeProto", 6): "doc_string",
    ("AttributeProto", 6): "a graph",
    ("AttributeProto", 11): "graphs",
    ("AttributeProto", 22): "a sparse tensor",
    ("TensorProto", 3): "a segment",
    ("TensorProto", 13): "external_data",
}
"""Names of known rejected fields, for error messages; fields not listed here are rejected as well."""


def read_model(data: memoryview) -> Found:
    """Parse a ModelProto; weights are views of `data`, not copies.

    Raises:
        MalformedError: a field is unknown, rejected, of another type or duplicated, or there are too many fields.
    """
    return _Reader().read(data, MODEL)


class _Reader:
    """Recursive parser; nested messages share one limit on the number of fields."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def read(self, data: memoryview, message: Message) -> Found:
        found: Found = {}
        for number, kind, value in fields(data, limit=MAX_FIELDS):
            self._left -= 1
            if self._left < 0:
                raise MalformedError(f"more than {MAX_FIELDS} fields")
            field = message.fields.get(number)
            if field is None:
                name = REFUSED.get((message.name, number), "which policies do not have")
                raise MalformedError(f"field {number} of {message.name}, {name}, is not allowed in a policy")
            if field.many:
                found.setdefault(field.name, []).extend(self._values(field, kind, value, message))
            elif field.name in found:
                raise MalformedError(f"{message.name}.{field.name} occurs twice")
            else:
                (found[field.name],) = self._values(field, kind, value, message)
        return found

    def _values(self, field: OnnxField, kind: int, value: Value, message: Message) -> list[Any]:
        """Decode a field, to several values if it is a packed array."""
        wanted = field.kind
        if isinstance(value, int):
            if wanted == "int":
                return [signed(value)]
        elif kind == FIXED32 and wanted == "float":
            return [_float(value)]
        elif kind == BYTES and isinstance(wanted, Message):
            return [self.read(value, wanted)]
        elif kind == BYTES and wanted == "bytes":
            return [value]
        elif kind == BYTES and wanted == "text":
            return [_text(value)]
        elif kind == BYTES and field.many:
            return self._packed(value, VARINT if wanted == "int" else FIXED32)
        raise MalformedError(f"{message.name}.{field.name} has wire type {kind}")

    def _packed(self, data: memoryview, kind: int) -> list[Any]:
        numbers: list[Any] = []
        position = 0
        while position < len(data):
            self._left -= 1
            if self._left < 0:
                raise MalformedError(f"more than {MAX_FIELDS} fields")
            if kind == VARINT:
                value, position = varint(data, position)
                numbers.append(signed(value))
            else:
                numbers.append(_float(data[position : position + 4]))
                position += 4
        return numbers


def _float(data: memoryview) -> float:
    if len(data) != 4:
        raise MalformedError(f"a float of {len(data)} bytes")
    value: float = struct.unpack("<f", data)[0]
    if not math.isfinite(value):
        raise MalformedError(f"an attribute is {value}, expected a finite number")
    return value


def _text(data: memoryview) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise MalformedError(f"a name of {len(data)} bytes, at most {MAX_TEXT_BYTES} are allowed")
    return str(data, "utf-8")
