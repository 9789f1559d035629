"""Gate `success`: does the policy complete its task on the robot as calibrated from logs?"""

from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.sim.gates.checks.attribution import attribute
from physai.sim.gates.checks.gate import (
    Context,
    Gate,
    GateFinding,
    Play,
    RateRun,
    failing_cases,
    more_episodes,
    run_rate_test,
)


class SuccessGate(Gate):
    """Plays episodes with parameters from the twin's posterior and tests the success rate sequentially."""

    name = "success"
    question = "Does it complete its task on the calibrated robot?"

    def method(self, context: Context) -> str:
        condition = context.conditions["calibrated"]
        return (
            "Each episode draws the twin's parameters from the posterior and its command delay from "
            f"{1e3 * condition.lag_lower_s:.1f} to {1e3 * condition.lag_upper_s:.1f} ms, with measured noise and the "
            "guard in the loop. An episode succeeds if all of its judgements do. Sequential likelihood-ratio test, "
            "valid under optional stopping."
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
        settings = context.settings.success
        run = yield from run_rate_test(context, context.conditions["calibrated"], settings)
        finding = GateFinding(
            outcome=run.test.outcome,
            measured=[run.measurement("success_rate", settings.target)],
            episodes=run.test.trials,
            seeds=context.seed_range(run.test.trials),
            p_value=run.test.p_value,
            chart=_chart(run),
        )
        if run.test.outcome is VerdictOutcome.PASS:
            return finding
        rate = f"{run.test.successes} of {run.test.trials} episodes succeed"
        finding.cases = failing_cases(context, zip(run.batches, run.played, strict=True))
        if run.test.outcome is VerdictOutcome.INCONCLUSIVE:
            finding.message = f"{rate}, which is neither significantly above nor below {settings.target:.0%}."
            finding.next_step = more_episodes(run.test)
            return finding
        cause, reason = yield from attribute(context, run.batches[0], run.played[0])
        finding.cause = cause
        finding.message = f"{rate}, the target is {settings.target:.0%}; {reason}."
        finding.next_step = NEXT_STEP[cause]
        return finding


NEXT_STEP = {
    Cause.POLICY: "watch the counterexample; train on the calibrated twin's parameters, noise and delay, or longer",
    Cause.TIMING: "train with the measured delay (task's action_delay), or shorten the robot's delay",
    Cause.NUMERICS: "see the parity gate: quantise with more calibration states or keep float32",
    Cause.TWIN: "calibrate the twin again",
    Cause.CONTRACT: "export again from the right contract",
}
"""Advice for a policy that fails its task, by cause."""


def _chart(run: RateRun) -> dict[str, object]:
    played = run.all
    return {
        "success": played.success.astype(int).tolist(),
        "held": played.held.tolist(),
        "length_s": played.length_s.tolist(),
    }
