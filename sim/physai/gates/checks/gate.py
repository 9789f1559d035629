"""Gate interface: question, method, threshold, and a generator that requests episodes and returns a finding."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from physai.gates.execution.subject import ValidationSubject
from physai.gates.settings import ConditionSettings, GateSettings, RateSettings
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.evidence.field_episodes import FieldEpisodes
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.origin import Origin, OriginKind, is_unit_of
from physai.sdk.evidence.requirements import REMEDIES
from physai.sdk.evidence.shadow import ShadowEvidence
from physai.sdk.evidence.verdict import NOT_APPLICABLE, Cause, Measurement, SeedRange, VerdictOutcome
from physai.sdk.safety import Reason
from physai.sdk.signing.ed25519 import PublicKey
from physai.sdk.signing.evidence import EvidenceFile, unsigned_remedy, vouched_origin
from physai.sdk.signing.exam import ExamSubject
from physai.sdk.stats.sequential import RateTest
from physai.sdk.stats.statistics import clopper_pearson
from physai.sim.engines.protocol import Array
from physai.twin.model.conditions import Condition, conditions
from physai.twin.parameters.models import covariance_root
from physai.twin.rollouts.batch import (
    VERDICT_STREAM,
    Arm,
    Batch,
    BatchResult,
    joined,
    seeds_of,
)
from physai.twin.rollouts.rollout import EFFORT, POSITION, SPEED

MAX_CASES = 8
"""Maximum number of failing episodes in a finding."""

LATE = int(Reason.SENSOR_STALE | Reason.COMMAND_STALE | Reason.DEADLINE_MISSED)
"""Reasons of the guard that are caused by timing, not by the policy's output."""


@dataclass(frozen=True)
class FailedEpisode:
    """An episode that failed."""

    batch: Batch
    row: int
    """Index of the episode in the batch."""
    size: float
    """Distance of its parameters from the fitted ones, in standard deviations per parameter."""
    step: int | None
    """Control period of the failure; None if only the final result is a failure."""
    description: str
    parameters: dict[str, float]

    @property
    def seed(self) -> int:
        return self.batch.seeds[self.row]

    @property
    def alone(self) -> Batch:
        """The batch of this episode only."""
        values = None if self.batch.values is None else (self.batch.values[self.row],)
        return replace(self.batch, seeds=(self.seed,), values=values, visits=0, early_s=0.0)

    @property
    def episode(self) -> str:
        """SHA-256 of what happens: conditions of two names are the same if their numbers are."""
        return replace(self.alone, condition=replace(self.batch.condition, name="")).key


@dataclass(kw_only=True)
class GateFinding:
    """Result of a gate before corrections."""

    outcome: VerdictOutcome
    measured: list[Measurement] = field(default_factory=list[Measurement])
    """The deciding measurement first."""
    message: str = ""
    next_step: str = ""
    cause: Cause | None = None
    episodes: int = 0
    seeds: tuple[SeedRange, ...] = ()
    p_value: float | None = None
    """For the null hypothesis that the policy should not pass; None for gates without a test."""
    cases: tuple[FailedEpisode, ...] = ()
    chart: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON data of the report's plots."""

    @property
    def shown(self) -> str:
        """See `GateResult.shown`."""
        idle = self.outcome is VerdictOutcome.PASS and not self.measured and not self.episodes
        return NOT_APPLICABLE if idle else self.outcome.value


def undecided(message: str, next_step: str) -> GateFinding:
    """Return the finding of a gate that cannot be tested."""
    return GateFinding(outcome=VerdictOutcome.INCONCLUSIVE, message=message, next_step=next_step)


Play = Generator[Sequence[Batch], list[BatchResult], GateFinding]
"""Yields batches to play, receives their results, returns a finding."""


