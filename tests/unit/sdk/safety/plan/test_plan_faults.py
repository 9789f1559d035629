"""Faults of plans, planner, robot and clock in random orders, through the follower and the guard."""

from tests.harness.plan_faults.faults import EVENTS, FAULTS, FaultCounts, FaultPlay, fault_contract

from physai.sdk.safety.plan.plan import PlanAnswer


def test_no_plan_that_must_not_be_followed_is_and_no_command_is_another_than_the_due_one() -> None:
    counts, contract = FaultCounts(), fault_contract()
    for seed in range(25):
        play = FaultPlay(seed, counts, contract)
        play.run(1000)
        counts.answers += play.follower.answers
    assert counts.violations == []
    # It must be able to fail: everything that can happen did.
    assert set(counts.faults) == {*FAULTS, *EVENTS}
    assert set(counts.answers) >= set(PlanAnswer) - {PlanAnswer.WRONG_SHAPE, PlanAnswer.BEFORE_STANDSTILL}
    assert counts.followed > 0.3 * counts.periods
    assert counts.starved > 20
    assert counts.holds > 0
