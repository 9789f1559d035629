"""Attribute failures to a cause by replaying the same episodes with one suspect removed (ablation)."""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from physai.sdk.evidence.verdict import Cause
from physai.sdk.safety import Reason
from physai.sim.gates.checks.gate import Context
from physai.sim.gates.execution.batch import Batch, BatchResult

RECOVERED = 0.5
"""A suspect is the cause if at least this share of the failed episodes succeeds without it."""

_NOT_FINITE = int(Reason.COMMAND_NOT_FINITE)
_LATE = int(Reason.SENSOR_STALE | Reason.COMMAND_STALE | Reason.DEADLINE_MISSED)


def attribute(
    context: Context, batch: Batch, played: BatchResult
) -> Generator[Sequence[Batch], list[BatchResult], tuple[Cause, str]]:
    """Return the cause of a batch's failures with an explanation.

    Args:
        context: subject and settings of the run.
        batch: a batch with failures.
        played: its result.
    """
    failed = ~played.success | played.violated
    if (played.guard_reasons[failed] & _NOT_FINITE).any():
        return Cause.NUMERICS, "the policy returned a value that is not finite"
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
    if failed.any() and _only_late(played, failed):
        return Cause.TIMING, "the guard acted on samples or commands that were too old"
    return Cause.POLICY, "it fails without delays, too" if suspects else "no cause other than the policy remains"


def _only_late(played: BatchResult, failed: np.ndarray) -> bool:
    flags = played.guard_reasons[failed]
    return bool(((flags & _LATE) != 0).all() and ((flags & ~_LATE) == 0).all())


def _is_quantised(context: Context) -> bool:
    arms = context.subject.arms
    return "float" in arms and arms["float"] != arms["policy"]
