"""The self-test in a process of its own: a policy whose call never returns must not keep the slots locked."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from physai.deploy_jetson.agent.tested import Progress, Tested, no_progress
from physai.deploy_jetson.slots.records import InferenceRuntime, SelfTest
from physai.sdk.base.isolation import JsonFacts, ReportProgress, call_apart, serve
from physai.sdk.policy.header import GOLDEN_FILE

if TYPE_CHECKING:
    from physai.deploy_jetson.inference.backend import BackendChoice

CALL_S = 8.0
CALL_DEADLINES = 200.0
"""Longest silence of the test while it computes the policy: so many seconds, or deadlines of the contract."""

BUILD_S = 1800.0
"""Longest time for TensorRT to build an engine [s]."""


def call_limit_s(deadline_s: float) -> float:
    """Longest silence of a process that computes a policy with this deadline [s]."""
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
    """As `run_self_test`, in another process.

    Raises:
        ApartError: what the test says about the policy, or that it hung or crashed.
    """
    limits = {"engine": BUILD_S}
    call_s = call_limit_s(deadline_s)

    def heard(told: JsonFacts) -> None:
        progress(told["stage"], told["share"])

    given = {name: members[name] for name in (member, GOLDEN_FILE)}
    request = {"members": given, "member": member, "backend": backend, "ticks": ticks, "clock_ns": clock_ns}
    progress("reference", 0.0)
    facts, blobs = call_apart(
        __name__,
        pickle.dumps(request),
        what=f"the self-test of {member}",
        limit_s=lambda told: limits.get(str(told["stage"]), call_s),
        heard=heard,
    )
    return Tested(
        runtime=InferenceRuntime.model_validate(facts["runtime"]),
        plan=blobs[0] if blobs else None,
        self_test=SelfTest.model_validate(facts["self_test"]),
    )


def _work(request: bytes, tell: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    # The request is this program's own; what comes back from beside the policy is data only.
    wanted: dict[str, Any] = pickle.loads(request)
    from physai.deploy_jetson.agent.selftest import run_self_test

    # From here on it is the policy that takes time, loading it included.
    tell({"stage": "reference", "share": 0.0})
    tested = run_self_test(**wanted, progress=lambda stage, share: tell({"stage": stage, "share": share}))
    facts = {
        "runtime": tested.runtime.model_dump(mode="json"),
        "self_test": tested.self_test.model_dump(mode="json"),
    }
    return facts, [] if tested.plan is None else [tested.plan]


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
