"""Plans that are late, lost, doubled, reordered, stale, not finite or somebody else's, in random orders, through the
follower and the guard; a second computation of every command says which one was due."""

import math
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from tests.support.plan_contracts import plan_contract, plan_document

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.decision import NO_REQUEST, Request
from physai.sdk.safety.guard import Guard
from physai.sdk.safety.plan.follower import PlanFollower
from physai.sdk.safety.plan.plan import PlanAnswer, PlanRequest, PlanState, PolicyPlan
from physai.sdk.safety.states import GuardState

DT, STEP_S, STEPS, BLEND_S, AGE_S, SEAM = 0.01, 0.05, 16, 0.1, 0.75, 0.1
SPEED, ACCELERATION, BOUND = 4.0, 40.0, 2.0
POLICY, OTHER = "a" * 64, "b" * 64

FAULTS = (
    *("late", "lost", "doubled", "stale epoch", "not finite", "foreign"),
    *("future", "too old", "turned away", "too fast"),
)
"""Done to plans; reordering follows from the lateness."""

EVENTS = ("stop", "restart", "swap", "skip", "set back", "silence")
"""Done to the robot, the clock and the planner."""

Floats = npt.NDArray[np.float64]


def fault_contract() -> PolicyContract:
    """Plans of 16 steps of 50 ms, blended over 0.1 s, at most 4 rad/s and 40 rad/s²."""
    document = plan_document()
    document["action"]["plan"] |= {"interpolation": "linear", "committed": 0, "blend_s": BLEND_S, "seam": [SEAM]}
    document["action"]["terms"][0] |= {"lower": [-BOUND], "upper": [BOUND]}
    document["timing"]["plan"] |= {"period_s": 0.1, "deadline_s": 0.3, "resume_within_s": 1.0, "max_age_s": AGE_S}
    document["safety"]["joints"][0] |= {"velocity_limit": SPEED, "acceleration_limit": ACCELERATION}
    return plan_contract(document)


@dataclass
class FaultCounts:
    """What was played and what came of it."""

    faults: Counter[str] = field(default_factory=Counter[str])
    answers: Counter[PlanAnswer] = field(default_factory=Counter[PlanAnswer])
    periods: int = 0
    followed: int = 0
    starved: int = 0
    holds: int = 0
    violations: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class _Turn:
    """An accepted plan as this file understands it."""

    begin_s: float
    now_s: float
    targets: Floats
    origin_s: float

    def value(self, t: float, before: "float") -> float:
        u = min(max((t - self.begin_s) / STEP_S, 0.0), STEPS - 1.0)
        k = min(int(u), STEPS - 2)
        own = (k + 1 - u) * float(self.targets[k, 0]) + (u - k) * float(self.targets[k + 1, 0])
        x = min(max((t - self.now_s) / BLEND_S, 0.0), 1.0)
        return before + (3 * x * x - 2 * x**3) * (own - before)