@dataclass(frozen=True)
class Context:
    """Input of every gate."""

    subject: ValidationSubject
    settings: GateSettings
    accept: tuple[OriginKind, ...] = ("robot",)
    """Origins of evidence that may let a gate pass."""
    validators: tuple[PublicKey, ...] = ()
    """Validators whose signatures vouch for a robot's evidence."""
    doubts_lags: bool = True
    """Whether lags are played that the twin's held-out recordings do not exclude; records of older versions do not."""
    field: FieldEpisodes | None = None
    """Episodes on the robot and their replays, which give its success rate; no outcome depends on them."""
    shadows: tuple[ShadowEvidence, ...] = ()
    """Runs of the policy as a shadow on robots; no outcome depends on them."""

    @cached_property
    def conditions(self) -> dict[str, Condition]:
        """The test conditions by name."""
        return self._conditions(doubtful_lags=self.doubts_lags)

    @cached_property
    def tested_conditions(self) -> dict[str, Condition]:
        """The same with the delays that the twin's held-out recordings test."""
        return self._conditions(doubtful_lags=False)

    def _conditions(self, *, doubtful_lags: bool) -> dict[str, Condition]:
        scales = self.settings.robustness
        return conditions(
            self.subject.task,
            self.subject.twin,
            push_scale=scales.push_scale,
            payload_fraction=scales.payload_fraction,
            doubtful_lags=doubtful_lags,
        )

    @property
    def stream(self) -> int:
        """Stream of the verdict's seeds."""
        return self.subject.stream(VERDICT_STREAM)

    @property
    def examined(self) -> ExamSubject:
        """Subject that an exam is opened for.

        Raises:
            PolicyError: the policy is malformed.
            ContractError: its contract is.
        """
        subject = self.subject
        return ExamSubject(
            policies={arm: sha256_hex(data) for arm, data in subject.arms.items()},
            contract=subject.policy().fingerprint,
            twin=subject.twin.signed_hash,
            settings=self.settings.sha256,
        )

    @cached_property
    def twin_origin(self) -> Origin:
        """Origin of the twin; unknown for a robot's without a validator's signature."""
        twin = self.subject.twin
        return vouched_origin(twin.origin, "twin", twin.signed_hash, twin.signature, self.validators)

    def latency_origin(self, ticks: LatencyEvidence) -> Origin:
        """Return the origin of tick times; unknown for a robot's without a validator's signature."""
        return vouched_origin(ticks.origin, "latency", ticks.sha256, ticks.signature, self.validators)

    def doubt(self, what: EvidenceFile, stated: Origin, origin: Origin) -> tuple[str, str]:
        """Return why evidence cannot let a gate pass, and what to do; both empty if it can.

        Args:
            what: kind of evidence.
            stated: origin that its file states.
            origin: origin that counts.
        """
        accept = f"or accept it: `--accept {origin.kind}`"
        if origin.kind not in self.accept and origin != stated:
            doubt = f"The {what} states that it is from {stated}, but no validator of the trust file signed it."
            return doubt, f"{unsigned_remedy(what)}; {accept}"
        remedy = f"{REMEDIES[what]}; {accept}"
        if origin.kind not in self.accept:
            return f"The {what} comes from {origin}, which is no evidence about the robot.", remedy
        model = self.subject.task.contract.robot.name
        if origin.robot is not None and not is_unit_of(origin.robot, model):
            return f"The {what} comes from {origin}, but the policy is for {model}.", remedy
        return "", ""

    def batch(
        self,
        number: int,
        condition: Condition,
        *,
        arm: Arm = "policy",
        count: int | None = None,
        engine: str = "mujoco",
    ) -> Batch:
        """Return batch `number` of a condition; its seeds depend on the number only."""
        size = self.settings.batch
        seeds = seeds_of(self.stream, number * size, size if count is None else count)
        return Batch(arm=arm, condition=condition, seeds=seeds, engine=engine, early_s=self.settings.engine.early_s)

    def seed_range(self, count: int) -> tuple[SeedRange, ...]:
        """Return the range of the verdict's first `count` seeds."""
        return (SeedRange(stream=str(self.stream), count=count),) if count else ()

    def parameters(self, values: Array, condition: Condition, lag_s: float) -> dict[str, float]:
        """Return an episode's twin parameters and perturbations by name."""
        twin = self.subject.twin
        named = {p.name: float(value) for p, value in zip(twin.parameters, values, strict=True)}
        named["command_lag_s"] = float(lag_s)
        if condition.noise_scale != 1.0:
            named["noise_scale"] = condition.noise_scale
        if condition.late_periods:
            named["late_periods"] = float(condition.late_periods)
        if condition.push_scale:
            named["push_scale"] = condition.push_scale
        if condition.payload_kg:
            named["payload_kg"] = condition.payload_kg
        return named

    @cached_property
    def _whitening(self) -> Array:
        # Pseudo-inverse: parameters without variance do not count.
        return np.linalg.pinv(covariance_root(self.subject.twin.covariance))

    def size(self, values: Array) -> Array:
        """Return the distance of parameters, shape (n, P), from the fitted ones in standard deviations per parameter.

        This is the Mahalanobis distance over the square root of P.
        """
        twin = self.subject.twin
        if not twin.parameters:
            return np.zeros(len(values))
        # Divided by √P, so that a typical draw has size 1 whatever the number of parameters.
        return np.linalg.norm((values - twin.values) @ self._whitening.T, axis=1) / np.sqrt(len(twin.parameters))


class Gate(ABC):
    """One test of a policy."""

    name: ClassVar[str]
    question: ClassVar[str]
    rests_on_twin: ClassVar[bool] = True
    """Whether its result is meaningful only in a credible twin."""

    @abstractmethod
    def method(self, context: Context) -> str:
        """Describe how the question is answered."""

    @abstractmethod
    def threshold(self, context: Context) -> str:
        """Describe the acceptance rule."""

    @abstractmethod
    def play(self, context: Context) -> Play:
        """Request episodes and return the finding."""

    def most_episodes(self, context: Context) -> int:
        """Return the maximum number of episodes, for the progress table."""
        return 0


