"""Gates that play: what an honest policy passes, and what each of them blocks, with the right cause."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physai.gates.checks.falsification import FalsificationGate, Region, beyond
from physai.gates.checks.gate import Gate
from physai.gates.checks.non_inferiority import NonInferiorityGate
from physai.gates.checks.robustness import RobustnessGate
from physai.gates.checks.safety import SafetyGate, episodes_needed
from physai.gates.checks.success import SuccessGate
from physai.gates.checks.success import tested_lag as lag_that_is_tested
from physai.gates.execution.subject import QUANTISED_FILE
from physai.sdk.evidence.verdict import Cause, VerdictOutcome
from physai.twin.model.twin import Twin
from physai.twin.model.twin_file import Interval, Timing

Find = Callable[..., Any]
Writer = Callable[..., Path]


def test_success_stops_as_soon_as_it_knows(bench: Any, write_policy: Writer, find: Find) -> None:
    finding = find(SuccessGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.PASS
    # alpha 0.05 / 4 gates; target 0.9, planned for 0.9667: ln 80 / ln(0.9667 / 0.9) = 61.3, so one batch of 64.
    assert finding.episodes == 64
    assert finding.p_value == pytest.approx((0.9 / (1 - 0.1 / 3)) ** 64)
    assert finding.seeds[0].count == 64


def test_a_policy_that_runs_away_fails_and_shows_its_least_perturbed_case(
    bench: Any, write_policy: Writer, find: Find
) -> None:
    finding = find(SuccessGate(), bench.context(write_policy(stiffness=-12.0)))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.POLICY)
    assert "0 of 64 episodes succeed, the target is 90%" in finding.message
    sizes = [case.size for case in finding.cases]
    assert sizes == sorted(sizes)
    assert set(finding.cases[0].parameters) == {"cart.mass", "rail.friction", "command_lag_s"}
    assert "failed after" in finding.cases[0].description


def test_delay_that_breaks_it_is_named_as_the_cause(bench: Any, write_policy: Writer, find: Find) -> None:
    # A stiff spring pushes with 20 N either way: 9.5 m/s² for 100 ms too long each time is a swing of some 0.2 m.
    # The held-out recordings show it, too.
    tested = bench.twin.residuals.model_copy(update={"command_lag": Interval(value=0.1, lo=0.1, hi=0.1)})
    timing = Timing(command_lag_mean_s=0.1, command_lag_p99_s=0.1)
    bench.twin = replace(bench.twin, timing=timing, residuals=tested)
    context = bench.context(write_policy(stiffness=400.0, damping=60.0))
    finding = find(SuccessGate(), context)
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.TIMING)
    assert "without delays the same episodes succeed" in finding.message


@pytest.mark.parametrize("gate", [SuccessGate, RobustnessGate, FalsificationGate])
def test_failures_with_a_lag_that_nothing_tests_are_inconclusive(
    bench: Any, write_policy: Writer, find: Find, gate: type[Gate]
) -> None:
    """The twin states 0 or 100 ms, of which no held-out recording tells; at the other end the policy fails."""
    for lag_s in (0.0, 0.1):
        bench.twin = replace(bench.twin, timing=Timing(command_lag_mean_s=lag_s, command_lag_p99_s=lag_s))
        finding = find(gate(), bench.context(write_policy(stiffness=400.0, damping=60.0)))
        if finding.outcome is not VerdictOutcome.PASS:
            assert (finding.outcome, finding.cause) == (VerdictOutcome.INCONCLUSIVE, Cause.TWIN), lag_s
            assert "no held-out recording tells them apart" in finding.message
            assert "commands that change in steps" in finding.next_step


def test_twice_a_short_lag_that_nothing_tests_is_twice_the_stated_one(bench: Any, write_policy: Writer) -> None:
    """10 ms, up to 12 more: the conditions `measured` and `twice` have the same delay, and differ in what is tested."""
    bench.twin = replace(bench.twin, timing=Timing(command_lag_mean_s=0.01, command_lag_p99_s=0.01))
    context = bench.context(write_policy())
    played = [context.conditions[name] for name in ("measured", "twice")]
    assert [one.lag_upper_s for one in played] == pytest.approx([0.022, 0.022])
    assert [lag_that_is_tested(context, one)["lag_upper_s"] for one in played] == pytest.approx([0.01, 0.02])
    assert lag_that_is_tested(context, replace(played[0], name="falsification"))["lag_upper_s"] == pytest.approx(0.01)


def with_friction(twin: Twin, *, identified: bool, value: float = 0.2) -> Twin:
    """The pusher with a friction of 0.2 N that may be as large as 10 N, or with a measured one."""
    mass, friction = twin.parameters
    open_friction = friction.model_copy(
        update={"value": value, "prior_std": 3.0, "std": 3.0, "upper": 10.0, "identified": identified}
    )
    return replace(twin, parameters=(mass, open_friction), covariance=np.diag([0.05**2, 9.0]))


@pytest.mark.slow
@pytest.mark.parametrize("gate", [SuccessGate, RobustnessGate, FalsificationGate])
def test_what_the_recordings_do_not_constrain_fails_no_policy(
    bench: Any, write_policy: Writer, find: Find, gate: type[Gate]
) -> None:
    """A spring of 12 N/m stops within 0.1 m if friction is below 1.2 N; a third of the draws is above."""
    bench.twin = with_friction(bench.twin, identified=False)
    finding = find(gate(), bench.context(write_policy()))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.INCONCLUSIVE, Cause.TWIN)
    assert "rail.friction" in finding.message
    assert "do not constrain" in finding.message
    assert "physai sim excite" in finding.next_step
    # The same spread, but measured: the policy is to blame.
    bench.twin = with_friction(bench.twin, identified=True)
    finding = find(gate(), bench.context(write_policy()))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.POLICY)


@pytest.mark.parametrize("gate", [SuccessGate, RobustnessGate, FalsificationGate])
def test_a_bad_policy_is_to_blame_whatever_the_recordings_leave_open(
    bench: Any, write_policy: Writer, find: Find, gate: type[Gate]
) -> None:
    bench.twin = with_friction(bench.twin, identified=False)
    finding = find(gate(), bench.context(write_policy(stiffness=-12.0)))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.POLICY)


def test_a_middling_policy_stays_undecided(bench: Any, write_policy: Writer, find: Find) -> None:
    """It comes to the middle in time from about half of the places where an episode may begin."""
    settings = {"success": {"target": 0.5, "margin": 0.3, "max_episodes": 64}, "batch": 32}
    finding = find(SuccessGate(), bench.context(write_policy(stiffness=7.35, damping=7.0), **settings))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.INCONCLUSIVE, None)
    assert finding.episodes == 64
    rate = finding.measured[0]
    assert rate.lower is not None
    assert rate.upper is not None
    assert rate.lower < 0.5 < rate.upper
    assert "neither significantly above nor below 50%" in finding.message


def test_robustness_plays_every_condition(bench: Any, write_policy: Writer, find: Find) -> None:
    finding = find(RobustnessGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.PASS
    assert list(finding.chart["conditions"]) == ["measured", "twice", "pushes", "payload"]
    assert finding.episodes == sum(total for _, total in finding.chart["conditions"].values())


def test_robustness_fails_on_the_condition_that_breaks_it(bench: Any, write_policy: Writer, find: Find) -> None:
    # The held-out recordings show the delay, so that no other is open.
    tested = bench.twin.residuals.model_copy(update={"command_lag": Interval(value=0.04, lo=0.03, hi=0.05)})
    timing = Timing(command_lag_mean_s=0.04, command_lag_p99_s=0.05)
    bench.twin = replace(bench.twin, timing=timing, residuals=tested)
    context = bench.context(write_policy(stiffness=400.0, damping=60.0))
    finding = find(RobustnessGate(), context)
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.TIMING)
    assert "Under 'twice'" in finding.message


def test_safety_needs_enough_episodes_without_a_violation(bench: Any, write_policy: Writer, find: Find) -> None:
    context = bench.context(write_policy())
    # ln(0.0125) / ln(0.96) = 107.3.
    assert episodes_needed(context) == 108
    finding = find(SafetyGate(), context)
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.episodes == 128
    used = {m.name: m.value for m in finding.measured}
    assert 0.0 < used["position_limit_used"] < 1.0
    assert 0.0 < used["speed_limit_used"] < 1.0


@pytest.mark.parametrize(
    ("options", "cause", "words"),
    [
        ({"nan_above": 0.5}, Cause.NUMERICS, "command not finite"),
        ({"stiffness": 0.0, "damping": -200.0, "push": -20.0}, Cause.POLICY, "most by the speed of rail: "),
    ],
)
def test_safety_blocks_a_single_violation(
    bench: Any, write_policy: Writer, find: Find, options: dict[str, float], cause: Cause, words: str
) -> None:
    finding = find(SafetyGate(), bench.context(write_policy(**options)))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, cause)
    assert words in finding.message
    assert finding.p_value == 1.0


def test_safety_blocks_a_command_that_only_switches(bench: Any, write_policy: Writer, find: Find) -> None:
    finding = find(SafetyGate(), bench.context(write_policy(stiffness=12000.0, damping=7000.0)))
    assert (finding.outcome, finding.cause, finding.p_value) == (VerdictOutcome.FAIL, Cause.POLICY, 1.0)
    used = {m.name: m.value for m in finding.measured}
    assert used["violations"] == 0.0
    assert used["saturated"] > 0.9
    assert "at most 50% are allowed" in finding.message
    assert "action" in finding.next_step


def test_nothing_to_compare_is_said(bench: Any, write_policy: Writer, find: Find) -> None:
    finding = find(NonInferiorityGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.PASS
    assert "Nothing to compare" in finding.message
    assert finding.episodes == 0


@pytest.mark.parametrize(
    ("stiffness", "outcome", "cause"), [(12.1, VerdictOutcome.PASS, None), (-1.0, VerdictOutcome.FAIL, Cause.NUMERICS)]
)
def test_a_quantised_graph_must_do_as_well(
    bench: Any, write_policy: Writer, find: Find, stiffness: float, outcome: VerdictOutcome, cause: Cause | None
) -> None:
    path, other = write_policy(), write_policy("other", stiffness=stiffness)
    (path.parent / QUANTISED_FILE).write_bytes(other.read_bytes())
    finding = find(NonInferiorityGate(), bench.context(path))
    assert (finding.outcome, finding.cause) == (outcome, cause)


def test_a_policy_worse_than_its_baseline_is_the_policys_fault(bench: Any, write_policy: Writer, find: Find) -> None:
    path, baseline = write_policy(stiffness=-1.0), write_policy("baseline")
    finding = find(NonInferiorityGate(), bench.context(path, baseline=baseline))
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.POLICY)
    assert "the policy graph loses 64" in finding.message


def test_the_region_is_the_posteriors(bench: Any, write_policy: Writer) -> None:
    region = Region(bench.context(write_policy()))
    assert region.radius == 3.0
    assert region.values(np.zeros(2)) == pytest.approx((2.1, 0.25))
    assert region.values(np.array([2.0, -1.0])) == pytest.approx((2.2, 0.2))
    assert region.clipped(np.array([30.0, 40.0])) == pytest.approx([1.8, 2.4])
    assert "cart.mass 2.2 kg (+2.0 σ)" in region.text(np.array([2.0, 0.0]))


def test_what_is_known_exactly_stays_as_it_is(bench: Any, write_policy: Writer) -> None:
    """A covariance with a zero on its diagonal is no reason to end with an error."""
    bench.twin = replace(bench.twin, covariance=np.diag([0.05**2, 0.0]))
    context = bench.context(write_policy())
    region = Region(context)
    mass, friction = region.values(np.array([2.0, -2.0]))
    assert (abs(mass - 2.1), friction) == pytest.approx((0.1, 0.25))
    assert context.size(np.array([[2.2, 0.25]])) == pytest.approx([math.sqrt(2.0)])


@pytest.mark.parametrize(("distance", "share"), [(0.0, 0.5), (1.96, 0.025), (3.0, 0.00135)])
def test_the_share_beyond_a_distance_is_that_of_the_tables(distance: float, share: float) -> None:
    assert beyond(distance) == pytest.approx(share, abs=1e-5)


SEARCH = {"falsification": {"generations": 3, "population": 8, "seeds": 2, "confirmations": 16}}


def test_a_search_finds_nothing_against_an_honest_policy(bench: Any, write_policy: Writer, find: Find) -> None:
    finding = find(FalsificationGate(), bench.context(write_policy(), **SEARCH))
    assert finding.outcome is VerdictOutcome.PASS
    assert finding.episodes == 3 * 8 * 2 + 16
    assert len(finding.chart["history"]) == 3


def test_a_search_finds_the_friction_that_stops_it(bench: Any, write_policy: Writer, find: Find) -> None:
    """Only a soft spring: a little more friction than fitted holds the cart outside 0.1 m."""
    wide = tuple(
        p.model_copy(update={"std": 0.6, "upper": 4.0}) if p.name == "rail.friction" else p
        for p in bench.twin.parameters
    )
    bench.twin = replace(bench.twin, parameters=wide, covariance=np.diag([0.05**2, 0.6**2]))
    context = bench.context(write_policy(stiffness=9.0, damping=5.0), **SEARCH)
    finding = find(FalsificationGate(), context)
    assert (finding.outcome, finding.cause) == (VerdictOutcome.FAIL, Cause.POLICY)
    assert "rail.friction" in finding.message
    friction = finding.cases[0].parameters["rail.friction"]
    # 9 N/m · 0.1 m: more than 0.9 N of friction can hold it there.
    assert friction > 0.5


def test_without_parameters_there_is_nothing_to_search(bench: Any, write_policy: Writer, find: Find) -> None:
    bench.twin = replace(bench.twin, parameters=(), covariance=np.zeros((0, 0)))
    finding = find(FalsificationGate(), bench.context(write_policy()))
    assert finding.outcome is VerdictOutcome.INCONCLUSIVE