class FaultPlay:
    """One robot, its planner, and everything that goes wrong between them."""

    def __init__(self, seed: int, counts: FaultCounts, contract: PolicyContract) -> None:
        self.rng = np.random.default_rng(seed)
        self.counts, self.contract = counts, contract
        self.policy = POLICY
        self.follower = PlanFollower(contract, self.policy)
        self.guard = Guard(contract)
        self.now_s = 1000.0
        self.mail: list[tuple[float, str, PolicyPlan, int]] = []
        self.swaps = 0
        self.turns: list[_Turn] = []
        self.still = 0.0
        self.silent_until = 0.0
        self.bad_until = 0
        self.wanted = self.measured = self.speed = 0.0
        self.without = 0
        self.read_back = self.seen_number = 0

    def violated(self, what: str) -> None:
        self.counts.violations.append(f"at {self.now_s:.3f} s in {self.follower.state.name}: {what}")

    def run(self, periods: int) -> None:
        for _ in range(periods):
            self._event()
            self._planner()
            self._deliver()
            self._period()
            self.now_s += DT

    def _event(self) -> None:
        if self.rng.random() >= 0.006:
            return
        event = EVENTS[self.rng.integers(len(EVENTS))]
        self.counts.faults[event] += 1
        if event == "stop":
            self._command(stop=True)
        elif event == "restart":
            self._restart()
        elif event == "swap":
            self._swap()
            # There and back again, while plans of the first are on their way.
            if self.rng.random() < 0.5:
                self._swap()
        elif event == "skip":
            self.now_s += DT * int(self.rng.integers(1, 8))
        elif event == "set back":
            self.now_s -= float(self.rng.uniform(0.1, 50.0))
        else:
            self.silent_until = self.now_s + float(self.rng.uniform(0.5, 8.0))

    def _restart(self) -> None:
        self.follower.restart()
        self.turns.clear()

    def _swap(self) -> None:
        before = self.follower
        self.policy = OTHER if self.policy == POLICY else POLICY
        self.counts.answers += before.answers
        self.follower = PlanFollower(self.contract, self.policy, epoch=before.epoch + 1)
        self.swaps += 1
        self.turns.clear()

    def _planner(self) -> None:
        request = self.follower.request(self.now_s)
        if request is None:
            return
        if self.now_s < self.silent_until:
            self.counts.faults["lost"] += 1
            return
        for at_s, fault, plan in self._answers(request):
            self.mail.append((at_s, fault, plan, self.swaps))

    def _answers(self, request: PlanRequest) -> list[tuple[float, str, PolicyPlan]]:
        """A good plan that goes on from where the robot is, or one with a fault."""
        rng = self.rng
        origin_s = self.now_s - float(rng.uniform(0.0, 0.02))
        if self.follower.state is not PlanState.FOLLOW:
            origin_s = self.now_s
        at = float(request.path.at(np.array([origin_s]))[0, 0])
        ahead = float(request.path.at(np.array([origin_s + 0.2]))[0, 0])
        # One plan may differ from the next by its seam; a robot that stands may begin at any speed.
        change = 0.1 if self.follower.state is PlanState.FOLLOW else 1.5
        speed = (ahead - at) / 0.2 + float(rng.uniform(-change, change))
        # Back towards the middle before the bound; the acceleration stays small.
        pull = -0.6 * at - 0.3 * speed
        times = STEP_S * np.arange(STEPS)
        targets = np.clip(at + speed * times + 0.5 * pull * times**2, -BOUND, BOUND)[:, None]
        plan = PolicyPlan(request.number, request.epoch, self.contract.fingerprint, self.policy, origin_s, targets)
        latency = float(rng.uniform(0.02, 0.25))
        if rng.random() < 0.5:
            return [(self.now_s + latency, "", plan)]
        fault = FAULTS[rng.integers(len(FAULTS))]
        self.counts.faults[fault] += 1
        late = self.now_s + latency
        if fault == "lost":
            return []
        if fault == "late":
            return [(late + float(rng.uniform(0.1, 2.0)), "", plan)]
        if fault == "doubled":
            return [(late, "", plan), (late + float(rng.uniform(0.0, 0.3)), "", plan)]
        return [(late, fault, self._spoiled(fault, plan))]

    def _spoiled(self, fault: str, plan: PolicyPlan) -> PolicyPlan:
        wrong = plan.targets.copy()
        place = int(self.rng.integers(STEPS))
        if fault == "stale epoch":
            return replace(plan, epoch=plan.epoch + int(self.rng.choice([-2, -1, 1])))
        if fault == "not finite":
            wrong[place] = self.rng.choice([np.nan, np.inf, -np.inf])
        elif fault == "foreign":
            return replace(plan, policy="c" * 64) if self.rng.random() < 0.5 else replace(plan, contract="c" * 64)
        elif fault == "future":
            return replace(plan, origin_s=plan.origin_s + float(self.rng.uniform(1.0, 100.0)))
        elif fault == "too old":
            return replace(plan, origin_s=plan.origin_s - float(self.rng.uniform(AGE_S, 100.0)))
        elif fault == "turned away":
            wrong = wrong + self.rng.choice([-0.3, 0.3])
        elif fault == "too fast":
            wrong[place] += self.rng.choice([-0.6, 0.6])
        return replace(plan, targets=wrong)

    def _deliver(self) -> None:
        due = [letter for letter in self.mail if letter[0] <= self.now_s]
        self.mail = [letter for letter in self.mail if letter[0] > self.now_s]
        self.rng.shuffle(due)  # pyright: ignore[reportArgumentType]
        for _, fault, plan, swaps in due:
            stands = self.follower.state is not PlanState.FOLLOW
            number, epoch = self.follower.number, self.follower.epoch
            answer = self.follower.offer(plan, self.now_s)
            if answer is not PlanAnswer.ACCEPTED:
                continue
            other = plan.policy != self.policy or plan.epoch != epoch or swaps != self.swaps
            if fault or other or plan.number <= number:
                self.violated(f"a plan was accepted: {fault or 'of another policy, epoch or number'}")
            if stands:
                self.turns.clear()
            begin_s = self.now_s if stands else plan.origin_s
            self.turns.append(_Turn(begin_s, self.now_s, plan.targets, plan.origin_s))

    def _period(self) -> None:
        counts, follower = self.counts, self.follower
        counts.periods += 1
        self.guard.observe(
            stamp_s=self.now_s, joint_pos=np.array([[self.measured]]), joint_vel=np.array([[self.speed]])
        )
        targets = None
        if self.guard.level is GuardState.RUN:
            last, step = self.guard.last[0], self.guard.step[0]
            targets = follower.sample(self.now_s, last, step).copy()
            self._compare(float(targets[0]), last)
        request = NO_REQUEST
        if follower.hold_why and self.guard.level is GuardState.RUN:
            counts.holds += 1
            request = Request(least=GuardState.HOLD)
        self._send(targets, request)

    def _compare(self, target: float, last: Floats) -> None:
        """Compare a command with what this file says is due."""
        following = self.follower.state is PlanState.FOLLOW
        if not (math.isfinite(target) and abs(target) <= BOUND + SEAM):
            self.violated(f"the command {target}")
        if not following:
            self.turns.clear()
            self.without = self.without + 1
            # 4 rad/s at 40 rad/s² take 10 periods.
            if self.without > 12 and not abs(target - last[0]) <= 1e-6:
                self.violated(f"moves in period {self.without} without a plan: {target} after {last[0]}")
            self.counts.starved += self.without == 1
            self.still = target
            return
        self.without = 0
        self.counts.followed += 1
        if not self.turns:
            self.violated("a plan is followed that was not accepted")
            return
        newest = self.turns[-1]
        if self.now_s - newest.begin_s > AGE_S + 2 * DT:
            self.violated(f"step of {self.now_s - newest.begin_s:.3f} s, at most {AGE_S} s")
        # Periods are counted from the acceptance, so times are compared where both name the same one.
        t = newest.now_s + DT * math.floor((self.now_s - newest.now_s) / DT + 0.5)
        due = self.still
        for turn in self.turns:
            if turn.now_s <= t:
                due = turn.value(t, due)
        if not abs(due - target) <= 1e-9:
            self.violated(f"the command {target}, due is {due}")

    def _command(self, *, stop: bool) -> None:
        self.guard.observe(
            stamp_s=self.now_s, joint_pos=np.array([[self.measured]]), joint_vel=np.array([[self.speed]])
        )
        self._send(None, Request(stop=stop))

    def _send(self, targets: Floats | None, request: Request) -> None:
        guard = self.guard
        before, step = float(guard.last[0, 0]), float(guard.step[0, 0])
        level = guard.level
        if level is not GuardState.RUN:
            number = guard.read_back
            request = Request(start=number) if level is GuardState.STANDSTILL else Request(reset=number)
        with np.errstate(all="ignore"):
            named = None if targets is None else {"joint_pos_target": targets[None].astype(np.float32)}
            result = guard.decide(age_s=0.0, targets=named, request=request)
            guard.commit()
        sent = float(result.targets["joint_pos_target"][0, 0])
        move = sent - before
        tolerance = 1e-5
        if not (math.isfinite(sent) and abs(sent) <= BOUND + tolerance and abs(move) <= SPEED * DT + tolerance):
            self.violated(f"sent {sent} after {before}")
        if not abs(move - step) <= ACCELERATION * DT**2 + tolerance:
            self.violated(f"a step of {move} after one of {step}")
        if guard.level is GuardState.RUN and level is not GuardState.RUN:
            self._restart()
        if guard.level is not GuardState.RUN and level is GuardState.RUN:
            self._restart()
        self.speed = (sent - self.measured) / DT
        self.measured = sent
