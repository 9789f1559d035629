"""Virtual time in which things go wrong at random, and a judge of what leaves the loop meanwhile.

Every command that is sent is judged from the contract alone, without the guard's code:

- it is finite and inside the safety envelope; an incremental one has not jumped, a servo is not asked for more effort
  than the envelope allows it at the measured position;
- the sample it rests on was taken in no longer ago than the contract's deadline;
- in a period with a fault it is not what the policy asked for, unless the guard's own state says that it brakes;
- after a fault the next command is out within one period, if the transport lets it out at all.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from physai.deploy_jetson.runtime.alarm import Alarm
from physai.deploy_jetson.runtime.orders import Mailbox, Order
from physai.sdk.contract import PolicyContract
from physai.sdk.safety import GuardState
from physai.sdk.wire import Array

FAULT_SHARE = 0.4
"""Share of the periods in which something begins to go wrong."""

SECOND = 1_000_000_000
_RESET_SHARE = 0.3
_MAX_REPORTED = 20


class Fault(StrEnum):
    """What goes wrong in a period."""

    SENSOR_NAN = "NaN in a sensor field"
    SENSOR_INFINITE = "infinity in a sensor field"
    SENSOR_HUGE = "a number too large for float32 in a sensor field"
    STAMP_OLD = "an old sample"
    STAMP_AHEAD = "a sample from the future"
    SILENT = "no newer sample"
    POLL_RAISES = "receiving fails"
    SEND_RAISES = "sending fails"
    INFERENCE_RAISES = "the policy raises"
    OUTPUT_NAN = "the policy computes NaN"
    OUTPUT_HUGE = "the policy commands far beyond its limits"
    SLOW = "the policy takes too long"
    SUSPENDED_WAITING = "the process stands still while it waits"
    SUSPENDED_SENSING = "the process stands still while it receives"
    CLOCK_SET = "the wall clock jumps"


WITHHELD = frozenset(
    {
        Fault.SENSOR_NAN,
        Fault.SENSOR_INFINITE,
        Fault.SENSOR_HUGE,
        Fault.STAMP_OLD,
        Fault.STAMP_AHEAD,
        Fault.POLL_RAISES,
        Fault.INFERENCE_RAISES,
        Fault.OUTPUT_NAN,
    }
)
"""Faults in whose period the policy's command must not go out."""


@dataclass
class Findings:
    """What came of it."""

    injected: Counter[Fault] = field(default_factory=Counter[Fault])
    sent: int = 0
    changed: int = 0
    """Commands that were another than the one before."""
    met_running: int = 0
    """Faults that began while the policy's commands went out."""
    periods: int = 0
    resets: int = 0
    longest_silence: int = 0
    """Most periods from a fault to the next command, where sending was possible."""
    unsafe: list[str] = field(default_factory=list[str])
    """Commands that should not have left, at most 20."""


