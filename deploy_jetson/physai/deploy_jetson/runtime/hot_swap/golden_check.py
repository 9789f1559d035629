"""Replays the golden states of a newly activated policy in a separate process, which may hang or crash."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate, examine
from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.agent.selftest_apart import call_limit_s
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve


def examine_apart(root: Path, config: Path | None, deadline_s: float) -> Candidate:
    """Run `examine` on the active policy in another process.

    Args:
        root: the robot's tree.
        config: folder of the owner's files; None for the default of that tree.
        deadline_s: of the policy's contract [s].

    Raises:
        ApartError: the examination failed, hung or crashed.
    """
    limit_s = call_limit_s(deadline_s)
    # In another process, because the first run of a policy may hang or crash in a native library.
    facts, (policy, plan) = call_apart(
        __name__,
        json.dumps([str(root), None if config is None else str(config)]).encode(),
        what="the examination of what was activated",
        limit_s=lambda progress: limit_s,
    )
    return Candidate(**facts, policy=policy, plan=plan or None)


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    report({"stage": "loading"})
    root, config = json.loads(request)
    active = open_active(Path(root), config=None if config is None else Path(config))
    candidate = examine(active, progress=lambda share: report({"stage": "golden states", "share": share}))
    return candidate.facts(), [candidate.policy, candidate.plan or b""]


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
