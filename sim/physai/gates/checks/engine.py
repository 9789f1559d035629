"""Gate `engine`: does the policy perform as well in a second physics engine, i.e. not exploit an engine's quirks?"""

import math
from dataclasses import replace

import numpy as np

from physai.gates.checks.gate import Context, Gate, GateFinding, Play, failing_cases, rate_measurement, undecided
from physai.sdk.base.errors import MissingExtraError, ModelError, PhysaiError
from physai.sdk.evidence.verdict import Cause, Measurement, VerdictOutcome
from physai.sdk.stats.paired import mcnemar_exact
from physai.sim.engines.named import load_engine
from physai.sim.engines.protocol import Array

_TITLES = {"warp": "MuJoCo Warp", "newton": "Newton's MuJoCo solver"}
"""Names in texts; that of another engine is its own."""


class EngineGate(Gate):
    """Plays the same episodes in both engines; compares early motions and final outcomes."""

    name = "engine"
    question = "Does a second physics engine agree?"

    def method(self, context: Context) -> str:
        settings = context.settings.engine
        second = _TITLES.get(settings.second, f"the engine {settings.second}")
        return (
            f"{_count(context)} episodes of `calibrated`, the same seeds in MuJoCo and in {second} "
            f"(single precision, CPU device): joint positions after {settings.early_s:g} s, then success, pair by pair "
            "(exact McNemar test)."
        )

    def threshold(self, context: Context) -> str:
        settings = context.settings.engine
        return (
            f"median difference of joint positions after {settings.early_s:g} s at most {settings.tolerance:g} "
            f"[joint unit]; success not lower by more than {settings.margin:.0%}"
        )

    def most_episodes(self, context: Context) -> int:
        return _count(context)

    def play(self, context: Context) -> Play:
        try:
            load_engine(context.settings.engine.second)
        except PhysaiError as error:
            return _not_installed(error)
        first = context.batch(0, context.conditions["calibrated"])
        count, settings = _count(context), context.settings.engine
        # Both engines play the same seeds; only the second one limits the number of episodes.
        second = replace(first, engine=settings.second, seeds=first.seeds[:count])
        try:
            in_mujoco, in_second = yield [first, second]
        except MissingExtraError as error:
            return _not_installed(error)
        except ModelError as error:
            return undecided(
                f"The second engine cannot play this task: {error}.",
                "remove unsupported features from the model, or compare with another engine manually",
            )
        difference = _early_difference(in_mujoco.early_pos[:count], in_second.early_pos)
        before, after = in_mujoco.success[:count], in_second.success
        lost, won = int((before & ~after).sum()), int((~before & after).sum())
        finding = GateFinding(
            outcome=VerdictOutcome.PASS,
            measured=[
                Measurement(name="success_lost", value=(lost - won) / count, threshold=settings.margin),
                rate_measurement(f"success_rate.{settings.second}", in_second.successes, count),
                Measurement(name="early_difference", value=difference, threshold=settings.tolerance),
            ],
            episodes=count,
            seeds=context.seed_range(count),
            chart={"pairs": [lost, won, count], "early_difference": difference},
        )
        _judge(context, finding, lost, won, difference)
        if finding.outcome is not VerdictOutcome.PASS:
            finding.cases = failing_cases(context, iter([(second, in_second)]))
        return finding


def _not_installed(error: PhysaiError) -> GateFinding:
    """Return the finding without a second engine; the next step is the error's pip line, if it has one."""
    text = str(error).rstrip("?")
    _, pip, packages = text.partition("pip install ")
    step = pip + packages if pip else "name an installed engine, or install the package that has it"
    return undecided(f"{text}.", f"{step}, then validate again")


def _count(context: Context) -> int:
    return min(context.settings.engine.episodes, context.settings.batch)


def _early_difference(first: Array, second: Array) -> float:
    """Median over the episodes of the maximum joint position difference; 0 if no episode lasts that long."""
    # The positions are NaN in episodes that ended before the comparison.
    both = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    if not both.any():
        return 0.0
    return float(np.median(np.abs(first[both] - second[both]).max(axis=1)))


def _judge(context: Context, finding: GateFinding, lost: int, won: int, difference: float) -> None:
    """Set outcome, cause and message of the finding."""
    settings, count = context.settings.engine, finding.episodes
    if not difference <= settings.tolerance:
        finding.outcome, finding.cause = VerdictOutcome.FAIL, Cause.TWIN
        finding.message = (
            f"After {settings.early_s:g} s the engines' joint positions differ by {difference:.3g} (median), "
            f"{settings.tolerance:g} is allowed: the engines interpret the model differently."
        )
        finding.next_step = "look for contacts, solver settings or model features that the engines treat differently"
    elif (lost - won) / count > settings.margin:
        p_value = mcnemar_exact(lost, won, alternative="worse")
        significant = p_value <= context.settings.gate_alpha
        finding.outcome = VerdictOutcome.FAIL if significant else VerdictOutcome.INCONCLUSIVE
        finding.cause = Cause.POLICY if significant else None
        finding.message = (
            f"In the second engine {lost} of {count} episodes are lost and {won} won (p = {p_value:.2g}): the policy "
            "depends on details of one engine."
        )
        # The p-value falls exponentially with the number of episodes at a constant ratio of losses to wins.
        needed = math.ceil(count * math.log(context.settings.gate_alpha) / min(-1e-9, math.log(max(p_value, 1e-300))))
        finding.next_step = (
            "train with randomised solver and contact parameters"
            if significant
            else f"raise engine.episodes and batch to about {max(needed, count + 1)}"
        )
