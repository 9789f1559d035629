"""Gate `non-inferiority`: is the quantised graph as good as the float one, and the policy as good as older ones?

Older ones are the baseline that the user gives, and the policy that it was fine-tuned from by preferences.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from physai.gates.checks.gate import Context, Gate, GateFinding, Play, failing_cases, undecided
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome, combine
from physai.sdk.policy.header import POLICY_FILE
from physai.sdk.stats.paired import PairedTest, anytime_drop, mcnemar_exact
from physai.sim.policies.resolve import REFERENCE_FOLDER
from physai.twin.rollouts.batch import Arm, Batch, BatchResult


class NonInferiorityGate(Gate):
    """Plays both graphs in the same episodes and counts the discordant pairs."""

    name = "non-inferiority"
    question = "Is it as good as float, the baseline, and what it was fine-tuned from?"

    def method(self, context: Context) -> str:
        compared = pairs(context)
        if not compared:
            return "Nothing to compare: no quantised file next to the policy and no older policy."
        text = ", ".join(f"{new} against {old}" for new, old in compared)
        return (
            f"{text}: the same seeds for both. The drop of the success rate is tested sequentially against the margin, "
            "using the pairs whose outcomes differ."
        )

    def threshold(self, context: Context) -> str:
        return f"drop of success rate shown to be below {context.settings.non_inferiority.margin:.0%}"

    def most_episodes(self, context: Context) -> int:
        return 2 * len(pairs(context)) * context.settings.non_inferiority.max_episodes

    def play(self, context: Context) -> Play:
        compared = pairs(context)
        stated = context.subject.preferences
        if stated is not None and stated.reference is not None and "reference" not in context.subject.arms:
            return undecided(
                f"The policy was fine-tuned by preferences from the policy with SHA-256 {stated.reference}, which is "
                "not here to be compared with.",
                f"give it: --reference {REFERENCE_FOLDER}/{POLICY_FILE} of the fine-tuned run folder",
            )
        if not compared:
            return GateFinding(
                outcome=VerdictOutcome.PASS,
                message="Nothing to compare: the float graph itself will run, and no baseline was given.",
            )
        runs: list[_Pairs] = []
        for new, old in compared:
            runs.append((yield from _compare(context, new, old)))
        outcome = combine(run.test.outcome for run in runs)
        count = sum(run.test.pairs for run in runs)
        finding = GateFinding(
            outcome=outcome,
            measured=[measurement for run in runs for measurement in run.measured()],
            episodes=2 * count,
            seeds=context.seed_range(max(run.test.pairs for run in runs)),
            p_value=max(run.test.p_value for run in runs),
            chart={"pairs": [[r.new, r.old, r.test.worse, r.test.better, r.test.pairs] for r in runs]},
        )
        if outcome is not VerdictOutcome.PASS:
            _explain(finding, next(run for run in runs if run.test.outcome is outcome), context)
        return finding


def pairs(context: Context) -> list[tuple[Arm, Arm]]:
    """Return the comparisons to make: (candidate, reference)."""
    arms = context.subject.arms
    comparisons: list[tuple[Arm, Arm]] = []
    if "quantised" in arms:
        comparisons.append(("quantised", "float"))
    if "baseline" in arms:
        comparisons.append(("policy", "baseline"))
    if "reference" in arms:
        comparisons.append(("policy", "reference"))
    return comparisons


_ADVICE: dict[Arm, str] = {
    "float": "quantise with more calibration states, keep sensitive layers in float, or flash float32",
    "baseline": "keep the baseline, or continue training",
    "reference": "fine-tune again with a smaller --weight or --target-kl, or keep the reference",
}
"""What to do if a policy is inferior, by what it is compared with."""


@dataclass
class _Pairs:
    """Outcomes of the same episodes with two graphs."""

    new: Arm
    old: Arm
    test: PairedTest
    played: list[tuple[Batch, BatchResult]] = field(default_factory=list[tuple[Batch, BatchResult]])
    """Batches of the candidate."""

    def add(self, batch: Batch, new: BatchResult, old: BatchResult) -> None:
        worse, better = int((old.success & ~new.success).sum()), int((new.success & ~old.success).sum())
        self.test.add(worse, better, len(new))
        self.played.append((batch, new))

    @property
    def drop(self) -> tuple[float, float, float]:
        """Observed drop of the success rate with its anytime-valid interval."""
        test = self.test
        # The test is one-sided at alpha, which corresponds to an interval with alpha on either side.
        lower, upper = anytime_drop(test.worse, test.better, test.pairs, confidence=1.0 - 2.0 * test.alpha)
        return (test.worse - test.better) / max(1, test.pairs), lower, upper

    def measured(self) -> list[Measurement]:
        value, lower, upper = self.drop
        label = self.old if self.old == "reference" else self.new
        return [
            Measurement(
                name=f"drop.{label}",
                value=value,
                lower=lower,
                upper=upper,
                confidence=1.0 - 2.0 * self.test.alpha,
                threshold=self.test.margin,
            ),
            Measurement(name=f"worse.{label}", value=float(self.test.worse)),
            Measurement(name=f"better.{label}", value=float(self.test.better)),
        ]


def _compare(context: Context, new: Arm, old: Arm) -> Generator[Sequence[Batch], list[BatchResult], _Pairs]:
    """Play pairs until the drop is shown to be below or above the margin, or the budget is spent."""
    settings = context.settings.non_inferiority
    test = PairedTest(settings.margin, alpha=context.settings.gate_alpha)
    run = _Pairs(new, old, test)
    condition = context.conditions["calibrated"]
    while test.outcome is VerdictOutcome.INCONCLUSIVE and test.pairs < settings.max_episodes:
        count = min(context.settings.batch, settings.max_episodes - test.pairs)
        arms = _played_as(context, new), _played_as(context, old)
        batches = [context.batch(len(run.played), condition, arm=arm, count=count) for arm in arms]
        candidate, reference = yield batches
        run.add(batches[0], candidate, reference)
    return run


def _played_as(context: Context, arm: Arm) -> Arm:
    """Return `policy` if the arm has the same bytes, so that no episode is played twice."""
    arms = context.subject.arms
    # A batch is stored by its contents, of which the arm's name is a part.
    return "policy" if arms[arm] == arms["policy"] else arm


def _explain(finding: GateFinding, run: _Pairs, context: Context) -> None:
    test, (drop, _, upper) = run.test, run.drop
    text = (
        f"Of {test.pairs} pairs the {run.new} graph loses {test.worse} that the {run.old} graph wins, and wins "
        f"{test.better} that it loses"
    )
    if test.outcome is VerdictOutcome.INCONCLUSIVE:
        finding.message = f"{text}; the success rate may drop by up to {upper:.1%}, {test.margin:.0%} is accepted."
        finding.next_step = f"raise non_inferiority.max_episodes to about {4 * test.pairs}"
        return
    p_value = mcnemar_exact(test.worse, test.better, alternative="worse")
    finding.cause = Cause.NUMERICS if run.new == "quantised" else Cause.POLICY
    finding.message = f"{text}: a drop of {drop:.1%}, {test.margin:.0%} is accepted (McNemar p = {p_value:.2g})."
    finding.next_step = _ADVICE[run.old]
    finding.cases = failing_cases(context, iter(run.played))
