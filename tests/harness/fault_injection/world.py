"""Virtual time with random faults; `tests.harness.fault_injection.oracle` checks the loop's output."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.harness.fault_injection.oracle import CommandOracle, TickSeen
from tests.harness.fault_injection.oracle_report import OracleReport

from physai.deploy_jetson.inference.engine import Floats
from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

SECOND = 1_000_000_000
_RESET_SHARE = 0.3


class Fault(StrEnum):
    """Fault of a period."""

    SENSOR_NAN = "NaN in a sensor field"
    SENSOR_INFINITE = "infinity in a sensor field"
    SENSOR_HUGE = "a number too large for float32 in a sensor field"
    SENSOR_JUMPS = "a position jumps for one sample"
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
"""Faults in whose period the policy's command must not be sent."""


@dataclass
class WorldReport:
    """Report of a world."""

    injected: Counter[Fault] = field(default_factory=Counter[Fault])
    met_running: int = 0
    """Faults that began while the policy drove."""
    periods: int = 0
    longest_silence: int = 0
    """Maximum periods from a fault to the next command, while sending was possible."""
    verdict: OracleReport = field(default_factory=OracleReport)
    """Report of the oracle."""

    @property
    def unsafe(self) -> list[str]:
        """Violations, at most 20."""
        return self.verdict.broken

    @property
    def sent(self) -> int:
        """Commands sent."""
        return self.verdict.commands

    @property
    def changed(self) -> int:
        """Commands that differ from the previous one."""
        return self.verdict.changed


class World(DeadlineTimer):
    """Virtual time, the fault of each period, and the oracle."""

    def __init__(
        self, contract: PolicyContract, commands: CommandQueue, *, seed: int, periods: int, share: float = 0.0
    ) -> None:
        """Creates a world at its start time.

        Args:
            contract: contract that commands are checked against.
            commands: queue for the operator's requests and the final shutdown.
            seed: seed of the faults.
            periods: number of periods after which to shut down.
            share: probability of a fault per period.
        """
        super().__init__()
        self.contract = contract
        self.share = share
        self.judge = CommandOracle(contract)
        self.findings = WorldReport(verdict=self.judge.verdict)
        self.fault: Fault | None = None
        self.random = random.Random(seed)
        self.look: Callable[[], tuple[int, int, bool]] = lambda: (int(GuardState.STANDSTILL), 0, False)
        """Returns state, published number and whether commands are withheld, after the last tick."""
        self.polled_ns = 0
        self.commands = commands
        self._period_ns = round(contract.timing.control_dt * SECOND)
        self._now_ns, self._wall_ns = 50 * SECOND, 1_700_000_000 * SECOND
        self._periods = periods
        self._silent = 0
        self._ticking = False

    def now(self) -> int:
        """CLOCK_MONOTONIC; every read takes a microsecond."""
        self._now_ns += 1000
        return self._now_ns

    def wall(self) -> int:
        """CLOCK_REALTIME."""
        return self._wall_ns + self._now_ns

    def stand_still(self, most_s: float) -> None:
        """Lets a random time up to `most_s` pass."""
        self._now_ns += round(self.random.uniform(0.0, most_s) * SECOND)

    def set_clock(self) -> None:
        """Sets CLOCK_REALTIME forwards or backwards by up to three hours."""
        self._wall_ns += round(self.random.uniform(-1e4, 1e4) * SECOND)

    def activated(self) -> None:
        """The loop is about to run."""
        self.judge.activated()
        self._ticking = False

    def deactivated(self) -> None:
        """The loop has ended."""
        self.tick_ends()
        self.judge.deactivated()

    def wait(self, due_ns: int) -> int:
        """See `DeadlineTimer`; begins a new period, possibly with a fault."""
        self.tick_ends()
        self._now_ns = max(self._now_ns, due_ns)
        findings = self.findings
        findings.periods += 1
        # Before the first command of an activation there is no command to repeat.
        self._silent += self.fault is not Fault.SEND_RAISES and self.judge.last is not None and not self.look()[2]
        findings.longest_silence = max(findings.longest_silence, self._silent)
        self.fault = self.random.choice(tuple(Fault)) if self.random.random() < self.fault_share() else None
        if self.fault is not None:
            findings.injected[self.fault] += 1
            findings.met_running += self.judge.state == GuardState.RUN
        self.operate()
        if findings.periods == self._periods:
            self.request(Command.SHUTDOWN)
        if self.fault is Fault.SUSPENDED_WAITING:
            self.stand_still(1.0)
        elif self.fault is Fault.CLOCK_SET:
            self.set_clock()
        self._ticking = True
        self.period_begins(skipped=self._now_ns - due_ns >= self._period_ns)
        return self._now_ns

    def period_begins(self, *, skipped: bool) -> None:
        """A period begins, `skipped` if periods without a tick precede it."""
        self.judge.begins(skipped=skipped)

    def fault_share(self) -> float:
        """Current probability of a fault per period."""
        return self.share

    def tick_ends(self) -> None:
        """Checks the tick that has ended."""
        if self._ticking:
            self._ticking = False
            self.judge_tick()

    def judge_tick(self) -> Array | None:
        """Checks a tick; returns the command sent in it."""
        state, read_back, broken = self.look()
        can_send = self.fault is not Fault.SEND_RAISES
        return self.judge.ends(TickSeen(state, read_back, self.fault in WITHHELD, can_send, broken))

    def request(self, command: Command) -> None:
        """Sends an operator's request."""
        self.judge.requested(command, self.commands.put(command))

    def operate(self) -> None:
        """Acts as the operator: sometimes resets and starts a stopped robot."""
        state = self.judge.state
        if state != GuardState.RUN and not len(self.commands) and self.random.random() < _RESET_SHARE:
            self.request(Command.START if state == GuardState.STANDSTILL else Command.RESET)

    def asks_policy(self, inputs: Mapping[str, Floats]) -> None:
        """Called before the policy is evaluated."""

    def hears_policy(self, outputs: Mapping[str, Floats]) -> None:
        """Called after the policy was evaluated."""

    def sends(self, targets: Mapping[str, Array]) -> None:
        """Called with every command sent."""
        self._silent = 0
        self.judge.sends(targets)
        age_s = (self._now_ns - self.polled_ns) / SECOND
        if not age_s <= self.contract.timing.deadline_s:
            self.judge.accuse(f"a command {age_s:.4g} s after its sample was taken in")
