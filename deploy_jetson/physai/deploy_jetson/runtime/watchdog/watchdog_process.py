"""Process of the watchdog: `python -m physai.deploy_jetson.runtime.watchdog.watchdog_process PLAN MEMORY PIPE`.

All three arguments are file descriptors.

It shares nothing with the runtime but memory and a pipe, and has its own transport. It sleeps while the loop sends. If
no command was sent for too long, or the runtime has died, it commands the robot in place of the loop: the guard's
commands in DAMP, one per control period. It ends with the runtime, and sends nothing while the loop does not drive.
"""

import gc
import os
import select
import signal
import sys
import time
from contextlib import suppress

from physai.deploy_jetson.runtime.system.realtime import Realtime, acquire
from physai.deploy_jetson.runtime.watchdog.body import Body
from physai.deploy_jetson.runtime.watchdog.plan import HUNG_S, LONGEST_S, WatchdogPlan, silence_s
from physai.deploy_jetson.runtime.watchdog.shared import SentCommand, SharedMemory, Word
from physai.sdk.base.errors import PhysaiError

# Polling period for the return of the loop [s].
LOOK_S = 0.001

# Polling period until the robot can be reached [s].
READY_S = 0.02

# Signals that a service manager sends to all processes of a service whose main process has ended or hangs.
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT, signal.SIGQUIT)

_CLAIM, _READY, _FIRED, _YIELDED = (int(word) for word in (Word.CLAIM, Word.READY, Word.FIRED, Word.YIELDED))
_NS = 1_000_000_000


