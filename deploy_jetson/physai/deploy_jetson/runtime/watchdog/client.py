"""The control loop's side of the watchdog: starts its process and shares each sent command with it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.runtime.watchdog.plan import LONGEST_S, WatchdogPlan
from physai.deploy_jetson.runtime.watchdog.shared import Array, SharedMemory, Word, allocate
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import SupportsWatchdog, Transport

# Time between attempts to restart the process [s].
RESTART_S = 2.0

# See `Watchdog.obstacle`.
WATCHDOG_STARTS = "the watchdog, which starts"

# Longest wait for the process to end [s].
END_S = 2.0

# Time the watchdog gets to yield once the loop is back; it takes about 2 ms unless it has ended [ns].
YIELD_NS = 100_000_000

_CLAIM, _READY, _FIRED, _YIELDED = (int(word) for word in (Word.CLAIM, Word.READY, Word.FIRED, Word.YIELDED))


class Watchdog:
    """Client of the watchdog process, for the loop's thread; `problem` is safe to call from others."""

    def __init__(self, contract: PolicyContract, transport: SupportsWatchdog, realtime: Realtime) -> None:
        """Start the process.

        Args:
            contract: of the policy.
            transport: of the runtime, open.
            realtime: settings of the loop.
        """
        self._contract, self._transport, self._realtime = contract, transport, realtime
        self._count = sum(len(term.joints) for term in contract.action.terms)
        self._zeros: Array = np.zeros(self._count)
        self._driving = False
        self._start()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        memory, (reader, self._pipe) = allocate(self._count), os.pipe()
        companion = self._transport.companion()
        plan = WatchdogPlan(self._contract, companion, self._realtime, os.getpid()).write()
        try:
            # The process gets the reading end; the kernel closes this end when the runtime dies, which wakes it.
            descriptors = (plan, memory, reader)
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.watchdog_process", *map(str, descriptors)],
                pass_fds=(*descriptors, *companion.descriptors),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A session of its own, so that Ctrl-C and Ctrl-Z at the terminal do not reach it.
                start_new_session=True,
            )
            shared = SharedMemory(memory, self._count)
        finally:
            for descriptor in (plan, memory, reader):
                os.close(descriptor)
        self._words, self._loop, self._other = shared.words, shared.loop, shared.watchdog
        # A new process starts with new memory, so all numbers start again.
        self._claim = self._known = self._back_ns = 0
        self._sent_ns = self._before_ns = 0

    def obstacle(self) -> str:
        """Return why the watchdog is not ready, empty once it is; restarts it if it has ended.

        Only for a loop that does not drive.
        """
        code = self._process.poll()
        if code is None:
            return "" if self._words[_READY] else WATCHDOG_STARTS
        # Not at once: a process that cannot start would be started in every period.
        if time.monotonic() - self._started_s > RESTART_S:
            os.close(self._pipe)
            self._start()
        return f"the watchdog, which ended with status {code} and is started again"

    def problem(self) -> str:
        """Return what is wrong with the watchdog while the loop drives; empty if nothing."""
        if not self._driving or self._process.poll() is None:
            return ""
        return "warning: the watchdog has ended; deactivate the robot to have it started again"

    def begin(self) -> None:
        """Arm the watchdog: the loop begins to drive."""
        self._driving = True
        self._sent_ns = self._before_ns = 0
        self._known, self._back_ns = self._words[_FIRED], 0
        self._notify(b"+")

    def claim(self) -> None:
        """Announce that the loop is about to decide on a command."""
        self._claim = claim = self._claim + 1
        self._words[_CLAIM] = claim

    def may_send(self) -> bool:
        """Whether the loop may send the command decided since `claim`; False if the watchdog has taken over."""
        return self._words[_FIRED] == self._known

    def sends(self, commands: Array, step: Array, silence: int = 0) -> None:
        """Record a command that the loop is about to send.

        Args:
            commands: shape (A,) or (1, A).
            step: its change from the previous one, same shape.
            silence: `Guard.silence`.
        """
        self._before_ns, self._sent_ns = self._sent_ns, time.monotonic_ns()
        self._loop.write(self._sent_ns, 1, commands, step, silence)

    def withholds(self) -> None:
        """Record that nothing is sent on purpose, so that the watchdog sends nothing either."""
        if self._sent_ns:
            self._sent_ns = self._before_ns = 0
            self._loop.write(time.monotonic_ns(), 0, self._zeros, self._zeros)

    def takes_back(self, last: Array, silence: int = 0) -> None:
        """Replace the record of a command that could not be sent: the robot still has the last one.

        Args:
            last: shape (A,) or (1, A).
            silence: `Guard.silence`.
        """
        self._sent_ns = self._before_ns
        self._loop.write(self._sent_ns, int(self._sent_ns > 0), last, self._zeros, silence)

    def taken_over(self) -> tuple[Array, Array, int] | None:
        """Return the watchdog's last command, its step and `Guard.silence`, once, after it took over and yielded.

        Otherwise None.

        Call at the start of a tick.
        """
        if self._words[_FIRED] == self._known:
            return None
        return self._regain()

    def _regain(self) -> tuple[Array, Array, int] | None:
        now, fired = time.monotonic_ns(), self._words[_FIRED]
        # The first call since the watchdog fired announces that the loop is back.
        if not self._back_ns:
            self._back_ns = now
            self.claim()
        # It yields to a claim newer than the one it fired at; one that has ended never does, hence the time limit.
        if not self._words[_YIELDED] > fired and now - self._back_ns <= YIELD_NS:
            return None
        self._known, self._back_ns = fired, 0
        record = self._other.read()
        return None if record is None or not record.flag else (record.last, record.step, record.silence)

    def end(self) -> None:
        """Disarm the watchdog: the loop has ended in order and sends nothing more."""
        self._driving = False
        self.claim()
        # A record whose flag says that the loop does not drive: nothing to continue from.
        zero = self._zeros
        self._loop.write(time.monotonic_ns(), 0, zero, zero)
        self._notify(b"-")

    def close(self) -> None:
        """End the process. If the loop did not end in order, it brings the robot to rest first."""
        with suppress(OSError):
            os.close(self._pipe)
        try:
            self._process.wait(LONGEST_S + END_S if self._driving else END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _notify(self, word: bytes) -> None:
        # It has ended, which `problem` reports.
        with suppress(OSError):
            os.write(self._pipe, word)


def open_watchdog(
    contract: PolicyContract, transport: Transport, options: RunOptions, say: Callable[[str], None]
) -> Watchdog | None:
    """Start the watchdog of a run; says why and returns None if there is to be none, or there cannot be one."""
    if not options.watchdog:
        say("warning: no watchdog: if this process hangs or dies, nothing stops the robot")
    elif not isinstance(transport, SupportsWatchdog):
        say(f"no watchdog: only this process reaches a robot through the transport {transport.name}")
    else:
        return Watchdog(contract, transport, options.realtime)
    return None
