"""Gate `success`: does the policy complete its task on the robot as calibrated from logs?"""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from physai.gates.checks.field_rate import add_field_rate
from physai.gates.checks.gate import (
    LATE,
    Context,
    Gate,
    GateFinding,
    Play,
    RateRun,
    failing_cases,
    more_episodes,
    run_rate_test,
)
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sdk.safety import Reason
from physai.twin.model.conditions import Condition
from physai.twin.model.credibility import lag_doubt
from physai.twin.model.measured_task import sensor_age
from physai.twin.rollouts.batch import Batch, BatchResult

RECOVERED = 0.5
"""A suspect is the cause if at least this share of the failed episodes succeeds without it."""

NEXT_STEP = {
    Cause.POLICY: "watch the counterexample; train on the calibrated twin's parameters, noise and delay, or longer",
    Cause.TIMING: "train with the measured delay (task's action_delay), or shorten the robot's delay",
    Cause.NUMERICS: "see the parity gate: quantise with more calibration states or keep float32",
    Cause.TWIN: "record what constrains them: physai sim excite TWIN --for PARAMETER… writes commands that do; then "
    "calibrate again",
    Cause.CONTRACT: "export again from the right contract",
}
"""Advice for a policy that fails its task, by cause."""
RECORD_LAG = (
    "record commands that change in steps in at least two recordings (physai sim record --steps 0.1 shows such "
    "commands), then calibrate again"
)
"""Advice where failures hang on a lag that is not tested."""


class SuccessGate(Gate):
    """Plays episodes with parameters from the twin's posterior and tests the success rate sequentially."""

    name = "success"
    question = "Does it complete its task on the calibrated robot?"

    def method(self, context: Context) -> str:
        condition, field = context.conditions["calibrated"], context.field
        robot = "" if field is None else f" Field episodes of {field.robot}, SHA-256 {field.sha256}, inform only."
        return (
            "Each episode draws the twin's parameters from the posterior and its command delay from "
            f"{1e3 * condition.lag_lower_s:.1f} to {1e3 * condition.lag_upper_s:.1f} ms, with measured noise and the "
            "guard in the loop. An episode succeeds if all of its judgements do. Sequential likelihood-ratio test, "
            f"valid under optional stopping.{robot}"
        )

    def threshold(self, context: Context) -> str:
        settings = context.settings.success
        alpha, early = context.settings.alpha, context.settings.gate_alpha
        return (
            f"success rate significantly above {settings.target:.0%}: at level {early:g}, or at the end of the budget "
            f"at the level that Holm's correction leaves of {alpha:g}"
        )

    def most_episodes(self, context: Context) -> int:
        return context.settings.success.max_episodes

    def play(self, context: Context) -> Play:
        settings, subject = context.settings.success, context.subject
        if context.field is not None:
            model = subject.task.contract.robot.name
            context.field.require_subject(subject.policy_sha256, subject.policy().fingerprint, model)
        run = yield from run_rate_test(context, context.conditions["calibrated"], settings)
        played = run.all
        finding = GateFinding(
            outcome=run.test.outcome,
            measured=[run.measurement("success_rate", settings.target)],
            episodes=run.test.trials,
            seeds=context.seed_range(run.test.trials),
            p_value=run.test.p_value,
            chart={
                "success": played.success.astype(int).tolist(),
                "held": played.held.tolist(),
                "length_s": played.length_s.tolist(),
            },
        )
        if context.field is not None:
            yield from add_field_rate(context, context.field, run, finding)
        if run.test.outcome is VerdictOutcome.PASS:
            return finding
        yield from explain(
            context,
            finding,
            run,
            target=settings.target,
            failures=f"{run.test.successes} of {run.test.trials} episodes succeed",
        )
        return finding


