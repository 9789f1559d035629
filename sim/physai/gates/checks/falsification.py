"""Gate `falsification`: can a search over the calibrated range find a robot on which the policy fails?"""

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from physai.gates.checks.gate import Context, Gate, GateFinding, Play, failing_cases, rate_measurement, undecided
from physai.gates.checks.success import NEXT_STEP, RECORD_LAG, untested_lag
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.stats.statistics import clopper_pearson
from physai.sim.engines.protocol import Array
from physai.twin.model.conditions import Condition
from physai.twin.parameters.models import covariance_root
from physai.twin.rollouts.batch import TUNING_STREAM, Batch, BatchResult, seeds_of

SHRINKS = 3
"""Attempts to halve a counterexample's distance from the fitted values."""

SEARCH_SEED = 0xC3AE5


class FalsificationGate(Gate):
    """Searches for a failing robot, then confirms it."""

    name = "falsification"
    question = "Does it succeed on every robot a search can find?"

    def method(self, context: Context) -> str:
        settings = context.settings.falsification
        return (
            f"CMA-ES up to {settings.reach:g} standard deviations from the fitted robot, over the posterior of "
            f"{len(context.subject.twin.parameters)} parameters, at the measured delay's 99th percentile: "
            f"{settings.generations} generations of {settings.population} robots, {settings.seeds} tuning seeds each. "
            f"The worst robot is judged on {settings.confirmations} verdict seeds."
        )

    def threshold(self, context: Context) -> str:
        target = context.settings.falsification.target
        return f"no robot found on which the success rate is significantly below {target:.0%}"

    def most_episodes(self, context: Context) -> int:
        settings = context.settings.falsification
        # A counterexample makes it search again, which is not counted here.
        return settings.generations * settings.population * settings.seeds + settings.confirmations

    def play(self, context: Context) -> Play:
        if not context.subject.twin.parameters:
            return undecided(
                "The twin has no parameters, so there is no range to search.",
                "calibrate the twin on recordings of the robot",
            )
        settings = context.settings.falsification
        region, spared = Region(context), None
        worst, history = yield from _search(context, region)
        batch = _confirmation(context, region, worst)
        (played,) = yield [batch]
        if _fails(context, played) and context.subject.twin.unconstrained:
            # Does it fail only because of what the recordings do not constrain?
            narrower = Region(context, context.subject.twin.constrained_covariance())
            point, more = yield from _search(context, narrower)
            other = _confirmation(context, narrower, point)
            (answer,) = yield [other]
            history += more
            if _fails(context, answer):
                region, worst, batch, played = narrower, point, other, answer
            else:
                spared = answer
        hangs = ""
        if spared is None and _fails(context, played):
            hangs = yield from untested_lag(context, batch, played)
        finding = GateFinding(
            outcome=VerdictOutcome.PASS,
            measured=_measured(context, region, worst, played),
            episodes=len(history) * settings.population * settings.seeds + len(played),
            seeds=context.seed_range(len(played)),
            chart={"history": history, "size": region.size(worst), "worst": region.named(worst)},
        )
        if spared is not None:
            finding.outcome, finding.cause = VerdictOutcome.INCONCLUSIVE, Cause.TWIN
            finding.cases = failing_cases(context, iter([(batch, played)]))
            finding.message = (
                f"On a robot {region.size(worst):.1f} standard deviations from the fitted one {played.successes} of "
                f"{len(played)} episodes succeed: {region.text(worst)}. It hangs on {_unconstrained(context)}, which "
                "the recordings do not constrain: with the nominal values no robot was found on which the policy "
                f"fails ({spared.successes} of {len(spared)} on the worst)."
            )
            finding.next_step = NEXT_STEP[Cause.TWIN]
        elif hangs:
            finding.outcome, finding.cause, finding.next_step = VerdictOutcome.INCONCLUSIVE, Cause.TWIN, RECORD_LAG
            finding.cases = failing_cases(context, iter([(batch, played)]))
            finding.message = f"{played.successes} of {len(played)} episodes succeed: {region.text(worst)}; {hangs}."
        elif _fails(context, played):
            yield from _explain(context, region, worst, batch, played, finding)
        return finding


class Region:
    """Search region: a ball in coordinates in which the posterior is a standard normal distribution."""

    def __init__(self, context: Context, covariance: Array | None = None) -> None:
        """Use the posterior covariance of the subject's twin, or another one, shape (P, P)."""
        self._twin = context.subject.twin
        self._factor = covariance_root(self._twin.covariance if covariance is None else covariance)
        self._lower = np.array([p.lower for p in self._twin.parameters])
        self._upper = np.array([p.upper for p in self._twin.parameters])
        self.dimension = len(self._twin.parameters)
        self.radius = context.settings.falsification.reach

    def clipped(self, point: Array) -> Array:
        """Return the nearest point of the region, shape (P,)."""
        return point * min(1.0, self.radius / max(self.size(point), 1e-12))

    def values(self, point: Array) -> tuple[float, ...]:
        """Return the twin's parameters at a point, within their bounds."""
        values = self._twin.values + self._factor @ point
        return tuple(float(value) for value in np.clip(values, self._lower, self._upper))

    def size(self, point: Array) -> float:
        """Return the distance from the fitted robot in standard deviations."""
        return float(np.linalg.norm(point))

    def named(self, point: Array) -> dict[str, float]:
        """Return the parameters at a point by name."""
        return dict(zip((p.name for p in self._twin.parameters), self.values(point), strict=True))

    def text(self, point: Array) -> str:
        """Describe the three parameters that differ most from the fitted robot."""
        parameters, values = self._twin.parameters, self.values(point)
        moved = [(value - p.value) / max(p.std, 1e-12) for value, p in zip(values, parameters, strict=True)]
        order = sorted(range(len(moved)), key=lambda index: -abs(moved[index]))[:3]
        return ", ".join(
            f"{parameters[i].name} {values[i]:.4g} {parameters[i].unit} ({moved[i]:+.1f} σ)" for i in order
        )


