"""Engines: loading, golden states, latency."""

import io
import itertools
import sys
from collections.abc import Mapping
from types import ModuleType

import numpy as np
import pytest
from tests.harness.fixtures.sample import sample_contract, sample_policy

from physai.deploy_jetson.inference import backend
from physai.deploy_jetson.inference.engine import Floats, InferenceError
from physai.deploy_jetson.inference.golden import replay
from physai.deploy_jetson.inference.latency import (
    WARM_UP_TICKS,
    Latency,
    LatencyError,
    measure,
    require_deadline,
)
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.sdk.onnx.graph import GraphError
from physai.sdk.policy.golden import Golden, GoldenError, read_golden
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE, PolicyHeader


@pytest.fixture(scope="module")
def engine() -> OnnxEngine:
    return OnnxEngine(sample_policy()[POLICY_FILE], source=POLICY_FILE)


@pytest.fixture(scope="module")
def golden(engine: OnnxEngine) -> Golden:
    return read_golden(sample_policy()[GOLDEN_FILE], engine.header)


class Off:
    """An engine whose effort is wrong by so much."""

    def __init__(self, engine: OnnxEngine, by: float) -> None:
        self._engine = engine
        self._by = np.float32(by)
        self.header: PolicyHeader = engine.header
        self.versions: dict[str, str] = {}

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        return {name: values + self._by for name, values in self._engine.run(inputs).items()}


def test_the_golden_states_are_reproduced(engine: OnnxEngine, golden: Golden) -> None:
    shares: list[float] = []
    assert replay(engine, golden, exact=True, progress=shares.append) < 0.1
    assert shares == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("by", "exact", "worst"),
    [
        # The same graph: 1e-4 of max(|answer|, scale 2.5). Another one: the contract's parity tolerance, 1e-3 N·m.
        (2e-4, True, 0.8),
        (9e-4, False, 0.9),
    ],
)
def test_small_differences_are_measured_in_tolerances(
    engine: OnnxEngine, golden: Golden, by: float, exact: bool, worst: float
) -> None:
    assert sample_contract().safety.parity_tolerance == 1e-3
    assert replay(Off(engine, by), golden, exact=exact) == pytest.approx(worst, abs=0.01)


@pytest.mark.parametrize(("by", "exact"), [(3e-4, True), (2e-3, False), (float("nan"), True), (float("inf"), False)])
def test_another_policy_is_refused(engine: OnnxEngine, golden: Golden, by: float, exact: bool) -> None:
    with pytest.raises(GoldenError, match="golden state 0: joint_effort_target is"):
        replay(Off(engine, by), golden, exact=exact)


def test_ticks_are_measured(engine: OnnxEngine, golden: Golden) -> None:
    readings = itertools.chain.from_iterable((1000 * i, 1000 * i + 10 + i) for i in range(WARM_UP_TICKS + 100))
    found = measure(engine, golden, ticks=100, clock_ns=lambda: next(readings))
    # Durations of the 100 measured ticks: 30, 31, …, 129 ns.
    assert found.ticks == 100
    assert found.p50_s == pytest.approx(79.5e-9)
    assert found.p99_s == pytest.approx(128.01e-9)
    assert found.max_s == pytest.approx(129e-9)


def test_the_deadline() -> None:
    require_deadline(Latency(100, 1e-3, 8e-3, 50e-3), 8e-3)
    for late in (9e-3, float("nan")):
        with pytest.raises(LatencyError, match=r"take up to .* ms here, the contract's deadline is 8 ms"):
            require_deadline(Latency(100, 1e-3, late, 50e-3), 8e-3)


def test_what_is_no_policy() -> None:
    with pytest.raises(GraphError, match=r"x\.onnx: not an ONNX model that may be a policy"):
        OnnxEngine(b"not a policy", source="x.onnx")
    data = sample_policy()[POLICY_FILE]
    other = data.replace(b"\x0a\x09joint_pos", b"\x0a\x09joint_pox")
    with pytest.raises(GraphError, match=r"x.onnx: inputs are .*joint_pox.*; its contract asks for .*joint_pos"):
        OnnxEngine(other, source="x.onnx")


def test_an_input_of_another_shape(engine: OnnxEngine) -> None:
    with pytest.raises(InferenceError, match="onnxruntime cannot compute it"):
        engine.run({"joint_pos": np.zeros((1, 3), np.float32)})


def test_without_tensorrt_onnxruntime_computes(engine: OnnxEngine) -> None:
    if backend.has_tensorrt():
        pytest.skip("TensorRT is here")
    data = sample_policy()[POLICY_FILE]
    built = backend.build(data, engine, source=POLICY_FILE)
    assert (built.backend, built.engine, built.plan, built.key) == ("onnxruntime", engine, None, None)
    with pytest.raises(InferenceError, match="TensorRT or its GPU is missing"):
        backend.build(data, engine, source=POLICY_FILE, choice="tensorrt")
    with pytest.raises(InferenceError, match="TensorRT or its GPU is gone"):
        backend.load(data, b"plan", "key", source=POLICY_FILE)
    assert backend.load(data, None, None, source=POLICY_FILE).versions == engine.versions


def test_an_engine_of_another_tensorrt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "has_tensorrt", lambda: True)
    fake = ModuleType("physai.deploy_jetson.inference.tensorrt")
    fake.__dict__.update(plan_key=lambda data: "new" * 10, TensorRtEngine=None)  # pyright: ignore
    monkeypatch.setitem(sys.modules, "physai.deploy_jetson.inference.tensorrt", fake)
    with pytest.raises(
        InferenceError, match=r"built with another TensorRT, .*key oldoldoldold, now newnewnewnew.*install"
    ):
        backend.load(sample_policy()[POLICY_FILE], b"plan", "old" * 10, source=POLICY_FILE)


def test_the_sample_is_a_valid_model() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(io.BytesIO(sample_policy(width=8)[POLICY_FILE]))
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Tanh", "MatMul", "Tanh", "MatMul"]
