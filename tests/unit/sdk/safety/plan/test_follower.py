"""Plans are indexed by time, judged whole, and never followed when they should not be."""

from typing import Any

import numpy as np
import pytest
from tests.support.plan_contracts import plan_contract, plan_document

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import Array
from physai.sdk.safety.plan.follower import PlanFollower
from physai.sdk.safety.plan.plan import PlanAnswer, PlanRequest, PlanState, PolicyPlan

POLICY = "a" * 64
DT = 0.01


def contract(interpolation: str = "linear", **timing: float) -> PolicyContract:
    """Plans of 16 steps of 50 ms, at most 4 rad/s and 40 rad/s², asked for every 0.2 s."""
    document = plan_document()
    document["action"]["plan"] |= {"interpolation": interpolation, "committed": 0}
    document["timing"]["plan"] |= {"resume_within_s": 1.0} | timing
    document["action"]["terms"][0] |= {"lower": [-2.0], "upper": [2.0]}
    document["safety"]["joints"][0] |= {"velocity_limit": 4.0, "acceleration_limit": 40.0}
    return plan_contract(document)


class Robot:
    """A follower whose commands are always obeyed, and the clock of its robot."""

    def __init__(self, made: PolicyContract) -> None:
        self.follower = PlanFollower(made, POLICY)
        self.fingerprint = made.fingerprint
        self.now_s = 100.0
        self.last: Array = np.zeros(1)
        self.step: Array = np.zeros(1)

    def tick(self, periods: int = 1) -> float:
        """Takes commands; the last one."""
        for _ in range(periods):
            command = self.follower.sample(self.now_s, self.last, self.step)
            self.step, self.last = command - self.last, command.copy()
            self.now_s += DT
        return float(self.last[0])

    def asked(self) -> PlanRequest:
        """The next request, within a second."""
        for _ in range(100):
            request = self.follower.request(self.now_s)
            if request is not None:
                return request
            self.tick()
        raise AssertionError(f"nothing was asked for in {self.follower.state}")

    def plan(
        self, request: PlanRequest, origin_s: float | None = None, slope: float = 0.5, **changed: Any
    ) -> PolicyPlan:
        """Steps from 0 on, `slope` rad/s, by default for an image of this moment."""
        fields: dict[str, Any] = {
            "number": request.number,
            "epoch": request.epoch,
            "contract": self.fingerprint,
            "policy": POLICY,
            "origin_s": self.now_s if origin_s is None else origin_s,
            "targets": slope * 0.05 * np.arange(16.0)[:, None],
        }
        return PolicyPlan(**fields | changed)

    def offer(self, plan: PolicyPlan) -> PlanAnswer:
        return self.follower.offer(plan, self.now_s)


@pytest.fixture
def robot() -> Robot:
    return Robot(contract())


def began(robot: Robot, slope: float = 0.5) -> float:
    """Follows a first plan; returns the time of its first step."""
    request = robot.asked()
    assert robot.offer(robot.plan(request, slope=slope)) is PlanAnswer.ACCEPTED
    return robot.now_s


def test_a_robot_that_stands_begins_with_the_first_step_however_late_the_plan(robot: Robot) -> None:
    request = robot.asked()
    seen_s = robot.now_s
    robot.tick(30)
    assert robot.offer(robot.plan(request, origin_s=seen_s)) is PlanAnswer.ACCEPTED
    assert robot.tick() == 0.0
    # 0.1 s after the start, not after the image.
    assert robot.tick(10) == pytest.approx(0.5 * 0.1)


def test_a_robot_that_moves_goes_on_where_the_plan_is_by_now(robot: Robot) -> None:
    start_s = began(robot)
    robot.tick(20)
    request = robot.asked()
    seen_s = robot.now_s
    robot.tick(12)
    # From the moment of the image on it is to move by 0.6 rad/s instead of 0.5.
    at = 0.5 * (seen_s - start_s)
    targets = at + 0.6 * 0.05 * np.arange(16.0)[:, None]
    assert robot.offer(robot.plan(request, origin_s=seen_s, targets=targets)) is PlanAnswer.ACCEPTED
    assert robot.tick() == pytest.approx(at + 0.6 * 0.12)