def explain(
    context: Context, finding: GateFinding, run: RateRun, *, target: float, failures: str, suspected: bool = True
) -> Generator[Sequence[Batch], list[BatchResult], None]:
    """Complete the finding of a rate test that does not pass: episodes, cause, message and next step.

    Args:
        context: subject and settings of the run.
        finding: the finding to complete.
        run: the rate test.
        target: its target.
        failures: start of the message.
        suspected: whether numerics and timing are possible causes; otherwise it is the policy, or the twin.
    """
    finding.cases = failing_cases(context, zip(run.batches, run.played, strict=True))
    if run.test.outcome is VerdictOutcome.INCONCLUSIVE:
        finding.message = f"{failures}, which is neither significantly above nor below {target:.0%}."
        finding.next_step = more_episodes(run.test)
        return
    cause, reason = Cause.POLICY, "the policy does not tolerate this perturbation"
    # The first batch may be one without a failure.
    parts = zip(run.batches, run.played, strict=True)
    batch, played = next(part for part in parts if (~part[1].success | part[1].violated).any())
    if suspected:
        cause, reason = yield from attribute(context, batch, played)
    next_step = NEXT_STEP[cause]
    if cause in (Cause.POLICY, Cause.TIMING):
        lag = yield from untested_lag(context, batch, played)
        hangs = lag or (yield from unconstrained(context, batch, played))
        if hangs:
            cause, reason, next_step = Cause.TWIN, hangs, RECORD_LAG if lag else NEXT_STEP[Cause.TWIN]
            # The recordings allow robots on which the policy succeeds, and do not say which of them this one is.
            finding.outcome = VerdictOutcome.INCONCLUSIVE
    finding.cause = cause
    finding.message = f"{failures}, the target is {target:.0%}; {reason}."
    finding.next_step = next_step


def attribute(
    context: Context, batch: Batch, played: BatchResult
) -> Generator[Sequence[Batch], list[BatchResult], tuple[Cause, str]]:
    """Return the cause of a batch's failures with an explanation, by replaying them without one suspect (ablation).

    Args:
        context: subject and settings of the run.
        batch: a batch with failures.
        played: its result.
    """
    failed = ~played.success | played.violated
    if (played.guard_reasons[failed] & int(Reason.COMMAND_NOT_FINITE)).any():
        return Cause.NUMERICS, "the policy returned a value that is not finite"
    suspects: list[tuple[Cause, str, Batch]] = []
    arms = context.subject.arms
    # Equal bytes: the policy under test is the float graph itself.
    if batch.arm == "policy" and "float" in arms and arms["float"] != arms["policy"]:
        suspects.append((Cause.NUMERICS, "the float graph succeeds where this one fails", replace(batch, arm="float")))
    condition = batch.condition
    # The same seeds without any delay: what then still fails is not caused by timing.
    prompt = replace(condition, name="no-delay", lag_lower_s=0.0, lag_upper_s=0.0, sensor_lag_scale=0.0, late_periods=0)
    task = context.subject.task
    aged = sensor_age(task, context.subject.twin).at(task.contract.timing.control_dt).upper_s > 0.0
    if condition.lag_upper_s > 0.0 or condition.late_periods or aged:
        suspects.append((Cause.TIMING, "without delays the same episodes succeed", replace(batch, condition=prompt)))
    if suspects:
        answers = yield [suspect for _, _, suspect in suspects]
        for (cause, text, _), answer in zip(suspects, answers, strict=True):
            share = float(np.mean((answer.success & ~answer.violated)[failed]))
            if share >= RECOVERED:
                return cause, f"{text} ({share:.0%} of those that failed)"
    flags = played.guard_reasons[failed]
    if len(flags) and bool(((flags & LATE) != 0).all() and ((flags & ~LATE) == 0).all()):
        return Cause.TIMING, "the guard acted on samples or commands that were too old"
    return Cause.POLICY, "it fails without delays, too" if suspects else "no cause other than the policy remains"


