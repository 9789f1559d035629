"""Follows plans in time: the same code in the twin and on the robot, in front of the guard.

A plan is judged when it arrives, while the one before still has time to run. It is indexed by the time since the images
that it rests on, because by then the robot has made its first steps already; only a plan for a robot that stands begins
with its first step. Nothing here reads a clock, and equal calls give equal results.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import trajectory
from physai.sdk.safety.limits import Array, guard_limits
from physai.sdk.safety.plan.judge import PlanJudge
from physai.sdk.safety.plan.path import PlannedPath
from physai.sdk.safety.plan.plan import PlanAnswer, PlanRequest, PlanState, PolicyPlan

SEAMS_IN_A_ROW = 2
"""Plans in a row that disagree with the one that is followed, after which the robot is to hold."""

GREATEST_PERIODS = 100_000
"""Maximum number of control periods that a plan may last for."""


class PlanFollower:
    """Commands of one robot from plans; not thread-safe."""

    def __init__(self, contract: PolicyContract, policy: str, *, epoch: int = 0) -> None:
        """Start without a plan.

        Args:
            contract: one with `action.plan` and `timing.plan`.
            policy: SHA-256 of the graph whose plans are followed.
            epoch: first epoch, above all of the follower that this one replaces: of two swaps, the second may bring
                back the policy whose plans are still on their way.

        Raises:
            ContractError: the contract has no plans, or one that lasts for more control periods than are allowed.
            GuardError: its limits leave no allowed command for a joint.
        """
        self._judge = PlanJudge(contract)
        spec, timing = contract.action.plan, contract.timing.plan
        if spec is None or timing is None:
            raise ContractError(f"the contract of task {contract.task} has no action.plan to follow")
        self._spec, self._timing = spec, timing
        self._dt = contract.timing.control_dt
        if not timing.max_age_s / self._dt <= GREATEST_PERIODS:
            raise ContractError(
                f"a plan of {timing.max_age_s} s has {timing.max_age_s / self._dt:.0f} control periods of "
                f"{self._dt} s, at most {GREATEST_PERIODS} are allowed"
            )
        self._fingerprint, self._policy = contract.fingerprint, policy
        limits = guard_limits(contract)
        self._limits = limits
        self.state = PlanState.EMPTY
        self.epoch = epoch
        self.hold_why = ""
        """Why the robot is to hold until a reset; empty if it is not."""
        self.answers: Counter[PlanAnswer] = Counter()
        """Number of plans by answer."""
        self.unanswered = 0
        """Requests whose plan had not come by its deadline."""
        self._asked = self._accepted = self._before = 0
        self._asked_s = self._sampled_s = -math.inf
        self._outstanding = False
        self._seams = 0
        self._path = PlannedPath.constant(limits.rest)
        self._commands: Array = np.zeros((0, len(limits.rest)))
        self._first_s = self._end_s = self._origin_s = 0.0
        # Time from which the commands are constant; NaN while they are not.
        self._standing_s = math.nan

    @property
    def number(self) -> int:
        """Number of the plan that was accepted last; 0 before the first."""
        return self._accepted

    def age_s(self, now_s: float) -> float:
        """Time since the images of the plan that is followed [s]; NaN without one."""
        return now_s - self._origin_s if self.state is PlanState.FOLLOW else math.nan

    def restart(self) -> None:
        """Forget every plan, also those that are on their way: after a stop, a reset, a swap or another instruction.

        A robot that moves brakes first. A hold that this follower asked for is lifted.
        """
        self._new_epoch()
        self.hold_why = ""
        self._seams = 0
        self.state = PlanState.EMPTY
        self._standing_s = math.nan

    def request(self, now_s: float) -> PlanRequest | None:
        """Return what a planner is to be asked for now; None if it is not to be asked.

        It is asked once per period, and not before the robot stands if it has no plan to follow. A request without an
        answer is given up at its deadline.
        """
        overdue = self._outstanding and not now_s - self._asked_s < self._timing.deadline_s
        if overdue:
            self.unanswered += 1
            self._outstanding = False
        moves = self.state is not PlanState.FOLLOW and math.isnan(self._standing_s)
        if self.hold_why or self._outstanding or moves or not now_s - self._asked_s >= self._timing.period_s:
            return None
        self._asked += 1
        self._asked_s = now_s
        self._outstanding = True
        return PlanRequest(self._asked, self.epoch, now_s, self._path)

    def offer(self, plan: PolicyPlan, now_s: float) -> PlanAnswer:
        """Judge a plan, and follow it from the next command on if it is accepted."""
        answer = self._judged(plan, now_s)
        self.answers[answer] += 1
        if plan.number == self._asked and plan.epoch == self.epoch:
            self._outstanding = False
        if answer is PlanAnswer.SEAM:
            self._seams += 1
            if self._seams >= SEAMS_IN_A_ROW:
                self.hold_why = f"{self._seams} plans in a row were {answer.value}"
        elif answer is PlanAnswer.ACCEPTED:
            self._seams = 0
        return answer

    def sample(self, now_s: float, last: Array, step: Array) -> Array:
        """Return the commands of the control period that begins now.

        Args:
            now_s: time [s].
            last: commands sent last, shape (joints,), see `Guard.last`.
            step: their change from the ones before, shape (joints,).
        """
        # A clock that is set back leaves no time that was noted before it comparable.
        back = not now_s >= self._sampled_s
        self._sampled_s = now_s
        if self.state is PlanState.FOLLOW and not back and not self.hold_why:
            index = math.floor((now_s - self._first_s) / self._dt + 0.5)
            if index < len(self._commands):
                return self._commands[index]
        if self.state is PlanState.FOLLOW or back:
            self._new_epoch()
            self.state = PlanState.EMPTY if self.state is PlanState.EMPTY else PlanState.BRAKE
            self._end_s = now_s
        return self._without_plan(now_s, last, step)

    def _without_plan(self, now_s: float, last: Array, step: Array) -> Array:
        """Return the next commands of a robot that brakes or stands."""
        if math.isnan(self._standing_s):
            braking = trajectory.brake(step, self._limits.change)
            if braking.any():
                return last + braking
            self._standing_s = now_s
            self._path = PlannedPath.constant(last)
            if self.state is PlanState.BRAKE:
                self.state = PlanState.WAIT
        waited_s, allowed_s = now_s - self._end_s, self._timing.resume_within_s
        if self.state is PlanState.WAIT and not waited_s <= allowed_s and not self.hold_why:
            self.hold_why = f"no plan for {waited_s:.2f} s, the contract waits {allowed_s} s"
        return self._path.steps[0]

    def _new_epoch(self) -> None:
        self.epoch += 1
        # A planner that states the epoch to come was still asked in the one that ends.
        self._before = self._asked
        self._outstanding = False
        self._asked_s = -math.inf
        self._standing_s = math.nan

    def _judged(self, plan: PolicyPlan, now_s: float) -> PlanAnswer:
        """Judge a plan; if it is accepted, make its commands."""
        if plan.contract != self._fingerprint or plan.policy != self._policy:
            return PlanAnswer.WRONG_POLICY
        # A follower that holds goes on in a new epoch.
        if plan.epoch != self.epoch or self.hold_why:
            return PlanAnswer.WRONG_EPOCH
        if not max(self._accepted, self._before) < plan.number <= self._asked:
            return PlanAnswer.WRONG_NUMBER
        # A copy: a planner may write its next plan to the same memory.
        targets = np.array(plan.targets, np.float64)
        problem = self._judge.problem(targets)
        if problem is not None:
            return problem
        stands = self.state is not PlanState.FOLLOW
        # Written so that NaN is refused.
        if not plan.origin_s <= now_s:
            return PlanAnswer.FROM_THE_FUTURE
        if not now_s - plan.origin_s < self._timing.max_age_s:
            return PlanAnswer.TOO_OLD
        if stands and not plan.origin_s >= self._standing_s:
            return PlanAnswer.BEFORE_STANDSTILL
        begin_s = now_s if stands else plan.origin_s
        new = PlannedPath(targets, self._spec.step_s, begin_s, self._spec.interpolation)
        return self._taken(plan, new, now_s)

    def _taken(self, plan: PolicyPlan, new: PlannedPath, now_s: float) -> PlanAnswer:
        end_s = new.origin_s + self._timing.max_age_s
        until_s = end_s if self.state is not PlanState.FOLLOW else min(end_s, self._end_s)
        # Where both are valid: at the steps of the new one, and now. A robot that stands is compared with now alone.
        steps_s: Array = new.origin_s + self._spec.step_s * np.arange(float(self._spec.steps))
        both = steps_s[(steps_s > now_s) & (steps_s < until_s)] if self.state is PlanState.FOLLOW else steps_s[:0]
        if not self._judge.fits(self._path, new, np.concatenate([np.array([now_s]), both])):
            return PlanAnswer.SEAM
        # The committed steps reach back by the age of an image, which is less than that of a plan.
        old = self._path.since(now_s - self._timing.max_age_s)
        self._path = replace(new, from_s=now_s, blend_s=self._spec.blend_s, before=old)
        periods = max(1, math.ceil((end_s - now_s) / self._dt))
        times: Array = now_s + self._dt * np.arange(float(periods))
        self._commands = self._path.at(times)
        self._first_s, self._end_s, self._origin_s = now_s, end_s, plan.origin_s
        self._accepted = plan.number
        self.state = PlanState.FOLLOW
        self._standing_s = math.nan
        return PlanAnswer.ACCEPTED