def test_a_plan_that_ends_lets_the_robot_brake_within_its_limit_wait_and_go_on(robot: Robot) -> None:
    began(robot, slope=2.0)
    robot.tick(75)
    moved = robot.last[0]
    assert robot.follower.state is PlanState.FOLLOW
    before = robot.follower.epoch
    robot.tick(1)
    assert robot.follower.state is PlanState.BRAKE
    assert robot.follower.request(robot.now_s) is None
    robot.tick(6)
    assert robot.follower.state is PlanState.WAIT
    # From 2 rad/s at 40 rad/s²: 0.016 + 0.012 + 0.008 + 0.004 rad.
    assert robot.last[0] - moved == pytest.approx(0.04)
    assert robot.follower.epoch == before + 1
    request = robot.asked()
    steps = float(robot.last[0]) - 0.05 * 0.5 * np.arange(16.0)[:, None]
    assert robot.offer(robot.plan(request, targets=steps)) is PlanAnswer.ACCEPTED
    assert not robot.follower.hold_why
    assert robot.tick(11) < robot.last[0] + 0.01


def test_a_wait_beyond_that_of_the_contract_asks_for_a_hold_until_a_restart(robot: Robot) -> None:
    began(robot)
    robot.tick(75 + 105)
    assert "the contract waits 1.0 s" in robot.follower.hold_why
    assert robot.follower.request(robot.now_s) is None
    robot.follower.restart()
    robot.tick()
    assert not robot.follower.hold_why
    assert robot.asked()


def test_a_contract_without_waiting_holds_as_soon_as_the_robot_stands() -> None:
    robot = Robot(contract(resume_within_s=0.0))
    began(robot)
    robot.tick(76)
    assert not robot.follower.hold_why
    robot.tick(5)
    assert robot.follower.hold_why


def test_a_robot_waits_for_its_first_plan_as_long_as_it_takes(robot: Robot) -> None:
    robot.tick(1000)
    assert (robot.follower.state, robot.follower.hold_why) == (PlanState.EMPTY, "")
    assert robot.asked()


def test_a_planner_that_answers_is_asked_once_per_period(robot: Robot) -> None:
    times: list[float] = []
    for _ in range(100):
        robot.tick()
        request = robot.follower.request(robot.now_s)
        if request is not None:
            times.append(robot.now_s)
            robot.offer(robot.plan(request, targets=np.zeros((16, 1))))
    assert np.diff(times) == pytest.approx([0.2] * (len(times) - 1), abs=1.01 * DT)
    assert robot.follower.answers == {PlanAnswer.ACCEPTED: len(times)}


def test_a_planner_that_does_not_answer_is_asked_again_after_the_deadline(robot: Robot) -> None:
    robot.tick()
    times: list[float] = []
    for _ in range(100):
        if robot.follower.request(robot.now_s) is not None:
            times.append(robot.now_s)
        robot.tick()
    # Nothing answers: a request every 0.3 s, the deadline.
    assert np.diff(times) == pytest.approx([0.3, 0.3, 0.3], abs=DT)
    assert robot.follower.unanswered == 3


