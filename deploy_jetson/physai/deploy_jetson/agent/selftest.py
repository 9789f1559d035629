"""A policy shows on this machine what it must show before its slot becomes valid."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from physai.deploy_jetson.agent.tested import ENGINE_FILE, Progress, Tested, no_progress
from physai.deploy_jetson.inference.backend import BackendChoice, Built, build
from physai.deploy_jetson.inference.engine import EngineError
from physai.deploy_jetson.inference.golden import replay
from physai.deploy_jetson.inference.latency import TICKS, Latency, measure, require_deadline
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.slots.records import InferenceRuntime, SelfTest
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE

FIRST_CALL_S = 1.0
FIRST_CALL_DEADLINES = 20.0
"""Longest first computation: so many seconds, or deadlines of the contract; all golden states would take for ever."""


def run_self_test(
    members: Mapping[str, bytes],
    member: str,
    *,
    backend: BackendChoice = "auto",
    ticks: int = TICKS,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    progress: Progress = no_progress,
) -> Tested:
    """Builds the engine of a policy, replays the golden states and measures ticks.

    Where TensorRT computes, onnxruntime replays the golden states too: a graph that is wrong and an engine that is
    wrong need different remedies.

    Args:
        members: of the bundle.
        member: the policy that is to run: `policy.int8.onnx`.
        backend: what is to compute it.
        ticks: ticks to measure.
        clock_ns: what measures them [ns].
        progress: gets stages and shares.

    Raises:
        EngineError: it cannot be built or computed, or is too slow for the contract's deadline.
        GoldenError: it computes something else than what was trained.
        PolicyError, ContractError: the member is malformed.
    """
    data = members[member]
    reference = OnnxEngine(data, source=member)
    golden = read_golden(members[GOLDEN_FILE], reference.header)
    progress("reference", 0.0)
    _compute_once(reference)
    worst = replay(reference, golden, exact=member == POLICY_FILE, progress=lambda share: progress("reference", share))
    progress("engine", 0.0)
    built: Built = build(data, reference, source=member, choice=backend)
    progress("engine", 1.0)
    if built.engine is not reference:
        worst = replay(built.engine, golden, exact=False, progress=lambda share: progress("golden", share))
    progress("latency", 0.0)
    latency: Latency = measure(
        built.engine, golden, ticks=ticks, clock_ns=clock_ns, progress=lambda share: progress("latency", share)
    )
    deadline_s = reference.header.contract.timing.deadline_s
    require_deadline(latency, deadline_s)
    progress("latency", 1.0)
    return Tested(
        runtime=InferenceRuntime(
            backend=built.backend,
            member=member,
            versions=built.engine.versions,
            engine=None if built.plan is None else ENGINE_FILE,
            engine_key=built.key,
        ),
        plan=built.plan,
        self_test=SelfTest(
            golden_states=golden.rows,
            golden_worst=worst,
            ticks=latency.ticks,
            tick_p50_s=latency.p50_s,
            tick_p99_s=latency.p99_s,
            tick_max_s=latency.max_s,
            deadline_s=deadline_s,
        ),
    )


def _compute_once(engine: OnnxEngine) -> None:
    """As the runtime's first call: nothing measured yet, nothing remembered."""
    begun = time.monotonic()
    engine.run({name: np.zeros((1, size), np.float32) for name, size in engine.header.inputs.items()})
    took_s, deadline_s = time.monotonic() - begun, engine.header.contract.timing.deadline_s
    if took_s > max(FIRST_CALL_S, FIRST_CALL_DEADLINES * deadline_s):
        raise EngineError(
            f"the first computation takes {took_s:.1f} s here, the contract's deadline is {1e3 * deadline_s:g} ms; "
            "train a smaller network"
        )