def untested_lag(
    context: Context, batch: Batch, played: BatchResult
) -> Generator[Sequence[Batch], list[BatchResult], str]:
    """Return why the failures of a batch hang on a lag that the held-out recordings do not test; empty if they do not.

    The failed episodes are played again with the lag that the twin states, and with the shortest one that is open.
    """
    drawn, stated = batch.condition, replace(batch.condition, **tested_lag(context, batch.condition))
    others = [] if stated == drawn else [stated]
    if context.doubts_lags and lag_doubt(context.subject.twin)[0]:
        # Twice as long where the condition's is.
        scale = stated.lag_upper_s / (context.tested_conditions["measured"].lag_upper_s or 1.0)
        least_s = scale * context.conditions["calibrated"].lag_lower_s
        others.append(replace(stated, lag_lower_s=least_s, lag_upper_s=least_s))
    if not others:
        return ""
    failed = ~played.success | played.violated
    rows = np.flatnonzero(failed).tolist()
    values = None if not played.values.size else tuple(tuple(played.values[row].tolist()) for row in rows)
    again = replace(batch, seeds=tuple(batch.seeds[row] for row in rows), values=values, visits=0)
    answers = yield [replace(again, condition=condition) for condition in others]
    for condition, answer in zip(others, answers, strict=True):
        share = float(np.mean(answer.success & ~answer.violated))
        if share >= RECOVERED:
            return (
                f"{share:.0%} of those that failed succeed with a command lag of {1e3 * condition.lag_upper_s:.1f} ms "
                f"in place of up to {1e3 * drawn.lag_upper_s:.1f} ms: no held-out recording tells them apart"
            )
    return ""


def tested_lag(context: Context, condition: Condition) -> dict[str, float]:
    """Return the ends of a condition's delay without those that the held-out recordings do not test, by field."""
    # Falsification plays under `measured` by another name.
    name = condition.name if condition.name in context.tested_conditions else "measured"
    return _lag(context.tested_conditions[name])


def _lag(condition: Condition) -> dict[str, float]:
    return {"lag_lower_s": condition.lag_lower_s, "lag_upper_s": condition.lag_upper_s}


def unconstrained(
    context: Context, batch: Batch, played: BatchResult
) -> Generator[Sequence[Batch], list[BatchResult], str]:
    """Return why the failures of a batch hang on parameters that the recordings do not constrain; empty if they do not.

    The failed episodes are played again on robots as consistent with the recordings, with those parameters at their
    nominal values; see `Twin.at_nominal`.
    """
    twin, failed = context.subject.twin, ~played.success | played.violated
    if not twin.unconstrained or batch.condition.spread == 0.0 or batch.engine != "mujoco":
        return ""
    rows = np.flatnonzero(failed)
    values = twin.at_nominal(played.values[rows])
    seeds = tuple(batch.seeds[row] for row in rows.tolist())
    again = replace(batch, seeds=seeds, values=tuple(tuple(row) for row in values.tolist()), visits=0)
    (answer,) = yield [again]
    share = float(np.mean(answer.success & ~answer.violated))
    if share < RECOVERED:
        return ""
    return (
        f"{share:.0%} of those that failed succeed with {_most_different(context, played)} at the nominal value: the "
        "recordings do not constrain it"
    )


def _most_different(context: Context, played: BatchResult) -> str:
    """Name the unconstrained parameter that differs most between failed and other episodes."""
    twin = context.subject.twin
    failed = ~played.success | played.violated
    best, most = "", -1.0
    for column, parameter in enumerate(twin.parameters):
        if parameter.identified:
            continue
        offset = (played.values[:, column] - parameter.prior) / parameter.prior_std
        # Without any success, how far the failed episodes are from the nominal value is all there is to compare.
        others = float(offset[~failed].mean()) if (~failed).any() else 0.0
        difference = abs(float(offset[failed].mean()) - others)
        if difference > most:
            best, most = parameter.name, difference
    rest = len(twin.unconstrained) - 1
    return f"{best} and {rest} more" if rest else best