WRONG = [
    ({"policy": "b" * 64}, PlanAnswer.WRONG_POLICY),
    ({"contract": "b" * 64}, PlanAnswer.WRONG_POLICY),
    ({"epoch": 7}, PlanAnswer.WRONG_EPOCH),
    ({"number": 0}, PlanAnswer.WRONG_NUMBER),
    ({"number": 2}, PlanAnswer.WRONG_NUMBER),
    ({"targets": np.zeros((15, 1))}, PlanAnswer.WRONG_SHAPE),
    ({"targets": np.zeros((16, 2))}, PlanAnswer.WRONG_SHAPE),
    ({"targets": np.full((16, 1), np.nan)}, PlanAnswer.NOT_FINITE),
    ({"targets": np.where(np.arange(16) == 15, np.inf, 0.0)[:, None]}, PlanAnswer.NOT_FINITE),
    # 2 rad are allowed; 4 rad/s are 0.2 rad per step, 40 rad/s² are 0.1 rad.
    ({"targets": np.linspace(0.0, 2.01, 16)[:, None]}, PlanAnswer.OUT_OF_LIMITS),
    ({"targets": np.where(np.arange(16) == 15, 0.21, 0.0)[:, None]}, PlanAnswer.OUT_OF_LIMITS),
    ({"targets": np.where(np.arange(16) == 15, 0.11, 0.0)[:, None]}, PlanAnswer.OUT_OF_LIMITS),
    # Steps of 0.1, 0.2, 0.3, 0.2 and 0.1 rad.
    ({"targets": np.array([0.0, 0.1, 0.3, 0.6, 0.8, *[0.9] * 11])[:, None]}, PlanAnswer.OUT_OF_LIMITS),
    ({"targets": np.full((16, 1), 0.2)}, PlanAnswer.SEAM),
    ({"origin_s": 200.0}, PlanAnswer.FROM_THE_FUTURE),
    ({"origin_s": np.nan}, PlanAnswer.FROM_THE_FUTURE),
    ({"origin_s": 99.0}, PlanAnswer.TOO_OLD),
    ({"origin_s": 99.99}, PlanAnswer.BEFORE_STANDSTILL),
]


@pytest.mark.parametrize(("changed", "answer"), WRONG, ids=[f"{answer.name} {changed}" for changed, answer in WRONG])
def test_a_plan_that_must_not_be_followed_is_refused_and_counted(
    changed: dict[str, Any], answer: PlanAnswer, robot: Robot
) -> None:
    request = robot.asked()
    assert robot.offer(robot.plan(request, **changed)) is answer
    assert robot.follower.answers == {answer: 1}
    assert robot.tick(5) == 0.0
    assert robot.follower.state is PlanState.EMPTY


@pytest.mark.parametrize("greatest", [0.1, 0.0999])
def test_a_plan_at_its_limits_is_followed(greatest: float, robot: Robot) -> None:
    request = robot.asked()
    targets = np.where(np.arange(16) == 15, greatest, 0.0)[:, None].astype(np.float32)
    assert robot.offer(robot.plan(request, targets=targets)) is PlanAnswer.ACCEPTED


def test_an_answer_that_comes_twice_or_after_a_younger_one_is_refused(robot: Robot) -> None:
    first = robot.asked()
    robot.tick(31)
    second = robot.asked()
    assert robot.offer(robot.plan(second)) is PlanAnswer.ACCEPTED
    assert robot.offer(robot.plan(second)) is PlanAnswer.WRONG_NUMBER
    assert robot.offer(robot.plan(first)) is PlanAnswer.WRONG_NUMBER


def test_a_plan_from_before_a_restart_is_refused(robot: Robot) -> None:
    request = robot.asked()
    robot.follower.restart()
    robot.tick()
    assert robot.offer(robot.plan(request)) is PlanAnswer.WRONG_EPOCH


def test_a_policy_that_comes_back_after_two_swaps_gets_no_plan_from_before(robot: Robot) -> None:
    request = robot.asked()
    plan = robot.plan(request)
    robot.follower = PlanFollower(contract(), POLICY, epoch=robot.follower.epoch + 2)
    robot.asked()
    assert robot.offer(plan) is PlanAnswer.WRONG_EPOCH


def test_a_plan_for_a_follower_that_holds_is_refused(robot: Robot) -> None:
    began(robot)
    robot.tick(90)
    request = robot.asked()
    robot.tick(110)
    assert robot.follower.hold_why
    assert robot.offer(robot.plan(request)) is PlanAnswer.WRONG_EPOCH


def test_a_planner_that_writes_to_its_memory_again_changes_no_plan(robot: Robot) -> None:
    request = robot.asked()
    targets = 0.5 * 0.05 * np.arange(16.0)[:, None]
    assert robot.offer(robot.plan(request, targets=targets)) is PlanAnswer.ACCEPTED
    targets[:] = np.nan
    assert np.isfinite(robot.tick(20))
    assert np.isfinite(robot.asked().path.at(robot.now_s + 0.05 * np.arange(6.0))).all()


