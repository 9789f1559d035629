"""The control loop's side of the watchdog: starts its process and shares each sent command with it."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np

from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.runtime.watchdog.plan import LONGEST_S, WatchdogPlan
from physai.deploy_jetson.runtime.watchdog.shared import Array, SharedMemory, Word, allocate
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import SupportsWatchdog

RESTART_S = 2.0
"""Time between two attempts to start a watchdog that has ended [s]."""

END_S = 2.0
"""Longest wait for its end [s]."""

YIELD_NS = 100_000_000
"""Time a watchdog gets to fall silent once the loop is back; it needs some 2 ms unless it has ended itself [ns]."""

_CLAIM, _READY, _FIRED, _YIELDED = (int(word) for word in (Word.CLAIM, Word.READY, Word.FIRED, Word.YIELDED))


class Watchdog:
    """The watchdog of one runtime, for its loop's thread; other threads may ask for `problem`."""

    def __init__(self, contract: PolicyContract, transport: SupportsWatchdog, realtime: Realtime) -> None:
        """Starts the process.

        Args:
            contract: of the policy.
            transport: the runtime's own, open.
            realtime: what the loop asks of the kernel.
        """
        self._contract, self._transport, self._realtime = contract, transport, realtime
        self._count = sum(len(term.joints) for term in contract.action.terms)
        self._zeros: Array = np.zeros(self._count)
        self._driving = False
        self._start()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        memory, (told, self._pipe) = allocate(self._count), os.pipe()
        companion = self._transport.companion()
        plan = WatchdogPlan(self._contract, companion, self._realtime, os.getpid()).write()
        try:
            descriptors = (plan, memory, told)
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.process", *map(str, descriptors)],
                pass_fds=(*descriptors, *companion.descriptors),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Neither Ctrl-C nor Ctrl-Z at the terminal reaches it.
                start_new_session=True,
            )
            shared = SharedMemory(memory, self._count)
        finally:
            for descriptor in (plan, memory, told):
                os.close(descriptor)
        self._words, self._loop, self._other = shared.words, shared.loop, shared.watchdog
        self._claim = self._known = self._back_ns = 0
        self._sent_ns = self._before_ns = 0

    def obstacle(self) -> str:
        """What keeps it from watching, for a person; empty once it can. For a loop that does not drive.

        Starts it again if it has ended.
        """
        code = self._process.poll()
        if code is None:
            return "" if self._words[_READY] else "the watchdog, which starts"
        if time.monotonic() - self._started_s > RESTART_S:
            os.close(self._pipe)
            self._start()
        return f"the watchdog, which ended with status {code} and is started again"

    def problem(self) -> str:
        """What is wrong with it while the loop drives; empty for nothing."""
        if not self._driving or self._process.poll() is None:
            return ""
        return "warning: the watchdog has ended; deactivate the robot to have it started again"

    def begin(self) -> None:
        """The loop begins to drive."""
        self._driving = True
        self._sent_ns = self._before_ns = 0
        self._known, self._back_ns = self._words[_FIRED], 0
        self._tell(b"+")

    def claim(self) -> None:
        """The loop is about to decide on a command."""
        self._claim = claim = self._claim + 1
        self._words[_CLAIM] = claim

    def may_send(self) -> bool:
        """Whether the loop may send what it has decided since `claim`; False if the watchdog has taken over."""
        return self._words[_FIRED] == self._known

    def sends(self, commands: Array, step: Array) -> None:
        """The loop is about to send a command.

        Args:
            commands: shape (A,) or (1, A).
            step: its change from the one before, likewise.
        """
        self._before_ns, self._sent_ns = self._sent_ns, time.monotonic_ns()
        self._loop.write(self._sent_ns, 1, commands, step)

    def takes_back(self, last: Array) -> None:
        """The command did not leave: the robot still has the last one, and has heard nothing since that.

        Args:
            last: shape (A,) or (1, A).
        """
        self._sent_ns = self._before_ns
        self._loop.write(self._sent_ns, int(self._sent_ns > 0), last, self._zeros)

    def taken_over(self) -> tuple[Array, Array] | None:
        """After the watchdog has spoken and is silent again: its last command and that one's step, once.

        To be called at the start of a tick.
        """
        if self._words[_FIRED] == self._known:
            return None
        return self._regain()

    def _regain(self) -> tuple[Array, Array] | None:
        now, fired = time.monotonic_ns(), self._words[_FIRED]
        if not self._back_ns:
            self._back_ns = now
            self.claim()
        if not self._words[_YIELDED] > fired and now - self._back_ns <= YIELD_NS:
            return None
        self._known, self._back_ns = fired, 0
        record = self._other.read()
        return None if record is None or not record.flag else (record.last, record.step)

    def end(self) -> None:
        """The loop has ended in order: the robot is as safe as it can be, and nothing more is to be sent."""
        self._driving = False
        self.claim()
        zero = self._zeros
        self._loop.write(time.monotonic_ns(), 0, zero, zero)
        self._tell(b"-")

    def close(self) -> None:
        """Ends it. If the loop did not end in order, it brings the robot to rest first."""
        with suppress(OSError):
            os.close(self._pipe)
        try:
            self._process.wait(LONGEST_S + END_S if self._driving else END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, word: bytes) -> None:
        with suppress(OSError):  # it has ended, which `problem` reports
            os.write(self._pipe, word)