def _unconstrained(context: Context) -> str:
    """Name the first parameters that the recordings do not constrain."""
    names = context.subject.twin.unconstrained
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _explain(
    context: Context, region: Region, worst: Array, batch: Batch, played: BatchResult, finding: GateFinding
) -> Generator[Sequence[Batch], list[BatchResult], None]:
    """Turn the finding into a FAIL with the smallest counterexample on the line to the worst point."""
    for _ in range(SHRINKS if region.size(worst) > 0.0 else 0):
        nearer = _confirmation(context, region, 0.5 * worst)
        (answer,) = yield [nearer]
        finding.episodes += len(answer)
        if not _fails(context, answer):
            break
        worst, batch, played = 0.5 * worst, nearer, answer
    finding.outcome, finding.cause = VerdictOutcome.FAIL, Cause.POLICY
    finding.measured = _measured(context, region, worst, played)
    rate = f"{played.successes} of {len(played)} episodes succeed"
    if region.size(worst) == 0.0:
        finding.message = f"On the fitted robot itself {rate}, so no search was needed."
        finding.next_step = NEXT_STEP[Cause.POLICY]
    else:
        finding.message = (
            f"On a robot {region.size(worst):.1f} standard deviations from the fitted one {rate}: "
            f"{region.text(worst)}. "
            f"About {beyond(region.size(worst)):.1%} of the robots consistent with the logs lie beyond it."
        )
        finding.next_step = f"{NEXT_STEP[Cause.POLICY]}; or record more logs to narrow the posterior"
    finding.cases = failing_cases(context, iter([(batch, played)]))


def beyond(distance: float) -> float:
    """Return the share of a standard normal distribution beyond a plane at a distance from its mean."""
    # The distance of the nearest failure is the reliability index of Hasofer and Lind (Exact and invariant
    # second-moment code format, Journal of the Engineering Mechanics Division 100, 1974): about Φ(-distance) of all
    # robots are beyond it, independent of the number of parameters.
    return 0.5 * math.erfc(distance / math.sqrt(2.0))


def _condition(context: Context) -> Condition:
    return replace(context.conditions["measured"], name="falsification")


def _search(
    context: Context, region: Region
) -> Generator[Sequence[Batch], list[BatchResult], tuple[Array, list[list[float]]]]:
    """Return the worst point of the region, and the minimum and mean score of each generation."""
    # Imported here: only this gate needs it.
    from cmaes import CMA

    # CMA-ES: Hansen, Ostermeier, Completely derandomized self-adaptation in evolution strategies, Evolutionary
    # Computation 9, 2001.
    settings = context.settings.falsification
    stream = context.subject.stream(TUNING_STREAM)
    # cmaes requires at least two dimensions; an additional one is ignored.
    space = max(2, region.dimension)
    # A standard normal sample has norm √space, so the first generation lies at about 0.6 of the radius.
    sigma = 0.6 * region.radius / math.sqrt(space)
    optimiser: Any = CMA(np.zeros(space), sigma, population_size=settings.population, seed=SEARCH_SEED)
    worst, least, history = np.zeros(region.dimension), math.inf, list[list[float]]()
    for generation in range(settings.generations):
        asked: list[Array] = [optimiser.ask() for _ in range(settings.population)]
        if generation == 0:
            asked[0] = np.zeros(space)  # the fitted robot
        points = [region.clipped(point[: region.dimension]) for point in asked]
        seeds = seeds_of(stream, generation * settings.seeds, settings.seeds)
        batch = Batch(
            condition=_condition(context),
            seeds=seeds * len(points),
            values=tuple(region.values(point) for point in points for _ in seeds),
        )
        (played,) = yield [batch]
        # Successes score at least 1. The time for which the condition held ranks the rest and gives the search a slope.
        scores = (played.success + played.held).reshape(len(points), len(seeds)).mean(axis=1)
        optimiser.tell(list(zip(asked, scores.tolist(), strict=True)))
        history.append([float(scores.min()), float(scores.mean())])
        # The fitted robot itself fails on every tuning seed, so there is nothing to search for.
        if generation == 0 and not played.success[: len(seeds)].any():
            return np.zeros(region.dimension), history
        if float(scores.min()) < least:
            least, worst = float(scores.min()), points[int(scores.argmin())]
    return worst, history


def _confirmation(context: Context, region: Region, point: Array) -> Batch:
    """Batch of one point on verdict seeds."""
    # The search uses tuning seeds only, so that an unlucky seed does not count as a counterexample.
    count = context.settings.falsification.confirmations
    return Batch(
        condition=_condition(context),
        seeds=seeds_of(context.stream, 0, count),
        values=(region.values(point),) * count,
    )


def _fails(context: Context, played: BatchResult) -> bool:
    """Whether the success rate is below the target at 95 % confidence."""
    # A two-sided 90 % interval has one-sided 95 % ends.
    _, upper = clopper_pearson(played.successes, len(played), confidence=0.9)
    return upper < context.settings.falsification.target


def _measured(context: Context, region: Region, point: Array, played: BatchResult) -> list[Measurement]:
    target = context.settings.falsification.target
    return [
        rate_measurement("worst_success_rate", played.successes, len(played), threshold=target),
        Measurement(name="distance", value=region.size(point), unit="std"),
    ]