class DirectGate(Gate):
    """A gate without episodes."""

    @abstractmethod
    def check(self, context: Context) -> GateFinding:
        """Return the finding."""

    def play(self, context: Context) -> Play:
        """Return the finding without requesting episodes."""
        yield from ()  # makes this a generator
        return self.check(context)


@dataclass
class RateRun:
    """Progress of a sequential test of a success rate."""

    test: RateTest
    batches: list[Batch]
    played: list[BatchResult]

    @property
    def all(self) -> BatchResult:
        """All episodes as one result."""
        return joined(tuple(self.played))

    def measurement(self, name: str, target: float) -> Measurement:
        """Return the rate with a 95 % interval that is valid under optional stopping."""
        lower, upper = self.test.interval(confidence=0.95)
        value = self.test.successes / max(1, self.test.trials)
        return Measurement(name=name, value=value, lower=lower, upper=upper, confidence=0.95, threshold=target)


def run_rate_test(
    context: Context,
    condition: Condition,
    settings: RateSettings | ConditionSettings,
    *,
    arm: Arm = "policy",
) -> Generator[Sequence[Batch], list[BatchResult], RateRun]:
    """Play batches until the test is decided or its budget is spent."""
    run = RateRun(RateTest(settings.target, settings.margin, alpha=context.settings.gate_alpha), [], [])
    # The test is valid at every look, so it may stop as soon as it is decided.
    while run.test.outcome is VerdictOutcome.INCONCLUSIVE and run.test.trials < settings.max_episodes:
        count = min(context.settings.batch, settings.max_episodes - run.test.trials)
        batch = context.batch(len(run.batches), condition, arm=arm, count=count)
        (played,) = yield [batch]
        run.batches.append(batch)
        run.played.append(played)
        run.test.add(played.successes, len(played))
    return run


def rate_measurement(name: str, successes: int, trials: int, *, threshold: float | None = None) -> Measurement:
    """Return the rate over a fixed number of episodes with its exact two-sided 95 % interval."""
    lower, upper = clopper_pearson(successes, trials)
    return Measurement(
        name=name,
        value=successes / max(1, trials),
        lower=lower,
        upper=upper,
        confidence=0.95,
        threshold=threshold,
    )


def more_episodes(test: RateTest) -> str:
    """Return what would decide an undecided test."""
    more = test.more_to_pass
    if more is None or more > 1_000_000:
        return f"more episodes only help a policy with a rate above {test.least_rate:.1%}; improve the policy"
    return f"needs {more} more episodes at the observed rate; raise max_episodes to {test.trials + more}"


def failing_cases(
    context: Context, pairs: Iterator[tuple[Batch, BatchResult]], failed: str = "success"
) -> tuple[FailedEpisode, ...]:
    """Return up to MAX_CASES failing episodes, least perturbed first.

    Args:
        context: subject and settings of the run.
        pairs: batches and their results.
        failed: `success` for episodes that missed the task's criterion, `violated` for those with a violation.
    """
    cases: list[FailedEpisode] = []
    for batch, played in pairs:
        wrong = ~played.success if failed == "success" else played.violated
        sizes = context.size(played.values)
        for row in np.flatnonzero(wrong).tolist():
            step, what = describe(context, played, row)
            parameters = context.parameters(played.values[row], batch.condition, float(played.lag_s[row]))
            cases.append(
                FailedEpisode(batch, row, float(sizes[row]), step, f"{batch.condition.name}: {what}", parameters)
            )
    return tuple(sorted(cases, key=lambda case: case.size)[:MAX_CASES])


def describe(context: Context, played: BatchResult, row: int) -> tuple[int | None, str]:
    """Return when and how an episode failed."""
    dt = context.subject.task.contract.timing.control_dt
    guard, broken = int(played.guard_step[row]), int(played.broken_step[row])
    if guard >= 0 and (broken < 0 or guard <= broken):
        return guard, f"the guard intervened after {guard * dt:.3f} s ({reasons(int(played.guard_reasons[row]))})"
    if broken >= 0:
        return broken, f"{limits(int(played.broken_limits[row]))} limit violated after {broken * dt:.3f} s"
    if played.diverged[row]:
        return None, f"the physics diverged after {float(played.length_s[row]):.3f} s"
    length = float(played.length_s[row])
    if length < context.subject.task.episode_length_s - dt:
        return round(length / dt), f"failed after {length:.3f} s"
    return None, f"criterion not met at the end; it held for {float(played.held[row]):.0%} of the episode"


def reasons(flags: int) -> str:
    """Describe the guard's reasons in words."""
    named = [(reason.name or "").lower().replace("_", " ") for reason in Reason if flags & reason]
    return ", ".join(named) or "none"


def limits(bits: int) -> str:
    """Describe violated limits in words."""
    names = {POSITION: "position", SPEED: "speed", EFFORT: "effort"}
    return " and ".join(name for bit, name in names.items() if bits & bit)