class WatchdogProcess:
    """The watchdog process, from start to exit."""

    def __init__(self, plan: WatchdogPlan, shared: SharedMemory, pipe: int) -> None:
        """Open the transport.

        Raises:
            PhysaiError: it cannot be opened.
        """
        self._plan, self._shared, self._pipe = plan, shared, pipe
        self._words = shared.words
        self._body = Body(plan.contract, plan.companion)
        self._period_ns = round(plan.contract.timing.control_dt * _NS)
        self._silence_ns = round(silence_s(plan.contract) * _NS)
        self._armed = self._gone = False
        # CLOCK_MONOTONIC at which the loop was last seen to be alive, apart from its records [ns].
        self._heard_ns = 0

    def run(self) -> None:
        """Watch until the runtime has ended."""
        self._become_ready()
        while True:
            record = self._shared.loop.read()
            if record is None or not record.flag:
                if self._gone:
                    return
                self._wait(self._silence_ns if self._armed else None)
                continue
            # Silence counts from the last command, or from when the loop was last seen back.
            left = max(record.time_ns, self._heard_ns) + self._silence_ns - time.monotonic_ns()
            if left <= 0 or self._gone:
                self._take_over(record)
            else:
                self._wait(left)

    def _become_ready(self) -> None:
        self._body.warm_up()
        while not (self._gone or self._body.reaches()):
            self._wait(round(READY_S * _NS))
        self._words[_READY] = 1

    def _wait(self, for_ns: int | None) -> None:
        """Sleep until the runtime writes to the pipe or dies, at most for `for_ns`."""
        if self._gone:
            time.sleep((for_ns or 0) * 1e-9)
            return
        ready, _, _ = select.select([self._pipe], [], [], None if for_ns is None else max(0, for_ns) * 1e-9)
        if ready:
            message = os.read(self._pipe, 4096)
            # The kernel closes the pipe when the runtime dies.
            self._gone = not message
            self._armed = message.endswith(b"+")

    def _take_over(self, record: SentCommand) -> None:
        """Command the robot until the loop is back; exits the process if it does not come back."""
        words, body = self._words, self._body
        claim = words[_CLAIM]
        body.resume_from(record)
        self._shared.watchdog.write(time.monotonic_ns(), 0, body.last, body.step, body.silence)
        # From now on the loop does not send what it decides for this claim.
        words[_FIRED] = claim
        begun = due = time.monotonic_ns()
        sent = 0
        while True:
            targets = body.decide()
            # Checked between decision and sending, see `shared`: a loop that had not seen `FIRED` has sent.
            if not self._gone and self._is_back(claim, record.number):
                break
            sent += body.send(targets)
            self._shared.watchdog.write(time.monotonic_ns(), sent, body.last, body.step, body.silence)
            elapsed_s = (time.monotonic_ns() - begun) * 1e-9
            # A runtime that is only late comes back. One that is gone or hangs leaves the robot to this process until
            # it rests.
            if (self._gone or elapsed_s > HUNG_S) and (body.at_rest or elapsed_s > LONGEST_S):
                self._finish(elapsed_s)
            due += self._period_ns
            if not self._sleep_until(due, claim, record.number):
                break
        self._heard_ns = time.monotonic_ns()
        # The loop may have sent without a new claim; it reads `YIELDED` when it decides again.
        self._wait_for_claim(claim)
        words[_YIELDED] = words[_CLAIM]

    def _is_back(self, claim: int, number: int) -> bool:
        """Whether the loop decides again, has ended in order, or has sent since that record."""
        if self._words[_CLAIM] != claim:
            return True
        record = self._shared.loop.read()
        return record is not None and (record.number != number or not record.flag)

    def _sleep_until(self, due_ns: int, claim: int, number: int) -> bool:
        """Sleep until the next command is due; return False as soon as the loop is back."""
        while (left := due_ns - time.monotonic_ns()) > 0:
            if not self._gone and self._is_back(claim, number):
                return False
            self._wait(min(left, round(LOOK_S * _NS)))
        return True

    def _wait_for_claim(self, claim: int) -> None:
        """Wait for a loop that has sent to decide again, which is when it may learn that the watchdog yields."""
        until_ns = self._heard_ns + self._silence_ns
        while self._words[_CLAIM] == claim and not self._gone and (left := until_ns - time.monotonic_ns()) > 0:
            self._wait(min(left, round(LOOK_S * _NS)))

    def _finish(self, elapsed_s: float) -> None:
        """Kill a runtime that hangs, log what happened, and exit."""
        what = "has died"
        if not self._gone:
            what = f"hung for {elapsed_s:.1f} s and was killed"
            # Only the parent: the process id may have been reused.
            if os.getppid() == self._plan.runtime:
                with suppress(ProcessLookupError):
                    os.kill(self._plan.runtime, signal.SIGKILL)
        rest = "every joint was measured at rest" if self._body.at_rest else "the joints were NOT measured at rest"
        _log(f"the runtime {what}; braked the robot for {elapsed_s:.1f} s, {rest}; nothing more is sent")
        self._body.close()
        sys.exit(0)


def _log(text: str) -> None:
    # The terminal may have ended with the runtime.
    with suppress(OSError):
        print(f"physai: watchdog: {text}", file=sys.stderr, flush=True)


def _prepare(wanted: Realtime) -> None:
    """Take a priority above the loop and another core, if permitted; the runtime has already warned if not."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    others = os.sched_getaffinity(0) - {wanted.cpu}
    if others:
        with suppress(OSError):
            os.sched_setaffinity(0, others)
    # Without a core: the loop's own is no use to a process that acts when the loop hangs on it.
    acquire(Realtime(priority=wanted.priority, lock_memory=wanted.lock_memory))
    if wanted.priority is not None:
        with suppress(OSError):
            # Above the loop, which may be spinning at its own priority.
            first = os.sched_param(wanted.priority + 1)
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, first)
    gc.collect()
    gc.freeze()
    gc.disable()


def main(arguments: list[str]) -> None:
    """Run the process; see the module for its arguments."""
    plan_file, memory, pipe = map(int, arguments)
    plan = WatchdogPlan.read(plan_file)
    shared = SharedMemory(memory, sum(len(term.joints) for term in plan.contract.action.terms))
    os.close(memory)
    try:
        process = WatchdogProcess(plan, shared, pipe)
    except PhysaiError as error:
        _log(f"does not start: {error}")
        sys.exit(1)
    _prepare(plan.realtime)
    process.run()


if __name__ == "__main__":
    main(sys.argv[1:])
