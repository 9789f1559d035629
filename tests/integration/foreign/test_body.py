"""Files of other frameworks are rewritten into our subset, compute the same, and never more than arithmetic."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.integration.foreign.conftest import Models, weights

from physai.foreign.body.apart import read_body
from physai.foreign.body.rewrite import embed_weights
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.process.isolation import ApartError
from physai.sdk.onnx.graph import GraphError, check_graph

helper: Any = onnx.helper
library: Any = onnx
ROWS = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)


def read(model: Any, folder: Path | None = None) -> tuple[dict[str, Any], bytes]:
    return read_body(model.SerializeToString(), source="policy.onnx", folder=folder)


def computed(data: bytes) -> Any:
    (found,) = onnxruntime.InferenceSession(data).run(None, {"obs": ROWS})
    return found


@pytest.mark.parametrize("opset", [7, 11, 12, 13, 20, 21])
@pytest.mark.parametrize(("shape", "out"), [((1, 6), (1, 4)), (("batch", 6), ("batch", 4)), ((6,), (4,))])
def test_any_operator_set_and_batch_is_admitted(
    model: Models, opset: int, shape: Sequence[int | str], out: Sequence[int | str]
) -> None:
    made = model(opset=opset, ir_version=6 if opset < 13 else 9, shape=shape, out=out, metadata={"run": "17"})
    with pytest.raises(GraphError):
        check_graph(made.SerializeToString(), source="policy.onnx")
    facts, data = read(made)
    assert "refused" not in facts
    assert facts["parity"] == 0.0
    accepted = check_graph(data, source="policy.onnx")
    assert (accepted.inputs, accepted.outputs) == ({"obs": 6}, {"actions": 4})
    assert facts["metadata"] == {"run": "17"}
    assert accepted.metadata == {}
    # One row of the product by hand, all rows at once.
    assert computed(data) == pytest.approx(ROWS @ weights(6, 4), abs=1e-6)


def test_weights_in_the_same_folder_are_read_and_those_elsewhere_are_not(model: Models, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    made = model()
    library.save_model(
        made, str(home / "policy.onnx"), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    data = (home / "policy.onnx").read_bytes()
    facts, admitted = read_body(data, source="policy.onnx", folder=home)
    assert facts["changes"][0] == "weights from other files are inside"
    assert computed(admitted) == pytest.approx(ROWS @ weights(6, 4), abs=1e-6)
    (tmp_path / "secret.bin").write_bytes((home / "weights.bin").read_bytes())
    (home / "link.bin").symlink_to(tmp_path / "secret.bin")
    moved = onnx.load_model_from_string(data)
    for location, reason in (
        ("../secret.bin", "outside the file's folder"),
        ("link.bin", "outside the file's folder"),
        (str(tmp_path / "secret.bin"), "outside the file's folder"),
        ("", "outside the file's folder"),
        ("none.bin", "cannot be read"),
        (".", "outside|cannot be read|not a regular file"),
    ):
        next(entry for entry in moved.graph.initializer[0].external_data if entry.key == "location").value = location
        facts, admitted = read_body(moved.SerializeToString(), source="policy.onnx", folder=home)
        assert admitted == b""
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(facts["refused"])


@pytest.mark.parametrize(("key", "value"), [("offset", "-4"), ("length", "1000000"), ("offset", "1e3"), ("length", "")])
def test_weights_that_are_not_in_their_file(model: Models, tmp_path: Path, key: str, value: str) -> None:
    made = model()
    library.save_model(made, str(tmp_path / "p.onnx"), save_as_external_data=True, location="w.bin", size_threshold=0)
    moved = onnx.load_model_from_string((tmp_path / "p.onnx").read_bytes())
    tensor = moved.graph.initializer[0]
    kept = [entry for entry in tensor.external_data if entry.key != key]
    del tensor.external_data[:]
    tensor.external_data.extend(kept)
    tensor.external_data.add(key=key, value=value)
    with pytest.raises(ForeignPolicyError, match=r"no number|are not in it"):
        embed_weights(moved, tmp_path)


def test_a_reshape_to_one_row_keeps_the_rows(model: Models) -> None:
    made = model(nodes=[helper.make_node("Reshape", ["hidden", "size"], ["actions"])])
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 4], np.int64), "size"))
    facts, data = read(made)
    assert "reshapes to one row keep the number of rows" in facts["changes"]
    assert computed(data) == pytest.approx(ROWS @ weights(6, 4), abs=1e-6)


def test_a_graph_that_mixes_its_rows_is_refused(model: Models) -> None:
    """The mean over the batch is right for one robot, and wrong for two."""
    made = model(nodes=[helper.make_node("ReduceMean", ["hidden"], ["actions"], axes=[0], keepdims=1)])
    facts, data = read(made)
    assert data == b""
    assert "rows of a batch" in facts["refused"]


def loops() -> list[Any]:
    inside = helper.make_graph(
        [helper.make_node("Identity", ["hidden"], ["then"])],
        "b",
        [],
        [helper.make_tensor_value_info("then", 1, (1, 4))],
    )
    return [helper.make_node("If", ["flag"], ["actions"], then_branch=inside, else_branch=inside)]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (loops(), "a If contains a graph"),
        ([helper.make_node("Call", ["hidden"], ["actions"], domain="com.example")], "operator com.example::Call"),
        ([helper.make_node("RandomNormalLike", ["hidden"], ["actions"])], "operator ::RandomNormalLike is not one"),
    ],
)
def test_what_no_policy_may_have_is_refused_by_name(model: Models, nodes: list[Any], reason: str) -> None:
    facts, data = read(model(nodes=nodes))
    assert data == b""
    assert reason in facts["refused"]


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"PK\3\4" + b"x" * 100, b"\x80\x04\x95pickle", b"not a model" * 9])
def test_what_is_no_onnx_file(data: bytes) -> None:
    with pytest.raises(ApartError, match=r"^policy.onnx: not an ONNX file"):
        read_body(data, source="policy.onnx", folder=None)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_file_that_is_cut_off_is_not_admitted(model: Models, share: float) -> None:
    data = model().SerializeToString()
    told, admitted = "", b""
    try:
        facts, admitted = read_body(data[: int(share * len(data))], source="policy.onnx", folder=None)
        told = facts["refused"]
    except ApartError as error:
        told = str(error)
    assert told
    assert admitted == b""
