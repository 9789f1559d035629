"""What may be in a policy: real graphs are accepted, all else is refused, and what is accepted reads no other file."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from physai.sdk.onnx.file import MAX_FIELDS
from physai.sdk.onnx.graph import IR_VERSIONS, MAX_NODES, OPSETS, GraphError, check_graph, check_policy
from physai.sdk.onnx.operators import OPERATORS

ROOT = Path(__file__).parents[4]
POLICIES = [ROOT / "tests" / "data" / "policies" / name / "policy.onnx" for name in ("cartpole-00", "reach")]
DOCS = ROOT / "docs" / "reference" / "bundle.md"

Change = Callable[[onnx.ModelProto], object]
_onnx: Any = onnx


def model(*, width: int = 2) -> onnx.ModelProto:
    """y = x · weights + bias."""
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["product"], "multiply"),
        helper.make_node("Add", ["product", "bias"], ["y"], "add"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name in "xy")
    constants = [
        numpy_helper.from_array(np.eye(width, dtype=np.float32), "weights"),
        numpy_helper.from_array(np.ones(width, np.float32), "bias"),
    ]
    graph = helper.make_graph(nodes, "policy", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def refused(made: onnx.ModelProto) -> str:
    with pytest.raises(GraphError, match=r"^it: not an ONNX model that may be a policy: ") as caught:
        check_graph(made.SerializeToString(), source="it")
    return str(caught.value)


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.parent.name)
def test_exported_policies_are_accepted(path: Path) -> None:
    data = path.read_bytes()
    header = check_policy(data, source="it")
    facts = check_graph(memoryview(data), source="it")
    loaded = onnx.load_from_string(data)
    assert (facts.inputs, facts.outputs) == (header.inputs, header.outputs)
    assert facts.nodes == len(loaded.graph.node)
    assert facts.parameters == sum(int(np.prod(tensor.dims)) for tensor in loaded.graph.initializer)
    assert facts.metadata == {entry.key: entry.value for entry in loaded.metadata_props}


def test_the_facts_of_a_graph_made_by_hand() -> None:
    facts = check_graph(model(width=3).SerializeToString(), source="it")
    assert (facts.ir_version, facts.opset, facts.nodes, facts.parameters) == (8, 18, 2, 12)
    assert (facts.inputs, facts.outputs, facts.metadata) == ({"x": 3}, {"y": 3}, {})


def add_node(made: onnx.ModelProto, kind: str, inputs: list[str], **attributes: Any) -> onnx.NodeProto:
    node = helper.make_node(kind, inputs, [f"made{len(made.graph.node)}"], **attributes)
    made.graph.node.append(node)
    return made.graph.node[-1]


def body() -> onnx.GraphProto:
    return helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "body", [], [])


def add_tensor(made: onnx.ModelProto, **fields: Any) -> None:
    tensor = made.graph.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(np.ones(4, np.float32), "more"))
    for name, value in fields.items():
        if name == "dims":
            tensor.dims[:] = value
        else:
            setattr(tensor, name, value)


def external(made: onnx.ModelProto) -> None:
    external_data_helper.set_external_data(made.graph.initializer[0], location="weights.bin")


def external_constant(made: onnx.ModelProto) -> None:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "w")
    external_data_helper.set_external_data(tensor, location="weights.bin")
    tensor.ClearField("raw_data")
    add_node(made, "Constant", [], value=tensor)


REFUSED: dict[str, tuple[Change, str]] = {
    "external initialiser": (external, "external_data"),
    "external constant": (external_constant, "external_data"),
    "external, without an entry": (lambda m: add_tensor(m, data_location=1), "lie in another file"),
    "loop": (lambda m: add_node(m, "Loop", ["", ""], body=body()), "a graph"),
    "if": (lambda m: add_node(m, "If", ["x"], then_branch=body(), else_branch=body()), "a graph"),
    "random": (lambda m: add_node(m, "RandomNormal", [], shape=[2]), "::RandomNormal is not one"),
    "range": (lambda m: add_node(m, "Range", ["bias", "bias", "bias"]), "::Range is not one"),
    "nonzero": (lambda m: add_node(m, "NonZero", ["x"]), "::NonZero is not one"),
    "custom operator": (lambda m: add_node(m, "Add", ["x", "x"], domain="com.microsoft"), "com.microsoft::Add"),
    "function": (lambda m: m.functions.add(), "functions"),
    "training": (lambda m: m.training_info.add(), "training_info"),
    "sparse": (lambda m: m.graph.sparse_initializer.add(), "sparse_initializer"),
    "another operator set": (lambda m: m.opset_import.add(domain="ai.onnx.ml", version=3), "operator sets"),
    "an older operator set": (
        lambda m: setattr(m.opset_import[0], "version", 12),
        "operator set 12, expected 13 to 20",
    ),
    "a newer file": (lambda m: setattr(m, "ir_version", 11), "ir_version 11, expected 7 to 10"),
    "no operator set": (lambda m: m.ClearField("opset_import"), "operator sets []"),
    "a text": (lambda m: setattr(m.graph, "doc_string", "x"), "doc_string"),
    "a string": (lambda m: m.graph.initializer.add(name="s", data_type=8, dims=[1], string_data=[b"x"]), "field 6"),
    "double": (lambda m: m.graph.initializer.add(name="d", data_type=11, dims=[0]), "data type 11"),
    "too few bytes": (lambda m: add_tensor(m, dims=[5]), "has 5 elements, its raw_data holds 4"),
    "too many bytes": (lambda m: add_tensor(m, dims=[3]), "has 3 elements, its raw_data holds 4"),
    "no data": (lambda m: add_tensor(m, raw_data=b""), "has 4 elements, its raw_data holds 0"),
    "data twice": (lambda m: m.graph.initializer[1].float_data.extend([1.0, 2.0]), "in 2 fields, expected one"),
    "a negative size": (lambda m: add_tensor(m, dims=[-2, -2]), "shape [-2, -2]"),
    "a size that overflows": (lambda m: add_tensor(m, dims=[1 << 27] * 8), "elements, its raw_data holds 4"),
    "a size beyond all": (lambda m: add_tensor(m, dims=[1 << 62]), "has the shape [461168"),
    "nine sizes": (lambda m: add_tensor(m, dims=[1] * 9), "has the shape"),
    "two tensors of one name": (lambda m: add_tensor(m, name="bias"), "two tensors are named 'bias'"),
    "an input with a default": (lambda m: add_tensor(m, name="x"), "two tensors are named 'x'"),
    "two nodes of one name": (lambda m: setattr(m.graph.node[1], "name", "multiply"), "two nodes are named 'multiply'"),
    "two makers": (lambda m: m.graph.node[1].output.__setitem__(0, "product"), "two tensors are named 'product'"),
    "nothing makes it": (lambda m: m.graph.node[0].input.__setitem__(0, "z"), "'z', which nothing before it makes"),
    "another order": (lambda m: m.graph.node.reverse(), "'product', which nothing before it makes"),
    "no output": (lambda m: m.graph.node.pop(), "nothing makes the output 'y'"),
    "another attribute": (lambda m: add_node(m, "Add", ["x", "x"], axis=1), "attribute 'axis'"),
    "another kind of attribute": (lambda m: add_node(m, "Elu", ["x"], alpha=1), "'alpha' of a Elu is not of type f"),
    "not finite": (lambda m: add_node(m, "Elu", ["x"], alpha=float("nan")), "expected a finite number"),
    "too many inputs": (lambda m: add_node(m, "Add", ["x", "x", "x"]), "a Add has 3 inputs, expected 2 to 2"),
    "too many nodes": (lambda m: [add_node(m, "Abs", ["x"]) for _ in range(MAX_NODES)], "4098 nodes, at most 4096"),
    "an attribute of many numbers": (
        lambda m: add_node(m, "Transpose", ["x"], perm=[0] * MAX_FIELDS),
        f"more than {MAX_FIELDS} fields",
    ),
    "a long name": (lambda m: setattr(m, "producer_name", "x" * 513), "a name of 513 bytes"),
    "an input of a fixed number": (
        lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])),
        "expected float32 (1) of shape ['n', size]",
    ),
    "a size from a value": (
        lambda m: (add_node(m, "Cast", ["x"], to=TensorProto.INT64), add_node(m, "Expand", ["bias", "made2"])),
        "the size of what a Expand makes depends on the value of 'made2'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_policy_may_not_have(case: str) -> None:
    change, message = REFUSED[case]
    made = model()
    change(made)
    assert message in refused(made)


def test_a_size_from_a_shape() -> None:
    """As the exporter writes it: a row for each state."""
    made = model()
    add_node(made, "Shape", ["x"])
    add_node(made, "Expand", ["bias", "made2"])
    assert check_graph(made.SerializeToString(), source="it").nodes == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no ir_version"),
        (b"\x08\x08\x08\x08", "ModelProto.ir_version occurs twice"),
        (b"\x0a\x01\x08", "ModelProto.ir_version has wire type 2"),
        (b"\x08\x88\x00", "more bytes than it needs"),
        (b"\x08\x08\xf8\x07\x01", "field 127 of ModelProto, which policies do not have"),
        (b"\x08\x08\x12\x01\xff", "can't decode byte 0xff"),
    ],
)
def test_bytes_that_are_no_model(data: bytes, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        check_graph(data, source="it")


SMALL = model().SerializeToString()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Real files with bytes flipped, taken out, put in, or a part of one put into another place."""
    data = bytearray(draw(st.sampled_from([SMALL, *(path.read_bytes() for path in POLICIES)])))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data) - 1))
        part = draw(st.one_of(st.binary(max_size=12), st.just(bytes(data[start : start + draw(st.integers(1, 64))]))))
        place = draw(st.integers(0, len(data) - 1))
        data[place : place + draw(st.sampled_from([0, 1, len(part)]))] = part
        if not data:
            return b""
    return bytes(data)


