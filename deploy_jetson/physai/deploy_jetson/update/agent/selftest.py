"""The self-test that a policy must pass on this machine before its slot becomes valid."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from physai.deploy_jetson.inference.backend import BackendChoice, Built, build
from physai.deploy_jetson.inference.engine import InferenceError
from physai.deploy_jetson.inference.golden import replay
from physai.deploy_jetson.inference.latency import TICKS, Latency, measure, require_deadline
from physai.deploy_jetson.inference.onnx import OnnxEngine
from physai.deploy_jetson.update.agent.tested import ENGINE_FILE, Progress, Tested, no_progress
from physai.deploy_jetson.update.slots.slot_records import InferenceRuntime, SelfTest
from physai.sdk.policy.golden import read_golden
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE

FIRST_CALL_S = 1.0
FIRST_CALL_DEADLINES = 20.0
"""Limit of the first inference: seconds or contract deadlines, whichever is longer."""


def run_self_test(
    members: Mapping[str, bytes],
    member: str,
    *,
    backend: BackendChoice = "auto",
    ticks: int = TICKS,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    progress: Progress = no_progress,
) -> Tested:
    """Builds the engine of a policy, replays the golden states and measures tick latency.

    Args:
        members: members of the bundle.
        member: the policy to run: `policy.int8.onnx`.
        backend: the inference backend.
        ticks: number of ticks to measure.
        clock_ns: clock for the latency [ns].
        progress: receives stages and their progress.

    Raises:
        EngineError: the engine cannot be built or run, or is too slow for the contract's deadline.
        GoldenError: the outputs differ from those of the trained policy.
        PolicyError, ContractError: the member is malformed.
    """
    data = members[member]
    reference = OnnxEngine(data, source=member)
    golden = read_golden(members[GOLDEN_FILE], reference.header)
    progress("reference", 0.0)
    # onnxruntime replays first even if TensorRT is used: a wrong graph and a wrong engine need different remedies.
    _run_once(reference)
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


def _run_once(engine: OnnxEngine) -> None:
    """Runs the policy on zeros and refuses one that is far too slow."""
    # Fail early: replaying all golden states with such a policy would take very long.
    begun = time.monotonic()
    engine.run({name: np.zeros((1, size), np.float32) for name, size in engine.header.inputs.items()})
    took_s, deadline_s = time.monotonic() - begun, engine.header.contract.timing.deadline_s
    if took_s > max(FIRST_CALL_S, FIRST_CALL_DEADLINES * deadline_s):
        raise InferenceError(
            f"the first inference takes {took_s:.1f} s here, the contract's deadline is {1e3 * deadline_s:g} ms; "
            "train a smaller network"
        )
