"""Graphs that every rule accepts and that no machine can compute: refused by another process than ours, in time."""

from collections.abc import Callable

import hanging_policy
import numpy as np
import pytest
from onnx import TensorProto, helper, load_from_string

from physai.sdk import apart, onnx_trial
from physai.sdk.apart import ApartError
from physai.sdk.onnx_graph import GraphError, check_policy
from physai.sdk.onnx_trial import try_policy
from physai.sdk.policy_file import POLICY_FILE

CONTRACT = hanging_policy.contract("joint_effort")


def made(*, chain: int = 0, width: int = 2048) -> bytes:
    data = hanging_policy.policy(CONTRACT, chain=chain, width=width)[POLICY_FILE]
    check_policy(data, source="it")
    return data


def folded(data: bytes) -> bytes:
    """The same chain from a constant: onnxruntime computes it when it loads the graph, before any state is asked."""
    model = load_from_string(data)
    model.graph.node[0].CopyFrom(helper.make_node("Identity", ["one"], ["product0"]))
    model.graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, [1, 1], [1.0]))
    changed = model.SerializeToString()
    check_policy(changed, source="it")
    return changed


def test_a_policy_that_is_fine() -> None:
    try_policy(made(), source="it")
    # Once is enough.
    try_policy(made(), source="it")


@pytest.mark.parametrize(("change", "stage"), [(bytes, "computing 1 states"), (folded, "loading")])
def test_a_graph_that_takes_minutes(
    change: Callable[[bytes], bytes], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_trial, "TRIAL_S", 2.0)
    with pytest.raises(ApartError, match=rf"the first computation of it hung: nothing .* for 2 s \({stage}\)"):
        try_policy(change(made(chain=500)), source="it")


@pytest.mark.parametrize("change", [bytes, folded])
def test_a_graph_that_takes_all_memory(change: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two matrices of 400 MB each, where 512 MiB are allowed."""
    monkeypatch.setattr(apart, "free_bytes", lambda: 1 << 30)
    with pytest.raises(ApartError, match=r"took [0-9]+ MiB of memory \(.*\), it may take 512 MiB"):
        try_policy(change(made(chain=3, width=10_000)), source="it")


def test_a_graph_of_more_memory_than_there_is() -> None:
    """A matrix of 400 TB: nothing is ever filled, and the allocation fails."""
    with pytest.raises(ApartError, match=r"^it: onnxruntime cannot compute it: .*buffer of size 400000000000000"):
        try_policy(made(chain=3, width=10_000_000), source="it")


def test_what_is_refused_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_trial, "call_apart", None)
    with pytest.raises(GraphError):
        try_policy(np.zeros(9, np.uint8).tobytes(), source="it")
