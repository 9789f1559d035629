"""Where a failure comes from, found by playing the same episodes again with one thing taken away."""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from physai.sdk.evidence.verdict import Cause
from physai.sdk.safety import Reason
from physai.sim.gates.checks.gate import Context
from physai.sim.gates.execution.batch import Batch, BatchResult

RECOVERED = 0.5
"""Share of the failed episodes that must succeed once a suspect is removed for it to be the cause."""

_NOT_FINITE = int(Reason.COMMAND_NOT_FINITE)
_LATE = int(Reason.SENSOR_STALE | Reason.COMMAND_STALE | Reason.DEADLINE_MISSED)


def attribute(
    context: Context, batch: Batch, played: BatchResult
) -> Generator[Sequence[Batch], list[BatchResult], tuple[Cause, str]]:
    """The cause of a batch's failures, and how it was found.

    Args:
        context: what is judged.
        batch: a batch with failures.
        played: what became of it.
    """
    failed = ~played.success | played.violated
    if (played.guard_reasons[failed] & _NOT_FINITE).any():
        return Cause.NUMERICS, "the policy answered something that is no finite number"
    suspects: list[tuple[Cause, str, Batch]] = []
    if batch.arm == "policy" and _is_quantised(context):
        suspects.append((Cause.NUMERICS, "the float graph succeeds where this one fails", replace(batch, arm="float")))
    condition = batch.condition
    prompt = replace(condition, name="no-delay", lag_lower_s=0.0, lag_upper_s=0.0, sensor_lag_scale=0.0, late_periods=0)
    if condition.lag_upper_s > 0.0 or condition.late_periods or context.subject.task.sensor_delay.upper_s > 0.0:
        suspects.append((Cause.TIMING, "without delays the same episodes succeed", replace(batch, condition=prompt)))
    if suspects:
        answers = yield [suspect for _, _, suspect in suspects]
        for (cause, text, _), answer in zip(suspects, answers, strict=True):
            share = float(np.mean((answer.success & ~answer.violated)[failed]))
            if share >= RECOVERED:
                return cause, f"{text} ({share:.0%} of those that failed)"
    if failed.any() and (played.guard_reasons[failed] & _LATE).mean() > 0.0 and _only_late(played, failed):
        return Cause.TIMING, "the guard acted on samples or commands that were too old"
    return Cause.POLICY, "it fails without delays too" if len(suspects) else "nothing but the policy can be blamed"


def _only_late(played: BatchResult, failed: np.ndarray) -> bool:
    flags = played.guard_reasons[failed]
    return bool(((flags & _LATE) != 0).all() and ((flags & ~_LATE) == 0).all())


def _is_quantised(context: Context) -> bool:
    arms = context.subject.arms
    return "float" in arms and arms["float"] != arms["policy"]
