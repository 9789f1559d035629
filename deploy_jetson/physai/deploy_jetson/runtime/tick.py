"""One tick: newest sample → finite and of the right age → graph → guard → send → record.

Whatever fails on the way, what goes out has passed the guard after the failure: the policy's command is withheld, and
the guard repeats the last one, holds, damps or stops, as long as it has been missing.

No decision goes out late. It is made for the period that began at `due_ns`, and is thrown away if it is not ready
`deadline_s` after that: a computation that took too long, a process that was stopped and continued. Another is then
made from a newer sample, without the policy, which has missed this period.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.bound_policy import BoundPolicy, Computes
from physai.deploy_jetson.runtime.reasons import HARMLESS, Trouble, describe
from physai.deploy_jetson.runtime.ring import TickRing, TickSink
from physai.deploy_jetson.runtime.robot_guard import RobotGuard
from physai.deploy_jetson.runtime.senses import Senses
from physai.deploy_jetson.runtime.understudy import Nowhere, Unmoved
from physai.sdk.contract import PolicyContract
from physai.sdk.policy_file import Ranges
from physai.sdk.safety import GuardResult
from physai.sdk.wire import Array, Sample

Clock = Callable[[], int]

DECISIONS = 3
"""Most decisions of one period; a machine too slow for three sends nothing."""

_TRANSPORT_FAILED, _INFERENCE_FAILED, _NOT_SENT, _GUARD_FAILED = (
    int(flag) for flag in (Trouble.TRANSPORT_FAILED, Trouble.INFERENCE_FAILED, Trouble.NOT_SENT, Trouble.GUARD_FAILED)
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a tick."""

    now_ns: Clock = time.monotonic_ns
    """CLOCK_MONOTONIC [ns]."""
    wall_ns: Clock = time.time_ns
    """CLOCK_REALTIME, which sensors stamp with [ns]."""


