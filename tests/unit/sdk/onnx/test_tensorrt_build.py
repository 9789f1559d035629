"""The TensorRT builder where there is none, and where what it gets is no graph."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from physai.sdk.base.errors import MissingExtraError
from physai.sdk.onnx import graph as onnx_graph
from physai.sdk.onnx.graph import GraphError
from physai.sdk.onnx.tensorrt_build import TensorRtError, build_engine, cross_targets, find_tensorrt

POLICY = (Path(__file__).parents[3] / "data" / "policies" / "reach" / "policy.onnx").read_bytes()
needs_rtx = pytest.mark.skipif(find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx is not installed")


@pytest.mark.skipif(find_spec("tensorrt") is not None, reason="TensorRT is installed")
def test_the_error_says_where_tensorrt_comes_from() -> None:
    with pytest.raises(MissingExtraError, match="comes with JetPack"):
        build_engine(POLICY, source="policy.onnx")


@pytest.mark.skipif(find_spec("tensorrt_rtx") is not None, reason="tensorrt-rtx is installed")
def test_the_error_says_how_to_get_tensorrt_for_rtx() -> None:
    with pytest.raises(MissingExtraError, match="pip install tensorrt-rtx"):
        find_tensorrt("tensorrt_rtx")


def test_a_file_beyond_all_bounds_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "MAX_POLICY_BYTES", 10)
    with pytest.raises(GraphError, match="11 bytes, a policy has at most 10"):
        build_engine(bytes(11), source="policy.onnx")


@needs_rtx
def test_the_targets_are_compute_capabilities() -> None:
    known = cross_targets()
    assert {86, 89, 120} <= set(known)
    assert list(known) == sorted(known)


@needs_rtx
def test_a_graph_of_other_types_is_refused_with_the_parsers_words() -> None:
    graph = POLICY.replace(b"\x22\x04Less", b"\x22\x04Mean")
    with pytest.raises(TensorRtError, match=r"broken\.onnx: tensorrt_rtx .* cannot read the graph: .*parse"):
        build_engine(graph, source="broken.onnx", targets=(89,))