@given(data=mutated())
def test_a_damaged_file_is_refused_or_is_a_graph_of_its_own(data: bytes) -> None:
    """What is accepted, onnx and onnxruntime read as the same graph, or refuse by an error of their own."""
    try:
        facts = check_graph(data, source="it")
    except GraphError:
        return
    loaded = onnx.load_from_string(data)
    assert len(loaded.graph.node) == facts.nodes
    assert [value.name for value in loaded.graph.input] == list(facts.inputs)
    assert {entry.key: entry.value for entry in loaded.metadata_props} == facts.metadata
    assert not any(external_data_helper.uses_external_data(tensor) for tensor in loaded.graph.initializer)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Its own errors are many: a shape that does not fit, an axis out of range.
    with contextlib.suppress(Exception):
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def test_onnxruntime_does_read_another_file_where_nothing_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason for all this: bytes, given as bytes, whose weights lie in a file of the working directory."""
    made = model()
    made.graph.node[1].op_type = "Mul"
    tensor = made.graph.initializer[1]
    external_data_helper.set_external_data(tensor, location="weights.bin", offset=0, length=8)
    tensor.ClearField("raw_data")
    data = made.SerializeToString()
    monkeypatch.chdir(tmp_path)
    options = onnxruntime.SessionOptions()
    # Some of its optimisations cannot find the file; weights that none of them touches are read.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    answers: list[float] = []
    for weight in (1.0, 5.0):
        Path("weights.bin").write_bytes(np.full(2, weight, np.float32).tobytes())
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"x": np.ones((1, 2), np.float32)})
        answers.append(float(found[0, 0]))
    assert answers == [1.0, 5.0]
    with pytest.raises(GraphError, match="external_data"):
        check_graph(data, source="it")


def test_the_documented_subset_is_the_checked_one() -> None:
    text = DOCS.read_text()
    told = text[text.index("## Policy graphs") : text.index("## Verification")]
    assert set(re.findall(r"\b[A-Z][A-Za-z0-9]+\b", told.split("<!-- operators -->")[1])) == set(OPERATORS)
    assert f"file format {IR_VERSIONS[0]} to {IR_VERSIONS[-1]}, operator set {OPSETS[0]} to {OPSETS[-1]}" in told
    assert f"{MAX_NODES} nodes" in told
