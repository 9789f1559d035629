"""Gate `robustness`: does the policy tolerate worst-case measured conditions, twice that, pushes and a payload?"""

from collections.abc import Generator, Sequence

from physai.gates.checks.gate import Context, Gate, GateFinding, Play, RateRun, run_rate_test
from physai.gates.checks.success import explain
from physai.gates.settings import ConditionSettings
from physai.sdk.evidence.verdict import VerdictOutcome, combine
from physai.sim.tasks.task import Delay
from physai.twin.model.conditions import Condition
from physai.twin.model.measured_task import sensor_age
from physai.twin.rollouts.batch import Batch, BatchResult

NAMES = ("measured", "twice", "pushes", "payload")
"""Conditions in the order in which they are played and reported."""


class RobustnessGate(Gate):
    """One sequential test per condition; all must pass."""

    name = "robustness"
    question = "Is it robust to delay, noise, jitter, pushes and payload?"

    def method(self, context: Context) -> str:
        return "; ".join(f"{name}: {_described(context, name)}" for name in NAMES) + (
            ". The same seeds as in `success`, one sequential test each."
        )

    def threshold(self, context: Context) -> str:
        targets = ", ".join(f"{name} {_settings(context, name).target:.0%}" for name in NAMES)
        return f"success rates significantly above: {targets}"

    def most_episodes(self, context: Context) -> int:
        return sum(_settings(context, name).max_episodes for name in NAMES)

    def play(self, context: Context) -> Play:
        runs: dict[str, RateRun] = yield from _together(context)
        outcome = combine(run.test.outcome for run in runs.values())
        finding = GateFinding(
            outcome=outcome,
            measured=[
                run.measurement(f"success_rate.{name}", _settings(context, name).target) for name, run in runs.items()
            ],
            episodes=sum(run.test.trials for run in runs.values()),
            seeds=context.seed_range(max(run.test.trials for run in runs.values())),
            p_value=max(run.test.p_value for run in runs.values()),
            chart={"conditions": {name: [run.test.successes, run.test.trials] for name, run in runs.items()}},
        )
        if outcome is VerdictOutcome.PASS:
            return finding
        for worst in (name for name in NAMES if runs[name].test.outcome is outcome):
            run, target = runs[worst], _settings(context, worst).target
            what = _described(context, worst)
            rate = f"Under {worst!r} ({what}) {run.test.successes} of {run.test.trials} episodes succeed"
            finding.outcome = outcome
            # Pushes and a payload come from no recording, so neither delay nor rounding can explain a failure there.
            yield from explain(
                context, finding, run, target=target, failures=rate, suspected=worst in ("measured", "twice")
            )
            # One that fails whatever the unconstrained parameters are decides; the others may hang on these.
            if finding.outcome is outcome:
                break
        return finding


def _settings(context: Context, name: str) -> ConditionSettings:
    return getattr(context.settings.robustness, name)


def _together(context: Context) -> Generator[Sequence[Batch], list[BatchResult], dict[str, RateRun]]:
    """Run the tests concurrently: each round requests the next batch of every undecided test."""
    tests = {name: run_rate_test(context, context.conditions[name], _settings(context, name)) for name in NAMES}
    wanted = {name: list(next(test)) for name, test in tests.items()}
    runs: dict[str, RateRun] = {}
    while wanted:
        # One round for all conditions keeps every worker busy; the number of rounds is that of the slowest test.
        answers = yield [batch for batches in wanted.values() for batch in batches]
        parts = iter(answers)
        for name, batches in list(wanted.items()):
            try:
                wanted[name] = list(tests[name].send([next(parts) for _ in batches]))
            except StopIteration as stop:
                runs[name] = stop.value
                del wanted[name]
    return {name: runs[name] for name in NAMES}


def _described(context: Context, name: str) -> str:
    subject, condition = context.subject, context.conditions[name]
    return describe_condition(condition, sensor_age(subject.task, subject.twin))


def describe_condition(condition: Condition, age: Delay) -> str:
    """Describe a condition in words, with the age of sensor samples before its scale."""
    parts = [f"delay {1e3 * condition.lag_upper_s:.1f} ms"]
    oldest = age.scaled(condition.sensor_lag_scale)
    if oldest != Delay():
        parts.append(f"sensor samples up to {oldest.upper_text} old")
    if condition.noise_scale != 1.0:
        parts.append(f"noise × {condition.noise_scale:g}")
    if condition.late_periods:
        parts.append(f"overruns of {condition.late_periods} periods")
    if condition.push_scale:
        parts.append(f"pushes × {condition.push_scale:g}")
    if condition.payload_kg:
        parts.append(f"payload of {condition.payload_kg:.3g} kg at the tip or base")
    return ", ".join(parts)
