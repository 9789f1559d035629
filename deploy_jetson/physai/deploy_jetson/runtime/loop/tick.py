"""One tick: newest sample → finite and of the right age → graph → guard → send → record.

Whatever fails on the way, what is sent has passed the guard after the failure.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.io.dry_run import DryRunPolicy, NullTransport
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.io.robot_check import contradiction, misplaced, moving
from physai.deploy_jetson.runtime.io.sensor_input import SensorInput
from physai.deploy_jetson.runtime.loop.clocks import Clocks
from physai.deploy_jetson.runtime.watchdog.client import Watchdog
from physai.deploy_jetson.ticks.reasons import HARMLESS, INTERVENTIONS, RuntimeFault, describe
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import NO_REQUEST, NOTHING, Guard, GuardResult, GuardState, Request, RequestAnswer
from physai.sdk.safety.start import StartGate
from physai.sdk.transport.protocol import Array, Transport

# Attempts per period to decide and send in time; nothing is sent if all of them are late.
DECISIONS = 3

# Plain integers: operators of `IntFlag` are too slow for a tick.
_TRANSPORT_FAILED, _INFERENCE_FAILED = int(RuntimeFault.TRANSPORT_FAILED), int(RuntimeFault.INFERENCE_FAILED)
_NOT_SENT, _GUARD_FAILED = int(RuntimeFault.NOT_SENT), int(RuntimeFault.GUARD_FAILED)
_RUN = int(GuardState.RUN)
_WATCHDOG, _LEASE_LOST = int(RuntimeFault.WATCHDOG), int(RuntimeFault.LEASE_LOST)


class Tick:
    """Runs one control period and holds its results; not thread-safe."""

    reset_answer = start_answer = int(RequestAnswer.NONE)
    """Answers to the requests of the tick."""
    read_back = 0
    """See `GuardResult.read_back`."""
    state = 0
    """`GuardState` after the tick."""
    reasons = 0
    """Bits of `Reason` and `RuntimeFault` of the tick."""
    missed = False
    """Whether the policy's command came too late."""
    intervened = False
    """Whether the policy's command was invalid, or policy or guard failed; see `Counts.interventions`."""
    stopped = False
    """Whether a standstill was measured and still holds."""
    withheld = False
    """Whether the robot's samples broke off, so that it gets no command until a start; see `Guard.broken`."""
    ended_ns = 0
    """CLOCK_MONOTONIC at the end of the tick [ns]."""
    fresh = False
    """Whether there was a new sample."""
    age_ns = 0
    """Age of the sample when the guard decided [ns]."""
    sent: Mapping[str, Array] | None = None
    """Commands sent, by output name; None if none were."""
    error = ""
    """The last exception that the tick survived; empty for none."""

    def __init__(
        self,
        contract: PolicyContract,
        transport: Transport | NullTransport,
        policy: BoundPolicy | DryRunPolicy,
        sink: TickRing,
        *,
        clocks: Clocks | None = None,
        watchdog: Watchdog | None = None,
        lost: Callable[[], str] = lambda: "",
    ) -> None:
        """Connect policy, guard and transport.

        Args:
            contract: of the policy.
            transport: open.
            policy: computes the commands.
            sink: receives the tick records.
            clocks: sources of time; None for the system's.
            watchdog: commands the robot when the loop stops; None to run without one.
            lost: returns why the lease of the robot is lost, empty while it is held; see `Exclusive.lost`.

        Raises:
            GuardError: the contract defines no command for a joint.
            ContractMismatchError: the transport's sample does not match the contract.
        """
        self.guard = Guard(contract)
        self._start = StartGate(contract)
        self.senses = SensorInput(contract, transport.sample(), policy.inputs)
        self.policy = policy
        self._robot_joints = contract.robot.joints
        # A second tick with its own guard and record, for warm-ups; None in that tick itself.
        self._dry: Tick | None = None
        if isinstance(policy, BoundPolicy):
            null, dry_run = NullTransport(transport.sample()), DryRunPolicy(policy)
            self._dry = Tick(contract, null, dry_run, TickRing(1), clocks=clocks)
        # Whether the policy's memory begins with the next call.
        self._begins = False
        self._transport, self._sample, self._sink = transport, transport.sample(), sink
        self._now, self._wall = (clocks or Clocks()).now_ns, (clocks or Clocks()).wall_ns
        self._deadline_ns = round(contract.timing.deadline_s * 1e9)
        self._oldest_ns = round(contract.timing.max_observation_age_s * 1e9)
        # A stamp may lie up to one period ahead, because synchronised clocks differ a little.
        self._youngest_ns = -round(contract.timing.control_dt * 1e9)
        # Whether the transport failed to send the last command.
        self._unsent, self._first_stamp_ns = False, 0
        self._guard_ns = self._send_ns = 0
        self._watchdog, self.lost = watchdog, lost

    def change(self, policy: BoundPolicy) -> None:
        """Switch to another policy of the same contract, which takes over this one's memory."""
        if isinstance(self.policy, BoundPolicy):
            policy.take_over(self.policy)
        self._bind(policy)
        if self._dry is not None:
            self._dry._bind(DryRunPolicy(policy))

    def _bind(self, policy: BoundPolicy | DryRunPolicy) -> None:
        self.senses.bind(policy.inputs)
        self.policy = policy

    def warm_up(self) -> None:
        """Warm the caches before a tick, without any effect; see `physai.deploy_jetson.runtime.io.dry_run`."""
        dry = self._dry
        if dry is not None:
            # From the same state as the real guard, so that the same branches run.
            dry.guard.resume_from(self.guard.last, self.guard.step)
            dry.run(0, self._now())
            # Its guard has stopped; it has to take the branches of a normal tick again.
            if dry.state:
                dry.reset()

    def activate(self) -> None:
        """Start in STANDSTILL with all memory cleared, to drive a robot."""
        self.guard.activate()
        self.policy.reset()
        self._unsent = False
        self.state, self.stopped, self.read_back = int(GuardState.STANDSTILL), False, self.guard.read_back

    def reset(self) -> None:
        """Start in RUN with all memory cleared; only for ticks that send nothing."""
        self.guard.reset()
        self.policy.reset()
        self._unsent = False

    def resume(self, last: Array, step: Array) -> None:
        """Start in RUN from the commands that another policy sent; only for ticks that send nothing.

        Args:
            last: sent last, shape (A,).
            step: its change from the one before, shape (A,).
        """
        self.reset()
        self.guard.resume_from(last, step)
        self.senses.resume_commands()
        self._begins = True

    def obstacle(self) -> str:
        """Describe what the newest sample lacks for a first command; empty if nothing."""
        if (why := self.unsound()) or not (why := self.misplaced() or self.outside_start()):
            return why
        return f"the robot to be within its limits ({why})"

    def outside_start(self) -> str:
        """Describe what keeps the policy from taking over in the newest sample; empty if nothing."""
        return self._start.obstacle(self.senses.joint_pos, self.senses.joint_vel, self.senses.fields)

    def unsound(self) -> str:
        """Describe what the newest sample lacks to be believed; empty if nothing."""
        trouble = self.senses.read() & ~HARMLESS
        if trouble or not (np.isfinite(self.senses.joint_pos).all() and np.isfinite(self.senses.joint_vel).all()):
            why = self.senses.complaint() or describe(trouble or int(RuntimeFault.FIELD_NOT_FINITE))
            return f"a sound sample ({why})"
        age_ns = self._age_ns()
        if not self._youngest_ns <= age_ns <= self._oldest_ns:
            return (
                f"a newer sample: the last one is {age_ns * 1e-9:.3g} s old by its own stamp, at most "
                f"{self._oldest_ns * 1e-9:g} s are allowed; if it keeps coming, the robot's clock and this one differ"
            )
        return ""

    def misplaced(self) -> str:
        """Describe the first joint measured outside its range; empty if there is none."""
        return misplaced(self._robot_joints, self.guard.limits, self.senses.joint_pos)

    def moving(self) -> str:
        """Describe the fastest joint; empty if none is faster than at rest."""
        return moving(self._robot_joints, self.guard.limits, self.senses.joint_vel)

    def contradiction(self) -> str:
        """Describe the joint whose position and velocity contradicted each other last; empty if there is none."""
        return contradiction(self._robot_joints, self.guard.sensors.contradiction)

    def run(self, number: int, due_ns: int, trouble: int = 0, request: Request = NO_REQUEST) -> None:
        """Run one tick: sense, infer, guard, send, record.

        Args:
            number: of the control period.
            due_ns: CLOCK_MONOTONIC at which it was due to begin [ns].
            trouble: bits of `RuntimeFault` for which the policy's command is withheld.
            request: of an operator or the loop, for the supervisor.
        """
        now = self._now
        woke = now()
        self.error, self.sent = "", None
        # The last command did not reach the robot, so the policy must not assume that it did.
        if self._unsent:
            trouble |= _TRANSPORT_FAILED
        sensed = self._sense()
        trouble |= sensed
        self.senses.shape_commands(sensed)
        begun = now()
        targets = None
        # Without a sound and recent sample the policy's answer would be of no use.
        asked = not trouble & ~HARMLESS and self._youngest_ns <= self._age_ns() <= self._oldest_ns and self._drives()
        if asked:
            targets = self._infer()
            if targets is not None and self._start.ramps:
                targets = self._start.blend(targets)
            trouble |= 0 if targets is not None else _INFERENCE_FAILED
        thought = now()
        self.missed = asked and thought > due_ns + self._deadline_ns
        result, trouble = self._command(targets, due_ns + self._deadline_ns, trouble, sensed, request, asked=asked)
        self._store(result, trouble, request)
        self._remember(result)
        self.ended_ns = ended = now()
        record = (
            number,
            due_ns + self._deadline_ns,
            woke,
            self._sample.stamp_ns,
            self.age_ns,
            thought - begun if asked else 0,
            self._guard_ns,
            self._send_ns,
            ended - due_ns,
            self.state,
            self.reasons,
            self.missed,
            self.intervened,
        )
        self._sink.push(record, self.sent)

    def _command(
        self,
        targets: dict[str, Floats] | None,
        limit_ns: int,
        trouble: int,
        sensed: int,
        request: Request,
        *,
        asked: bool,
    ) -> tuple[GuardResult | None, int]:
        """Decide and send by `limit_ns`; return the decision, None if the guard failed, and all bits of `RuntimeFault`.

        `trouble` has the bits so far, `sensed` those of the sample; `asked` tells whether the policy was asked.
        """
        now, watchdog = self._now, self._watchdog
        self._guard_ns = self._send_ns = 0
        result: GuardResult | None = None
        # No decision is sent late. One that is not ready `deadline_s` after the period began (a slow computation, a
        # process that was suspended) is discarded, and another is made from a newer sample.
        for _ in range(DECISIONS):
            started = now()
            if started > limit_ns:
                # Too late for the policy's command: the guard repeats the last one, holds, damps or stops instead.
                self.missed, targets, limit_ns = asked, None, started + self._deadline_ns
                sensed = self._sense()
                trouble |= sensed
            if watchdog is not None:
                watchdog.claim()
            refused = request.start != NOTHING and (sensed & ~HARMLESS or self.outside_start())
            result = self._decide(targets, replace(request, start=NOTHING) if refused else request)
            decided = now()
            self._guard_ns = decided - started
            if result is None:
                self.guard.idle()
                return None, trouble | _GUARD_FAILED
            if decided <= limit_ns:
                trouble |= self._send(result)
                self._send_ns = now() - decided
                break
        else:
            trouble |= _NOT_SENT
        # The guard continues from what the robot received, not from what was decided.
        self.guard.commit(sent=self.sent is not None)
        self.withheld = bool(self.guard.broken[0])
        return result, trouble

    def _drives(self) -> bool:
        """Whether the guard uses the policy's command in this period."""
        return bool(self.guard.asks[0])

    def _remember(self, result: GuardResult | None) -> None:
        """Correct the policy's memory of its commands if the robot received others."""
        if self.start_answer == RequestAnswer.OBEYED:
            self.policy.reset()
            self.senses.rest_commands()
            self._begins = True
            self._start.begin(self.guard.sent)
        elif not self._begins and (
            result is None or (self.state == _RUN and (self._start.ramps or self.sent is None or result.intervened[0]))
        ):
            self.policy.sent(self.guard.sent, self.guard.steps)

    def _sense(self) -> int:
        """Read the newest sample; return bits of `RuntimeFault`."""
        try:
            self.fresh = self._transport.poll()
        except Exception as error:
            # A driver may raise anything; the guard must still command the robot.
            self.error = f"{self._transport.name}: {error}"
            return _TRANSPORT_FAILED
        trouble = self.senses.read()
        sample, senses = self._sample, self.senses
        if not self._first_stamp_ns:
            self._first_stamp_ns = sample.stamp_ns
        # Relative to the first stamp, because a float64 resolves the time of day to 0.25 µs only.
        stamp_s = (sample.stamp_ns - self._first_stamp_ns) * 1e-9
        self.guard.observe(
            stamp_s=stamp_s, joint_pos=senses.joint_pos, joint_vel=senses.joint_vel, sensors=senses.fields
        )
        return trouble

    def _age_ns(self) -> int:
        return self.senses.age_ns(self._wall(), self._now())

    def _infer(self) -> dict[str, Floats] | None:
        """Return the policy's commands; None if it fails."""
        try:
            if self._begins:
                # Again in the next period if it failed.
                self._begins = not self.policy.begin(self.guard.sent, self.guard.steps)
            if not self._begins and self.policy.step():
                return self.policy.targets.named
            self.error = "the policy computed numbers that are not finite"
        except Exception as error:
            # An engine may raise anything, too.
            self.error = str(error)
        return None

    def _decide(self, targets: dict[str, Floats] | None, request: Request) -> GuardResult | None:
        self.age_ns = self._age_ns()
        try:
            return self.guard.decide(
                age_s=self.age_ns * 1e-9, targets=targets, deadline_missed=self.missed, request=request
            )
        except Exception as error:
            # Nothing unguarded is sent.
            self.error = f"the guard failed: {error}"
            return None

    def _send(self, result: GuardResult) -> int:
        """Send the guard's commands; return bits of `RuntimeFault`."""
        watchdog = self._watchdog
        # The guard knows no position to hold, so there is nothing safe to send, for the watchdog neither.
        if not result.referenced[0]:
            if watchdog is not None:
                watchdog.withholds()
            return 0
        # The watchdog has taken over; two commanders would contradict each other.
        if watchdog is not None and not watchdog.may_send():
            return _WATCHDOG
        # Checked last: this process may have been suspended since the tick began.
        if self.lost():
            return _LEASE_LOST
        if watchdog is not None:
            # Recorded before sending: the process may be preempted or killed in the system call that sends.
            watchdog.sends(*self.guard.decided(), self.guard.silence)
        try:
            self._transport.send(result.targets, self._wall())
        except Exception as error:
            # As in `_sense`.
            if watchdog is not None:
                watchdog.takes_back(self.guard.last, self.guard.silence)
            self.error = f"{self._transport.name}: {error}"
            # The next period treats this command as missing.
            self._unsent = True
            return _TRANSPORT_FAILED
        self._unsent = False
        self.sent = result.targets
        return 0

    def _store(self, result: GuardResult | None, trouble: int, request: Request) -> None:
        self.reset_answer = self.start_answer = int(RequestAnswer.NONE)
        if result is None:
            self.reasons, self.intervened = trouble, True
            return
        self.state = result.state.item()
        self.reasons = result.reasons.item() | trouble
        # A late command of a policy is not an invalid one; lateness is counted as `missed`.
        self.intervened = result.intervened.item() and bool(self.reasons & INTERVENTIONS)
        self.stopped = result.stopped.item()
        self.read_back = result.read_back.item()
        withheld = int(RequestAnswer.NONE if request.start == NOTHING else RequestAnswer.NOT_READY)
        self.reset_answer, self.start_answer = result.reset.item(), result.start.item() or withheld
