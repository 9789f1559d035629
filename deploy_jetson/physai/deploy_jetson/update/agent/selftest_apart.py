"""Runs the self-test in a child process, so that a policy that hangs cannot keep the slots locked."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from physai.deploy_jetson.update.agent.tested import Progress, Tested, no_progress
from physai.deploy_jetson.update.slots.slot_records import InferenceRuntime, SelfTest
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve
from physai.sdk.policy.header import GOLDEN_FILE

if TYPE_CHECKING:
    from physai.deploy_jetson.inference.backend import BackendChoice

CALL_S = 8.0
CALL_DEADLINES = 200.0
"""Timeout between progress reports: seconds or contract deadlines, whichever is longer."""

BUILD_S = 1800.0
"""Timeout for TensorRT to build an engine [s]."""


def call_limit_s(deadline_s: float) -> float:
    """Timeout between progress reports for a policy with this deadline [s]."""
    return max(CALL_S, CALL_DEADLINES * deadline_s)


def self_test_apart(
    members: Mapping[str, bytes],
    member: str,
    *,
    deadline_s: float,
    backend: BackendChoice = "auto",
    ticks: int,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    progress: Progress = no_progress,
) -> Tested:
    """Like `run_self_test`, in a child process.

    Raises:
        ApartError: the self-test failed, hung or crashed.
    """
    limits = {"engine": BUILD_S}
    call_s = call_limit_s(deadline_s)

    def report(status: JsonFacts) -> None:
        progress(status["stage"], status["share"])

    inputs = {name: members[name] for name in (member, GOLDEN_FILE)}
    request = {"members": inputs, "member": member, "backend": backend, "ticks": ticks, "clock_ns": clock_ns}
    progress("reference", 0.0)
    facts, blobs = call_apart(
        __name__,
        pickle.dumps(request),
        what=f"the self-test of {member}",
        limit_s=lambda status: limits.get(str(status["stage"]), call_s),
        heard=report,
    )
    return Tested(
        runtime=InferenceRuntime.model_validate(facts["runtime"]),
        plan=blobs[0] if blobs else None,
        self_test=SelfTest.model_validate(facts["self_test"]),
    )


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    # Unpickling is safe here: the parent process wrote the request. The answer, which the policy could influence, is
    # JSON and raw bytes.
    options: dict[str, Any] = pickle.loads(request)
    from physai.deploy_jetson.update.agent.selftest import run_self_test

    # Imports are done: from here on the timeout measures the policy, including loading it.
    report({"stage": "reference", "share": 0.0})
    tested = run_self_test(**options, progress=lambda stage, share: report({"stage": stage, "share": share}))
    facts = {
        "runtime": tested.runtime.model_dump(mode="json"),
        "self_test": tested.self_test.model_dump(mode="json"),
    }
    return facts, [] if tested.plan is None else [tested.plan]


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
