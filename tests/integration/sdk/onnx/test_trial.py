"""Graphs that every rule accepts and that no machine can compute: refused by another process than ours, in time."""

import numpy as np
import pytest
from tests.support import hanging_policy

from physai.sdk.base.process import isolation as apart
from physai.sdk.base.process.isolation import ApartError
from physai.sdk.onnx import trial as onnx_trial
from physai.sdk.onnx.graph import GraphError, check_policy
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import POLICY_FILE

CONTRACT = hanging_policy.contract("joint_effort")


def made(*, chain: int = 0, width: int = 2048, folded: bool = False) -> bytes:
    data = hanging_policy.policy(CONTRACT, chain=chain, width=width, folded=folded)[POLICY_FILE]
    check_policy(data, source="it")
    return data


def test_a_policy_that_is_fine() -> None:
    try_policy(made(), source="it")
    # Once is enough.
    try_policy(made(), source="it")


@pytest.mark.parametrize(("folded", "stage"), [(False, "computing 1 states"), (True, "loading")])
def test_a_graph_that_takes_minutes(folded: bool, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_trial, "TRIAL_S", 2.0)
    with pytest.raises(ApartError, match=rf"the first inference of it hung: no message for 2 s \({stage}\)"):
        try_policy(made(chain=500, folded=folded), source="it")


@pytest.mark.parametrize("folded", [False, True])
def test_a_graph_that_takes_all_memory(folded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two matrices of 400 MB each, where 512 MiB are allowed."""
    monkeypatch.setattr(apart, "free_bytes", lambda: 1 << 30)
    with pytest.raises(ApartError, match=r"used [0-9]+ MiB of memory \(.*\), the limit is 512 MiB"):
        try_policy(made(chain=3, width=10_000, folded=folded), source="it")


def test_a_graph_of_more_memory_than_there_is() -> None:
    """A matrix of 400 TB: nothing is ever filled, and the allocation fails."""
    with pytest.raises(ApartError, match=r"^it: onnxruntime cannot compute it: .*buffer of size 400000000000000"):
        try_policy(made(chain=3, width=10_000_000), source="it")


def test_what_is_refused_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_trial, "call_apart", None)
    with pytest.raises(GraphError):
        try_policy(np.zeros(9, np.uint8).tobytes(), source="it")