class Line(Protocol):
    """What a tick asks of a transport."""

    name: str

    def sample(self) -> Sample:
        """See `Transport`."""
        ...

    def poll(self) -> bool:
        """See `Transport`."""
        ...

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport`."""
        ...


class Tick:
    """All that a tick needs, and what the last one found; one thread."""

    def __init__(
        self,
        contract: PolicyContract,
        transport: Line,
        policy: Computes,
        sink: TickSink,
        *,
        ranges: Ranges,
        clocks: Clocks | None = None,
    ) -> None:
        """Ties the parts together.

        Raises:
            GuardError: the contract leaves a joint no command.
            ContractMismatchError: the transport's sample is not the contract's.
        """
        self.guard = RobotGuard(contract)
        self.senses = Senses(contract, transport.sample(), policy.inputs, ranges)
        self.policy: Computes = policy
        self._rehearsal: Tick | None = None
        """The same on a guard and a record of its own; None in a tick that is a rehearsal itself."""
        if isinstance(policy, BoundPolicy):
            nowhere, unmoved = Nowhere(transport.sample()), Unmoved(policy)
            self._rehearsal = Tick(contract, nowhere, unmoved, TickRing(1), ranges=ranges, clocks=clocks)
        self.state = 0
        """`GuardState` after the tick."""
        self.reasons = 0
        """Bits of `Reason` and `Trouble` of the tick."""
        self.missed = False
        """Whether the policy's command came too late."""
        self.intervened = False
        """Whether the guard changed or withheld the policy's command for another reason than its lateness."""
        self.stopped = False
        """Whether an emergency stop has been read back."""
        self.ended_ns = 0
        """CLOCK_MONOTONIC at its end [ns]."""
        self.fresh = False
        """Whether a newer sample had come."""
        self.age_ns = 0
        """Age of the sample when the guard decided [ns]."""
        self.sent: Mapping[str, Array] | None = None
        """Commands that left, by output name; None where none did."""
        self.error = ""
        """The last exception that the tick survived; empty for none."""
        self._transport = transport
        self._sample = transport.sample()
        self._sink = sink
        self._now, self._wall = (clocks or Clocks()).now_ns, (clocks or Clocks()).wall_ns
        self._deadline_ns = round(contract.timing.deadline_s * 1e9)
        self._oldest_ns = round(contract.timing.max_observation_age_s * 1e9)
        self._youngest_ns = -round(contract.timing.control_dt * 1e9)
        self._unsent = False

    def change(self, policy: BoundPolicy, ranges: Ranges) -> None:
        """Computes another policy of the same contract from the next tick on, which remembers what this one did."""
        if isinstance(self.policy, BoundPolicy):
            policy.take_over(self.policy)
        self._bind(policy, ranges)
        if self._rehearsal is not None:
            self._rehearsal._bind(Unmoved(policy), ranges)

    def _bind(self, policy: Computes, ranges: Ranges) -> None:
        self.senses.bind(policy.inputs, ranges)
        self.policy = policy

    def rehearse(self) -> None:
        """Does before a tick what makes it quick, and nothing that anybody could notice: see `Nowhere`, `Unmoved`."""
        rehearsal = self._rehearsal
        if rehearsal is not None:
            rehearsal.run(0, self._now())
            if rehearsal.state:
                rehearsal.reset()

    def reset(self) -> None:
        """Returns to RUN, and forgets."""
        self.guard.reset()
        self.policy.reset()
        self._unsent = False

    def obstacle(self) -> str:
        """What is wrong with the newest sample, for a person; empty where a first command may rest on it."""
        trouble = self.senses.read() & ~HARMLESS
        if trouble or not (np.isfinite(self.senses.joint_pos).all() and np.isfinite(self.senses.joint_vel).all()):
            why = self.senses.complaint() or describe(trouble or int(Trouble.FIELD_NOT_FINITE))
            return f"a sound sample ({why})"
        misplaced = self.guard.misplaced(self.senses.joint_pos)
        if misplaced:
            return f"the robot to be within its limits ({misplaced})"
        age_ns = self._age_ns()
        if not self._youngest_ns <= age_ns <= self._oldest_ns:
            return (
                f"a newer sample: the last one is {age_ns * 1e-9:.3g} s old by its own stamp, at most "
                f"{self._oldest_ns * 1e-9:g} s are allowed; if it keeps coming, the robot's clock and this one differ"
            )
        return ""

    def run(self, number: int, due_ns: int, trouble: int = 0, *, stop: bool = False) -> None:
        """Does one tick.

        Args:
            number: of the control period.
            due_ns: CLOCK_MONOTONIC at which it was to begin [ns].
            trouble: bits for which the policy's command is withheld.
            stop: whether an emergency stop is asked for.
        """
        now = self._now
        woke = now()
        self.error, self.sent = "", None
        if self._unsent:
            trouble |= _TRANSPORT_FAILED
        trouble |= self._sense()
        begun = now()
        targets = None
        asked = not trouble & ~HARMLESS and self._youngest_ns <= self._age_ns() <= self._oldest_ns
        if asked:
            targets = self._think()
            trouble |= 0 if targets is not None else _INFERENCE_FAILED
        thought = now()
        limit = due_ns + self._deadline_ns
        self.missed = thought > limit
        guard_ns = send_ns = 0
        result: GuardResult | None = None
        for _ in range(DECISIONS):
            started = now()
            if started > limit:
                self.missed, targets, limit = True, None, started + self._deadline_ns
                trouble |= self._sense()
            result = self._decide(targets, stop)
            decided = now()
            guard_ns = decided - started
            if result is None:
                trouble |= _GUARD_FAILED
                break
            if decided <= limit:
                trouble |= self._send(result)
                send_ns = now() - decided
                break
            self.guard.not_sent()
        else:
            trouble |= _NOT_SENT
        self._note(result, trouble)
        self.ended_ns = ended = now()
        self._sink.push(
            number,
            due_ns + self._deadline_ns,
            woke,
            self._sample.stamp_ns,
            self.age_ns,
            thought - begun if asked else 0,
            guard_ns,
            send_ns,
            ended - due_ns,
            self.state,
            self.reasons,
            self.missed,
            self.intervened,
            self.sent,
        )

    def _sense(self) -> int:
        """Takes in the newest sample; bits of trouble."""
        try:
            self.fresh = self._transport.poll()
        except Exception as error:  # whatever a driver raises, the guard still has to speak to the robot
            self.error = f"{self._transport.name}: {error}"
            return _TRANSPORT_FAILED
        return self.senses.read()

    def _age_ns(self) -> int:
        return self.senses.age_ns(self._wall(), self._now())

    def _think(self) -> dict[str, Floats] | None:
        """The policy's commands; None where there are none."""
        try:
            if self.policy.step():
                return self.policy.targets.named
            self.error = "the policy computed numbers that are not finite"
        except Exception as error:  # the same
            self.error = str(error)
        return None

    def _decide(self, targets: dict[str, Floats] | None, stop: bool) -> GuardResult | None:
        self.age_ns = self._age_ns()
        try:
            senses = self.senses
            return self.guard.decide(
                self.age_ns * 1e-9, senses.joint_pos, senses.joint_vel, targets, missed=self.missed, stop=stop
            )
        except Exception as error:  # a guard that fails has the last word: nothing goes out
            self.error = f"the guard failed: {error}"
            return None

    def _send(self, result: GuardResult) -> int:
        """Sends the guard's commands; bits of trouble. One that did not leave counts as missing in the next period."""
        try:
            self._transport.send(result.targets, self._wall())
        except Exception as error:  # the same
            self.error = f"{self._transport.name}: {error}"
            self._unsent = True
            self.guard.not_sent()
            return _TRANSPORT_FAILED
        self._unsent = False
        self.sent = result.targets
        self.guard.sent()
        return 0

    def _note(self, result: GuardResult | None, trouble: int) -> None:
        if result is None:
            self.reasons, self.intervened = trouble, True
            return
        self.state = result.state.item()
        self.reasons = result.reasons.item() | trouble
        self.intervened = result.intervened.item() and not self.missed
        self.stopped = result.stopped.item()
