"""One tick: newest sample → finite and of the right age → graph → guard → send → record.

Whatever fails on the way, what goes out has passed the guard after the failure: the policy's command is withheld, and
the guard repeats the last one, holds, damps or stops, as long as it has been missing.

No decision goes out late. It is made for the period that began at `due_ns`, and is thrown away if it is not ready
`deadline_s` after that: a computation that took too long, a process that was stopped and continued. Another is then
made from a newer sample, without the policy, which has missed this period.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.io.dry_run import DryRunPolicy, NullTransport
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy, PolicyStep
from physai.deploy_jetson.runtime.io.robot_check import misplaced
from physai.deploy_jetson.runtime.io.sensor_input import SensorInput
from physai.deploy_jetson.runtime.watchdog.client import Watchdog
from physai.deploy_jetson.ticks.reasons import HARMLESS, INTERVENTIONS, RuntimeFault, describe
from physai.deploy_jetson.ticks.ring import TickRing, TickSink
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import NO_REQUEST, NOTHING, Guard, GuardResult, GuardState, Request, RequestAnswer
from physai.sdk.transport.protocol import Array, Sample

Clock = Callable[[], int]

DECISIONS = 3
"""Most decisions of one period; a machine too slow for three sends nothing."""

_TRANSPORT_FAILED, _INFERENCE_FAILED, _NOT_SENT, _GUARD_FAILED = (
    int(flag)
    for flag in (
        RuntimeFault.TRANSPORT_FAILED,
        RuntimeFault.INFERENCE_FAILED,
        RuntimeFault.NOT_SENT,
        RuntimeFault.GUARD_FAILED,
    )
)
_WATCHDOG, _LEASE_LOST = int(RuntimeFault.WATCHDOG), int(RuntimeFault.LEASE_LOST)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a tick."""

    now_ns: Clock = time.monotonic_ns
    """CLOCK_MONOTONIC [ns]."""
    wall_ns: Clock = time.time_ns
    """CLOCK_REALTIME, which sensors stamp with [ns]."""


