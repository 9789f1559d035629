"""Shadow evidence of a policy on the pusher, as a robot writes it."""

from pathlib import Path
from typing import Any

from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.origin import Origin
from physai.sdk.evidence.shadow import BeyondJudged, ComputeTimes, JointDivergence, ShadowEvidence
from physai.sim.tasks.task import Task

OUTPUT = "joint_effort_target"


def shadow_of(policy: Path, task: Task, *, run: str = "1" * 32, **changes: Any) -> ShadowEvidence:
    """A run of 1,000 ticks in which the guard would have changed 7, on the robot pusher/cell-3."""
    usual: dict[str, Any] = {
        "run": run,
        "robot": "pusher/cell-3",
        "origin": Origin(kind="robot", robot="pusher/cell-3"),
        "bundle_sha256": "c" * 64,
        "policy_sha256": sha256_hex(policy.read_bytes()),
        "contract_fingerprint": task.contract.fingerprint,
        "active_bundle_sha256": "d" * 64,
        "began": "2026-11-28T10:00:00Z",
        "ended": "2026-11-28T10:00:20Z",
        "ticks": 1000,
        "starts": 2,
        "unanswered": 5,
        "late": 3,
        "command_share": 0.5,
        "interventions": {"command_rate": 4, "effort_limit": 3},
        "stops": 1,
        "compute_s": ComputeTimes(p50=1e-4, p99=2e-4, greatest=3e-4),
        "divergence": (
            JointDivergence(output=OUTPUT, joint="rail", mean=0.1, rms=1.5, p99=4.0, greatest=6.25),
            JointDivergence(output=OUTPUT, joint="other", mean=0.1, rms=2.5, p99=4.0, greatest=3.0),
        ),
        "moments": (),
        "beyond": (
            BeyondJudged(
                field="joint_pos", element=0, ticks=9, lower=-1.5, upper=1.0, judged_lower=-1.0, judged_upper=1.0
            ),
        ),
    }
    return ShadowEvidence(**{**usual, **changes})
