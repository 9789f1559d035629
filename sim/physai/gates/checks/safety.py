"""Gate `safety`: does the policy keep all limits without the guard's help?"""

import numpy as np

from physai.gates.checks.gate import LATE, Context, Gate, GateFinding, Play, failing_cases, limits, reasons
from physai.gates.execution.shadow_facts import shadow_facts, told_shadows
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.safety import Reason
from physai.sdk.stats.statistics import zero_failure_bound, zero_failure_trials
from physai.sim.engines.protocol import Array
from physai.twin.rollouts.batch import Batch, BatchResult, joined

CONDITIONS = ("calibrated", "measured")
"""Conditions without pushes and payload, in which no violation is acceptable."""


class SafetyGate(Gate):
    """Looks for a violation in the episodes of `success` and of `robustness` under measured conditions."""

    name = "safety"
    question = "Does it keep all limits without the guard's help?"

    def method(self, context: Context) -> str:
        return (
            "Checks the true state and the commands of every control period against the contract's envelope, and "
            f"counts interventions of the guard, in episodes of {' and '.join(CONDITIONS)}. A late command that the "
            "guard bridges by repeating the last one is not a violation. Also measures the share of control periods "
            "with a saturated command."
            f"{told_shadows(context.shadows)}"
        )

    def threshold(self, context: Context) -> str:
        settings = context.settings.safety
        return (
            f"no violation in {episodes_needed(context)} episodes, which excludes a rate of {settings.rate:.1%}; "
            f"commands saturated in at most {settings.max_saturated:.0%} of the control periods"
        )

    def most_episodes(self, context: Context) -> int:
        return context.settings.safety.max_episodes

    def play(self, context: Context) -> Play:
        pairs: list[tuple[Batch, BatchResult]] = []
        needed, count = episodes_needed(context), 0
        # One violation decides the gate, so nothing is gained by playing on.
        while count < needed and not any(played.violated.any() for _, played in pairs):
            number = len(pairs) // len(CONDITIONS)
            batches = [context.batch(number, context.conditions[name]) for name in CONDITIONS]
            answers = yield batches
            pairs += zip(batches, answers, strict=True)
            count = sum(len(played) for _, played in pairs)
        played = joined(tuple(part for _, part in pairs))
        violated = int(played.violated.sum())
        finding = GateFinding(
            outcome=VerdictOutcome.PASS,
            measured=[*_measured(context, played), *shadow_facts(context.shadows)],
            episodes=count,
            seeds=context.seed_range(count // len(CONDITIONS)),
            # The probability of no violation in `count` episodes at the rate to exclude.
            p_value=(1.0 - context.settings.safety.rate) ** count,
            chart={
                "joints": list(context.subject.task.contract.robot.joint_names),
                "used": {name: [_worst(column) for column in usage.T] for name, usage in _usages(played).items()},
                "saturated": _saturated(played),
            },
        )
        if violated:
            flags = int(np.bitwise_or.reduce(played.guard_reasons))
            broken = int(np.bitwise_or.reduce(played.broken_limits))
            finding.cases = failing_cases(context, iter(pairs), "violated")
            _fail(finding, _cause(flags, broken))
            finding.message = _message(context, played, flags, broken)
        elif not _saturated(played) <= context.settings.safety.max_saturated:
            _fail(finding, Cause.POLICY)
            finding.message = (
                f"A command is saturated in {_saturated(played):.0%} of the control periods, at most "
                f"{context.settings.safety.max_saturated:.0%} are allowed: bang-bang control heats and wears the "
                "drives and leaves no margin for disturbances."
            )
            finding.next_step = "penalise the command and its rate of change in training, and check the action scale"
        return finding


def _fail(finding: GateFinding, cause: Cause) -> None:
    finding.outcome, finding.cause, finding.p_value = VerdictOutcome.FAIL, cause, 1.0
    finding.next_step = _NEXT_STEP[cause]


def _saturated(played: BatchResult) -> float:
    return float(played.saturated.mean())


_NEXT_STEP = {
    Cause.POLICY: "watch the counterexample; penalise motion near the limit in training, or narrow the commands",
    Cause.NUMERICS: "find the source of the non-finite output: weights, a division, or an input beyond its range",
    Cause.TIMING: "meet the contract's sensor age and command time on the robot, or relax the contract",
}


def episodes_needed(context: Context) -> int:
    """Return how many episodes without a violation exclude the rate."""
    return zero_failure_trials(context.settings.safety.rate, confidence=1.0 - context.settings.gate_alpha)


def _cause(flags: int, broken: int) -> Cause:
    if flags & Reason.COMMAND_NOT_FINITE:
        return Cause.NUMERICS
    # Only when nothing else went wrong: a real violation must not be excused by a late sample.
    if flags and not broken and not flags & ~LATE:
        return Cause.TIMING
    return Cause.POLICY


def _message(context: Context, played: BatchResult, flags: int, broken: int) -> str:
    parts: list[str] = []
    if flags:
        excess = float(played.guard_excess.max(initial=0.0))
        amount = f", by up to {excess:.3g} rad, m, N·m or N" if excess > 0.0 else ""
        parts.append(f"the guard had to intervene ({reasons(flags)}{amount})")
    if broken:
        parts.append(f"{limits(broken)} limits were violated{_most_used(context, played)}")
    if played.diverged.any():
        parts.append(f"the physics diverged in {int(played.diverged.sum())}")
    return f"{int(played.violated.sum())} of {len(played)} episodes have a violation: {'; '.join(parts)}."


def _most_used(context: Context, played: BatchResult) -> str:
    """Name the joint that went furthest beyond a limit; empty if none with a known limit did."""
    names = context.subject.task.contract.robot.joint_names
    worst = [
        (float(column.max()), kind, name)
        for kind, usage in _usages(played).items()
        for name, column in zip(names, usage.T, strict=True)
        if np.isfinite(column).all()
    ]
    share, kind, name = max(worst, default=(0.0, "", ""))
    return f", most by the {kind} of {name}: {share:.0%} of its limit" if share > 1.0 else ""


def _measured(context: Context, played: BatchResult) -> list[Measurement]:
    settings, confidence = context.settings.safety, 1.0 - context.settings.gate_alpha
    measured = [Measurement(name="violations", value=float(played.violated.sum()), threshold=0.0)]
    if not played.violated.any():
        upper = zero_failure_bound(len(played), confidence=confidence)
        measured.append(
            Measurement(name="violation_rate", value=0.0, upper=upper, confidence=confidence, threshold=settings.rate)
        )
    measured += [
        Measurement(name="guard_interventions", value=float((played.guard_step >= 0).sum()), threshold=0.0),
        Measurement(name="broken_limits", value=float((played.broken_step >= 0).sum()), threshold=0.0),
    ]
    for name, usage in _usages(played).items():
        if np.isfinite(usage).any():
            measured.append(Measurement(name=f"{name}_limit_used", value=float(np.nanmax(usage)), threshold=1.0))
    measured.append(Measurement(name="saturated", value=_saturated(played), threshold=settings.max_saturated))
    return measured


def _usages(played: BatchResult) -> dict[str, Array]:
    return {"position": played.pos_usage, "speed": played.vel_usage, "effort": played.effort_usage}


def _worst(column: Array) -> list[float] | None:
    """Median and maximum use of a limit over the episodes; None without a limit."""
    return [float(np.median(column)), float(column.max())] if np.isfinite(column).all() else None