class TickTransport(Protocol):
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
        transport: TickTransport,
        policy: PolicyStep,
        sink: TickSink,
        *,
        clocks: Clocks | None = None,
        watchdog: Watchdog | None = None,
        lost: Callable[[], str] = lambda: "",
    ) -> None:
        """Ties the parts together.

        Args:
            contract: of the policy.
            transport: open.
            policy: computes the commands.
            sink: takes the records.
            clocks: what time it is.
            watchdog: commands the robot when the loop stops; None for none.
            lost: why the robot is no longer this runtime's, empty while it is; see `Exclusive`.

        Raises:
            GuardError: the contract leaves a joint no command.
            ContractMismatchError: the transport's sample is not the contract's.
        """
        self.guard = Guard(contract)
        self.senses = SensorInput(contract, transport.sample(), policy.inputs)
        self.policy: PolicyStep = policy
        self._robot_joints = contract.robot.joints
        self._shadow: Tick | None = None
        """The same on a guard and a record of its own; None in a tick that is a warm-up itself."""
        if isinstance(policy, BoundPolicy):
            nowhere, unmoved = NullTransport(transport.sample()), DryRunPolicy(policy)
            self._shadow = Tick(contract, nowhere, unmoved, TickRing(1), clocks=clocks)
        self._begins = False
        """Whether the policy's memory begins with the next call."""
        self.reset_answer = self.start_answer = int(RequestAnswer.NONE)
        """Answer to the requests of the tick."""
        self.read_back = 0
        """See `GuardResult.read_back`."""
        self.state = 0
        """`GuardState` after the tick."""
        self.reasons = 0
        """Bits of `Reason` and `RuntimeFault` of the tick."""
        self.missed = False
        """Whether the policy's command came too late."""
        self.intervened = False
        """Whether the guard changed or withheld the policy's command for another reason than its lateness."""
        self.stopped = False
        """Whether a standstill has been read back and lasts."""
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
        self._first_stamp_ns = 0
        self._watchdog = watchdog
        self.lost = lost
        """See `Exclusive.lost`."""

    def change(self, policy: BoundPolicy) -> None:
        """Computes another policy of the same contract from the next tick on, which remembers what this one did."""
        if isinstance(self.policy, BoundPolicy):
            policy.take_over(self.policy)
        self._bind(policy)
        if self._shadow is not None:
            self._shadow._bind(DryRunPolicy(policy))

    def _bind(self, policy: PolicyStep) -> None:
        self.senses.bind(policy.inputs)
        self.policy = policy

    def warm_up(self) -> None:
        """Warm the caches before a tick without any visible effect; see `NullTransport`,
        `DryRunPolicy`.
        """
        shadow = self._shadow
        if shadow is not None:
            shadow.guard.resume_from(self.guard.last, self.guard.step)
            shadow.run(0, self._now())
            if shadow.state:
                shadow.reset()

    def activate(self) -> None:
        """Begins in STANDSTILL, and forgets: a robot that was left alone."""
        self.guard.activate()
        self.policy.reset()
        self._unsent = False
        self.state, self.stopped, self.read_back = int(GuardState.STANDSTILL), False, self.guard.read_back

    def reset(self) -> None:
        """Begins in RUN, and forgets: for warm-ups, which move nothing."""
        self.guard.reset()
        self.policy.reset()
        self._unsent = False

    def obstacle(self) -> str:
        """What is wrong with the newest sample, for a person; empty where a first command may rest on it."""
        trouble = self.senses.read() & ~HARMLESS
        if trouble or not (np.isfinite(self.senses.joint_pos).all() and np.isfinite(self.senses.joint_vel).all()):
            why = self.senses.complaint() or describe(trouble or int(RuntimeFault.FIELD_NOT_FINITE))
            return f"a sound sample ({why})"
        misplaced = self.misplaced()
        if misplaced:
            return f"the robot to be within its limits ({misplaced})"
        age_ns = self._age_ns()
        if not self._youngest_ns <= age_ns <= self._oldest_ns:
            return (
                f"a newer sample: the last one is {age_ns * 1e-9:.3g} s old by its own stamp, at most "
                f"{self._oldest_ns * 1e-9:g} s are allowed; if it keeps coming, the robot's clock and this one differ"
            )
        return ""

    def misplaced(self) -> str:
        """The first joint that was measured outside its range, in words; empty for none."""
        return misplaced(self._robot_joints, self.guard.limits, self.senses.joint_pos)

    def run(self, number: int, due_ns: int, trouble: int = 0, request: Request = NO_REQUEST) -> None:
        """Does one tick.

        Args:
            number: of the control period.
            due_ns: CLOCK_MONOTONIC at which it was to begin [ns].
            trouble: bits for which the policy's command is withheld.
            request: of an operator or the loop, for the supervisor.
        """
        now, watchdog = self._now, self._watchdog
        woke = now()
        self.error, self.sent = "", None
        if self._unsent:
            trouble |= _TRANSPORT_FAILED
        sensed = self._sense()
        trouble |= sensed
        begun = now()
        targets = None
        asked = not trouble & ~HARMLESS and self._youngest_ns <= self._age_ns() <= self._oldest_ns and self._heard()
        if asked:
            targets = self._think()
            trouble |= 0 if targets is not None else _INFERENCE_FAILED
        thought = now()
        limit = due_ns + self._deadline_ns
        self.missed = asked and thought > limit
        guard_ns = send_ns = 0
        sent = False
        result: GuardResult | None = None
        for _ in range(DECISIONS):
            started = now()
            if started > limit:
                self.missed, targets, limit = asked or self.missed, None, started + self._deadline_ns
                sensed = self._sense()
                trouble |= sensed
            if watchdog is not None:
                watchdog.claim()
            result = self._decide(targets, _without_start(request) if sensed & ~HARMLESS else request)
            decided = now()
            guard_ns = decided - started
            if result is None:
                trouble |= _GUARD_FAILED
                break
            if decided <= limit:
                failed = self._send(result)
                trouble |= failed
                sent = self.sent is not None
                send_ns = now() - decided
                break
        else:
            trouble |= _NOT_SENT
        if result is None:
            self.guard.idle()
        else:
            self.guard.commit(sent=sent)
        self._note(result, trouble, request)
        self._remember(result, sent=sent)
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

    def _heard(self) -> bool:
        """Whether the policy has a say in this period."""
        return bool(self.guard.asks[0])

    def _remember(self, result: GuardResult | None, *, sent: bool) -> None:
        """Corrects the policy's memory of its commands where the robot got something else."""
        if self.start_answer == RequestAnswer.OBEYED:
            self.policy.reset()
            self._begins = True
        elif not self._begins and (
            result is None or (self.state == GuardState.RUN and (not sent or result.intervened[0]))
        ):
            self.policy.sent(self.guard.sent, self.guard.steps)

    def _sense(self) -> int:
        """Takes in the newest sample; bits of trouble."""
        try:
            self.fresh = self._transport.poll()
        except Exception as error:  # whatever a driver raises, the guard must still command the robot
            self.error = f"{self._transport.name}: {error}"
            return _TRANSPORT_FAILED
        trouble = self.senses.read()
        sample, senses = self._sample, self.senses
        if not self._first_stamp_ns:
            self._first_stamp_ns = sample.stamp_ns
        stamp_s = (sample.stamp_ns - self._first_stamp_ns) * 1e-9
        self.guard.observe(
            stamp_s=stamp_s, joint_pos=senses.joint_pos, joint_vel=senses.joint_vel, sensors=senses.fields
        )
        return trouble

    def _age_ns(self) -> int:
        return self.senses.age_ns(self._wall(), self._now())

    def _think(self) -> dict[str, Floats] | None:
        """The policy's commands; None where there are none."""
        try:
            if self._begins:
                self._begins = not self.policy.begin(self.guard.sent, self.guard.steps)
            if not self._begins and self.policy.step():
                return self.policy.targets.named
            self.error = "the policy computed numbers that are not finite"
        except Exception as error:  # the same
            self.error = str(error)
        return None

    def _decide(self, targets: dict[str, Floats] | None, request: Request) -> GuardResult | None:
        self.age_ns = self._age_ns()
        try:
            return self.guard.decide(
                age_s=self.age_ns * 1e-9, targets=targets, deadline_missed=self.missed, request=request
            )
        except Exception as error:  # a guard that fails has the last word: nothing goes out
            self.error = f"the guard failed: {error}"
            return None

    def _send(self, result: GuardResult) -> int:
        """Sends the guard's commands; bits of trouble. One that did not leave counts as missing in the next period."""
        if not result.referenced[0]:
            return 0
        watchdog = self._watchdog
        if watchdog is not None and not watchdog.may_send():
            return _WATCHDOG
        # As late as can be: this process may have stood still since the tick began.
        if self.lost():
            return _LEASE_LOST
        if watchdog is not None:
            # Before it leaves: the kernel likes to put a sender aside, or ends it, with the system call that sends.
            watchdog.sends(*self.guard.decided())
        try:
            self._transport.send(result.targets, self._wall())
        except Exception as error:  # the same
            if watchdog is not None:
                watchdog.takes_back(self.guard.last)
            self.error = f"{self._transport.name}: {error}"
            self._unsent = True
            return _TRANSPORT_FAILED
        self._unsent = False
        self.sent = result.targets
        return 0

    def _note(self, result: GuardResult | None, trouble: int, request: Request) -> None:
        self.reset_answer = self.start_answer = int(RequestAnswer.NONE)
        if result is None:
            self.reasons, self.intervened = trouble, True
            return
        self.state = result.state.item()
        self.reasons = result.reasons.item() | trouble
        self.intervened = result.intervened.item() and bool(self.reasons & INTERVENTIONS)
        self.stopped = result.stopped.item()
        self.read_back = result.read_back.item()
        withheld = int(RequestAnswer.NONE if request.start == NOTHING else RequestAnswer.NOT_READY)
        self.reset_answer, self.start_answer = result.reset.item(), result.start.item() or withheld


def _without_start(request: Request) -> Request:
    """A request whose start is not even asked for, as there is no sample on which the policy could begin."""
    return request if request.start == NOTHING else replace(request, start=NOTHING)