def test_a_plan_that_states_the_epoch_to_come_is_refused_when_that_has_come(robot: Robot) -> None:
    request = robot.asked()
    robot.follower.restart()
    robot.tick()
    assert robot.asked()
    assert robot.offer(robot.plan(request, epoch=request.epoch + 1)) is PlanAnswer.WRONG_NUMBER


def test_another_instruction_in_motion_brakes_first(robot: Robot) -> None:
    began(robot, slope=2.0)
    robot.tick(20)
    robot.follower.restart()
    assert robot.follower.request(robot.now_s) is None
    speeds: list[float] = []
    for _ in range(7):
        before = robot.last[0]
        speeds.append((robot.tick() - before) / DT)
    assert speeds == pytest.approx([1.6, 1.2, 0.8, 0.4, 0.0, 0.0, 0.0], abs=1e-6)
    assert robot.asked().epoch == robot.follower.epoch


def test_a_plan_that_disagrees_is_not_followed_and_a_second_one_ends_it(robot: Robot) -> None:
    start_s = began(robot)
    robot.tick(5)
    for number in range(2):
        request = robot.asked()
        # It agrees now and turns away: -0.5 rad/s differ from 0.5 by more than 0.1 rad after 0.1 s.
        targets = 0.5 * (robot.now_s - start_s) - 0.5 * 0.05 * np.arange(16.0)[:, None]
        assert robot.offer(robot.plan(request, targets=targets)) is PlanAnswer.SEAM
        assert bool(robot.follower.hold_why) is (number == 1)
    assert robot.follower.hold_why.startswith("2 plans in a row were too far from what the robot does now")
    robot.tick()
    assert robot.follower.state is PlanState.BRAKE


def test_one_that_agrees_in_between_lets_the_count_begin_again(robot: Robot) -> None:
    start_s = began(robot)
    for slope in (-0.5, 0.5, -0.5):
        request = robot.asked()
        targets = 0.5 * (robot.now_s - start_s) + slope * 0.05 * np.arange(16.0)[:, None]
        robot.offer(robot.plan(request, targets=targets))
    assert robot.follower.answers == {PlanAnswer.ACCEPTED: 2, PlanAnswer.SEAM: 2}
    assert not robot.follower.hold_why


def test_a_clock_that_is_set_back_ends_the_plan(robot: Robot) -> None:
    began(robot)
    robot.tick(20)
    robot.now_s -= 50.0
    robot.tick()
    assert robot.follower.state is PlanState.BRAKE
    robot.tick(3)
    assert robot.follower.state is PlanState.WAIT
    robot.now_s -= 5.0
    robot.tick()
    assert robot.asked()
    robot.tick(110)
    assert robot.follower.hold_why


def test_periods_that_are_skipped_do_not_shift_the_plan(robot: Robot) -> None:
    start_s = began(robot)
    robot.tick(5)
    robot.now_s += 7 * DT
    command = robot.follower.sample(robot.now_s, robot.last, robot.step)
    assert command[0] == pytest.approx(0.5 * (robot.now_s - start_s))


def test_committed_steps_are_those_that_will_be_sent(robot: Robot) -> None:
    start_s = began(robot)
    robot.tick(20)
    request = robot.asked()
    times: Array = robot.now_s + 0.05 * np.arange(6.0)
    told = request.path.at(times)[:, 0]
    sent = [robot.tick() for _ in range(26)][::5]
    assert sent == pytest.approx(told.tolist())
    assert told == pytest.approx(0.5 * (times - start_s))


def test_a_contract_without_plans_is_refused() -> None:
    document = plan_document()
    document["observation"] |= {"images": [], "instructions": None, "noise": 0}
    document["action"]["plan"] = document["timing"]["plan"] = None
    with pytest.raises(ContractError, match=r"has no action\.plan to follow"):
        PlanFollower(plan_contract(document), POLICY)