class World(Alarm):
    """Virtual time, the fault of each period, and the judge."""

    def __init__(
        self, contract: PolicyContract, mailbox: Mailbox, *, seed: int, periods: int, share: float = FAULT_SHARE
    ) -> None:
        """A world in which nothing has happened yet.

        Args:
            contract: what commands are judged by.
            mailbox: through which it lets the guard be reset, and the loop end.
            seed: of the faults.
            periods: after so many the loop is told to end.
            share: of the periods, that begin with a fault.
        """
        super().__init__()
        self.contract = contract
        self.share = share
        self.findings = Findings()
        self.fault: Fault | None = None
        self.random = random.Random(seed)
        self.guard_state: Callable[[], GuardState] = lambda: GuardState.RUN
        self._mailbox = mailbox
        self._period_ns = round(contract.timing.control_dt * SECOND)
        self._now_ns, self._wall_ns = 50 * SECOND, 1_700_000_000 * SECOND
        self.polled_ns = 0
        self.fields: Mapping[str, Array] = {}
        self._periods = periods
        self._waiting = 0
        self._last: dict[str, Array] = {}
        self._state = GuardState.RUN
        self._bounds = _bounds(contract)

    def now(self) -> int:
        """CLOCK_MONOTONIC; every look at it takes a microsecond."""
        self._now_ns += 1000
        return self._now_ns

    def wall(self) -> int:
        """CLOCK_REALTIME."""
        return self._wall_ns + self._now_ns

    def stand_still(self, most_s: float) -> None:
        """Lets time pass, up to so much."""
        self._now_ns += round(self.random.uniform(0.0, most_s) * SECOND)

    def set_clock(self) -> None:
        """Sets CLOCK_REALTIME forwards or backwards by up to three hours."""
        self._wall_ns += round(self.random.uniform(-1e4, 1e4) * SECOND)

    def wait(self, due_ns: int) -> int:
        """As `Alarm`: a new period begins, and with it perhaps a fault."""
        self._now_ns = max(self._now_ns, due_ns)
        findings = self.findings
        findings.periods += 1
        if self.fault is not Fault.SEND_RAISES:
            self._waiting += 1
            findings.longest_silence = max(findings.longest_silence, self._waiting)
        self.fault = self.random.choice(tuple(Fault)) if self.random.random() < self.share else None
        if self.fault is not None:
            findings.injected[self.fault] += 1
            findings.met_running += self.guard_state() == GuardState.RUN
        self._let_reset()
        if findings.periods == self._periods:
            self._mailbox.put(Order.SHUTDOWN)
        if self.fault is Fault.SUSPENDED_WAITING:
            self.stand_still(1.0)
        elif self.fault is Fault.CLOCK_SET:
            self.set_clock()
        return self._now_ns

    def _let_reset(self) -> None:
        if self._look_at_guard() != GuardState.RUN and self.random.random() < _RESET_SHARE:
            self._mailbox.put(Order.RESET)
            self.findings.resets += 1

    def _look_at_guard(self) -> GuardState:
        """Its state; where that has fallen it was reset, and starts again where the joints are measured."""
        state = self.guard_state()
        if state < self._state:
            self._last = {}
        self._state = state
        return state

    def judge(self, targets: Mapping[str, Array]) -> None:
        """Looks at a command that leaves; a judge that fails acquits nobody."""
        try:
            self._judge(targets)
        except Exception as error:
            self._unsafe(f"not judged: {error!r}")
            raise

    def _judge(self, targets: Mapping[str, Array]) -> None:
        self.findings.sent += 1
        self._waiting = 0
        state, changed = self._look_at_guard(), False
        for name, bounds in self._bounds.items():
            values = np.array(targets[name][0])
            if not np.isfinite(values).all():
                self._unsafe(f"{name} = {values} is not finite")
            elif not ((values >= bounds.lower) & (values <= bounds.upper)).all():
                self._unsafe(f"{name} = {values} is outside [{bounds.lower}, {bounds.upper}]")
            before = self._last.get(name, values)
            moved = np.where(bounds.servo, 0.0, np.abs(values - before))
            if state < GuardState.DAMP and not (moved <= bounds.rate).all():
                self._unsafe(f"{name} jumps from {before} to {values}")
            if state == GuardState.RUN and self.fault in WITHHELD and moved.any():
                self._unsafe(f"{name} = {values} after {before} in a period with a fault")
            self._judge_servos(name, bounds, values)
            changed |= bool((values != before).any())
            self._last[name] = values
        self.findings.changed += changed
        age_s = (self._now_ns - self.polled_ns) / SECOND
        if not age_s <= self.contract.timing.deadline_s:
            self._unsafe(f"a command {age_s:.4g} s after its sample was taken in")

    def _judge_servos(self, name: str, bounds: "_Bounds", values: Array) -> None:
        """Asks what drives would do with position targets, where they were measured."""
        if not bounds.servo.any() or "joint_vel" not in self.fields:
            return
        position, velocity = (self.fields[field][bounds.joints] for field in ("joint_pos", "joint_vel"))
        effort = np.abs(bounds.stiffness * (values - position) - bounds.damping * velocity)
        # Where the envelope's positions leave no target of less effort, the nearest one is right.
        inside = (values > bounds.lower + 1e-5) & (values < bounds.upper - 1e-5)
        wrong = bounds.servo & inside & ~(effort <= bounds.effort * (1.0 + 1e-6) + 1e-6)
        if np.isfinite(effort).all() and self.fault not in (Fault.STAMP_OLD, Fault.STAMP_AHEAD) and wrong.any():
            self._unsafe(f"{name} = {values} at {position} asks for the efforts {effort}")

    def _unsafe(self, text: str) -> None:
        if len(self.findings.unsafe) < _MAX_REPORTED:
            self.findings.unsafe.append(f"period {self.findings.periods}, {self.fault}: {text}")


@dataclass(frozen=True)
class _Bounds:
    """What one output may be, by joint; float32 rounding allowed for."""

    joints: npt.NDArray[np.intp]
    lower: Array
    upper: Array
    rate: Array
    """Greatest change in a period."""
    servo: npt.NDArray[np.bool_]
    """Whether the envelope allows less effort than the joint's own position drive has; that limit comes first."""
    effort: Array
    stiffness: Array
    damping: Array


def _bounds(contract: PolicyContract) -> dict[str, _Bounds]:
    """Limits of each output."""
    envelopes = {envelope.joint: envelope for envelope in contract.safety.joints}
    drives = {joint.name: joint for joint in contract.robot.joints}
    found: dict[str, _Bounds] = {}
    for term in contract.action.terms:
        rows: list[tuple[float, ...]] = []
        for joint, scale in zip(term.joints, term.scale, strict=True):
            limits, drive = envelopes[joint], drives[joint]
            is_position = term.kind.startswith("joint_pos")
            lower = limits.position_lower if is_position else -limits.effort_limit
            upper = limits.position_upper if is_position else limits.effort_limit
            rate = scale if term.kind.endswith("_incremental") else math.inf
            servo = is_position and drive.stiffness > 0.0 and limits.effort_limit < drive.effort_limit
            ends = (-math.inf if lower is None else lower, math.inf if upper is None else upper)
            rows.append((*ends, rate, servo, limits.effort_limit, drive.stiffness, drive.damping))
        lower, upper, rate, servo, effort, stiffness, damping = np.array(rows).T
        found[term.target_name] = _Bounds(
            joints=np.array(contract.robot.joint_index(term.joints), np.intp),
            lower=lower - 1e-6,
            upper=upper + 1e-6,
            rate=rate + 1e-5,
            servo=servo > 0.0,
            effort=effort,
            stiffness=stiffness,
            damping=damping,
        )
    return found
